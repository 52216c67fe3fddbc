"""Tolerances: differences of outputs that rounding, their own variation and their type explain.

A network with random weights drifts to outputs that hardly depend on its input; an error relative
to their size then misses a dropped gate. The error here is relative to how much the output
*varies*, plus what rounding explains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import ml_dtypes
import numpy as np

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.validation.nested import float_leaves
from eqsat_opt.validation.trials import Kind

__all__ = [
    "TOLERANCES", "Difference", "Evidence", "Scale", "compare_elements", "compare_moving",
    "compare_values", "is_float", "is_within_floor", "spread_of", "widest",
]  # fmt: skip

TOLERANCES: Mapping[Numerics, float] = {
    Numerics.BITEXACT: 1e-5,
    Numerics.REASSOCIATE: 1e-3,
    Numerics.FINITE: 1e-3,
    Numerics.REFACTOR: 5e-3,
    Numerics.RELAXED: 2e-2,
}
"""Error per standard deviation of the output that a numerics class may cause in float32."""

_ROUNDING = {"float64": 1e-12, "float32": 2e-5, "float16": 1e-2, "bfloat16": 5e-2}
"""Error relative to the largest element that rounding alone may cause after many layers."""

_FLOOR = {"float64": 1e-13, "float32": 4e-6}
"""Error relative to the largest element that is always ignored; the floor of other types is their
rounding."""

_COARSER = {"float16": 30.0, "bfloat16": 200.0}
"""Tolerance of narrow types, as a multiple of that of float32."""

_SPREADS = 16.0
"""How far a reordered sum may move, as a multiple of the largest of a few observed moves."""

_STEPS = 16.0
"""Steps between subnormal numbers by which a few roundings may move a result."""

_INTEGER_MISMATCH = 1e-3
"""Share of integer or boolean elements (an argmax, say) that rounding may flip, unless bitexact."""


@dataclass(frozen=True)
class Difference:
    """The difference of one output, over all inputs tried.

    Attributes:
        name: name of the output.
        max_abs: largest absolute difference.
        max_rel: largest difference beyond rounding, per standard deviation of the reference over
            its elements and all inputs.
        tolerance: largest ``max_rel`` that is allowed.
        why: the fault in words; empty if there is none.
        is_flipped: whether ``max_abs`` comes from floats that a quantisation rounded to the
            neighbouring step; ``max_rel`` is then the largest between quantisations, as a share of
            what is tolerated there.
        uncompared: elements that the original does not determine itself, so they are not compared.
    """

    name: str
    max_abs: float
    max_rel: float
    tolerance: float
    why: str = ""
    is_flipped: bool = False
    uncompared: int = 0


@dataclass(frozen=True)
class Scale:
    """Largest magnitude of an output and how much it varies, over its elements and all inputs.

    A loss has one element, and on one input it may be zero by cancellation.

    Attributes:
        largest: largest magnitude.
        deviation: standard deviation.
        error: absolute error of any element, however small the element is.
    """

    largest: float
    deviation: float
    error: float = 0.0

    @classmethod
    def of(cls, values: Sequence[Any], error: float = 0.0) -> Scale:
        """Compute the scale of one output; it is 0 for values other than floating-point tensors."""
        arrays = [v for v in values if isinstance(v, np.ndarray) and str(v.dtype) in _ROUNDING]
        flat = np.concatenate([np.zeros(0), *(v.ravel().astype(np.float64) for v in arrays)])
        flat = flat[np.isfinite(flat)]
        if not flat.size:
            return cls(0.0, 0.0, error)
        largest = float(np.max(np.abs(flat)))
        # A single number does not show how much it varies.
        return cls(largest, float(np.std(flat)) if flat.size > 1 else largest, error)


def _float_error(expected: Any, actual: Any, dtype: str, scale: Scale) -> tuple[float, float]:
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    finite = np.isfinite(wide)
    if not np.array_equal(finite, np.isfinite(other)) or not np.array_equal(
        wide[~finite], other[~finite], equal_nan=True
    ):
        return np.inf, np.inf
    if not finite.any():
        return 0.0, 0.0
    error = float(np.max(np.abs(wide[finite] - other[finite])))
    rounding = _ROUNDING[dtype] * scale.largest + scale.error + _floor(dtype, 0.0)
    beyond = max(0.0, error - rounding)
    if beyond == 0.0:
        return error, 0.0
    return error, beyond / scale.deviation if scale.deviation > 0 else np.inf


def compare_values(
    name: str,
    expected: Any,
    actual: Any,
    scale: Scale,
    tolerance: float,
    exact: bool,
    judged_as: str = "",
) -> Difference:
    """Compare all elements at once, against the largest of them.

    Args:
        name: name of the output.
        expected: the output of the original.
        actual: the output of the model that is judged.
        scale: scale of the output.
        tolerance: error per standard deviation, of float32.
        exact: whether no integer may differ.
        judged_as: the element type in which it was computed, if it is not that of the output.
    """
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return _compare_nested(name, expected, actual, scale=scale, tolerance=tolerance)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        why = (
            f"{actual.dtype}{list(actual.shape)} instead of {expected.dtype}{list(expected.shape)}"
        )
        return Difference(name=name, max_abs=np.inf, max_rel=np.inf, tolerance=tolerance, why=why)
    if expected.size == 0:
        return Difference(name, 0.0, 0.0, tolerance)
    dtype = str(expected.dtype)
    if dtype in _ROUNDING:
        dtype = judged_as or dtype
        error, relative = _float_error(expected, actual, dtype, scale)
        tolerance *= _COARSER.get(dtype, 1.0)
        why = "" if relative <= tolerance else "values differ"
        return Difference(name=name, max_abs=error, max_rel=relative, tolerance=tolerance, why=why)
    wrong = float(np.mean(expected != actual))
    allowed = 0.0 if exact else _INTEGER_MISMATCH * _COARSER.get(judged_as, 1.0)
    return Difference(
        name=name,
        max_abs=wrong,
        max_rel=wrong,
        tolerance=allowed,
        why="" if wrong <= allowed else f"{wrong:.2%} of the elements differ",
    )


def _floor(dtype: str, largest: float) -> float:
    """Return the error that is allowed in any output, with a few steps of subnormal numbers."""
    least = float(ml_dtypes.finfo(np.dtype(dtype)).smallest_subnormal)  # type: ignore[no-untyped-call]
    return _FLOOR.get(dtype, _ROUNDING[dtype]) * largest + _STEPS * least


def is_within_floor(found: Difference, expected: Any, scale: Scale) -> bool:
    """Return whether a difference is so small that the original's movement does not matter."""
    if not is_float(expected):
        return found.max_abs == 0.0
    return found.max_abs <= _floor(str(expected.dtype), scale.largest)


