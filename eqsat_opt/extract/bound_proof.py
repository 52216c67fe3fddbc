"""A bound on the cost of every choice that others can check: linear programs of few cases."""

from __future__ import annotations

import heapq
import itertools
import math
import random
import time
from dataclasses import dataclass

import numpy as np

from eqsat_opt.checking.bound import BoundProof, Multipliers
from eqsat_opt.extract.engine import price
from eqsat_opt.extract.extraction import Choice
from eqsat_opt.extract.instance import Instance, from_rows, options_by_class
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.simplify.draft import InstanceDraft, pointers
from eqsat_opt.extract.simplify.linear_rules import (
    Settled,
    drop_duplicates,
    drop_impossible,
    drop_unreachable,
    settle_free,
)
from eqsat_opt.extract.solve.relaxation import Relaxation
from eqsat_opt.extract.solve.separation import Separator

__all__ = ["prove_bound"]

_DIGITS = 9
"""Digits of multipliers: any number of them gives a bound, and fewer give a shorter file."""
_CLOSED = 1e-7
"""Relative gap at which a bound is tight."""
_ROUNDS, _STALL, _GAIN = 60, 6, 0.02
"""Most rounds of new rows in a case, and over how many rounds they must close which share of the
gap."""
_WHOLE = 1e-6
"""How far an option that is taken, or is not, may be from it."""
_CASES = 200
"""Most splits: each case has a list of multipliers in the file."""


def prove_bound(
    problem: Problem, objective: Objective, choice: Choice, *, time_limit_s: float
) -> BoundProof:
    """Return a bound on the weighted sum of an objective, with the problem that it is about.

    Limits on totals and a critical path are left out, which can only lower the bound. So are
    options that no choice has: those that need themselves, and all but the cheapest of one e-node.

    Args:
        problem: the problem.
        objective: the objective.
        choice: the solution to compare the bound with.
        time_limit_s: limit on the time.
    """
    deadline = time.perf_counter() + time_limit_s
    cost = price(problem, objective)
    cheapest = problem.cheapest(cost)
    taken = {problem.row(*way) for way in choice.values()}
    rows = np.union1d(cheapest[np.isfinite(cost[cheapest])], np.array(sorted(taken)))
    draft = drop_impossible(InstanceDraft.of(from_rows(problem, cost, rows)))
    assert draft is not None, "the solution is a choice"
    whole = _instance(drop_unreachable(draft))
    # Classes that are free cost nothing in any case, and cuts are found sooner without them.
    rest = drop_unreachable(settle_free(drop_unreachable(draft), Settled()))
    chosen = tuple(i for i, row in enumerate(whole.option_ids) if row in taken)
    return _Cases(whole, _instance(drop_duplicates(rest)), chosen, deadline).proof()


def _instance(draft: InstanceDraft) -> Instance:
    """Return a draft as one instance, whatever its parts."""
    return Instance(
        members=options_by_class(draft.option_class.tolist(), draft.n_classes),
        option_class=draft.option_class.tolist(),
        children=draft.children_lists(),
        cost=draft.cost.tolist(),
        roots=tuple(np.flatnonzero(draft.forced).tolist()),
        class_ids=draft.class_ids.tolist(),
        option_ids=draft.option_ids.tolist(),
    )


@dataclass
class _Case:
    """The choices that take some options and do not take others.

    Attributes:
        options: options that are taken, and complements of others.
        bound: no such choice costs less.
        duals: multipliers of the rows.
        split: option to split it by; ``None`` where that is not known.
        inner: the case with this option, and the one without.
    """

    options: tuple[int, ...]
    bound: float
    duals: FloatArray
    split: int | None
    inner: tuple[_Case, ...] = ()


