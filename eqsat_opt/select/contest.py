"""The last word: do the candidates compute the same, and does one of them really run faster?"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.onnx_export import export_model
from eqsat_opt.runtime.compare import Difference, Reference, differences
from eqsat_opt.runtime.ort import OrtOptions
from eqsat_opt.runtime.ort_config import level_in
from eqsat_opt.runtime.race import race
from eqsat_opt.runtime.race_result import RaceResult
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.guilty import find_guilty
from eqsat_opt.select.pipeline import Plan, SearchOptions, make_plan
from eqsat_opt.select.raising import rules_used

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["ORIGINAL", "Contest", "Terms", "accuse", "has_session_variants", "hold_contest"]

ORIGINAL = "original"


@dataclass(frozen=True)
class Terms:
    """How a contest is held.

    Attributes:
        threads: per session.
        numerics: class of differences that are allowed.
        seeds: of the random inputs that are compared; none trusts the candidates.
        sizes: of symbolic dimensions.
        race_s: seconds for the race, at most; 0 for none.
        by_cost: whether the cheapest candidate wins without having to be faster.
        seed: of the running order.
        deadline: by when check and race shall have ended; what cannot be compared by then loses its
            place.
    """

    threads: int
    numerics: str
    seeds: tuple[int, ...]
    sizes: Mapping[str, int]
    race_s: float
    by_cost: bool = False
    seed: int = 0
    deadline: Deadline = field(default_factory=Deadline.never)


@dataclass(frozen=True)
class Contest:
    """How it went.

    Attributes:
        winner: name of a candidate or :data:`ORIGINAL`, with ``@level`` where the runtime's
            optimiser is turned down.
        differences: per candidate and output.
        dropped: candidate to the reason why the runtime refused it.
        race: ``None`` if there was none.
        stages_s: seconds of comparing and racing.
        obstacle: why there was no contest, as a sentence; empty if there was one.
    """

    winner: str
    differences: Mapping[str, tuple[Difference, ...]]
    dropped: Mapping[str, str]
    race: RaceResult | None
    stages_s: Mapping[str, float]
    obstacle: str = ""

    @property
    def wrong(self) -> tuple[str, Difference] | None:
        """The first candidate that computes something else, with an output that shows it."""
        for name, found in self.differences.items():
            for difference in found:
                if difference.why:
                    return name, difference
        return None


def _variants(graph: Graph) -> tuple[str, ...]:
    """Settings of the runtime's own optimiser that are worth racing.

    Its fusions sometimes cost transformers time.
    """
    counts = graph.operator_counts()
    products = counts["MatMul"] + counts["LayerNormalization"]
    return ("basic",) if products > 4 * max(1, counts["Conv"]) else ()


def has_session_variants(graph: Graph) -> bool:
    """Whether the original alone has rivals: itself under other settings."""
    return bool(_variants(graph))


def _race(
    models: Mapping[str, ModelSource], reference: Reference, graph: Graph, terms: Terms
) -> RaceResult:
    entrants = dict(models)
    # A model that asks for a level of its own keeps it, and so do its successors.
    own = level_in(models[ORIGINAL])
    settings = dict.fromkeys(models, OrtOptions(terms.threads, own))
    for level in _variants(graph) if own == "all" else ():
        for name in (ORIGINAL, "best", "clean"):
            if name in models:
                entrants[f"{name}@{level}"] = models[name]
                settings[f"{name}@{level}"] = OrtOptions(terms.threads, level)  # type: ignore[arg-type]
    left_s = terms.deadline.left_s
    return race(
        entrants,
        ORIGINAL,
        reference.feeds[0],
        options=settings,
        seed=terms.seed,
        time_limit_s=min(terms.race_s, left_s),
        extension_s=min(terms.race_s, max(0.0, left_s - terms.race_s)),
    )


def hold_contest(
    candidates: Mapping[str, ModelSource],
    original: ModelSource,
    graph: Graph,
    terms: Terms,
    progress: Callable[[str], None],
) -> Contest:
    """Compare every candidate with the original, then race them.

    Args:
        candidates: models by name, the cheapest first.
        original: the model as it came.
        graph: the original, to decide which settings of the runtime are worth a try.
        terms: how.
        progress: called with the name of each stage.

    An original that does not run has nothing to be compared with, so it stays.
    """
    progress("check")
    start = time.perf_counter()
    session = OrtOptions(terms.threads)
    try:
        reference = Reference.of(original, session, terms.seeds or (terms.seed,), terms.sizes)
    except RuntimeFailed as error:
        obstacle = f"the original does not run in onnxruntime, so it stays: {error}"
        return Contest(ORIGINAL, {}, {}, None, {}, obstacle)
    found: dict[str, tuple[Difference, ...]] = {}
    dropped: dict[str, str] = {}
    for name, model in candidates.items():
        try:
            found[name] = differences(reference, model, session, terms.numerics)
        except RuntimeFailed as error:
            dropped[name] = str(error)
    if not terms.seeds:
        found = {}
    running = {name: model for name, model in candidates.items() if name not in dropped}
    cheapest = next(iter(running), ORIGINAL)
    stages = {"check": time.perf_counter() - start}
    contest = Contest(cheapest, found, dropped, None, stages)
    if contest.wrong or not terms.race_s:
        return contest
    progress("race")
    start = time.perf_counter()
    try:
        result = _race({ORIGINAL: original, **running}, reference, graph, terms)
    except RuntimeFailed as error:
        obstacle = f"the race could not be held, so the original stays: {error}"
        return Contest(ORIGINAL, found, dropped, None, stages, obstacle)
    stages["race"] = time.perf_counter() - start
    return Contest(cheapest if terms.by_cost else result.winner, found, dropped, result, stages)


def accuse(
    graph: Graph,
    plan: Plan,
    rules: Sequence[Rule],
    search: SearchOptions,
    terms: Terms,
    staging: Staging,
    *,
    selection: str,
) -> str:
    """Name the rule that made the outputs differ: repeat the search with fewer and fewer rules.

    Args:
        graph: what was searched.
        plan: what the search found.
        rules: what it read.
        search: how it was done.
        terms: how outputs are compared.
        staging: of the model.
        selection: of the rules, as the user wrote it, to say how to leave one out.
    """
    session = OrtOptions(terms.threads)
    reference = Reference.of(staging.original, session, terms.seeds, terms.sizes)
    # The same prices choose the same graphs; measuring again would only take time.
    again = replace(search, measure=False)
    pricer = Pricer(None, terms.threads)

    def is_wrong(subset: Sequence[Rule]) -> bool:
        found = make_plan(graph, subset, pricer, again)
        for candidate in (found.best, *found.alternatives):
            model = staging.of(export_model(candidate))
            # What the runtime refuses is dropped, as it is in the contest.
            with suppress(RuntimeFailed):
                if any(d.why for d in differences(reference, model, session, terms.numerics)):
                    return True
        return False

    guilty = find_guilty(rules, is_wrong)
    names = ", ".join(rule.name for rule in guilty)
    if len(guilty) == 1:
        remedy = f"leave it out with --rules {selection},-{names}"
        return f"rule {names} is guilty: {guilty[0]}; {remedy}"
    if guilty:
        remedy = f"leave one out with --rules {selection},-NAME"
        return f"rules {names} are guilty together; {remedy}"
    used = ", ".join(rules_used(plan.best)) or "normalisation"
    return f"no rule could be found guilty; involved: {used}; please report this model"
