"""Ranges of values as scales and zero points of 8-bit integers, chosen by squared error.

The range from the smallest to the largest value competes with narrower ones, which round most
values more finely and clip the rest. The one of the least squared error on the data wins, since
squared errors are what the choice of kernels adds up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["QuantisedRange", "range_of"]

_Array = npt.NDArray[Any]

_MOST = 255
"""Largest of the unsigned integers; the smallest is 0."""

_SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
"""Shares of the full range that compete."""

_ENOUGH = 1 << 17
"""Elements of a value on which ranges compete; more are thinned out."""


@dataclass(frozen=True)
class QuantisedRange:
    """The meaning of unsigned 8-bit integers: `(integer - zero) * scale`.

    Attributes:
        scale: distance of two neighbours.
        zero: integer that means 0.
    """

    scale: float
    zero: int

    def integers(self, array: _Array) -> _Array:
        """Round floats to the integers, as QuantizeLinear does."""
        rounded = np.rint(array / np.float32(self.scale)) + self.zero
        integers: _Array = np.clip(rounded, 0, _MOST).astype(np.uint8)
        return integers

    def floats(self, integers: _Array) -> _Array:
        """Return the floats that integers mean, f32."""
        shifted = integers.astype(np.float32) - np.float32(self.zero)
        return np.asarray(shifted * np.float32(self.scale))


def range_of(arrays: Sequence[_Array], most: float = np.inf) -> QuantisedRange | None:
    """Return the range of least squared error; ``None`` if a value is not finite.

    Zero is always in the range, since padding needs it.

    Args:
        arrays: the values, f32.
        most: upper limit of the range.
    """
    flat = np.concatenate([one.ravel() for one in arrays]) if arrays else np.zeros(0, np.float32)
    if not np.isfinite(flat).all():
        return None
    low, high = (float(limit(flat, initial=0.0)) for limit in (np.min, np.max))
    sample = flat[:: -(-flat.size // _ENOUGH)] if flat.size > _ENOUGH else flat

    def square(held: QuantisedRange) -> float:
        moved = held.floats(held.integers(sample)).astype(np.float64) - sample
        return float(np.sum(moved**2))

    return min(_candidates(low, min(high, most)), key=square)


def _candidates(low: float, high: float) -> Iterator[QuantisedRange]:
    for share in _SHARES:
        scale = max((high - low) * share / _MOST, float(np.finfo(np.float32).tiny))
        scale = float(np.float32(scale))
        yield QuantisedRange(scale, int(np.clip(np.rint(-low * share / scale), 0, _MOST)))
