"""Do two models compute the same? Outputs on random inputs, near-constant ones hide no error.

A network with random weights drifts to outputs that hardly depend on its input; an error relative
to their size then misses a dropped gate. The error here is relative to how much the output
*varies*, plus what rounding explains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.ort import OpenSession, OrtOptions, OrtSession
from eqsat_opt.runtime.sandbox import SandboxDied
from eqsat_opt.runtime.segments import cut_at_quantisations
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner
from eqsat_opt.runtime.trials import Draft

__all__ = ["TOLERANCES", "Difference", "OpenSession", "Reference", "Trial", "differences"]

TOLERANCES = {"bitexact": 1e-5, "reassociate": 1e-3, "refactor": 5e-3, "relaxed": 2e-2}
"""Error per standard deviation of the output that a numerics class may cause in float32."""

_ROUNDING = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""Error relative to the largest element that rounding alone may cause after many layers."""

_INTEGER_MISMATCH = 1e-3
"""Share of integer or boolean elements (an argmax, say) that rounding may flip, unless bitexact."""

_MAX_DEATHS = 3
"""Of a sandbox; a model that dies so often on drafts is not worth the seconds of more."""


@dataclass(frozen=True)
class Difference:
    """One output, over all inputs tried.

    Attributes:
        name: of the output.
        max_abs: largest absolute difference.
        max_rel: largest difference beyond rounding, per standard deviation of the reference over
            its elements and all inputs.
        tolerance: what ``max_rel`` may be.
        why: what is wrong, empty if nothing is.
    """

    name: str
    max_abs: float
    max_rel: float
    tolerance: float
    why: str = ""


@dataclass(frozen=True)
class _Scale:
    """Largest magnitude of an output and how much it varies, over its elements and all inputs.

    A loss has one element, and on one input it may be zero by cancellation.
    """

    largest: float
    deviation: float

    @classmethod
    def of(cls, values: Sequence[Any]) -> _Scale:
        """The scale of one output; nothing for what is no floating-point tensor."""
        arrays = [v for v in values if isinstance(v, np.ndarray) and str(v.dtype) in _ROUNDING]
        flat = np.concatenate([np.zeros(0), *(v.ravel().astype(np.float64) for v in arrays)])
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return cls(0.0, 0.0)
        largest = float(np.max(np.abs(flat)))
        # One number alone says nothing of how it varies.
        return cls(largest, float(np.std(flat)) if flat.size > 1 else largest)

    def with_values(self, value: Any) -> _Scale:
        """The scale that also holds for the values of a trial."""
        other = _Scale.of([value])
        return _Scale(max(self.largest, other.largest), self.deviation or other.deviation)


@dataclass(frozen=True)
class Trial:
    """A draft on which the original runs."""

    draft: Draft
    feeds: Feeds
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Reference:
    """Inputs and the outputs of the original, computed once.

    Attributes:
        names: of the outputs.
        feeds, outputs: random inputs of one size, and what they give.
        trials: further inputs.
        model: the original, to look between its quantisations; ``None`` for outputs alone.
    """

    names: tuple[str, ...]
    feeds: tuple[Feeds, ...]
    outputs: tuple[tuple[Any, ...], ...]
    trials: tuple[Trial, ...] = ()
    model: ModelSource | None = None

    @classmethod
    def of(
        cls,
        model: ModelSource,
        options: OrtOptions,
        seeds: Sequence[int],
        sizes: Mapping[str, int] | None = None,
        *,
        drafts: Iterable[Draft] = (),
        deadline: Deadline | None = None,
        open_session: OpenSession = OrtSession,
    ) -> Reference:
        """Run the original on one random input per seed, and on drafts.

        Args:
            model: the original.
            options: how it runs.
            seeds: of random inputs.
            sizes: of symbolic dimensions.
            drafts: further inputs; those on which the original does not run are left out.
            deadline: when no further draft is tried.
            open_session: how models are loaded.

        Raises:
            RuntimeFailed: the original does not run on any random input.
        """
        session = open_session(model, options)
        specs = input_specs(model)
        feeds: list[Feeds] = []
        outputs: list[tuple[Any, ...]] = []
        failure: RuntimeFailed | None = None
        for seed in seeds:
            drawn = random_inputs(specs, seed, sizes_for(specs, sizes or {}))
            try:
                outputs.append(tuple(session.run(drawn)))
            except RuntimeFailed as error:
                failure = failure or error
            else:
                feeds.append(drawn)
        if failure is not None and not feeds:
            raise failure
        names = tuple(session.output_names)
        trials = tuple(_trials(session, drafts, deadline or Deadline.never()))
        return cls(names, tuple(feeds), tuple(outputs), trials, model)


def _trials(session: Runner, drafts: Iterable[Draft], deadline: Deadline) -> Iterator[Trial]:
    deaths = 0
    for draft in drafts:
        if deadline.expired or deaths == _MAX_DEATHS:
            return
        try:
            feeds = draft.draw(0)
            yield Trial(draft, feeds, tuple(session.run(feeds)))
        except SandboxDied:
            deaths += 1
        except (RuntimeFailed, ModelError):
            continue


def _float_error(expected: Any, actual: Any, dtype: str, scale: _Scale) -> tuple[float, float]:
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        wide[~finite], other[~finite], equal_nan=True
    ):
        return np.inf, np.inf
    if not finite.any():
        return 0.0, 0.0
    error = float(np.max(np.abs(wide[finite] - other[finite])))
    beyond = max(0.0, error - _ROUNDING.get(dtype, 1e-5) * scale.largest)
    if beyond == 0.0:
        return error, 0.0
    return error, beyond / scale.deviation if scale.deviation > 0 else np.inf