def compare_moving(
    name: str,
    expected: Any,
    actual: Any,
    *,
    scale: Scale,
    tolerance: float,
    allowed: Any | None,
    exact: bool = False,
    judged_as: str = "",
    is_least: bool = False,
) -> Difference:
    """Compare element by element with how far the original itself moves.

    Args:
        name: name of the output.
        expected: the output of the original.
        actual: the output of the model that is judged.
        scale: scale of the output.
        tolerance: error per standard deviation of float32 that is allowed in any case; 0 for none.
        allowed: the entry of `Movement.allowed` for the output.
        exact: whether no integer may differ.
        judged_as: the element type in which it was computed, if it is not that of the output.
        is_least: whether both bounds have to be kept, that of the class and that of the movement.
    """
    known = compare_values(
        name, expected, actual=actual, scale=scale, tolerance=tolerance, exact=exact,
        judged_as=judged_as,
    )  # fmt: skip
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return known
    if allowed is None:
        return known if exact else Difference(name, 0.0, 0.0, tolerance, uncompared=expected.size)
    if expected.shape != actual.shape or expected.dtype != actual.dtype or expected.size == 0:
        return known
    if not is_float(expected):
        moves = np.isinf(allowed)
        wrong = float(np.mean((expected != actual) & ~moves))
        why = "" if wrong <= known.tolerance else f"{wrong:.2%} of the elements differ"
        return Difference(name, wrong, wrong, known.tolerance, why=why, uncompared=int(moves.sum()))
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    unknown = np.isnan(allowed)
    both = np.isfinite(wide) & np.isfinite(other)
    same = both | unknown | (wide == other) | (np.isnan(wide) & np.isnan(other))
    uncompared = int(unknown.sum())
    if not same.all():
        return Difference(
            name, np.inf, np.inf, known.tolerance, why="values differ", uncompared=uncompared
        )
    both &= ~unknown
    if not both.any():
        return Difference(name, 0.0, 0.0, known.tolerance, uncompared=uncompared)
    dtype = judged_as or str(expected.dtype)
    granted = 0.0
    if tolerance:
        granted = known.tolerance * scale.deviation + _ROUNDING[dtype] * scale.largest
    error = np.abs(wide[both] - other[both])
    limit = np.maximum(granted, _floor(dtype, scale.largest) + allowed[both])
    if is_least:
        limit = np.minimum(granted, allowed[both])
    worst = int(np.argmax(error - limit))
    unit = scale.deviation or scale.largest or 1.0
    is_wrong = bool(error[worst] > limit[worst])
    return Difference(
        name=name,
        max_abs=float(error.max()),
        max_rel=float(error[worst] / unit),
        tolerance=max(known.tolerance if not is_wrong else 0.0, float(limit[worst] / unit)),
        why="values differ by more than rounding explains" if is_wrong else "",
        uncompared=uncompared,
    )


def is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and str(value.dtype) in _ROUNDING and value.size > 0


