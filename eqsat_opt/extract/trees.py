"""Cheapest trees (Knuth 1977), and users of classes, over plain lists.

A class is a list of options, an option a list of child classes: the common part of drafts,
instances and path instances.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence

__all__ = ["cheapest_trees", "class_parents", "option_users"]


def cheapest_trees(
    members: Sequence[Sequence[int]],
    option_class: Sequence[int],
    children: Sequence[Sequence[int]],
    cost: Sequence[float],
    free: Collection[int] = (),
) -> tuple[list[float], list[int]]:
    """Return the least tree cost of each class and an option that reaches it (Knuth 1977).

    A shared class is paid at each use. Classes in `free` cost nothing and get no option.

    Returns:
        `[n_classes]` costs and options (-1: cannot be computed without a cycle). The options form
        no cycle, not even among classes of cost 0. In deep graphs with much sharing trees grow
        exponentially: an infinite cost with an option is one that overflowed.
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


def option_users(
    members: Sequence[Sequence[int]], children: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the options that have each class as a child."""
    users: list[list[int]] = [[] for _ in members]
    for options in members:
        for i in options:
            for d in children[i]:
                users[d].append(i)
    return users


def class_parents(
    members: Sequence[Sequence[int]], children: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Return the classes that have an option with the given class as a child, each once."""
    parents: list[set[int]] = [set() for _ in members]
    for c, options in enumerate(members):
        for i in options:
            for d in children[i]:
                parents[d].add(c)
    return [sorted(p) for p in parents]
