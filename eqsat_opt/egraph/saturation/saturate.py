"""Saturation: a model is loaded into an e-graph, rules are applied, and the e-graph is read out."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eqsat_opt.egraph.encoding.extents import ExtentCodes
from eqsat_opt.egraph.engine.driver import compiled_engine
from eqsat_opt.egraph.frozen import EClasses, freeze
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.egraph.loading.siblings import NO_SEEDS, SEED_RULE, Seeds, sibling_seeds
from eqsat_opt.egraph.loading.tables import load
from eqsat_opt.egraph.recognition.readout import FUSED
from eqsat_opt.egraph.recognition.recognise import Recognition, recognise
from eqsat_opt.egraph.saturation.program import EngineProgram, program_for
from eqsat_opt.egraph.saturation.rounds import Budget, Rounds
from eqsat_opt.egraph.terms import Lowered
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.rules.rule import Phase, Rule

__all__ = [
    "Budget",
    "Saturation",
    "SaturationReport",
    "saturate",
    "saturate_terms",
    "saturate_windows",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SaturationReport:
    """The statistics of a saturation.

    Attributes:
        enodes, eclasses: size at the end.
        enodes_loaded: size of the model.
        iterations: number of rounds that ran.
        stopped_by: ``saturated``; ``algebra``, where more rounds of associativity and commutativity
            might find more; ``nodes``, ``iterations`` or ``time``.
        matches: number of new matches by rule name; it depends on the order of unions, so with
            several threads of the engine it may vary where the e-graph does not.
        time_s: seconds by stage: ``lower``, ``recognise``, ``compile``, ``load``, ``saturate``,
            ``freeze``; only ``recognise`` for windows.
        recognised: number of distinct terms that recognition added, by fused operator.
    """

    enodes: int
    eclasses: int
    enodes_loaded: int
    iterations: int
    stopped_by: str
    matches: dict[str, int] = field(default_factory=dict)
    time_s: dict[str, float] = field(default_factory=dict)
    recognised: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        rounds = "1 iteration" if self.iterations == 1 else f"{self.iterations} iterations"
        return (
            f"{self.enodes_loaded} -> {self.enodes} e-nodes in {self.eclasses} e-classes, "
            f"{rounds}, {self.stopped_by}"
        )


@dataclass(frozen=True)
class Saturation:
    """A saturated e-graph, read out.

    Attributes:
        lowered: the terms of the model.
        eclasses: all e-nodes and e-classes.
        report: the statistics.
    """

    lowered: Lowered
    eclasses: EClasses
    report: SaturationReport


def saturate(
    graph: Graph,
    rules: Sequence[Rule],
    budget: Budget | None = None,
    *,
    exact: bool = False,
    seeds: Seeds | None = None,
    progress: Callable[[str], None] | None = None,
) -> Saturation:
    """Load ``graph``, apply ``rules`` and read the e-graph out.

    Args:
        graph: the model.
        rules: the rules; equations are read both ways.
        budget: the limits.
        exact: whether results must be equal bit for bit: then only operators that IEEE 754 fixes
            are computed ahead of time, and functions that round by position are not moved.
        seeds: further terms and equations; ``None`` for those by which siblings merge.
        progress: function that is called with a line of text after every round.

    Raises:
        RuleError: a rule cannot be compiled.
        SaturationError: the engine fails, for instance because a rule unites tensors of different
            type.
    """
    start = time.perf_counter()
    lowered = lower(graph, exact=exact)
    seconds = time.perf_counter() - start
    eclasses, report = saturate_terms(lowered, rules, budget or Budget(), progress, seeds=seeds)
    report.time_s["lower"] = seconds
    return Saturation(lowered, eclasses, report)


def saturate_terms(
    lowered: Lowered,
    rules: Sequence[Rule],
    budget: Budget,
    progress: Callable[[str], None] | None = None,
    *,
    seeds: Seeds | None = None,
) -> tuple[EClasses, SaturationReport]:
    """Saturate terms that are lowered already; no weight is read."""
    clock = time.perf_counter
    times: dict[str, float] = {}
    start = clock()
    # Two-root rules over siblings are for searches on graphs; here the seeds and the slice laws
    # replace them. General equations are for derivations of other rules.
    chosen = [rule for rule in rules if rule.phase not in _ELSEWHERE]
    if seeds is None:
        seeds = sibling_seeds(lowered, chosen)
    found = _recognised(lowered, len(lowered.terms) + len(seeds.terms), rules, budget)
    times["recognise"] = clock() - start

    start = clock()
    prepared = program_for(
        chosen, (*lowered.terms, *seeds.terms, *found.terms), exact=lowered.exact
    )
    numbers = {**prepared.numbers, SEED_RULE: len(prepared.numbers) + 1}
    for rule in dict.fromkeys(found.rules):
        numbers[rule] = len(numbers) + 1
    seeded_by = [numbers[SEED_RULE]] * len(seeds.terms) + [numbers[rule] for rule in found.rules]
    seeds = Seeds(
        (*seeds.terms, *found.terms), (*seeds.equal, *found.equal), seeds.constant | found.constant
    )
    with compiled_engine(prepared.commands) as engine:
        times["compile"] = clock() - start

        start = clock()
        codes = ExtentCodes.of((*lowered.terms, *seeds.terms))
        loaded = load(engine, prepared.schema, lowered, seeds, seeded_by=seeded_by, codes=codes)
        times["load"] = clock() - start

        start = clock()
        run = Rounds(engine, prepared, budget, progress)
        ended = run.saturate()
        times["saturate"] = clock() - start

        start = clock()
        rule_names = {number: name for name, number in numbers.items()}
        eclasses = freeze(engine, prepared.schema, lowered, rule_names, codes=codes)
        times["freeze"] = clock() - start
        run.close()
    report = _report(eclasses, run, loaded, ended, prepared=prepared, times=times, found=found)
    _log.info("saturation: %s", report)
    return eclasses, report


_WINDOW_GROWTH = 4
"""Approximate upper bound on the e-nodes of a saturated window per term, measured over all
spellings."""
_ELSEWHERE = (Phase.SIBLINGS, Phase.RECOGNISE, Phase.DERIVATION)
"""Phases whose rules do not run on the whole model, even if the caller names them."""


def _report(
    eclasses: EClasses,
    run: Rounds,
    loaded: int,
    ended: tuple[int, str],
    prepared: EngineProgram,
    times: dict[str, float],
    found: Recognition,
) -> SaturationReport:
    matches = {
        name: count
        for name, count in sorted(run.matches.items())
        if count and name in prepared.numbers
    }
    fused = dict(sorted(Counter(term.op for term in found.terms if term.op in FUSED).items()))
    return SaturationReport(
        eclasses.n_nodes, eclasses.n_classes, loaded, *ended, matches, times, fused
    )


def _recognised(lowered: Lowered, first: int, rules: Sequence[Rule], budget: Budget) -> Recognition:
    chosen = [rule for rule in rules if rule.phase is Phase.RECOGNISE]
    if not chosen:
        return Recognition()
    return recognise(
        lowered,
        first,
        lambda windows: saturate_windows(windows, chosen, budget).eclasses,
        max_terms=budget.recognition_nodes // _WINDOW_GROWTH,
    )


def saturate_windows(windows: Lowered, rules: Sequence[Rule], budget: Budget) -> Saturation:
    """Saturate cut-out parts of a model under the rules of phase ``recognise`` and no others.

    Raises:
        RuleError: a rule cannot be compiled.
        SaturationError: the engine fails.
    """
    start = time.perf_counter()
    chosen = [rule for rule in rules if rule.phase is Phase.RECOGNISE]
    prepared = program_for(chosen, windows.terms)
    with compiled_engine(prepared.commands) as engine:
        codes = ExtentCodes.of(windows.terms)
        loaded = load(engine, prepared.schema, windows, NO_SEEDS, seeded_by=(), codes=codes)
        run = Rounds(engine, prepared, budget)
        ended = run.saturate_windows()
        rule_names = {number: name for name, number in prepared.numbers.items()}
        eclasses = freeze(engine, prepared.schema, windows, rule_names, codes=codes)
    times = {"recognise": time.perf_counter() - start}
    report = _report(
        eclasses, run, loaded, ended, prepared=prepared, times=times, found=Recognition()
    )
    _log.info("windows: %s", report)
    return Saturation(windows, eclasses, report)
