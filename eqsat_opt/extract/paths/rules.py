"""Simplification of a problem with a critical path and limits.

A rule is applied only if it is sound for the total, the critical path and every limit at once.
Settling forced classes is not sound (classes that wait for them would start too early), so edges to
them stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from eqsat_opt.extract.bitsets import bits, union
from eqsat_opt.extract.critical_path import least_finish, least_tail
from eqsat_opt.extract.instance import options_by_class, possible_classes, strong_components
from eqsat_opt.extract.paths.instance import ROUNDING, PathInstance
from eqsat_opt.extract.simplify.necessity import necessity

__all__ = ["necessary", "prune", "reachable", "reduce_paths"]

_WORK = 4_000_000  # greatest number of words of bit sets for the rules with necessity sets


def reduce_paths(instance: PathInstance) -> PathInstance | None:
    """Drop what no optimum needs; None if a root cannot be computed within the path limit."""
    instance = _without_duplicates(_possible(instance))
    signed = instance.signed
    if not signed:
        instance = _settle_free(instance)
    if any(not instance.members[r] for r in instance.roots):
        return None
    if not signed:
        instance = _without_dominated(instance)
    return reachable(instance)


def prune(
    instance: PathInstance,
    best: float,
    total_bound: float,
    multipliers: Sequence[float] = (),
) -> PathInstance | None:
    """Drop options that no solution cheaper than `best` uses.

    A solution with option i of class c costs at least `total_bound`, the cheapest options of the
    classes that i and the roots need, and a chain through i. Its longest chain is at least the
    least finish of i and the least way from c up to a root. Within the limits the same holds for
    cost + multiplier · (load - capacity), which is not above the cost.

    Args:
        instance: the instance; costs must not be negative.
        best: value of a known solution.
        total_bound: lower bound on the total cost of every solution; with multipliers, the bound
            that they prove.
        multipliers: price of each limited metric; none means 0.

    Returns:
        The options that are left, with a path limit that follows from the bound; None if there are
        none, which proves that no solution is cheaper.
    """
    cost, credit = instance.cost, 0.0
    if any(multipliers):
        cost = [
            c + sum(m * u for m, u in zip(multipliers, load, strict=True))
            for c, load in zip(instance.cost, instance.load, strict=True)
        ]
        credit = sum(m * c for m, c in zip(multipliers, instance.capacity, strict=True))
    slack = (best + credit) * (1 + ROUNDING)
    bound = total_bound + credit
    limit = instance.path_limit
    if instance.alpha > 0:
        limit = min(limit, max(0.0, (slack - bound) / instance.alpha))
    floor = _Floor(instance, cost)
    members = [
        [
            i
            for i in m
            if floor.chain(c, i) <= limit * (1 + ROUNDING)
            and max(bound, floor.total(c, i)) + instance.alpha * floor.chain(c, i) <= slack
        ]
        for c, m in enumerate(instance.members)
    ]
    return reduce_paths(replace(instance, members=members, path_limit=limit))


class _Floor:
    """Lower bounds on cost and path of a solution with one option, under the given costs."""

    def __init__(self, instance: PathInstance, cost: Sequence[float]) -> None:
        members, children = instance.members, instance.children
        self._instance, self._cost = instance, cost
        self._finish = instance.finish()
        self._tail = least_tail(members, children, instance.path, instance.roots)
        self._path = max((self._finish[r] for r in instance.roots), default=0.0)
        self._costliest = least_finish(members, instance.option_class, children, cost)[0]
        self._costliest_tail = least_tail(members, children, cost, instance.roots)
        self._least = [min((cost[i] for i in m), default=0.0) for m in members]
        self._masks = necessary(instance)
        self._needed = union(self._masks, instance.roots) if self._masks is not None else 0
        self._base = math.fsum(self._least[c] for c in bits(self._needed))

    def chain(self, c: int, i: int) -> float:
        """Return a lower bound on the longest chain."""
        below = max((self._finish[d] for d in self._instance.children[i]), default=0.0)
        return max(below + self._instance.path[i] + self._tail[c], self._path)

    def total(self, c: int, i: int) -> float:
        """Return a lower bound on the total cost."""
        children = self._instance.children[i]
        below = max((self._costliest[d] for d in children), default=0.0)
        total = below + self._cost[i] + self._costliest_tail[c]
        if self._masks is None:
            return total
        extra = (union(self._masks, children) | 1 << c) & ~self._needed
        needed = self._base + math.fsum(self._least[d] for d in bits(extra))
        return max(total, needed + self._cost[i] - self._least[c])


def _possible(instance: PathInstance) -> PathInstance:
    """Drop options that close a cycle, cannot be computed or are too long by themselves."""
    finish, limit = instance.finish(), instance.path_limit * (1 + ROUNDING)
    members = [
        [
            i
            for i in m
            if c not in instance.children[i]
            and math.isfinite(max((finish[d] for d in instance.children[i]), default=0.0))
            and instance.path[i] + max((finish[d] for d in instance.children[i]), default=0.0)
            <= limit
        ]
        for c, m in enumerate(instance.members)
    ]
    return replace(instance, members=members)


def _uses_no_more(instance: PathInstance, i: int, j: int) -> bool:
    return (
        instance.cost[i] <= instance.cost[j]
        and instance.path[i] <= instance.path[j]
        and all(a <= b for a, b in zip(instance.load[i], instance.load[j], strict=True))
    )


def _without_duplicates(instance: PathInstance) -> PathInstance:
    """Keep those options that no other one with the same class and children beats."""
    members = []
    for m in instance.members:
        kept: dict[tuple[int, ...], list[int]] = {}
        for i in sorted(m, key=lambda i: (instance.cost[i], instance.path[i], instance.load[i], i)):
            rivals = kept.setdefault(instance.children[i], [])
            if not any(_uses_no_more(instance, j, i) for j in rivals):
                rivals.append(i)
        members.append(sorted(i for group in kept.values() for i in group))
    return replace(instance, members=members)


def _settle_free(instance: PathInstance) -> PathInstance:
    """Settle each class that has a tree without cost, time and load."""
    weight = [
        c + p + sum(load)
        for c, p, load in zip(instance.cost, instance.path, instance.load, strict=True)
    ]
    value, option = least_finish(instance.members, instance.option_class, instance.children, weight)
    free = [v == 0 for v in value]  # the longest chain is 0 exactly where the tree is
    if not any(free):
        return instance
    settled = dict(instance.settled)
    for c, is_free in enumerate(free):
        if is_free:
            settled[instance.class_ids[c]] = instance.option_ids[option[c]]
    return replace(
        instance,
        members=[[] if is_free else m for is_free, m in zip(free, instance.members, strict=True)],
        children=[tuple(d for d in ch if not free[d]) for ch in instance.children],
        roots=tuple(r for r in instance.roots if not free[r]),
        settled=settled,
    )


def necessary(instance: PathInstance) -> list[int] | None:
    """Return the set of classes below each class in every solution; None if too much work."""
    component = strong_components(instance.members, instance.children)
    order = sorted(range(instance.n_classes), key=component.__getitem__)
    return necessity(instance.members, instance.children, order, work=_WORK)


def _without_dominated(instance: PathInstance) -> PathInstance:
    """Drop A if a B of its class uses no more and waits only for classes below A.

    Classes below A have finished before A starts, so B is not later; it cannot close a cycle.
    """
    masks = necessary(instance)
    if masks is None:
        return instance
    members = []
    for c, m in enumerate(instance.members):
        below = {i: union(masks, instance.children[i]) for i in m}
        alive = [i for i in m if not below[i] >> c & 1]  # else it needs its own class
        if 1 < len(alive) <= 200:
            wants = {i: sum(1 << d for d in instance.children[i]) for i in alive}
            for a in sorted(alive, key=lambda i: (-instance.cost[i], -i)):
                if any(
                    b != a and not wants[b] & ~below[a] and _uses_no_more(instance, b, a)
                    for b in alive
                ):
                    alive.remove(a)
        members.append(alive)
    return replace(instance, members=members)


def reachable(instance: PathInstance) -> PathInstance:
    """Return the instance of the classes that the roots may need, with new numbers."""
    classes = sorted(possible_classes(instance.members, instance.children, instance.roots))
    local = {c: k for k, c in enumerate(classes)}
    options = [i for c in classes for i in instance.members[c]]
    option_class = [local[instance.option_class[i]] for i in options]
    return replace(
        instance,
        members=options_by_class(option_class, len(classes)),
        option_class=option_class,
        children=[tuple(local[d] for d in instance.children[i]) for i in options],
        cost=[instance.cost[i] for i in options],
        path=[instance.path[i] for i in options],
        load=[instance.load[i] for i in options],
        roots=tuple(local[r] for r in instance.roots),
        class_ids=[instance.class_ids[c] for c in classes],
        option_ids=[instance.option_ids[i] for i in options],
    )
