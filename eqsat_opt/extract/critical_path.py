"""Critical paths: the exact least one of each class, and choices that weigh it against the total.

Knuth (1977), A generalization of Dijkstra's algorithm: with a superior function (no smaller than
any of its arguments, and monotone) the best derivation of every class is found in O(E log V), on
cyclic graphs too. `max + t` is such a function, and so is `b·(max + t) + Σ`.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence

__all__ = ["costliest_chain", "least_finish", "least_tail", "weighed_trees"]

Classes = Sequence[Sequence[int]]


def least_finish(
    members: Classes, option_class: Sequence[int], children: Classes, path: Sequence[float]
) -> tuple[list[float], list[int]]:
    """Return the exact least critical path of each class, each class on its own.

    Returns:
        `[n_classes]` lengths (infinite: cannot be computed without a cycle) and options that reach
        them (-1: none); the options form no cycle.
    """
    return _derive(members, option_class, children, path, path=path, balance=1.0, share=0.0)


def costliest_chain(
    members: Classes,
    option_class: Sequence[int],
    children: Classes,
    cost: Sequence[float],
    roots: Sequence[int],
) -> float:
    """Return a lower bound on the total cost: every solution pays for its most expensive chain.

    The least such chain over all choices is exact. Where an e-graph is deep rather than wide, as
    those of convolutional networks are, this bound is close to the optimum or meets it.

    Returns:
        The bound; infinite when a root cannot be computed.
    """
    finish = least_finish(members, option_class, children, cost)[0]
    return max((finish[r] for r in roots), default=0.0)


def least_tail(
    members: Classes,
    children: Classes,
    path: Sequence[float],
    roots: Sequence[int],
) -> list[float]:
    """Return the least length of a chain from above each class up to a root (Dijkstra).

    Returns:
        `[n_classes]` lengths, 0 for a root, infinite for a class that no root can need.
    """
    tail = [math.inf] * len(members)
    for r in roots:
        tail[r] = 0.0
    heap = [(0.0, r) for r in roots]
    while heap:
        value, c = heapq.heappop(heap)
        if value > tail[c]:
            continue
        for i in members[c]:
            above = value + path[i]
            for d in children[i]:
                if above < tail[d]:
                    tail[d] = above
                    heapq.heappush(heap, (above, d))
    return tail


def weighed_trees(
    members: Classes,
    option_class: Sequence[int],
    children: Classes,
    cost: Sequence[float],
    path: Sequence[float],
    balance: float,
) -> list[int]:
    """Return options with the least `balance · (critical path) + (tree cost)` of each class.

    This is a heuristic for the mixed objective: a tree pays for shared classes at each use.

    Returns:
        `[n_classes]` options (-1: none), which form no cycle.
    """
    return _derive(members, option_class, children, cost, path=path, balance=balance, share=1.0)[1]


def _derive(
    members: Classes,
    option_class: Sequence[int],
    children: Classes,
    cost: Sequence[float],
    path: Sequence[float],
    balance: float,
    share: float,
) -> tuple[list[float], list[int]]:
    n_classes = len(members)
    value = [math.inf] * n_classes
    choice = [-1] * n_classes
    finish = [0.0] * n_classes
    tree = [0.0] * n_classes
    users: list[list[int]] = [[] for _ in range(n_classes)]
    waiting = [0] * len(children)
    latest = [0.0] * len(children)
    below = [0.0] * len(children)
    heap: list[tuple[float, int]] = []

    def key(i: int) -> float:
        # Sums of numbers that are not negative round monotonically, so no key is below that of a
        # subtree. Trees of deep graphs overflow to infinity, which must not be multiplied by a
        # share of 0.
        trees = share * (below[i] + cost[i]) if share else 0.0
        return balance * (latest[i] + path[i]) + trees

    for options in members:
        for i in options:
            waiting[i] = len(children[i])
            for d in children[i]:
                users[d].append(i)
            if not waiting[i]:
                heap.append((key(i), i))
    heapq.heapify(heap)
    while heap:
        found, option = heapq.heappop(heap)
        c = option_class[option]
        if choice[c] >= 0:
            continue
        choice[c], value[c] = option, found
        finish[c] = latest[option] + path[option]
        tree[c] = below[option] + cost[option]
        for i in users[c]:
            waiting[i] -= 1
            latest[i] = max(latest[i], finish[c])
            below[i] += tree[c]
            if not waiting[i]:
                heapq.heappush(heap, (key(i), i))
    return value, choice
