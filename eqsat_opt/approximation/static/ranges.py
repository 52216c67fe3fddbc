"""Ranges of values as scales and zero points of 8-bit integers, chosen by squared error.

The range from the smallest to the largest value competes with narrower ones, which round most
values more finely and clip the rest, and with a wider one: shares of it, percentiles, and the one
that loses the least information (Kullback-Leibler divergence, Migacz, 2017). Each is fixed on some
samples and judged on others, since outliers lie elsewhere there. The least squared error wins,
since squared errors are what the choice of kernels adds up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["QuantisedRange", "range_of", "thinned"]

_Array = npt.NDArray[Any]

_MOST = 255
"""Largest of the unsigned integers; the smallest is 0."""

_FULL = "min-max"

_SHARES = (1.1, 0.95, 0.85, 0.7, 0.55, 0.4)
"""Shares of the full range that compete; a wider one is for samples that go further."""

_PERCENTILES = (99.9, 99.99, 99.999)
"""Shares of all values that are in the range, per cent."""

_BINS, _LEVELS, _TRIALS = 1024, 128, 12
"""Bins of a histogram of magnitudes, levels to which integers reduce them, and limits to try."""

_ENOUGH, _ENOUGH_IN_ALL = 1 << 13, 1 << 15
"""Elements of a sample, and of all samples, on which ranges compete; more are thinned out."""

_FOLDS = 4
"""Parts of the samples, on each of which ranges are judged that the others fixed."""


@dataclass(frozen=True)
class QuantisedRange:
    """The meaning of unsigned 8-bit integers: `(integer - zero) * scale`.

    Attributes:
        scale: distance of two neighbours.
        zero: integer that means 0.
        origin: name of what fixed the range, for users.
    """

    scale: float
    zero: int
    origin: str = _FULL

    def integers(self, array: _Array) -> _Array:
        """Round floats to the integers, as QuantizeLinear does."""
        rounded = np.rint(array / np.float32(self.scale)) + self.zero
        integers: _Array = np.clip(rounded, 0, _MOST).astype(np.uint8)
        return integers

    def floats(self, integers: _Array) -> _Array:
        """Return the floats that integers mean, f32."""
        shifted = integers.astype(np.float32) - np.float32(self.zero)
        return np.asarray(shifted * np.float32(self.scale))

    def square(self, array: _Array) -> float:
        """Return the sum of the squared errors of rounded floats."""
        moved = self.floats(self.integers(array)).astype(np.float64) - array
        return float(np.sum(moved**2))


def thinned(array: _Array, enough: int = _ENOUGH) -> _Array:
    """Return some elements of an array, among them the smallest and the largest.

    These two weigh more than others, in favour of ranges that do not clip: it is the largest
    difference of an output that is bounded in the end.
    """
    flat = array.ravel()
    if flat.size <= enough:
        return flat
    return np.concatenate([flat[:: -(-flat.size // enough)], [flat.min(), flat.max()]])


def range_of(arrays: Sequence[_Array], most: float = np.inf) -> QuantisedRange | None:
    """Return the range of least squared error; ``None`` if a value is not finite.

    Zero is always in the range, since padding needs it.

    Args:
        arrays: the values of each sample, f32.
        most: upper limit of the range.
    """
    enough = _ENOUGH_IN_ALL // max(1, len(arrays))
    parts = [thinned(one, min(_ENOUGH, enough)) for one in arrays]
    flat = np.concatenate(parts) if parts else np.zeros(0, np.float32)
    if not np.isfinite(flat).all():
        return None
    folds = [(flat, flat)]
    if len(parts) > 1:
        count = min(_FOLDS, len(parts))
        folds = [
            (
                np.concatenate([one for i, one in enumerate(parts) if i % count != fold]),
                np.concatenate(parts[fold::count]),
            )
            for fold in range(count)
        ]
    origins: dict[str, float] = dict.fromkeys(_RULES, 0.0)
    for fixing, judging in folds:
        for origin, rule in _RULES.items():
            origins[origin] += _between(*rule(fixing), most, origin).square(judging)
    best = min(origins, key=origins.__getitem__)
    return _between(*_RULES[best](flat), most, best)


_Limits = tuple[float, float]


def _share_of_all(flat: _Array, share: float) -> _Limits:
    return share * float(flat.min(initial=0.0)), share * float(flat.max(initial=0.0))


def _percentile(flat: _Array, share: float) -> _Limits:
    if not flat.size:
        return 0.0, 0.0
    low, high = np.percentile(flat, [100 - share, share])
    return float(low), float(high)


def _of_least_divergence(flat: _Array) -> _Limits:
    low, high = _share_of_all(flat, 1.0)
    limit = _limit_of_least_divergence(flat)
    return max(low, -limit), min(high, limit)


_RULES: Mapping[str, Callable[[_Array], _Limits]] = MappingProxyType(
    {
        _FULL: partial(_share_of_all, share=1.0),
        **{f"{one:.0%} of min-max": partial(_share_of_all, share=one) for one in _SHARES},
        **{f"percentile {one:g}": partial(_percentile, share=one) for one in _PERCENTILES},
        "entropy": _of_least_divergence,
    }
)
"""Rules that fix the smallest and the largest value of a range, by their names for users."""


def _between(low: float, high: float, most: float, origin: str) -> QuantisedRange:
    """Return the range from one value to another one, and to zero, as far as ``most``."""
    low, high = min(low, 0.0), min(max(high, 0.0), most)
    scale = float(np.float32(max((high - low) / _MOST, float(np.finfo(np.float32).tiny))))
    return QuantisedRange(scale, int(np.clip(np.rint(-low / scale), 0, _MOST)), origin)


def _limit_of_least_divergence(flat: _Array) -> float:
    """Return the magnitude at which clipping changes the distribution of magnitudes least."""
    magnitudes = np.abs(flat[flat != 0]).astype(np.float64)
    largest = float(magnitudes.max(initial=0.0))
    if not largest:
        return 0.0
    counts = np.bincount(
        np.minimum(magnitudes * (_BINS / largest), _BINS - 1).astype(np.int64), minlength=_BINS
    ).astype(np.float64)
    trials = np.unique(np.linspace(_LEVELS, _BINS, _TRIALS).astype(np.int64))
    best = min(trials, key=lambda n_bins: _divergence(counts, int(n_bins)))
    return largest * float(best) / _BINS


def _divergence(counts: _Array, n_bins: int) -> float:
    """Return the divergence of counts clipped to the first bins from the same on few levels."""
    clipped = counts[:n_bins].copy()
    clipped[-1] += counts[n_bins:].sum()
    # The first distribution alone has the clipped values, so that clipping costs something.
    level = np.arange(n_bins) * _LEVELS // n_bins
    filled = counts[:n_bins] > 0
    sums, sizes = (
        np.bincount(level, weights=one, minlength=_LEVELS) for one in (counts[:n_bins], filled)
    )
    means = np.where(filled, (sums / np.maximum(sizes, 1))[level], 0.0)
    if not means.sum():
        return np.inf
    left, right = clipped / clipped.sum(), means / means.sum()
    used = left > 0
    return float(np.sum(left[used] * np.log(left[used] / np.maximum(right[used], 1e-12))))
