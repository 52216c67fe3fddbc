"""Plans of a result: made in several ways, compared with the original, priced, and raced."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from eqsat_opt.common.deadline import Deadline, OutOfTime
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import CheckFailed, PlanError, RuntimeFailed
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.planned_kernels import with_own_kernels
from eqsat_opt.racing.race import race
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.devices.host import processor_us
from eqsat_opt.runtime.devices.meters import found_meter
from eqsat_opt.runtime.devices.profile import HOST_PROFILE, load_profile
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.given_inputs import NO_INPUTS, GivenInputs
from eqsat_opt.runtime.hosted import hosted
from eqsat_opt.runtime.inputs import sizes_for, symbolic_sizes
from eqsat_opt.runtime.plan.constants import Tensors, Weights
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.source import ModelSource, read_structure
from eqsat_opt.select.rebuilding.planning import PlanDraft, simulated_us
from eqsat_opt.validation.compare import Reference, differences
from eqsat_opt.validation.designed_inputs import value_drafts

__all__ = ["PORTABLE", "PlanJob", "PlannedResult", "race_plans"]

PORTABLE = "portable"
"""The result as a model, in the race of plans."""

_RACERS = 2
"""Number of plans that race, the cheapest as simulated. The cheapest plan of one launch races too,
as its price does not depend on how single launches are timed."""

_PRICE_S = 0.1
"""Least seconds for which the launches of a plan run to be priced."""

_RACE_S = 10.0

_LEAST_RACE_S = 1.5
"""A race that takes no longer is held in any case, as nothing else shows which plan is faster."""

_CHECK = 0.4
"""Share of the time in which plans are built, compared and priced; the rest is for the race and
for plans that are made from the cheapest."""

_TUNING = 0.5
"""Share of the remaining time in which the cheapest plans get our kernels in their sessions."""

_REFERENCE = 0.3
"""Share of the time in which the original runs on random inputs beyond the first."""

_ROUNDS = 2, 7
"""Least and largest number of times that the launches of a plan are timed."""

_TIMING = 0.1
"""Share of the time left that timing launches may take beyond the least number of rounds."""

_BUILDS, _RUNS = 2, 7
"""How often the shortest race opens a plan, and how often it runs it."""

_DRAFTS = 0.1
"""Share of the time left in which the original runs on further inputs."""


@dataclass(frozen=True)
class PlanJob:
    """The plans of a model, and the terms on which they are judged.

    Attributes:
        drafts: the plans.
        weights: stored tensors of the model that recipes of the plans name.
        original: the model as given.
        portable: the result as a model; ``None`` where it is the original.
        session: options of sessions in which models run.
        sizes: sizes of symbolic dimensions for which the plans are made.
        seeds: seeds of random inputs, one at least.
        numerics: class of differences that plans are allowed.
        max_error: bound on the error of our kernels inside sessions, relative to the maximum of
            each result.
        has_kernels: whether our kernels may run inside sessions.
        is_raced: whether a race decides; otherwise the simulated times do.
        strict: whether a plan that computes something else is an error.
        deadline: end of the whole run.
    """

    drafts: tuple[PlanDraft, ...]
    weights: Tensors
    original: ModelSource
    portable: ModelSource | None
    session: OrtOptions
    sizes: Sizes
    seeds: tuple[int, ...]
    numerics: Numerics
    max_error: float
    has_kernels: bool
    is_raced: bool = True
    strict: bool = False
    deadline: Deadline = field(default_factory=Deadline.never)
    inputs: GivenInputs = NO_INPUTS


@dataclass(frozen=True)
class PlannedResult:
    """The outcome of a race of plans.

    Attributes:
        draft: the best plan.
        predicted_us: its simulated time, µs.
        considered: name to simulated time, µs, of all plans that compute the same.
        refused: plans that do not run or compute something else, and why.
        held: the race; ``None`` if there was none.
    """

    draft: PlanDraft
    predicted_us: float
    considered: Mapping[str, float]
    refused: Mapping[str, str]
    held: RaceResult | None = None


def race_plans(job: PlanJob) -> PlannedResult:
    """Build, compare, price and race plans.

    Raises:
        PlanError: no plan runs here and computes what the original does.
        CheckFailed: a plan computes something else, and the job is strict.
    """
    judge = _Judge(job)
    tuned = _judge_all(judge)
    tunable = {
        name: price
        for name, price in judge.prices.items()
        if name not in tuned and _has_session(judge.drafts[name].plan)
    }  # a plan without a session, such as one of OpenVINO, would only take a place
    judge.tune(_racers(tunable, judge.drafts), job.deadline.share(_TUNING))
    if not judge.prices:
        why = next(iter(judge.refused.values()), "there is none")
        raise PlanError(f"no plan of this model runs here: {why}")
    ranked = _racers(judge.prices, judge.drafts)
    best = PlannedResult(
        judge.drafts[ranked[0]], judge.prices[ranked[0]], judge.prices, judge.refused
    )
    given_s = max(job.deadline.left_s, _LEAST_RACE_S)
    racing = next((some for some in _ever_fewer(ranked) if judge.race_s(some) <= given_s), [])
    if not job.is_raced or not racing:
        return best
    held = _race(judge, racing)
    ran = [name for name in racing if not held.entries[name].note]
    winner = min(ran or racing[:1], key=lambda name: held.entries[name].ratio)
    return replace(best, draft=judge.drafts[winner], predicted_us=judge.prices[winner], held=held)


class _Judge:
    """The judge of a job's plans, with their prices and the time that judging took.

    Attributes:
        drafts: name to plan, with those that are made by tuning.
        prices: name to simulated time, µs, of plans that compute the same.
        refused: name to the reason why a plan is refused.
        judged_s: name to the seconds that judging took, opening included.
    """

    def __init__(self, job: PlanJob) -> None:
        self.job = job
        self.reference = _reference(job)
        self.drafts = {draft.name: draft for draft in job.drafts}
        self.prices: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self.judged_s: dict[str, float] = {}
        self._opened_s: dict[str, float] = {}
        self._tensors = Weights.of(job.weights)
        self._clock = processor_us if job.session.threads == 1 else None

    def open(self, draft: PlanDraft) -> Executable:
        """Make a plan ready to run.

        Raises:
            RuntimeFailed: the plan cannot run here.
        """
        try:
            return hosted(draft.plan, self._tensors)
        except PlanError as error:
            raise RuntimeFailed(str(error)) from error

    def judge(self, draft: PlanDraft) -> bool:
        """Compare and price a plan; return whether it computes something else."""
        begin, job = time.perf_counter(), self.job
        try:
            executable = self.open(draft)
            self._opened_s[draft.name] = time.perf_counter() - begin
            if job.seeds and (why := _difference(job, self.reference, executable)):
                self.refused[draft.name] = why
                return True
            times = executable.launch_times_us(
                self.reference.feeds[0],
                rounds=_rounds(self.reference, job.deadline),
                clock=self._clock,
                span_s=min(_PRICE_S, _TIMING * job.deadline.left_s),
            )
            self.prices[draft.name] = simulated_us(draft.plan, times, load_profile(HOST_PROFILE))
        except RuntimeFailed as error:
            self.refused[draft.name] = str(error)
        finally:
            self.judged_s[draft.name] = time.perf_counter() - begin
        return False

    def tune(self, names: Sequence[str], deadline: Deadline) -> None:
        """Judge some plans once more, with our kernels inside their sessions, where these gain."""
        if not self.job.has_kernels or not self.job.seeds:
            return
        # Tuning a plan takes no less time than judging it, and the tuned plan is judged as well.
        some = [name for name in names if 2 * self.judged_s[name] < deadline.left_s]
        for number, name in enumerate(some):
            try:
                made = with_own_kernels(
                    self.drafts[name],
                    self.open,
                    self.reference.feeds,
                    max_error=self.job.max_error,
                    deadline=deadline.share(1 / (len(some) - number)),
                )
            except (RuntimeFailed, OutOfTime):
                continue
            if made is not None:
                self.drafts[made.name] = made
                self.judge(made)

    def race_s(self, names: Sequence[str]) -> float:
        """Return the seconds of the shortest race: plans, the original, its twin and the result."""
        models = 2 + (self.job.portable is not None)
        opening_s = sum(self._opened_s[name] for name in names)
        runs_s = _RUNS * self.reference.run_s * len(names)
        return models * self.reference.entrant_s + _BUILDS * opening_s + runs_s


def _judge_all(judge: _Judge) -> set[str]:
    """Judge the given plans, as time allows; return the names of plans that were tuned already.

    If the time is too short for all, the first plan with a session is tuned before the others are
    judged.

    Raises:
        CheckFailed: a plan computes something else, and the job is strict.
    """
    job, tuned = judge.job, set[str]()
    deadline = job.deadline.share(_CHECK)
    for number, draft in enumerate(job.drafts):
        name = draft.name
        # Other plans take about as long as the first.
        if judge.prices and deadline.left_s < next(iter(judge.judged_s.values())):
            judge.refused[name] = "there was no time for it"
            continue
        if judge.judge(draft) and job.strict:
            raise CheckFailed(
                f"{name} computes something else: {judge.refused[name]}; nothing is written"
            )
        late_s = judge.judged_s[name] * (len(job.drafts) - number - 1)
        is_tunable = name in judge.prices and _has_session(draft.plan)
        if is_tunable and not tuned and late_s > deadline.left_s:
            tuned.add(name)
            judge.tune([name], job.deadline.before(judge.race_s([name])).share(_TUNING))
    return tuned


def _race(judge: _Judge, names: Sequence[str]) -> RaceResult:
    """Race some plans against the original and, if it is another, the result as a model."""
    job = judge.job
    entrants: dict[str, Callable[[], Any]] = {
        ORIGINAL: partial(OrtSession, job.original, job.session)
    }
    if job.portable is not None:
        entrants[PORTABLE] = partial(OrtSession, job.portable, job.session)
    for name in names:
        entrants[name] = partial(judge.open, judge.drafts[name])
    left_s = job.deadline.left_s
    return race(
        entrants,
        ORIGINAL,
        judge.reference.feeds[0],
        threads=job.session.threads,
        seed=job.seeds[0] if job.seeds else 0,
        time_limit_s=min(_RACE_S, max(0.7 * left_s, 0.1)),
        extension_s=min(_RACE_S, max(0.2 * left_s, 0.0)),
        meter=found_meter().meter,
    )


def _ever_fewer(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return all names, then all but the last, down to the first alone."""
    return (names[:count] for count in range(len(names), 0, -1))


