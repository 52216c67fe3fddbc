"""Search for the fastest model within a bound on its error: choose, measure, correct, repeat.

Predicted errors are sums of small ones, so a candidate is measured. Where prediction and
measurement differ, the prediction is corrected for the output, and the problem is solved again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import onnx_ir

from eqsat_opt.approximation.choice import Selection, select_within
from eqsat_opt.approximation.errors import OutputShift, shift_of
from eqsat_opt.approximation.quality import Quality
from eqsat_opt.approximation.survey import Survey
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner
from eqsat_opt.runtime.staging import Staging

__all__ = [
    "Approximation",
    "Expected",
    "SearchTask",
    "expected_of",
    "fastest_of_quality",
    "fastest_within",
]

_ROUNDS = 8
"""Most candidates that are measured for a quality."""

_CANDIDATES = 16
"""Most candidates that are measured for a bound."""

_CHOICES = 40
"""Most choices, of which some are those of before."""

_CORRECTED = 2
"""Candidates that correct the predictions. Later ones only move the share of the bound that the
next choice may use: the largest of many differences scatters, and corrections that follow each
measurement go back and forth between two candidates."""

_NEAR = 0.98
"""Share of the bound that is close enough to end the search."""

_ALIKE = 1.01
"""Ratio of a share of the bound that was too large to one that was not, which ends the search."""

_STEPS = (0.8, 0.97), (1.02, 1.25)
"""Least and largest steps to a smaller share of the bound, and to a larger one."""

_REFUSALS = 3
"""Most candidates that data held back may refuse. Any of many would please them by chance."""

_LOOSENED = 4.0
"""Factor on predicted squared errors that led to no candidate, or to a change of integers."""

_STEP = 16.0
"""Factor between squared errors that are tried, until one of them is good enough."""

_ENDLESS = 1.0
"""Squared error, as a share of the squared maximum, of a choice for which none is predicted."""

_CLOSE = 1.4
"""Ratio of a refused squared error to an accepted one that is close enough to end the search."""

_PROOF_S = 10.0
"""Seconds for the proof of one choice."""


@dataclass(frozen=True)
class Expected:
    """Inputs and the original's outputs for them.

    Attributes:
        feeds: the inputs.
        outputs: the outputs of the original.
    """

    feeds: tuple[Feeds, ...]
    outputs: tuple[Sequence[Any], ...]


@dataclass(frozen=True)
class Approximation:
    """A model in low precision that keeps the bound.

    Attributes:
        model: the model.
        selection: the implementations, with predicted times.
        error: largest difference of an output on data that were held back, as a share of its
            maximum.
        measured: number of candidates that were measured.
        quality: value of the user's measure on data that were held back; ``None`` for a bound.
    """

    model: onnx_ir.Model
    selection: Selection
    error: float
    measured: int
    quality: float | None = None


@dataclass(frozen=True)
class SearchTask:
    """A model in floats, and what a search for one in low precision needs.

    Attributes:
        model: the model in floats.
        survey: the survey of that model, with one site at least.
        correcting: data on which candidates are measured.
        held_back: data that only accept or refuse a candidate.
        staging: stages models for sessions.
        options: options of the sessions.
        deadline: time after which no further candidate is measured.
        progress: called with what is done.
        seed: seed of the search.
        is_exact: whether the model in floats computes what the original does. One that came
            quantised does not, so that floats everywhere are a candidate too.
    """

    model: onnx_ir.Model
    survey: Survey
    correcting: Expected
    held_back: Expected
    staging: Staging
    options: OrtOptions
    deadline: Deadline
    progress: Callable[[str], None]
    seed: int = 0
    is_exact: bool = True

    def selection(self, limits: Sequence[float]) -> Selection:
        """Choose within limits on the squared error of each output.

        Raises:
            ExtractionError: no solution was found in time.
        """
        if not self.survey.kernels:
            return Selection({}, time_us=0.0, bound_us=0.0, squares=(0.0,) * len(limits))
        return select_within(
            self.survey.kernels,
            self.survey.needed,
            limits,
            time_limit_s=min(_PROOF_S, self.deadline.left_s),
            seed=self.seed,
        )

    def candidate(self, selection: Selection, number: int) -> tuple[onnx_ir.Model, Runner]:
        """Return the model of a choice, and a session of it.

        Raises:
            RuntimeFailed: onnxruntime refuses it.
        """
        count = f"{len(selection.chosen)} of {self.survey.n_sites} operators"
        self.progress(f"candidate {number}: {count}")
        made = self.survey.applied(self.model, selection.chosen)
        return made, OrtSession(self.staging.of(made), self.options)


def expected_of(original: ModelSource, feeds: Sequence[Feeds], options: OrtOptions) -> Expected:
    """Run the original.

    Raises:
        RuntimeFailed: the original does not run.
    """
    session = OrtSession(original, options)
    return Expected(tuple(feeds), tuple(session.run(one) for one in feeds))


def fastest_within(bound: float, task: SearchTask) -> Approximation | None:
    """Return the fastest model, as predicted, that keeps a bound; ``None`` if none was found.

    Args:
        bound: largest difference of an output from the original's, as a share of its maximum.
        task: the model, and what it is searched with.
    """
    corrections, share = list(task.survey.crests), _Share()
    verdicts: dict[tuple[tuple[str, str], ...], float] = {}
    accepted: list[Approximation] = []
    refusals = 0
    for _ in range(_CHOICES):
        if not bound or task.deadline.expired or share.is_known:
            break
        selection = task.selection([(share.next * bound) ** 2 / one for one in corrections])
        key = tuple(sorted(selection.chosen.items()))
        if task.is_exact and not key and not verdicts:
            # Predictions may be too large, so something is measured.
            corrections = [one / _LOOSENED for one in corrections]
            continue
        if (task.is_exact and not key) or any(_is_no_faster(selection, one) for one in accepted):
            share = share.after(0.0)
            continue
        if key not in verdicts:
            if len(verdicts) >= _CANDIDATES or refusals >= _REFUSALS:
                break
            try:
                candidate, session = task.candidate(selection, len(verdicts) + 1)
                shifts = _worst(session, task.correcting)
                used = error = _largest(shifts) / bound
                if used <= 1:
                    error = _largest(_worst(session, task.held_back)) / bound
                    refusals += error > 1
                    used = max(used, error)
            except RuntimeFailed:
                break
            verdicts[key] = used
            if used <= 1:
                accepted.append(Approximation(candidate, selection, error * bound, len(verdicts)))
                if used > _NEAR:
                    break
            if len(verdicts) <= _CORRECTED:
                _correct(corrections, shifts, selection, weight=1 / len(verdicts))
                continue
        share = share.after(verdicts[key])
    return min(accepted, key=lambda one: one.selection.time_us, default=None)


@dataclass(frozen=True)
class _Share:
    """The share of the bound that a choice may use by prediction.

    Attributes:
        next: the share to try.
        kept: the largest share whose choice kept the bound.
        broken: the smallest share whose choice broke it.
    """

    next: float = 1.0
    kept: float = 0.0
    broken: float = math.inf

    @property
    def is_known(self) -> bool:
        """Whether a larger share would hardly change the choice."""
        return self.broken <= _ALIKE * self.kept

    def after(self, used: float) -> _Share:
        """Return the share to try after a choice that used a part ``used`` of the bound."""
        if used > 1:
            kept, broken = self.kept, self.next
        else:
            kept, broken = self.next, self.broken
        if kept and math.isfinite(broken):
            return _Share((kept + broken) / 2, kept, broken)
        least, most = _STEPS[used <= 1]
        step = min(max(1 / used, least), most) if used else most
        return _Share(self.next * step, kept, broken)


def fastest_of_quality(quality: Quality, task: SearchTask) -> Approximation | None:
    """Return the fastest model, as predicted, of a quality; ``None`` if none was found.

    Squared errors of outputs are limited all the same. Their limit is what the search is for: the
    fastest model of all is tried first, then limits between accepted and refused ones.

    Args:
        quality: the measure, and its least value on both data.
        task: the model, and what it is searched with.

    Raises:
        OptionError: the measure does not fit the outputs.
    """
    good, bad = 0.0, math.inf
    verdicts: dict[tuple[tuple[str, str], ...], bool] = {(): True} if task.is_exact else {}
    accepted: list[Approximation] = []
    for number in range(_ROUNDS):
        if task.deadline.expired or bad <= _CLOSE * good:
            break
        limit = bad if bad == math.inf else math.sqrt(good * bad) if good else bad / _STEP
        selection = task.selection([limit] * len(task.survey.crests))
        key = tuple(sorted(selection.chosen.items()))
        if key not in verdicts:
            found = _of_quality(quality, task, selection, number + 1)
            verdicts[key] = found is not None
            if found is not None:
                accepted.append(found)
        if not verdicts[key]:
            reached = max(selection.squares, default=0.0)
            bad = min(limit, reached if 0 < reached < math.inf else _ENDLESS)
        elif limit == math.inf:
            break
        else:
            good = limit
    return min(accepted, key=lambda one: one.selection.time_us, default=None)


def _of_quality(
    quality: Quality, task: SearchTask, selection: Selection, number: int
) -> Approximation | None:
    """Return the model of a choice if it runs and its quality suffices on all data."""
    try:
        candidate, session = task.candidate(selection, number)
        values = [_quality(quality, session, one) for one in (task.correcting, task.held_back)]
        error = _largest(_worst(session, task.held_back))
    except RuntimeFailed:
        return None
    if min(values) < quality.least:
        return None
    return Approximation(candidate, selection, error, measured=number, quality=values[1])


def _quality(quality: Quality, session: Runner, expected: Expected) -> float:
    pairs = [
        (session.run(fed), outputs)
        for fed, outputs in zip(expected.feeds, expected.outputs, strict=True)
    ]
    return quality.measure(pairs)


def _is_no_faster(selection: Selection, accepted: Approximation) -> bool:
    return selection.time_us >= accepted.selection.time_us


def _worst(session: Runner, expected: Expected) -> tuple[OutputShift, ...]:
    """Return the largest shift of each output over all inputs, in both measures."""
    found = [
        tuple(map(shift_of, session.run(fed), outputs))
        for fed, outputs in zip(expected.feeds, expected.outputs, strict=True)
    ]
    return tuple(
        OutputShift(max(one.largest for one in each), max(one.mean_square for one in each))
        for each in zip(*found, strict=True)
    )


def _largest(shifts: Sequence[OutputShift]) -> float:
    return max((one.largest for one in shifts), default=0.0)


def _correct(
    corrections: list[float],
    shifts: Sequence[OutputShift],
    selection: Selection,
    *,
    weight: float,
) -> None:
    """Move the factor between predicted squared error and squared bound to what was measured."""
    for number, (shift, square) in enumerate(zip(shifts, selection.squares, strict=True)):
        if not math.isfinite(shift.largest):
            corrections[number] *= _LOOSENED
        elif square > 0 and shift.largest > 0:
            measured = shift.largest**2 / square
            corrections[number] = corrections[number] ** (1 - weight) * measured**weight
