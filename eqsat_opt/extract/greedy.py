"""Greedy extractions: cheapest tree (Knuth), and cost sets that see sharing.

Neither is always better than the other, so callers run both. Both give acyclic choices on cyclic
e-graphs.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Collection, Sequence

import numpy as np

from eqsat_opt.extract.instance import Instance

__all__ = ["cheapest_trees", "class_parents", "sharing_greedy", "tree_greedy"]


def cheapest_trees(
    members: Sequence[Sequence[int]],
    option_class: Sequence[int],
    children: Sequence[Sequence[int]],
    cost: Sequence[float],
    free: Collection[int] = (),
) -> tuple[list[float], list[int]]:
    """Least tree cost of each class and an option that reaches it (Knuth 1977).

    A shared class is paid at each use. Classes in `free` cost nothing and get no option.

    Returns:
        `[n_classes]` costs (infinite: cannot be computed without a cycle) and options (-1: none).
        The options form no cycle, among classes of cost 0 neither.
    """
    n_classes, n_options = len(members), len(children)
    best = [math.inf] * n_classes
    choice = [-1] * n_classes
    users: list[list[int]] = [[] for _ in range(n_classes)]
    waiting = [0] * n_options
    total = [0.0] * n_options
    heap: list[tuple[float, int]] = []
    for options in members:
        for i in options:
            waiting[i] = len(children[i])
            total[i] = cost[i]
            for d in children[i]:
                users[d].append(i)
            if not waiting[i]:
                heap.append((cost[i], i))
    settled = bytearray(n_classes)
    for c in free:
        settled[c] = 1
        best[c] = 0.0
        for i in users[c]:
            waiting[i] -= 1
            if not waiting[i]:
                heap.append((total[i], i))
    heapq.heapify(heap)
    while heap:
        value, option = heapq.heappop(heap)
        c = option_class[option]
        if settled[c]:
            continue
        settled[c] = 1
        best[c] = value
        choice[c] = option
        for i in users[c]:
            waiting[i] -= 1
            total[i] += value
            if not waiting[i]:
                heapq.heappush(heap, (total[i], i))
    return best, choice


def tree_greedy(instance: Instance) -> list[int]:
    """The option of the cheapest tree for each class, -1 where there is none."""
    return cheapest_trees(
        instance.members, instance.option_class, instance.children, instance.cost
    )[1]


def sharing_greedy(instance: Instance, *, work: int = 20_000_000) -> list[int] | None:
    """Bottom-up greedy whose costs count each class below once (as the gym's faster-greedy-dag).

    Every class keeps the set of classes below its choice as a bit set; an option replaces the
    choice when the union of its children's sets is strictly cheaper. Strictness keeps the choice
    acyclic: along a cycle the recorded totals would have to fall for ever.

    Args:
        instance: what to extract from.
        work: set words and options that may be touched.

    Returns:
        `[n_classes]` options (-1: none), or None when the work ran out.
    """
    members, children, cost = instance.members, instance.children, instance.cost
    n = instance.n_classes
    users: list[list[int]] = [[] for _ in range(n)]
    missing = [len(ch) for ch in children]
    for options in members:
        for i in options:
            for d in children[i]:
                users[d].append(i)
    total = [math.inf] * n
    below = [0] * n
    choice = [-1] * n
    chosen_cost = np.zeros(n)
    queue = deque(i for options in members for i in options if not missing[i])
    queued = bytearray(instance.n_options)
    for i in queue:
        queued[i] = 1
    words = 1 + n // 64
    while queue:
        option = queue.popleft()
        queued[option] = 0
        c = instance.option_class[option]
        work -= 1
        if any(total[d] + cost[option] >= total[c] for d in children[option]):
            continue
        value, union = cost[option], 0
        for d in sorted(children[option], key=lambda d: -total[d]):
            work -= words
            extra = below[d] & ~union
            value += total[d] if extra == below[d] else _weight(extra, chosen_cost)
            union |= extra
        if work < 0:
            return None
        bit = 1 << c
        if union & bit or value >= total[c]:
            continue
        if choice[c] < 0:
            for i in users[c]:
                missing[i] -= 1
        total[c], below[c], choice[c] = value, union | bit, option
        chosen_cost[c] = cost[option]
        for i in users[c]:
            if not missing[i] and not queued[i]:
                queued[i] = 1
                queue.append(i)
    return choice


def _weight(mask: int, weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """Sum of the weights at the bits of a mask."""
    if mask.bit_count() <= 16:
        value = 0.0
        while mask:
            low = mask & -mask
            value += float(weights[low.bit_length() - 1])
            mask ^= low
        return value
    raw = mask.to_bytes((mask.bit_length() + 7) // 8, "little")
    bits = np.unpackbits(np.frombuffer(raw, dtype=np.uint8), bitorder="little")
    return float(weights[np.flatnonzero(bits)].sum())


def class_parents(
    members: Sequence[Sequence[int]], children: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Classes that have an option with the given class as a child, each once."""
    parents: list[set[int]] = [set() for _ in members]
    for c, options in enumerate(members):
        for i in options:
            for d in children[i]:
                parents[d].add(c)
    return [sorted(p) for p in parents]
