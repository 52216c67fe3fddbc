"""Exact sets of the bytes that strided tensors cover, as ascending intervals that do not touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ByteRegion", "covers", "overlap", "region", "union"]

_Places = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class ByteRegion:
    """A set of bytes: the union of [starts[i], ends[i]), ascending, no two of which touch."""

    starts: _Places
    ends: _Places

    @property
    def low(self) -> int:
        """The first byte; 0 if there is none."""
        return int(self.starts[0]) if self.starts.size else 0

    @property
    def high(self) -> int:
        """The end, one past the last byte; 0 if there is none."""
        return int(self.ends[-1]) if self.ends.size else 0

    @property
    def size_bytes(self) -> int:
        """Number of bytes in the set."""
        return int((self.ends - self.starts).sum())


def region(
    offset: int, dims: Sequence[int], strides_bytes: Sequence[int], itemsize: int
) -> ByteRegion:
    """Return the bytes that a strided tensor covers.

    Args:
        offset: offset of its first element, in bytes.
        dims: its extents.
        strides_bytes: strides by axis, in bytes, none negative.
        itemsize: bytes of an element.
    """
    if 0 in dims:
        return _merged(np.empty(0, np.int64), 0)
    starts, run = np.array([offset], np.int64), itemsize
    axes = sorted((s, d) for s, d in zip(strides_bytes, dims, strict=True) if d > 1 and s > 0)
    for stride, dim in axes:
        if stride <= run and starts.size == 1:
            run += stride * (dim - 1)
        else:
            starts = (starts[:, None] + np.arange(dim, dtype=np.int64) * stride).reshape(-1)
    return _merged(np.sort(starts), run)


def _merged(starts: _Places, run: int) -> ByteRegion:
    """Merge runs of equal length, given by ascending starts, into intervals that do not touch."""
    if not starts.size:
        return ByteRegion(starts, starts)
    first = np.flatnonzero(np.diff(starts) > run) + 1
    ends = starts + run
    return ByteRegion(
        starts[np.concatenate(([0], first))], ends[np.concatenate((first - 1, [starts.size - 1]))]
    )


def union(regions: Sequence[ByteRegion]) -> ByteRegion:
    """Return the union of all regions."""
    starts = np.concatenate([one.starts for one in regions] or [np.empty(0, np.int64)])
    ends = np.concatenate([one.ends for one in regions] or [np.empty(0, np.int64)])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    if not starts.size:
        return ByteRegion(starts, ends)
    first = np.flatnonzero(starts[1:] > ends[:-1]) + 1
    return ByteRegion(
        starts[np.concatenate(([0], first))], ends[np.concatenate((first - 1, [starts.size - 1]))]
    )


def overlap(a: ByteRegion, b: ByteRegion) -> tuple[int, int] | None:
    """Return the first interval [begin, end) of bytes in both; ``None`` if they share none."""
    if a.low >= b.high or b.low >= a.high:
        return None
    if a.starts.size > b.starts.size:
        a, b = b, a
    # For each interval of a, the first interval of b that ends after it begins.
    place = np.searchsorted(b.ends, a.starts, side="right")
    inside = np.flatnonzero(place < b.starts.size)
    hits = inside[b.starts[place[inside]] < a.ends[inside]]
    if not hits.size:
        return None
    i = int(hits[0])
    j = int(place[i])
    return max(int(a.starts[i]), int(b.starts[j])), min(int(a.ends[i]), int(b.ends[j]))


def covers(outer: ByteRegion, inner: ByteRegion) -> bool:
    """Return whether ``outer`` contains all bytes of ``inner``."""
    if not inner.starts.size:
        return True
    place = np.searchsorted(outer.starts, inner.starts, side="right") - 1
    return bool(np.all(place >= 0) and np.all(outer.ends[place] >= inner.ends))
