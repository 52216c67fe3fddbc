"""Do two models compute the same? Outputs on random inputs, near-constant ones hide no error.

A network with random weights drifts to outputs that hardly depend on its input; an error relative
to their size then misses a dropped gate. The error here is relative to how much the output
*varies*, plus what rounding explains.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

import numpy as np

from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.runtime.inputs import input_specs, random_inputs, sizes_for
from eqsat_opt.runtime.noise import noisy
from eqsat_opt.runtime.ort import OpenSession, OrtOptions, OrtSession
from eqsat_opt.runtime.sandbox import SandboxDied
from eqsat_opt.runtime.segments import cut_at_quantisations
from eqsat_opt.runtime.source import Feeds, ModelSource, Runner, read_structure
from eqsat_opt.runtime.trials import Draft, Kind

__all__ = ["TOLERANCES", "Difference", "OpenSession", "Reference", "Trial", "differences"]

TOLERANCES = {"bitexact": 1e-5, "reassociate": 1e-3, "refactor": 5e-3, "relaxed": 2e-2}
"""Error per standard deviation of the output that a numerics class may cause in float32."""

_ROUNDING = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""Error relative to the largest element that rounding alone may cause after many layers."""

_COARSER = {"float16": 30.0, "bfloat16": 200.0}
"""Times the tolerance of float32."""

_NOISY_RUNS = 4
_SPREADS = 16.0
"""Times the largest of so few moves that a reordered sum may move."""

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
        is_flipped: whether ``max_abs`` comes from floats that a quantisation rounded to the
            neighbouring step; ``max_rel`` is then the largest between quantisations, as a share of
            what is tolerated there.
    """

    name: str
    max_abs: float
    max_rel: float
    tolerance: float
    why: str = ""
    is_flipped: bool = False


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
        drafts_s: float = math.inf,
        open_session: OpenSession = OrtSession,
    ) -> Reference:
        """Run the original on one random input per seed, and on drafts.

        Args:
            model: the original.
            options: how it runs.
            seeds: of random inputs.
            sizes: of symbolic dimensions.
            drafts: further inputs; those on which the original does not run are left out.
            drafts_s: seconds after which no further draft is tried.
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
        trials = tuple(_trials(session, drafts, Deadline.after(drafts_s)))
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
        tolerance *= _COARSER.get(dtype, 1.0)
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


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and str(value.dtype) in _ROUNDING and value.size > 0


class _Evidence(Enum):
    """Which elements say something of whether two results are equal."""

    NUMBERS = "those that are finite in both"
    NOT_NAN = "all but NaN of the original, which may be an infinity elsewhere"
    ALL = "all"

    @classmethod
    def of(cls, kind: Kind, exact: bool) -> _Evidence:
        """What a trial of some kind shows."""
        if kind == "large":
            return cls.NUMBERS
        return cls.ALL if exact else cls.NOT_NAN


def _compare_elements(
    name: str,
    expected: Any,
    actual: Any,
    scale: _Scale,
    tolerance: float,
    spread: Any | None,
    evidence: _Evidence,
) -> Difference:
    """Compare element by element, so that a large one hides nothing beside it.

    What an element may be off is what it may be on random inputs, plus rounding of itself, plus
    what is known of its conditioning.

    Args:
        name: of the output.
        expected: floats.
        actual: floats of the same shape.
        scale: of the output on random inputs.
        tolerance: error per standard deviation.
        spread: by how much the original moves by its own rounding; NaN where it says nothing.
        evidence: what infinities and NaN say.
    """
    if expected.dtype != actual.dtype:
        return Difference(name, np.inf, np.inf, tolerance, f"{actual.dtype}, not {expected.dtype}")
    dtype = str(expected.dtype)
    tolerance *= _COARSER.get(dtype, 1.0)
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    both = np.isfinite(wide) & np.isfinite(other)
    if spread is not None:
        both &= np.isfinite(spread)
    if spread is None and evidence is not _Evidence.NUMBERS:
        same = both | (wide == other) | np.isnan(wide)
        if evidence is _Evidence.ALL:
            same &= np.isnan(wide) <= np.isnan(other)
        if not same.all():
            why = f"{1 - float(np.mean(same)):.2%} of the elements are infinite or NaN in one only"
            return Difference(name, np.inf, np.inf, tolerance, why)
    if not both.any():
        return Difference(name, 0.0, 0.0, tolerance)
    wide, other = wide[both], other[both]
    error = np.abs(wide - other)
    typical = float(np.median(np.abs(wide)))
    rounding = _ROUNDING[dtype] * np.maximum(np.abs(wide), scale.largest or typical)
    if spread is not None:
        rounding = rounding + _SPREADS * spread[both]
    beyond = np.maximum(0.0, error - rounding - tolerance * np.abs(wide))
    worst = float(beyond.max())
    unit = scale.deviation or typical
    relative = 0.0 if worst == 0.0 else worst / unit if unit > 0 else np.inf
    why = "" if relative <= tolerance else "values differ"
    return Difference(name, float(error.max()), relative, tolerance, why)