class _Cases:
    """A search for a bound by cases: the one with the lowest bound is split next."""

    def __init__(
        self, whole: Instance, instance: Instance, chosen: tuple[int, ...], deadline: float
    ) -> None:
        self._whole, self._instance = whole, instance
        self._chosen, self._deadline = chosen, deadline
        self._option_class = np.array(instance.option_class)
        self._starts = pointers(np.bincount(self._option_class))[:-1]
        self._cost = np.array(instance.cost)
        self._upper = math.fsum(whole.cost[one] for one in chosen)
        self._relaxation = Relaxation(instance)
        self._separator = Separator(instance)
        self._rng = random.Random(0)

    def proof(self) -> BoundProof:
        """Return the bound that the time allows, as a proof."""
        whole = self._solved((), np.zeros(0))
        numbers = itertools.count()
        waiting = [(whole.bound, next(numbers), whole)]
        for _ in range(_CASES):
            bound, _, case = heapq.heappop(waiting)
            if case.split is None or self._is_closed(bound) or self._left_s() <= 0:
                break
            case.inner = tuple(
                self._solved((*case.options, one), case.duals) for one in (case.split, ~case.split)
            )
            for one in case.inner:
                heapq.heappush(waiting, (one.bound, next(numbers), one))
        return self._written(whole)

    def _left_s(self) -> float:
        return self._deadline - time.perf_counter()

    def _is_closed(self, bound: float) -> bool:
        return bound >= self._upper * (1 - _CLOSED)

    def _solved(self, options: tuple[int, ...], duals: FloatArray) -> _Case:
        """Return a case with the best bound that the time allows, and that of known multipliers."""
        penalty = np.zeros(len(self._cost))
        for one in options:  # so that every case has a solution, however expensive
            penalty[max(one, ~one)] = -self._upper if one >= 0 else self._upper
        self._relaxation.price((self._cost + penalty).tolist())
        bounds, split = [self._bound(options, duals)], None
        for _ in range(_ROUNDS):
            taken = self._relaxation.solve(self._left_s()) if self._left_s() > 0 else None
            if taken is None:
                break
            now = self._relaxation.duals()
            bound = self._bound(options, now)
            if bound >= bounds[-1]:
                duals = now
            bounds.append(max(bound, bounds[-1]))
            split = self._most_open(taken)
            if self._is_closed(bound) or self._stalls(bounds):
                break
            cuts = self._separator.violated(taken, self._rng)
            if not cuts:
                break
            for inside, target in cuts:
                self._relaxation.cut(inside, target)
        return _Case(options, bounds[-1], duals, split)

    def _stalls(self, bounds: list[float]) -> bool:
        gain = bounds[-1] - bounds[max(0, len(bounds) - 1 - _STALL)]
        return len(bounds) > _STALL and gain < _GAIN * (self._upper - bounds[-1])

    def _most_open(self, taken: FloatArray) -> int | None:
        """Return the option that is worth a split; ``None`` where each one is taken or is not."""
        open_ = np.minimum(taken, 1 - taken)
        if not (open_ > _WHOLE).any():
            return None
        return int(np.argmax(open_ * (self._cost + _WHOLE * self._upper)))

    def _bound(self, options: tuple[int, ...], duals: FloatArray) -> float:
        """Return what multipliers show of a case, as a checker computes it."""
        relaxation = self._relaxation
        own = np.zeros(len(relaxation.reasons))
        own[: len(duals)] = duals
        own[[not inside for inside, _ in relaxation.reasons]] = 0
        total, paid = relaxation.weighed(own)
        rest = self._cost - paid
        needed = np.zeros(len(self._starts), dtype=bool)
        needed[list(self._instance.roots)] = True
        for one in options:
            if one < 0:
                rest[~one] = np.inf
            else:
                cls = self._option_class[one]
                needed[cls] = True
                rest[(self._option_class == cls) & (np.arange(len(rest)) != one)] = np.inf
        least = np.minimum.reduceat(rest, self._starts)
        return total + float(np.where(needed, least, np.minimum(least, 0)).sum())

    def _written(self, whole: _Case) -> BoundProof:
        instance, reasons = self._instance, self._relaxation.reasons
        numbers: dict[int, int] = {}

        def multipliers(duals: FloatArray) -> Multipliers:
            shown = [(row, float(f"{dual:.{_DIGITS}g}")) for row, dual in enumerate(duals) if dual]
            return tuple(
                (numbers.setdefault(row, len(numbers)), dual)
                for row, dual in shown
                if reasons[row][0]
            )

        class_of = {number: i for i, number in enumerate(self._whole.class_ids)}
        classes = [class_of[number] for number in instance.class_ids]
        option_of = {number: i for i, number in enumerate(self._whole.option_ids)}
        tree: list[int | Multipliers] = []
        pending = [whole]
        while pending:
            case = pending.pop()
            if case.inner:
                assert case.split is not None
                tree.append(option_of[instance.option_ids[case.split]])
                pending += reversed(case.inner)
            else:
                tree.append(multipliers(case.duals))
        given = self._whole
        return BoundProof(
            roots=tuple(given.roots),
            options=tuple(zip(given.option_class, given.cost, given.children, strict=True)),
            chosen=self._chosen,
            rows=tuple(
                (tuple(classes[c] for c in inside), tuple(classes[c] for c in needed))
                for inside, needed in (reasons[row] for row in numbers)
            ),
            tree=tuple(tree),
        )