class Evidence(Enum):
    """The elements that show whether two results are equal."""

    NUMBERS = "those that are finite in both"
    NOT_NAN = "all but NaN of the original, which may be an infinity elsewhere"
    ALL = "all"

    @classmethod
    def of(cls, kind: Kind, exact: bool) -> Evidence:
        """Return the evidence that a trial of some kind gives."""
        if kind == "large":
            return cls.NUMBERS
        return cls.ALL if exact else cls.NOT_NAN


def compare_elements(
    name: str,
    expected: Any,
    actual: Any,
    scale: Scale,
    tolerance: float,
    spread: Any | None,
    evidence: Evidence,
    judged_as: str = "",
    unknown: Any | None = None,
) -> Difference:
    """Compare element by element, so that a large element does not hide the error of another.

    The allowed error of an element is that on random inputs, plus its own rounding, plus what is
    known of its conditioning.

    Args:
        name: name of the output.
        expected: floats.
        actual: floats of the same shape.
        scale: scale of the output on random inputs.
        tolerance: error per standard deviation.
        spread: how far the original moves by its own rounding; NaN where that is unknown.
        evidence: the infinities and NaN that count.
        judged_as: the element type in which it was computed, if it is not that of the output.
        unknown: elements that do not count, as the original does not determine them itself.
    """
    if expected.dtype != actual.dtype:
        return Difference(
            name=name,
            max_abs=np.inf,
            max_rel=np.inf,
            tolerance=tolerance,
            why=f"{actual.dtype}, not {expected.dtype}",
        )
    dtype = judged_as or str(expected.dtype)
    tolerance *= _COARSER.get(dtype, 1.0)
    wide, other = expected.astype(np.float64), actual.astype(np.float64)
    both = np.isfinite(wide) & np.isfinite(other)
    if spread is not None:
        both &= np.isfinite(spread)
    if spread is None and evidence is not Evidence.NUMBERS:
        same = both | (wide == other) | np.isnan(wide)
        if unknown is not None:
            same |= unknown
        if evidence is Evidence.ALL:
            kept = np.isnan(wide) <= np.isnan(other)
            same &= kept if unknown is None else kept | unknown
        if not same.all():
            why = f"{1 - float(np.mean(same)):.2%} of the elements are infinite or NaN in one only"
            return Difference(
                name=name, max_abs=np.inf, max_rel=np.inf, tolerance=tolerance, why=why
            )
    if unknown is not None:
        both &= ~unknown
    if not both.any():
        return Difference(name, 0.0, 0.0, tolerance)
    wide, other = wide[both], other[both]
    error = np.abs(wide - other)
    typical = float(np.median(np.abs(wide)))
    rounding = _ROUNDING[dtype] * np.maximum(np.abs(wide), scale.largest or typical)
    rounding = rounding + scale.error + _floor(dtype, 0.0)
    if spread is not None:
        rounding = rounding + _SPREADS * spread[both]
    beyond = np.maximum(0.0, error - rounding - tolerance * np.abs(wide))
    worst = float(beyond.max())
    unit = scale.deviation or typical
    relative = 0.0 if worst == 0.0 else worst / unit if unit > 0 else np.inf
    why = "" if relative <= tolerance else "values differ"
    return Difference(
        name=name, max_abs=float(error.max()), max_rel=relative, tolerance=tolerance, why=why
    )


def spread_of(own: Any, others: Sequence[Any]) -> Any | None:
    """Return how far each element of a result moves; ``None`` for other types than floats."""
    if not others or not is_float(own) or any(np.shape(other) != own.shape for other in others):
        return None
    wide = own.astype(np.float64)
    with np.errstate(invalid="ignore"):  # an infinite element shows nothing, and becomes NaN
        moved = [np.abs(other.astype(np.float64) - wide) for other in others]
    result: Any = np.max(moved, axis=0)
    return result


def widest(spread: Any | None, allowed: Any | None) -> Any | None:
    """Widen the spread of an output by all that its original is known to move."""
    if spread is None or allowed is None or not np.isfinite(allowed).any():
        return spread if allowed is None or spread is not None else allowed / _SPREADS
    return np.fmax(spread, allowed / _SPREADS)


def _compare_nested(
    name: str, expected: Any, actual: Any, *, scale: Scale, tolerance: float
) -> Difference:
    """Compare sequences and maps: their floats as if they were one tensor, all else exactly."""
    found = float_leaves(expected, actual)
    if found is None:
        return Difference(name, 0.0, np.inf, tolerance, why="values differ")
    wide, other, dtypes = found
    if not dtypes:
        return Difference(name, 0.0, 0.0, tolerance)
    coarsest = max(dtypes, key=_ROUNDING.__getitem__)
    error, relative = _float_error(wide, other, coarsest, Scale.of([wide], scale.error))
    tolerance *= _COARSER.get(coarsest, 1.0)
    why = "" if relative <= tolerance else "values differ"
    return Difference(name, error, relative, tolerance, why=why)
