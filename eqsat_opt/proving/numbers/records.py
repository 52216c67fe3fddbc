"""Numbers with bounds on their rounding errors, stored apart from the arrays that operators move.

An array holds codes of records, so operators that move data work on it unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import Array

__all__ = ["Bounded", "Records", "Rows"]

Rows: TypeAlias = npt.NDArray[np.float64]
"""One row per element and one column per draw."""
_RECORDS = 1 << 40
"""Least code of a record; a smaller integer, such as a pad or a count, is a number itself."""
_FIRST = 256
"""Number of records that there is room for at first."""
_LOWEST = np.iinfo(np.int64).min
"""The number with which a max pool pads integers."""


@dataclass
class Bounded:
    """Numbers with bounds on their rounding errors: one row per element, one column per draw.

    Attributes:
        value: number as computed in the element type, held in double precision.
        error: error that the terms of an open sum had before they were added.
        terms: number of terms; 0 for a constant 0, 1 for another number that is no sum.
        total, largest: sum of the terms' magnitudes, and the greatest magnitude.
        left: whether an intermediate result was too large for the element type, or a divisor was 0
            because it was too small for that type, or a root of minus infinity was taken.
        spread: whether an infinity went through a product, where other factors may make it NaN.
        high, low: binary logarithms of the greatest and of the inverse of the least product of some
            of the factors that a number was multiplied from; at least 0.
        strained: whether such a product, here or in an operand, is too large or too small for the
            element type.
    """

    value: Rows
    error: Rows
    terms: Rows
    total: Rows
    largest: Rows
    left: npt.NDArray[np.bool_]
    spread: npt.NDArray[np.bool_]
    high: Rows
    low: Rows
    strained: npt.NDArray[np.bool_]

    @property
    def parts(self) -> tuple[Array, ...]:
        """All attributes in order."""
        return (
            self.value, self.error, self.terms, self.total, self.largest, self.left, self.spread,
            self.high, self.low, self.strained,
        )  # fmt: skip

    def map(self, function: Any) -> Bounded:
        """Apply a function to every part."""
        return Bounded(*map(function, self.parts))

    def closed(self, roundoff: Rows) -> Rows:
        """Return the bound of the whole error of a sum that is read; roundoffs are per column."""
        once = roundoff * np.abs(self.value)
        often = roundoff * (self.terms - 1.0) * self.total
        rounding = np.where(self.terms <= 1, 0.0, np.where(self.terms == 2, once, often))
        absorbed = 2.0 * (self.total - self.largest) <= roundoff * self.largest
        bound = self.error + np.where(absorbed, 0.0, rounding)
        return np.where(np.isfinite(self.value), np.where(np.isnan(bound), np.inf, bound), 0.0)


class Records:
    """A table of numbers of one element type, by code; numbers are added and never removed."""

    def __init__(self, dtype: str, draws: int) -> None:
        """Start with an empty table.

        Args:
            dtype: an element type of floating point.
            draws: number of columns.
        """
        self._dtype = np.dtype(dtype)
        self._draws = draws
        self._table = self._empty(_FIRST)
        self._codes = np.arange(_FIRST, dtype=np.int64)
        self._count = 0
        self._numbers: dict[int, int] = {}

    def _empty(self, capacity: int) -> Bounded:
        shape = capacity, self._draws
        value, error, terms, total, largest, high, low = (np.empty(shape) for _ in range(7))
        left, spread, strained = (np.empty(shape, bool) for _ in range(3))
        return Bounded(
            value, error, terms, total, largest=largest, left=left, spread=spread, high=high,
            low=low, strained=strained,
        )  # fmt: skip

    def _grow(self, count: int) -> None:
        """Make room for ``count`` records in all."""
        larger = self._empty(2 * count)
        for new, old in zip(larger.parts, self._table.parts, strict=True):
            new[: self._count] = old[: self._count]
        self._table, self._codes = larger, np.arange(2 * count, dtype=np.int64)

    def stored(self, rows: Bounded, shape: tuple[int, ...]) -> Array:
        """Store new records, the draws as the last axis of ``rows``, and return their codes."""
        start, end = self._count, self._count + math.prod(shape)
        if end > len(self._codes):
            self._grow(end)
        for table, part in zip(self._table.parts, rows.parts, strict=True):
            table[start:end].reshape(*shape, self._draws)[...] = part
        self._count = end
        return self._codes[start:end].reshape(shape) + _RECORDS

    def exactly(self, value: Array) -> Bounded:
        """Return records of numbers without an error; the draws are the last axis."""
        value = np.asarray(value, np.float64)
        size = np.abs(value)
        zero = np.zeros_like(value)
        never = zero.astype(bool)
        with np.errstate(all="ignore"):
            power = np.where(np.isfinite(value) & (size > 0), np.log2(size), 0.0)
        return Bounded(
            value=value,
            error=zero,
            terms=(value != 0) * 1.0,
            total=size,
            largest=size,
            left=never,
            spread=never,
            high=np.maximum(power, 0.0),
            low=np.maximum(-power, 0.0),
            strained=never,
        )

    def rows(self, codes: Array) -> Bounded:
        """Return the records of an array of codes; the draws are the last axis."""
        codes = codes.astype(np.int64, copy=False)
        plain = codes < _RECORDS
        if plain.any():
            codes = codes.copy()
            for number in np.unique(codes[plain]).tolist():
                codes[codes == number] = self._number(int(number))
        places = codes - _RECORDS
        shape, first = (*codes.shape, self._draws), int(places.flat[0]) if places.size else 0
        in_order = self._codes[first : first + places.size]
        if np.array_equal(places.ravel(), in_order):  # the usual case, in which nothing is copied
            return self._table.map(lambda part: part[first : first + places.size].reshape(shape))
        return self._table.map(lambda part: part[places])

    def _number(self, number: int) -> int:
        if number not in self._numbers:
            value = -np.inf if number == _LOWEST else float(number)
            self._numbers[number] = int(self.stored(self.exactly(np.asarray([value])), ())[()])
        return self._numbers[number]

    def rounded(self, value: Array) -> Rows:
        """Round numbers to the element type, and hold them in double precision."""
        with np.errstate(all="ignore"):
            return np.asarray(value).astype(self._dtype).astype(np.float64)
