"""Sets of small integers as Python integers: fast unions, and sums of weights over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["EVERYTHING", "bits", "union", "weigh"]

EVERYTHING = -1  # a Python integer with all bits set: neutral for `&`, absorbing for `|`
_FEW = 16  # number of bits up to which Python is faster than NumPy


def bits(mask: int) -> Iterator[int]:
    """Yield positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def union(masks: Sequence[int], members: Sequence[int]) -> int:
    """Return the union of some bit sets."""
    result = 0
    for d in members:
        result |= masks[d]
    return result


def weigh(mask: int, weights: npt.NDArray[np.float64], first: int) -> float:
    """Return the sum of weights at the set bits; `weights[first]` belongs to the lowest bit."""
    if mask.bit_count() <= _FEW:
        return sum(float(weights[first + k]) for k in bits(mask))
    raw = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
    places = np.flatnonzero(np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little"))
    return float(weights[first + places].sum())