def _spread(own: Any, others: Sequence[Any]) -> Any | None:
    """How far each element of a result moves; ``None`` for what is no float."""
    if not _is_float(own) or any(np.shape(other) != own.shape for other in others):
        return None
    wide = own.astype(np.float64)
    with np.errstate(invalid="ignore"):  # what is infinite says nothing, and becomes NaN
        moved = [np.abs(other.astype(np.float64) - wide) for other in others]
    result: Any = np.max(moved, axis=0)
    return result


def _noisy_session(
    model: ModelSource, options: OrtOptions, open_session: OpenSession
) -> Runner | None:
    if isinstance(model, str | os.PathLike):
        options = replace(options, data_folder=os.path.dirname(os.path.abspath(os.fspath(model))))
    changed = noisy(read_structure(model))
    return None if changed is None else open_session(changed, options)


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
        """What is wrong on a trial, if anything is and no rounding explains it."""
        names, what = self.reference.names, trial.draft.what
        try:
            actual = session.run(trial.feeds)
        except RuntimeFailed as error:
            why = f"it does not run {what}, where the original does: {error}"
            return Difference(names[0], np.inf, np.inf, self._tolerance, why)
        found = self._on_values(trial, actual)
        if any(one.why for one in found):
            found = self.between_quantisations(found, (trial.feeds,))
        wrong = next((one for one in found if one.why), None)
        if wrong is None or not self._is_confirmed(trial.draft, session):
            return None
        return replace(wrong, why=f"{wrong.why} {what}")

    def _on_values(
        self, trial: Trial, actual: Sequence[Any], spread: Sequence[Any] | None = None
    ) -> tuple[Difference, ...]:
        reference, exact = self.reference, self.numerics == "bitexact"
        found = []
        for i, (name, left, right, scale) in enumerate(
            zip(reference.names, trial.outputs, actual, self._scales, strict=True)
        ):
            if _is_float(left) and _is_float(right) and left.shape == right.shape:
                noise = None if spread is None else spread[i]
                found.append(
                    _compare_elements(
                        name, left, right, scale, self._tolerance, noise,
                        _Evidence.of(trial.draft.kind, exact),
                    )
                )  # fmt: skip
            elif trial.draft.kind == "plain" or exact:
                found.append(_compare(name, left, right, scale, self._tolerance, exact))
            else:
                found.append(Difference(name, 0.0, 0.0, self._tolerance))
        return tuple(found)

    def _is_confirmed(self, draft: Draft, session: Runner) -> bool:
        """Whether a difference shows again, on other inputs of the sort.

        It has to go beyond what reordered sums explain and, where special values are concerned, it
        has to show without the runtime's own fusions, which do not all keep them.
        """
        original = self.reference.model
        if original is None:
            return True
        open_session = self.open_session
        settings = [self.options]
        if draft.kind != "plain":
            settings.append(replace(self.options, level="disabled"))
        try:
            for options in settings:
                first = open_session(original, options)
                second = open_session(self.model, options)
                noise = _noisy_session(original, options, open_session)
                if not all(self._differ(draft, seed, first, second, noise) for seed in (1, 2)):
                    return False
        except RuntimeFailed:
            return draft.kind == "plain"
        return True

    def _differ(
        self, draft: Draft, seed: int, first: Runner, second: Runner, noise: Runner | None
    ) -> bool:
        feeds = draft.draw(seed)
        trial = Trial(draft, feeds, tuple(first.run(feeds)))
        actual = second.run(feeds)
        if not any(one.why for one in self._on_values(trial, actual)):
            return False
        if draft.kind == "special":
            return True
        if noise is None:
            return draft.kind == "plain"
        runs = [noise.run(feeds) for _ in range(_NOISY_RUNS)]
        spread = [_spread(own, others) for own, *others in zip(trial.outputs, *runs, strict=True)]
        return any(one.why for one in self._on_values(trial, actual, spread))

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
    # Parts may be of other types than the output, with tolerances of their own.
    used = max((part.max_rel / part.tolerance for part in between if part.tolerance), default=0.0)
    return tuple(
        replace(one, max_rel=used * one.tolerance, why="", is_flipped=True)
        if one.why and np.isfinite(one.max_abs)
        else one
        for one in found
    )