def _compare(
    name: str, expected: Any, actual: Any, scale: _Scale, tolerance: float, exact: bool
) -> Difference:
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        same = _same_structure(expected, actual)
        return Difference(
            name, 0.0, 0.0 if same else np.inf, tolerance, "" if same else "values differ"
        )
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        why = (
            f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
        )
        return Difference(name, np.inf, np.inf, tolerance, why)
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, tolerance)
    dtype = str(expected.dtype)
    if dtype in _ROUNDING:
        error, relative = _float_error(expected, actual, dtype, scale)
        tolerance *= {"float16": 30.0, "bfloat16": 200.0}.get(dtype, 1.0)
        why = "" if relative <= tolerance else "values differ"
        return Difference(name, error, relative, tolerance, why)
    wrong = float(np.mean(expected != actual))
    allowed = 0.0 if exact else _INTEGER_MISMATCH
    return Difference(
        name,
        wrong,
        wrong,
        allowed,
        "" if wrong <= allowed else f"{wrong:.2%} of the elements differ",
    )


def _same_structure(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same_structure(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same_structure(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return (
            bool(np.allclose(a, b, rtol=1e-3, atol=1e-5, equal_nan=True))
            if a.dtype.kind == "f"
            else bool(np.array_equal(a, b))
        )
    return bool(a == b)


def differences(
    reference: Reference,
    model: ModelSource,
    options: OrtOptions,
    numerics: str,
    *,
    open_session: OpenSession = OrtSession,
) -> tuple[Difference, ...]:
    """Compare ``model`` with the reference, output by output, and then on its trials.

    Where outputs differ and both models quantise, they are compared once more between their
    quantisations (:mod:`eqsat_opt.runtime.segments`), with the same tolerances. If all agrees
    there, what is left is floats that were rounded to the neighbouring step, and no error; the
    relative difference is then the largest between quantisations.

    Raises:
        RuntimeFailed: ``model`` does not run on random inputs, or has other outputs.
    """
    session = open_session(model, options)
    if tuple(session.output_names) != reference.names:
        raise RuntimeFailed(
            f"outputs are {list(session.output_names)} instead of {list(reference.names)}"
        )
    judge = _Judge(reference, model, options, numerics, open_session)
    found = judge.compare(session)
    if any(difference.why for difference in found):
        found = judge.between_quantisations(found, reference.feeds)
    if any(difference.why for difference in found):
        return found
    wrong = next((one for trial in reference.trials if (one := judge.on(trial, session))), None)
    if wrong is None:
        return found
    return tuple(wrong if one.name == wrong.name else one for one in found)


@dataclass(frozen=True)
class _Judge:
    """What is needed to compare one model with the reference."""

    reference: Reference
    model: ModelSource
    options: OrtOptions
    numerics: str
    open_session: OpenSession

    @property
    def _tolerance(self) -> float:
        return TOLERANCES[self.numerics]

    @cached_property
    def _scales(self) -> list[_Scale]:
        return [_Scale.of(values) for values in zip(*self.reference.outputs, strict=True)]

    def compare(self, session: Runner) -> tuple[Difference, ...]:
        """The worst difference of every output over the random inputs."""
        reference, exact = self.reference, self.numerics == "bitexact"
        worst: dict[str, Difference] = {}
        for feeds, expected in zip(reference.feeds, reference.outputs, strict=True):
            results = zip(reference.names, expected, session.run(feeds), self._scales, strict=True)
            for name, left, right, scale in results:
                found = _compare(name, left, right, scale, self._tolerance, exact)
                known = worst.get(name)
                if known is None or (found.why, found.max_rel, found.max_abs) > (
                    known.why,
                    known.max_rel,
                    known.max_abs,
                ):
                    worst[name] = found
        return tuple(worst[name] for name in reference.names)

    def on(self, trial: Trial, session: Runner) -> Difference | None:
        """What is wrong on a trial, if anything is."""
        names, what = self.reference.names, trial.draft.what
        try:
            actual = session.run(trial.feeds)
        except RuntimeFailed as error:
            why = f"it does not run {what}, where the original does: {error}"
            return Difference(names[0], np.inf, np.inf, self._tolerance, why)
        found = tuple(
            _compare(
                name, left, right, scale.with_values(left), self._tolerance,
                self.numerics == "bitexact",
            )
            for name, left, right, scale in zip(
                names, trial.outputs, actual, self._scales, strict=True
            )
        )  # fmt: skip
        if any(one.why for one in found):
            found = self.between_quantisations(found, (trial.feeds,))
        wrong = next((one for one in found if one.why), None)
        return None if wrong is None else replace(wrong, why=f"{wrong.why} {what}")

    def between_quantisations(
        self, found: tuple[Difference, ...], feeds: tuple[Feeds, ...]
    ) -> tuple[Difference, ...]:
        """The differences that steps of a quantisation do not explain."""
        if self.reference.model is None:
            return found
        try:
            segments = cut_at_quantisations(
                self.reference.model, self.model, self.options, self.open_session
            )
            if segments is None:
                return found
            outputs = tuple(tuple(segments.original.run(one)) for one in feeds)
            parts = Reference(tuple(segments.original.output_names), feeds, outputs)
            between = replace(self, reference=parts).compare(segments.other)
        except RuntimeFailed:
            return found
        return found if any(part.why for part in between) else _without_steps(found, between)


def _without_steps(
    found: Sequence[Difference], between: Sequence[Difference]
) -> tuple[Difference, ...]:
    """Differences that steps of a quantisation explain are none; other shapes and types are."""
    worst = max((part.max_rel for part in between), default=0.0)
    return tuple(
        replace(d, max_rel=min(d.max_rel, worst), why="") if np.isfinite(d.max_abs) else d
        for d in found
    )
