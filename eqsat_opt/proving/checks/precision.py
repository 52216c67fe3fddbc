"""The measured floating-point error of a rule at ordinary numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.proving.instances.search import Found
from eqsat_opt.proving.numbers.evaluation import FloatNumbers, program
from eqsat_opt.rules.rule import Numerics, Rule

__all__ = ["HALF", "SINGLE", "Measured", "excessive", "measured", "worst_errors"]

SINGLE = "float32"
HALF = "float16"
_INSTANCES = 12
_CANCELLED = 1e-12
"""Magnitude up to which a result of values near 1 counts as a 0 that was rounded."""
_SEEDS = (1, 4)
"""Seeds that draw values near 1; larger ones overflow in half precision, whatever the rule."""
_MOST = {
    **dict.fromkeys((Numerics.BITEXACT, Numerics.REASSOCIATE, Numerics.FINITE), 64.0),
    Numerics.REFACTOR: 1024.0,
}
"""Most error of a right side, relative to the larger of the left side's error and the roundoff.

Sums in another order stay below 12, and recombined numbers may cost ten bits.
"""


@dataclass(frozen=True)
class Measured:
    """The errors of both sides of a directed rule at an instance.

    They are relative to the greatest magnitude of the results of the left side in float64.

    Attributes:
        found: the instance.
        dtype: element type of the arithmetic.
        left, right: greatest error of each side; infinite where a result is finite on the left side
            and not on the right side.
    """

    found: Found
    dtype: str
    left: float
    right: float

    @property
    def line(self) -> str:
        """The instance and both errors, in one line for messages."""
        shapes = ", ".join(f"{n}: {t}" for n, t in self.found.types.items())
        attrs = "".join(f", {name}={value}" for name, value in self.found.attrs.items())
        return (
            f"{shapes}{attrs}: computed in {self.dtype} the right side is off by {self.right:.1e} "
            f"of the largest result, the left side by {self.left:.1e}"
        )


def _at(rule: Rule, found: Found, dtype: str) -> Measured:
    double, narrow = program(rule, found, "float64"), program(rule, found, dtype)
    left = right = 0.0
    for seed in _SEEDS:
        drawn = FloatNumbers(seed).draw(found, seed)
        rounded = {n: a if a.dtype.kind in "bi" else a.astype(dtype) for n, a in drawn.items()}
        wide = {n: a if a.dtype.kind in "bi" else a.astype(np.float64) for n, a in rounded.items()}
        sides = zip(next(double.sides(wide, FLOAT)), narrow.run(rounded, FLOAT), strict=True)
        for exact, (one, other) in sides:
            left = max(left, _relative(exact, one))
            right = max(right, _relative(exact, other))
            if (np.isfinite(exact) & np.isfinite(one) & ~np.isfinite(other)).any():
                right = np.inf
    return Measured(found, dtype, left, right)


def _relative(exact: Array, result: Array) -> float:
    exact, result = np.asarray(exact, np.float64), np.asarray(result, np.float64)
    finite = np.isfinite(exact) & np.isfinite(result)
    if not finite.any():
        return 0.0
    scale = float(np.abs(exact[finite]).max())
    if scale <= _CANCELLED:
        return 0.0
    return float(np.abs(exact[finite] - result[finite]).max()) / scale


def measured(rule: Rule, points: Sequence[Found]) -> list[Measured]:
    """Measure errors in single and half precision at the larger of some instances.

    The smallest instances come first.
    """
    real = [point for point in points if not point.whole][-_INSTANCES:]
    with np.errstate(all="ignore"):
        return [_at(rule, found, dtype) for found in real for dtype in (SINGLE, HALF)]


def excessive(numerics: Numerics, errors: Iterable[Measured]) -> Measured | None:
    """Return the first of some errors that is larger than a class allows; ``None`` if none is."""
    for one in errors if numerics in _MOST else ():
        roundoff = float(np.finfo(one.dtype).eps) / 2
        if one.right > _MOST[numerics] * max(one.left, roundoff):
            return one
    return None


def worst_errors(errors: Iterable[Measured]) -> dict[str, float]:
    """Return the greatest finite error of a right side, by element type."""
    worst = {SINGLE: 0.0, HALF: 0.0}
    for one in errors:
        if np.isfinite(one.right):
            worst[one.dtype] = max(worst[one.dtype], one.right)
    return worst
