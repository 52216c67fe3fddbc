"""Rules of simplification that compare options by the classes that each needs in any case."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from eqsat_opt.extract.bitsets import bits, weigh
from eqsat_opt.extract.problem import FloatArray, IntArray
from eqsat_opt.extract.simplify.draft import InstanceDraft, sums
from eqsat_opt.extract.simplify.linear_rules import derivable
from eqsat_opt.extract.simplify.necessity import necessities
from eqsat_opt.extract.trees import cheapest_trees

__all__ = ["compare_options"]

_PAIRS = 100_000  # greatest number of pairs of options that are compared in one class
_RIVALS = (16, 256)  # least and greatest number of cheapest options that may beat the others


def compare_options(
    draft: InstanceDraft, *, start: Mapping[int, int] | None = None, work: int
) -> tuple[InstanceDraft, int]:
    """Drop options that are cyclic, beaten or too expensive; find forced classes.

    Forced classes count as free: edges to them from other components must have been cut.

    Every class must be computable. A known solution `start` (class to option, in the problem's
    numbers) prunes where it covers a connected part; `work` is a rough count of steps to take.

    Returns:
        The draft without the options, and the number of steps taken.
    """
    rules = _Comparison(draft, work)
    rules.drop_cyclic()
    rules.find_forced()
    rules.drop_dominated()
    rules.drop_too_costly(start, rules.drop_dominated_by_trees())
    alive = np.array(rules.alive, dtype=bool)
    forced = np.array(rules.forced, dtype=bool)
    return replace(draft, forced=forced).with_options(alive), rules.steps


@dataclass(frozen=True)
class _Private:
    """Classes that only one option uses, so that they are paid only with it.

    Attributes:
        is_private: `[n_classes]`, whether a class is private.
        least: `[n_classes]`, least cost of each class with the private ones below it.
        saved: `[n_options]`, cost of each option with the least of its private children.
    """

    is_private: list[bool]
    least: list[float]
    saved: list[float]


class _Comparison:
    """The rules on one draft, in the order in which they must run."""

    def __init__(self, draft: InstanceDraft, work: int) -> None:
        self.draft, self.work = draft, work
        self.children = draft.children_lists()
        self.members = draft.member_ranges()
        self.cost: list[float] = draft.cost.tolist()
        self.component: list[int] = draft.component.tolist()
        self.forced: list[bool] = draft.forced.tolist()
        self.alive = [True] * draft.n_options
        self.sets = necessities(draft, self.children, work=work // 2)
        self.steps = self.sets.steps

    def drop_cyclic(self) -> None:
        """Drop options that need their own class."""
        sets = self.sets
        for c, m in enumerate(self.members):
            own = sets.position[c] - sets.base[c]
            for i in m:
                if sets.below[i] >> own & 1:
                    self.alive[i] = False

    def find_forced(self) -> None:
        """Mark the classes that forced classes need as forced."""
        sets = self.sets
        known: dict[int, int] = {}  # by the position of the lowest bit
        stack = [c for c, is_forced in enumerate(self.forced) if is_forced]
        while stack:
            c = stack.pop()
            self.forced[c] = True
            first = sets.first[c]
            new = sets.mask[c] & ~known.get(first, 0)
            known[first] = known.get(first, 0) | new
            for k in bits(new):
                d = sets.order[first + k]
                if not self.forced[d]:
                    self.forced[d] = True
                    stack.append(d)

    def drop_dominated(self) -> None:
        """Drop A if a B of its class costs no more and needs only classes below A.

        Below A means below its class too, so B cannot close a cycle.
        """
        alive, below, cost = self.alive, self.sets.below, self.cost
        for c, m in enumerate(self.members):
            options, rivals = self._rivals(m)
            wants = [(cost[b], b, self._wanted(c, b)) for b in options[:rivals]]
            for a in reversed(options):
                beyond = ~below[a]
                for price, b, want in wants:
                    if price > cost[a]:
                        break
                    if not want & beyond and b != a and alive[b]:
                        alive[a] = False
                        break

    def _rivals(self, m: range) -> tuple[list[int], int]:
        """Return a class's options that are left, cheapest first, and how many may beat others.

        There are no options if there is nothing to compare, or comparing would be too much work.
        """
        options = [i for i in m if self.alive[i]]
        n = len(options)
        if n < 2:
            return [], 0
        fewest, most = _RIVALS
        rivals = min(n, max(fewest, min(most, _PAIRS // n)))
        words = 4 + self.sets.below[options[0]].bit_length() // 256
        if self.steps + n * rivals * words > self.work:
            return [], 0
        self.steps += n * rivals * words
        options.sort(key=self.cost.__getitem__)
        return options, rivals

    def _wanted(self, c: int, option: int) -> int:
        """Return an option's children in bits of its class; all bits if one is too far back."""
        position, base = self.sets.position, self.sets.base[c]
        want = 0
        for d in self.children[option]:
            if position[d] < base:
                return -1
            want |= 1 << position[d] - base
        return want

    def drop_dominated_by_trees(self) -> list[float]:
        """Drop A if B costs no more, even with whole trees for the children that A lacks.

        The cost of classes that only A uses is saved with it. The trees must be in other
        components, so that they cannot close a cycle. They end at forced classes, which are paid
        anyway. No option of a tree is dropped, so the trees stay valid while the rule runs.

        Returns:
            `[n_classes]`, cost of the tree of each class.
        """
        alive, cost, children = self.alive, self.cost, self.children
        component, position = self.component, self.sets.position
        value, choice = self._trees(self.forced)
        saved = self._private().saved
        for c, m in enumerate(self.members):
            options, rivals = self._rivals(m)
            base = self.sets.base[c]
            for a in reversed(options):
                if a == choice[c]:
                    continue
                below = self.sets.below[a]
                for b in options[:rivals]:
                    room = saved[a] - cost[b]
                    if room < 0:
                        break
                    if b == a or not alive[b]:
                        continue
                    for d in children[b]:
                        if position[d] < base or not below >> position[d] - base & 1:
                            if component[d] == component[c]:
                                room = -math.inf
                            else:
                                room -= value[d]
                            if room < 0:
                                break
                    if room >= 0:
                        alive[a] = False
                        break
        return value

    def _trees(self, free: list[bool]) -> tuple[list[float], list[int]]:
        """Return the cheapest trees of the options that are left; they end at free classes."""
        members = [[i for i in m if self.alive[i]] for m in self.members]
        option_class = self.draft.option_class.tolist()
        ends = [c for c, is_free in enumerate(free) if is_free]
        return cheapest_trees(members, option_class, self.children, self.cost, free=ends)

    def _private(self) -> _Private:
        """Find private classes, children before parents so that least costs below are known."""
        left = self.draft.child_ix[np.array(self.alive, dtype=bool)[self.draft.edge_option]]
        users = np.bincount(left, minlength=self.draft.n_classes)
        private = ((users == 1) & ~np.array(self.forced, dtype=bool)).tolist()
        saved = list(self.cost)
        least = [0.0] * self.draft.n_classes
        for c in self.sets.order:
            best = math.inf
            for i in self.members[c]:
                if self.alive[i]:
                    for d in self.children[i]:
                        if private[d]:
                            saved[i] += least[d]
                    best = min(best, saved[i])
            least[c] = best if math.isfinite(best) else 0.0
        return _Private(private, least, saved)

    def drop_too_costly(self, start: Mapping[int, int] | None, trees: list[float]) -> None:
        """Drop an option if every solution with it costs more than a known one.

        `trees` gives the cost of a tree of each class beyond forced classes, which are paid anyway.
        """
        part = self.draft.part
        upper = self._known_costs(start) * (1 + 1e-9)  # for sums in another order
        limit = upper[part[self.draft.option_class]]
        alive = np.array(self.alive, dtype=bool)
        alive &= ~(self._least_with_private(len(upper)) > limit)
        alive &= ~(self._least_with_needed(limit, len(upper), trees) > limit)
        self.alive = alive.tolist()

    def _rest(self, least: list[float], n_parts: int) -> FloatArray:
        """Return the least cost of the other forced classes of the same part, `[n_classes]`."""
        paid = np.where(np.array(self.forced, dtype=bool), np.array(least), 0.0)
        return sums(paid, self.draft.part, n_parts)[self.draft.part] - paid

    def _least_with_private(self, n_parts: int) -> FloatArray:
        """Return lower bounds on solutions with each option from private classes, `[n_options]`.

        The least cost of a private class is part of that of its user, and so on up to a class that
        is forced or shared: on the way back down it is replaced by that of the option.
        """
        found = self._private()
        rest = self._rest(found.least, n_parts).tolist()
        user: dict[int, int] = {}
        for i, children in enumerate(self.children):
            if self.alive[i]:
                user.update((d, i) for d in children if found.is_private[d])
        bound = [-math.inf] * self.draft.n_options
        for c in reversed(self.sets.order):
            others = bound[user[c]] - found.least[c] if found.is_private[c] else rest[c]
            for i in self.members[c]:
                bound[i] = others + found.saved[i]
        return np.array(bound)

    def _least_with_needed(self, limit: FloatArray, n_parts: int, trees: list[float]) -> FloatArray:
        """Return lower bounds on solutions with each option from necessity sets, `[n_options]`.

        Needed classes are added only where the tree of the option, which costs no less, is above
        the limit.
        """
        draft, sets = self.draft, self.sets
        least = [min((self.cost[i] for i in m if self.alive[i]), default=0.0) for m in self.members]
        unpaid = [0.0 if f else x for x, f in zip(least, self.forced, strict=True)]
        bound = self._rest(least, n_parts)[draft.option_class] + draft.cost
        below = sums(np.array(trees)[draft.child_ix], draft.edge_option, draft.n_options)
        weights = np.array(unpaid)[sets.order]
        for i in np.flatnonzero(bound + below > limit).tolist():
            self.steps += 16 + sets.below[i].bit_length() // 8
            if self.steps < self.work:
                bound[i] += weigh(sets.below[i], weights, sets.first[draft.option_class[i]])
        return bound

    def _known_costs(self, start: Mapping[int, int] | None) -> FloatArray:
        """Return the cost of the better of the tree greedy and the given solution, `[n_parts]`."""
        draft = self.draft
        _, choice = self._trees([False] * draft.n_classes)
        upper = _part_costs(draft, np.array(choice, dtype=np.int64))
        if start:
            row = {number: i for i, number in enumerate(draft.option_ids.tolist())}
            options = (row.get(start.get(c, -1), -1) for c in draft.class_ids.tolist())
            known = np.fromiter(options, np.int64, draft.n_classes)
            upper = np.minimum(upper, _part_costs(draft, known))
        return upper


def _part_costs(draft: InstanceDraft, choice: IntArray) -> FloatArray:
    """Return the cost of a choice (-1: none), `[n_parts]`; infinite if incomplete or cyclic."""
    chosen = np.zeros(draft.n_options, dtype=bool)
    chosen[choice[choice >= 0]] = True
    only = draft.with_options(chosen)
    reached = only.reached(draft.forced)
    broken = reached & (derivable(only, np.ones(only.n_options, dtype=bool)) < 0)
    n_parts = int(draft.part.max(initial=-1)) + 1
    paid = np.where(reached & (choice >= 0), draft.cost[choice], 0.0)
    costs = sums(paid, draft.part, n_parts)
    costs[draft.part[broken]] = math.inf
    return costs
