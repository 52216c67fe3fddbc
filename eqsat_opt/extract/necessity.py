"""Which classes every way to compute a class must contain, as bit sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from eqsat_opt.extract.greedy import class_parents

__all__ = ["bits", "necessity", "union"]

EVERYTHING = -1  # a Python integer with all bits set: neutral for `&`, absorbing for `|`


def necessity(
    members: Sequence[Sequence[int]],
    children: Sequence[Sequence[int]],
    order: Sequence[int],
    *,
    work: int,
) -> list[int] | None:
    """Greatest solution of D(c) = {c} | (& over options of | over children d of D(d)).

    Every acyclic derivation of `c` contains all of `D(c)`, by induction on its height. An option
    whose children need `c` itself can never compute `c` and does not count.

    Args:
        members: options of each class.
        children: child classes of each option.
        order: classes, best with children first (only speed depends on it).
        work: words of bit sets that may be touched.

    Returns:
        `[n_classes]` bit sets, all ones for a class that cannot be computed; None when the work
        ran out (a set that has not converged would be too large, so nothing can be kept).
    """
    n = len(members)
    masks = [EVERYTHING] * n
    parents = class_parents(members, children)
    queue = deque(order)
    queued = bytearray(b"\1") * n
    words = 1 + n // 256  # a step costs about as much as 256 bits of a set operation
    while queue:
        c = queue.popleft()
        queued[c] = 0
        bit = 1 << c
        common = EVERYTHING
        for i in members[c]:
            work -= words * (1 + len(children[i]))
            below = union(masks, children[i])
            if not below & bit:
                common &= below
        if work < 0:
            return None
        mask = common | bit
        if mask != masks[c]:
            masks[c] = mask
            for p in parents[c]:
                if not queued[p]:
                    queued[p] = 1
                    queue.append(p)
    return masks


def union(masks: Sequence[int], classes: Sequence[int]) -> int:
    """Union of the bit sets of some classes."""
    result = 0
    for d in classes:
        result |= masks[d]
    return result


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
