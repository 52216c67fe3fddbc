"""Greedy extractions: cheapest tree (Knuth), and cost sets that see sharing.

Neither is always better than the other, so callers run both. Both give acyclic choices on cyclic
e-graphs.
"""

from __future__ import annotations

import heapq
import math
import time

import numpy as np

from eqsat_opt.extract.bitsets import weigh
from eqsat_opt.extract.instance import Instance, strong_components
from eqsat_opt.extract.trees import cheapest_trees, option_users

__all__ = ["sharing_greedy", "tree_greedy"]

_EXACT_CLASSES = 16_384  # up to this number the sets of the sharing greedy are complete
_WINDOW = 2_048  # number of classes
_TURNS = 256  # number of turns between two checks of the time


def tree_greedy(instance: Instance) -> list[int]:
    """Return the option of the cheapest tree for each class, -1 where there is none."""
    return cheapest_trees(
        instance.members, instance.option_class, instance.children, instance.cost
    )[1]


def sharing_greedy(
    instance: Instance, *, work: int = 50_000_000, until_s: float = math.inf
) -> list[int] | None:
    """Return a bottom-up greedy choice whose costs count each class below once.

    The method is that of the gym's faster-greedy-dag. Every class keeps the set of classes below
    its choice as a bit set; an option replaces the choice when the union of its children's sets is
    strictly cheaper. Strictness keeps the choice acyclic: along a cycle the recorded totals would
    have to fall for ever.

    In large instances a set reaches back by one or two windows of classes in topological order. For
    classes further back, only the costliest child's share is counted: most of it is shared.

    Args:
        instance: the instance.
        work: rough count of elementary steps after which the search ends.
        until_s: moment of `time.perf_counter` at which it ends as well.

    Returns:
        `[n_classes]` options (-1: none), or None when work or time ran out before the roots had
        one.
    """
    search = _SharingGreedy(instance)
    finished = search.run(work, until_s)
    found = finished or all(search.choice[root] >= 0 for root in instance.roots)
    return search.choice if found else None


class _SharingGreedy:
    """Choices with the cost and the set of the classes below them.

    `total[c]` is the cost of the classes below the choice of `c`, itself included: the classes in
    `below[c]`, with bits from `base[c]`, and `past[c]` for those further back.
    """

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        n = instance.n_classes
        self.window = n if n <= _EXACT_CLASSES else _WINDOW
        component = np.array(strong_components(instance.members, instance.children), dtype=np.int64)
        position = np.empty(n, dtype=np.int64)
        position[np.argsort(component, kind="stable")] = np.arange(n)
        self.position: list[int] = position.tolist()
        blocks = position // max(self.window, 1)
        self.base: list[int] = (np.maximum(blocks - 1, 0) * self.window).tolist()
        self.total = [math.inf] * n
        self.past = [0.0] * n
        self.below = [0] * n
        self.choice = [-1] * n
        self.weights = np.zeros(n + 3 * self.window)  # by position
        self.work = 0

    def run(self, work: int, until_s: float) -> bool:
        """Improve choices until none gets cheaper; return false if work or time ran out before."""
        instance, choice = self.instance, self.choice
        children = instance.children
        missing = [len(ch) for ch in children]
        users = option_users(instance.members, children)
        # Children come first, so that most totals are final when they are first used.
        rank = [self.position[c] * instance.n_options for c in instance.option_class]
        queue = [rank[i] + i for m in instance.members for i in m if not missing[i]]
        heapq.heapify(queue)
        queued = bytearray(1 if not count else 0 for count in missing)
        turns = 0
        while queue:
            turns += 1
            late = not turns % _TURNS and time.perf_counter() >= until_s
            if late or self.work >= work:
                return False
            option = heapq.heappop(queue) % instance.n_options
            queued[option] = 0
            c = instance.option_class[option]
            if not self._improve(c, option):
                continue
            if choice[c] < 0:
                for i in users[c]:
                    missing[i] -= 1
            choice[c] = option
            for i in users[c]:
                if not missing[i] and not queued[i]:
                    queued[i] = 1
                    heapq.heappush(queue, rank[i] + i)
        return True

    def _improve(self, c: int, option: int) -> bool:
        """Record an option's total and set if it is strictly cheaper than the choice."""
        total, below, base = self.total, self.below, self.base
        cost, best, here = self.instance.cost[option], total[c], base[c]
        children = self.instance.children[option]
        self.work += 1
        for d in children:
            if total[d] + cost >= best:
                return False
        value = past = costliest = 0.0
        union = 0
        for d in sorted(children, key=lambda d: -total[d]):
            shift, mask, before = here - base[d], below[d], self.past[d]
            if shift < -self.window:  # in a large component only, where order means little
                shift, mask, before = 0, 0, total[d]
            if shift > 0:
                lost = mask & (1 << shift) - 1
                before += self._weight(lost, base[d])
                mask >>= shift
            elif shift < 0:
                mask <<= -shift
            extra = mask & ~union
            if not union:
                costliest = total[d]
                value = max(0.0, total[d] - before)
            elif extra:
                value += self._weight(extra, here)
            past = max(past, before)
            union |= extra
        bit = 1 << self.position[c] - here
        value = max(value + past, costliest) + cost  # no rounding may make it cheaper than a child
        if union & bit or value >= best:
            return False
        total[c], below[c], self.past[c] = value, union | bit, past
        self.weights[self.position[c]] = cost
        return True

    def _weight(self, mask: int, base: int) -> float:
        """Return the cost of the choices of the classes in a set."""
        self.work += 1 + mask.bit_length() // 64
        return weigh(mask, self.weights, base)
