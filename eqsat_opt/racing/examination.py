"""The final examination: whether candidates compute the same, and whether one really runs faster.

A candidate that computes something else, or does not run where the original runs, is dropped; the
others race.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice, zip_longest

from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.onnx.files.load import FREE_INITIALIZERS
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.racing.entrants import BEST, CLEAN, ORIGINAL
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.racing.verdict import PREVIOUS, Verdict, cheapest, decide, unraced
from eqsat_opt.runtime.backends.ort.config import default_level, level_in
from eqsat_opt.runtime.backends.ort.session import OptimizationLevel, OrtOptions, OrtSession
from eqsat_opt.runtime.backends.sandbox import Sandbox
from eqsat_opt.runtime.devices.meters import EnergyMeter
from eqsat_opt.runtime.given_inputs import NO_INPUTS, GivenInputs
from eqsat_opt.runtime.inputs import (
    InputSpec,
    sizes_for,
    symbolic_sizes,
)
from eqsat_opt.runtime.processor import crowd
from eqsat_opt.runtime.source import ModelSource, read_structure
from eqsat_opt.validation.compare import Difference, OpenSession, Reference, differences
from eqsat_opt.validation.designed_inputs import value_drafts
from eqsat_opt.validation.trials import InputDraft, parameter_drafts, sample_drafts, size_drafts

__all__ = [
    "ORIGINAL",
    "Decision",
    "Examination",
    "RaceTerms",
    "affordable",
    "compared",
    "drafts_of",
    "examine",
    "has_session_variants",
    "observe",
    "race_candidates",
]

_DRAFTS, _MOST_DRAFTS = 0.05, 0.15
"""Usual and greatest share of the time left in which the original runs on further inputs, as
candidates then do."""

_LEAST_DRAFTS_S = 0.3
"""Seconds for further inputs if there is time; a small model runs on all of them in that time."""

_SHORTEST_RACE = 3
"""Sessions that take part in a race of the original, its twin and one candidate."""


@dataclass(frozen=True)
class RaceTerms:
    """The terms of a race.

    Attributes:
        threads: threads per session.
        numerics: class of differences that are allowed.
        seeds: seeds of the random inputs that are compared; without any, candidates are trusted.
        sizes: sets of sizes of symbolic dimensions, one at least; a win must hold on each.
        race_s: seconds for the race, at most; 0 for none.
        by_cost: whether the cheapest candidate wins without having to be faster.
        seed: seed of the running order.
        deadline: by when check and race have to end; a candidate that cannot be compared by then
            loses its place.
        custom_ops: libraries of operators that every session loads.
        box: sandbox in which models are run to be compared; ``None`` for this process.
        bulk_s: seconds of one pass over all weights, such as loading a model.
        meter: meter of the energy of runs in the race; ``None`` for none.
        precision: precision in which candidates compute.
        inputs: samples and generators of the user.
    """

    threads: int
    numerics: Numerics
    seeds: tuple[int, ...]
    sizes: tuple[Sizes, ...]
    race_s: float
    by_cost: bool = False
    seed: int = 0
    deadline: Deadline = field(default_factory=Deadline.never)
    custom_ops: tuple[str, ...] = ()
    box: Sandbox | None = None
    bulk_s: float = 0.0
    meter: EnergyMeter | None = None
    precision: Precision = Precision.STRICT
    inputs: GivenInputs = NO_INPUTS

    @property
    def runs_models(self) -> bool:
        """Whether anything is run at all, to be compared or to race."""
        return bool(self.seeds) or bool(self.race_s)

    @property
    def open_session(self) -> OpenSession:
        """The function that loads models to compare them; in a sandbox, up to the deadline."""
        return OrtSession if self.box is None else partial(self.box.open, deadline=self.deadline)

    def session(self, level: OptimizationLevel = "all") -> OrtOptions:
        """Return the options under which the runtime runs a model here."""
        return OrtOptions(self.threads, level, custom_ops=self.custom_ops)


@dataclass(frozen=True)
class Examination:
    """The results of comparing the candidates with the original.

    Attributes:
        reference: outputs of the original; ``None`` where it does not run.
        differences: for each candidate that ran, its differences by output.
        refused: candidate to the reason why it does not run where the original does.
        seconds: duration of the comparison.
        obstacle: why the original does not run, as a sentence; empty if it does.
        skipped: candidates for whose comparison there was no time.
        is_late: whether there was no time to run the original.
        one_s: seconds for which the original ran; a candidate takes about as long.
    """

    reference: Reference | None
    differences: Mapping[str, tuple[Difference, ...]]
    refused: Mapping[str, str]
    seconds: float
    obstacle: str = ""
    skipped: tuple[str, ...] = ()
    is_late: bool = False
    one_s: float = 0.0

    @cached_property
    def wrong(self) -> Mapping[str, Difference]:
        """The candidates that compute something else, each with an output that shows it."""
        shown = {
            name: next((one for one in found if one.why), None)
            for name, found in self.differences.items()
        }
        return {name: one for name, one in shown.items() if one is not None}

    @property
    def race_s(self) -> float:
        """Seconds to compare one more candidate, and to race it, another one and the original."""
        if self.reference is None:
            return 0.0
        return self.one_s + (_SHORTEST_RACE + 1) * self.reference.entrant_s

    def is_sound(self, name: str) -> bool:
        """Return whether a candidate may be returned to the user."""
        return not (
            self.obstacle or name in self.wrong or name in self.refused or name in self.skipped
        )


@dataclass(frozen=True)
class Decision:
    """The outcome of a race.

    Attributes:
        verdict: the entrant that is written, and its gain.
        race: the race on the first set of sizes; ``None`` if there was none.
        further_races: the races on the other sets, if an entrant won on the first.
        seconds: duration of the race.
        obstacle: why there was no race, as a sentence; empty if there was one.
    """

    verdict: Verdict
    race: RaceResult | None = None
    further_races: tuple[RaceResult, ...] = ()
    seconds: float = 0.0
    obstacle: str = ""


def _no_time() -> str:
    return (
        "the budget ended before anything could be compared and raced, so the original stays"
        f"{crowd()}; allow more with --budget"
    )


_MOST_ENTRANTS = 1_000


def _variants(graph: Graph) -> tuple[OptimizationLevel, ...]:
    """Return the settings of the runtime's own optimiser that are worth racing.

    Its fusions sometimes cost transformers time. Without them a model with DequantizeLinear is
    computed in floats, which moves its outputs by steps, so such a model has none.
    """
    counts = graph.operator_counts()
    if counts["DequantizeLinear"]:
        return ()
    products = counts["MatMul"] + counts["LayerNormalization"]
    return ("basic",) if products > 4 * max(1, counts["Conv"]) else ()


def has_session_variants(graph: Graph) -> bool:
    """Return whether the original alone has rivals, namely itself under other settings."""
    return bool(_variants(graph))


def _settings(
    models: Mapping[str, ModelSource], graph: Graph, terms: RaceTerms
) -> dict[str, OrtOptions]:
    """Return the options of each entrant: those of a default session, and for some, other levels.

    A level that the original asks for is raced too, as a default session does not look for it.
    """
    default = default_level(models[ORIGINAL])
    settings = dict.fromkeys(models, terms.session(default))
    if not terms.by_cost:
        for level in dict.fromkeys((*_variants(graph), level_in(models[ORIGINAL]))):
            for name in (ORIGINAL, BEST, CLEAN, PREVIOUS):
                if name in models and level != default:
                    settings[f"{name}@{level}"] = terms.session(level)
    return settings


def _drafts_s(left_s: float) -> float:
    """Return the seconds for further inputs where this many are left."""
    return min(max(_LEAST_DRAFTS_S, _DRAFTS * left_s), _MOST_DRAFTS * left_s)


def affordable(entrant_s: float, deadline: Deadline) -> int:
    """Return how many entrants a race can have in time.

    Where time is short, the cheapest take part.
    """
    return max(0, int(min(deadline.left_s / max(entrant_s, 1e-6) - 1, _MOST_ENTRANTS)))


def _races(
    models: Mapping[str, ModelSource],
    reference: Reference,
    graph: Graph,
    terms: RaceTerms,
    incumbent: str,
) -> list[RaceResult]:
    """Hold a race for each set of sizes, or the first only if it leaves the original in its place.

    Where time is short, only the first entrants take part.

    Raises:
        RuntimeFailed: the original does not run.
        OutOfTime: not even the shortest race would be in time.
    """
    most = affordable(reference.entrant_s, terms.deadline)
    settings = islice(_settings(models, graph, terms).items(), most)
    entrants = {
        name: partial(OrtSession, models[name.partition("@")[0]], options)
        for name, options in settings
    }

    def run(reference: Reference) -> RaceResult:
        if terms.deadline.left_s < _SHORTEST_RACE * reference.entrant_s:
            raise OutOfTime
        left_s = terms.deadline.left_s / (len(terms.sizes) - len(races))
        return race(
            entrants,
            ORIGINAL,
            reference.feeds[0],
            threads=terms.threads,
            seed=terms.seed,
            time_limit_s=min(terms.race_s, left_s),
            extension_s=min(terms.race_s, max(0.0, left_s - terms.race_s)),
            meter=terms.meter,
        )

    races: list[RaceResult] = []
    races.append(run(reference))
    if not terms.by_cost and decide(races, incumbent=incumbent).status == "unchanged":
        return races
    for sizes in terms.sizes[1:]:
        there = Reference.of(
            models[ORIGINAL],
            terms.session(),
            (terms.seed,),
            sizes.inputs,
            inputs=terms.inputs,
            open_session=terms.open_session,
        )
        if terms.box is not None:
            terms.box.reset()  # its session is of no more use
        races.append(run(there))
    return races


def drafts_of(
    original: ModelSource,
    specs: Sequence[InputSpec],
    sets: Sequence[Mapping[str, int]],
    numerics: Numerics,
    precision: Precision = Precision.STRICT,
) -> Iterator[InputDraft]:
    """Yield drafts of further sizes and designed values in turn, so that a short time covers both.

    Args:
        original: the model as given.
        specs: its inputs.
        sets: sizes of the symbols of its inputs, a set for each that the user gave.
        numerics: class of differences that are allowed.
        precision: precision in which candidates compute. Values that are hard for float32 show
            nothing about float16, so they are left out there.
    """
    model = read_structure(original)
    graph = model.graph
    if model.ir_version >= FREE_INITIALIZERS:
        yield from parameter_drafts(graph, specs, sets[0])
    if precision is Precision.FP16:
        yield from size_drafts(specs, sets)
        return
    drafts = (size_drafts(specs, sets), value_drafts(graph, specs, sets[0], numerics))
    yield from (draft for pair in zip_longest(*drafts) for draft in pair if draft is not None)


def examine(
    candidates: Mapping[str, ModelSource], original: ModelSource, terms: RaceTerms
) -> Examination:
    """Run every candidate where the original runs, and compare what they compute.

    Args:
        candidates: models by name.
        original: the model as given.
        terms: terms of the comparison; without seeds outputs are trusted, and only candidates that
            do not run are found.

    If the original does not run, nothing is compared. Where time is short, only the cheapest
    candidates are compared, and none if there would be no time for a race.
    """
    return compared(observe(original, terms), candidates, terms)


def observe(original: ModelSource, terms: RaceTerms) -> Examination:
    """Run the original, with which candidates are then compared; see :func:`examine`."""
    start = time.perf_counter()

    def nothing(obstacle: str, *, is_late: bool) -> Examination:
        seconds = time.perf_counter() - start
        return Examination(None, {}, {}, seconds, obstacle=obstacle, is_late=is_late)

    if terms.deadline.expired or terms.deadline.left_s < terms.bulk_s:
        return nothing(_no_time(), is_late=True)
    session, sizes = terms.session(), [one.inputs for one in terms.sizes]
    specs = terms.inputs.specs(original, terms.sizes[0].derived)
    named = [symbolic_sizes(specs, sizes_for(specs, one)) for one in sizes]
    try:
        if terms.box is not None:  # its start must not count as the time of a session
            terms.box.wait(terms.deadline)
        began = time.perf_counter()
        reference = Reference.of(
            original,
            session,
            terms.seeds or (terms.seed,),
            sizes[0],
            inputs=terms.inputs,
            drafts=chain(
                sample_drafts(terms.inputs.others(specs, sizes[0])),
                drafts_of(original, specs, named, terms.numerics, precision=terms.precision),
            )
            if terms.seeds
            else (),
            drafts_s=_drafts_s(terms.deadline.left_s),
            open_session=terms.open_session,
            deadline=terms.deadline,
        )
    except OutOfTime:
        return nothing(_no_time(), is_late=True)
    except RuntimeFailed as error:
        obstacle = f"the original does not run in onnxruntime, so it stays: {error}"
        if assumed := terms.sizes[0].assumed:
            text = ", ".join(f"{axis_name(name)}={size}" for name, size in assumed.items())
            obstacle += f" (at assumed sizes {text}; give others with --input-shape)"
        return nothing(obstacle, is_late=False)
    now = time.perf_counter()
    return Examination(reference, {}, {}, now - start, one_s=now - began)


def compared(
    before: Examination, candidates: Mapping[str, ModelSource], terms: RaceTerms
) -> Examination:
    """Return an examination with further candidates, which are compared with the same outputs."""
    reference = before.reference
    if reference is None:
        return before
    start = time.perf_counter()
    found: dict[str, tuple[Difference, ...]] = {}
    refused: dict[str, str] = {}
    skipped: list[str] = []
    needed_s = before.one_s + (_SHORTEST_RACE * reference.entrant_s if terms.race_s else 0.0)
    for name, model in candidates.items():
        if terms.deadline.left_s < needed_s:
            skipped.append(name)
            continue
        try:
            found[name] = differences(
                reference,
                model,
                terms.session(),
                terms.numerics,
                open_session=terms.open_session,
                precision=terms.precision,
            )
        except OutOfTime:
            skipped.append(name)
        except RuntimeFailed as error:
            refused[name] = str(error)
    if not terms.seeds:
        found = {}
    if reference.own is not None:
        reference.own.release()
    return replace(
        before,
        differences={**before.differences, **found},
        refused={**before.refused, **refused},
        seconds=before.seconds + time.perf_counter() - start,
        skipped=(*before.skipped, *skipped),
    )


def race_candidates(
    candidates: Mapping[str, ModelSource],
    original: ModelSource,
    graph: Graph,
    examined: Examination,
    terms: RaceTerms,
    *,
    incumbent: str = "",
) -> Decision:
    """Race the candidates that passed the examination against the original.

    Args:
        candidates: models by name, the cheapest first.
        original: the model as given.
        graph: the original, to decide which settings of the runtime are worth a try.
        examined: the results of comparing the candidates.
        terms: terms of the race.
        incumbent: the candidate that an earlier run wrote, and that won then; empty for none.
    """
    stays = Verdict(ORIGINAL, "unchanged")
    if examined.reference is None:
        return Decision(stays, obstacle=examined.obstacle)
    sound = {name: model for name, model in candidates.items() if examined.is_sound(name)}
    if not terms.race_s:
        return Decision(unraced(next(iter(sound), ORIGINAL)))
    start = time.perf_counter()
    entrants = {ORIGINAL: original, **sound}
    try:
        races = _races(entrants, examined.reference, graph=graph, terms=terms, incumbent=incumbent)
    except OutOfTime:
        return Decision(stays, obstacle=_no_time())
    except RuntimeFailed as error:
        obstacle = f"the race could not be held, so the original stays: {error}"
        return Decision(stays, obstacle=obstacle)
    verdict = cheapest(races, tuple(sound)) if terms.by_cost else decide(races, incumbent=incumbent)
    return Decision(verdict, races[0], tuple(races[1:]), time.perf_counter() - start)