def _rounds(reference: Reference, deadline: Deadline) -> int:
    """Return how often launches are timed in the time left."""
    least, most = _ROUNDS
    return int(max(least, min(most, _TIMING * deadline.left_s / max(reference.run_s, 1e-9))))


def _has_session(plan: Plan) -> bool:
    """Return whether a plan has a launch that kernels of our own may run inside."""
    return any(launch.backend == ORT for launch in plan.launches)


def _racers(prices: Mapping[str, float], drafts: Mapping[str, PlanDraft]) -> list[str]:
    """Return the names of the cheapest plans, and then of the cheapest plan of one launch."""
    ranked = sorted(prices, key=prices.__getitem__)
    whole = (name for name in ranked if len(drafts[name].plan.launches) == 1)
    return list(dict.fromkeys((*ranked[:_RACERS], *islice(whole, 1))))


def _reference(job: PlanJob) -> Reference:
    """Run the original on random inputs and, if plans are compared, on designed ones."""
    of = partial(
        Reference.of,
        job.original,
        job.session,
        job.seeds or (0,),
        job.sizes.inputs,
        inputs=job.inputs,
    )
    if not job.seeds:
        return of()
    specs = job.inputs.specs(job.original)
    sizes = symbolic_sizes(specs, sizes_for(specs, job.sizes.inputs))
    graph = read_structure(job.original).graph
    return of(
        drafts=value_drafts(graph, specs, sizes, job.numerics),  # other sizes are for other plans
        drafts_s=_DRAFTS * job.deadline.left_s,
        deadline=job.deadline.share(_REFERENCE),
    )


def _difference(job: PlanJob, reference: Reference, executable: Executable) -> str:
    """Describe a difference of a plan from the original; empty if it is within its class."""
    found = differences(
        reference,
        job.original,
        job.session,
        job.numerics,
        open_candidate=lambda *_: executable,
    )
    return next((f"output {one.name!r}: {one.why}" for one in found if one.why), "")
