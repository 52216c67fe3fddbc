"""Classes that every derivation of a class must contain, as bit sets."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eqsat_opt.extract.bitsets import EVERYTHING, bits, union
from eqsat_opt.extract.simplify.draft import InstanceDraft
from eqsat_opt.extract.trees import class_parents

__all__ = ["Necessities", "bits", "necessities", "necessity", "union"]

_LARGE_COMPONENT = 4096  # classes; in larger components a set starts at its class's own position


def necessity(
    members: Sequence[Sequence[int]],
    children: Sequence[Sequence[int]],
    order: Sequence[int],
    *,
    work: int,
) -> list[int] | None:
    """Return the greatest solution of D(c) = {c} | (& over options of | over children d of D(d)).

    Every acyclic derivation of `c` contains all of `D(c)`, by induction on its height. An option
    whose children need `c` itself can never compute `c` and does not count.

    An order with children first is the fastest. `work` counts words of bit sets.

    Returns:
        `[n_classes]` bit sets, all ones for a class that cannot be computed; None when the work ran
        out (a set that has not converged would be too large, so nothing can be kept).
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Necessities:
    """For each class, some or all of the classes that every derivation of it contains.

    Attributes:
        position: `[n_classes]`, children first, from 0 in each connected part.
        base: `[n_classes]`, position of the class at the lowest bit of the class's set.
        mask: `[n_classes]`, bit sets, the class itself included.
        below: `[n_options]`, union of the children's sets, in bits of the option's class.
        order: `[n_classes]`, classes by part and position.
        first: `[n_classes]`, place in `order` of the lowest bit of the class's set.
        steps: number of words that were touched.
    """

    position: list[int]
    base: list[int]
    mask: list[int]
    below: list[int]
    order: list[int]
    first: list[int]
    steps: int


def necessities(
    draft: InstanceDraft, children: Sequence[Sequence[int]], *, work: int, window: int = 2048
) -> Necessities:
    """Return necessity sets of all classes, in time and memory linear in the draft's size.

    The sets are those of `necessity` with two cuts, each of which only makes sets smaller: a set
    reaches back by one or two windows of positions, and once the work is used up strongly connected
    components are walked twice from below.

    Every class must be computable. Windows count positions.
    """
    component = draft.component
    order = np.lexsort((component, draft.part))
    starts = np.flatnonzero(np.diff(component[order], prepend=-1))
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    part_start = np.full(len(order) + 1, len(order), dtype=np.int64)
    np.minimum.at(part_start, draft.part, rank)
    position = rank - part_start[draft.part]
    sizes = np.diff(np.append(starts, len(order)))
    small = sizes <= _LARGE_COMPONENT
    anchor = position[order[np.repeat(starts, sizes)]]
    base = np.empty_like(order)
    base[order] = np.where(np.repeat(small, sizes), anchor, position[order])
    base = np.maximum(base // window - 1, 0) * window
    sets = _Sets(
        draft=draft,
        children=children,
        position=position.tolist(),
        base=base.tolist(),
        window=window,
        work=work,
    )
    listed = order.tolist()
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        if size == 1:
            sets.settle(listed[start])
        else:
            sets.settle_cycle(listed[start : start + size])
    first = (rank - position + base).tolist()
    return Necessities(
        position=sets.position,
        base=sets.base,
        mask=sets.mask,
        below=sets.below,
        order=listed,
        first=first,
        steps=sets.steps,
    )


class _Sets:
    """The sets while they are computed, component by component."""

    def __init__(
        self,
        draft: InstanceDraft,
        children: Sequence[Sequence[int]],
        position: list[int],
        base: list[int],
        window: int,
        work: int,
    ) -> None:
        self.children, self.position, self.base = children, position, base
        self.class_ptr = draft.class_ptr.tolist()
        self.mask = [1 << p - b for p, b in zip(position, base, strict=True)]
        self.below = [0] * draft.n_options
        self.window, self.work, self.steps = window, work, 0
        self.limit = (1 << 4 * window) - 1

    def settle(self, c: int) -> int:
        """Compute the set of a class from its children's current sets; return the new set."""
        base, mask, below = self.base, self.mask, self.below
        here = base[c]
        own = 1 << self.position[c] - here
        common = EVERYTHING
        for i in range(self.class_ptr[c], self.class_ptr[c + 1]):
            union = 0
            for d in self.children[i]:
                shift = here - base[d]
                if not shift:
                    union |= mask[d]
                elif shift > 0:
                    union |= mask[d] >> shift
                elif -shift <= self.window:  # within a large component only
                    union |= mask[d] << -shift & self.limit
            self.steps += 1 + len(self.children[i])
            below[i] = union
            if not union & own:
                common &= union
        result = common | own
        mask[c] = result
        return result

    def settle_cycle(self, classes: list[int]) -> None:
        """Compute the greatest solution within a strong component, if that is not too much work."""
        if not self._greatest(classes):
            for c in classes:
                self.mask[c] = 1 << self.position[c] - self.base[c]
            for _ in range(2):  # any number of rounds from below is sound
                for c in classes:
                    if self.settle(c) < 0:  # all its options need it, as far as can be seen
                        self.mask[c] = 1 << self.position[c] - self.base[c]

    def _greatest(self, classes: list[int]) -> bool:
        inside = set(classes)
        parents: dict[int, set[int]] = {c: set() for c in classes}
        for c in classes:
            self.mask[c] = EVERYTHING
            for i in range(self.class_ptr[c], self.class_ptr[c + 1]):
                for d in inside.intersection(self.children[i]):
                    parents[d].add(c)
        words = 1 + min(len(classes), 2 * self.window) // 256
        queue = deque(classes)
        queued = inside
        while queue:
            c = queue.popleft()
            queued.discard(c)
            before, old = self.steps, self.mask[c]
            changed = self.settle(c) != old
            self.steps += (words - 1) * (self.steps - before)
            if self.steps > self.work:
                return False
            if changed:
                for p in parents[c]:
                    if p not in queued:
                        queued.add(p)
                        queue.append(p)
        # Sets of options may have been computed before a child's set had settled.
        for c in classes:
            self.settle(c)
        return True
