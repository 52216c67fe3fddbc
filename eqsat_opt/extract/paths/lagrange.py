"""Limits on totals by Lagrangian relaxation: a bound, and solutions that nearly meet the limits.

A limit with a price on it is an ordinary extraction: each e-node takes its implementation of least
cost + λ·load, and min over x of cost + λ·(load − limit) bounds every solution within the limits.
The dual is concave and piecewise linear in λ; Kelley's cutting planes (J. SIAM 8, 1960) find its
maximum, in one dimension by way of the kinks of the trade-off curve. The structures found on the
way are then combined: CP-SAT chooses e-nodes and implementations from all of them under the limits
(for one structure that is the multiple-choice knapsack).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.paths.instance import from_problem
from eqsat_opt.extract.paths.model import solve_paths
from eqsat_opt.extract.paths.rules import reduce_paths
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.weighted_sum import Rows, Solution, raise_choice, solve_priced

__all__ = ["RelaxationStep", "bound_limited"]

_ROUNDS = 40
_PRECISION = 1e-4  # relative; the rest is the duality gap, which prices cannot close
_FIRST_PRECISION = 1e-2  # prices far from the best need no exact answer
_MERGE_SHARE = 0.25  # share of the time for combining structures
_MERGE_WORK = 5.0  # work limit of CP-SAT for the same, about seconds
_STEEP = 1e4  # largest price of a whole limit, in units of the cost


@dataclass(frozen=True)
class RelaxationStep:
    """One step of the relaxation.

    Attributes:
        rows: a solution, None if there is none; it may or may not keep the limits.
        lower_bound: lower bound on every solution within the limits; infinite if there is none.
        multipliers: prices of the limits that prove the bound, one for each.
    """

    rows: Rows | None
    lower_bound: float
    multipliers: tuple[float, ...]


@dataclass(frozen=True)
class _Point:
    """A solution in the dual, which sees only its cost and its loads."""

    rows: Rows
    cost: float
    loads: tuple[float, ...]


def bound_limited(
    problem: Problem,
    cost: FloatArray,
    limits: Mapping[str, float],
    *,
    settings: EffortSettings,
    deadline: float,
    best: Callable[[], float] = lambda: math.inf,
) -> Iterator[RelaxationStep]:
    """Yield solutions and bounds for the least total cost under limits, better and better.

    Costs are `[n_implementations]`, and an infinite one forbids. `best` is the cost of the best
    solution that the caller knows within the limits; `deadline` is a value of
    `time.perf_counter()`.

    Yields:
        The best bound so far and a solution; the rows of the last step keep the limits, if any
        could be found.
    """
    dual = _Dual(problem=problem, cost=cost, limits=limits, settings=settings, deadline=deadline)
    free = np.zeros(len(limits))
    yield dual.price(free, _FIRST_PRECISION)
    if not dual.points:
        return
    if dual.feasible() is not None:  # the limits may not bind at all
        yield dual.price(free, settings.gap)
        if dual.fits(dual.points[-1]):
            return
    for column in range(len(limits)):
        step = dual.least_load(column)
        yield step
        if math.isinf(step.lower_bound):
            return
    multipliers, gap = dual.next_prices()
    for _ in range(_ROUNDS):
        precision = max(settings.gap / 2, _PRECISION / 2, min(_FIRST_PRECISION, gap / 10))
        yield dual.price(multipliers, precision)
        multipliers, gap = dual.next_prices()
        closed = dual.bound >= best() * (1 - max(settings.gap, 1e-9))
        if gap <= 2 * precision <= 2 * max(settings.gap, _PRECISION) or closed or dual.late():
            break
    yield dual.combined()


class _Dual:
    """The Lagrangian dual as far as it is known."""

    def __init__(
        self,
        problem: Problem,
        cost: FloatArray,
        limits: Mapping[str, float],
        settings: EffortSettings,
        deadline: float,
    ) -> None:
        self._problem, self._cost, self._settings = problem, cost, settings
        self._limits = dict(limits)
        self._load = problem.impl_cost[:, [problem.metrics.index(name) for name in limits]]
        self._capacity = np.array(list(limits.values()), dtype=np.float64)
        self._start = time.perf_counter()
        self._deadline = deadline
        self.points: list[_Point] = []
        self.bound = 0.0
        self._multipliers = (0.0,) * len(self._limits)

    def late(self) -> bool:
        """Return whether the time for prices is up."""
        allowed = (self._deadline - self._start) * (1 - _MERGE_SHARE)
        return time.perf_counter() > self._start + allowed

    def _step(self, rows: Rows | None) -> RelaxationStep:
        return RelaxationStep(rows, self.bound, self._multipliers)

    def price(self, multipliers: FloatArray, precision: float) -> RelaxationStep:
        """Solve under prices on the limits."""
        prices = self._cost + self._load @ multipliers
        solution = self._solve(prices, precision)
        if solution.rows is None:
            return RelaxationStep(None, solution.lower_bound, self._multipliers)
        bound = solution.lower_bound - float(multipliers @ self._capacity)
        if bound > self.bound:
            self.bound, self._multipliers = bound, tuple(multipliers.tolist())
        self._add(solution.rows)
        return self._step(solution.rows)

    def least_load(self, column: int) -> RelaxationStep:
        """Solve for the least use of one limit; more than the limit proves that nothing fits."""
        prices = np.where(np.isfinite(self._cost), self._load[:, column], np.inf)
        # Among solutions of the same load, the cheaper ones are useful.
        finite = self._cost[np.isfinite(self._cost)]
        scale = float(self._load.max(initial=0.0)) / max(float(finite.max(initial=0.0)), 1e-300)
        tie = 1e-6 * min(scale, 1e12)
        solution = self._solve(prices + tie * self._cost, _PRECISION)
        if solution.rows is None:
            return RelaxationStep(None, self.bound, self._multipliers)
        self._add(solution.rows)
        used = self.points[-1].loads[column]
        limit = float(self._capacity[column])
        if used > limit * (1 + 1e-9):
            exact = self._solve(prices, 0.0)
            if exact.lower_bound > limit * (1 + 1e-9):
                return RelaxationStep(None, math.inf, self._multipliers)
            if exact.rows is not None:
                self._add(exact.rows)
        return self._step(solution.rows)

    def _solve(self, prices: FloatArray, precision: float) -> Solution:
        remaining = self._deadline - time.perf_counter()
        known = min(self.points, key=lambda p: prices[list(p.rows.values())].sum(), default=None)
        return solve_priced(
            self._problem,
            prices,
            incumbent=raise_choice(self._problem, known.rows) if known else None,
            settings=replace(self._settings, gap=max(self._settings.gap / 2, precision)),
            time_limit_s=max(0.0, remaining / 3),
        )

    def _add(self, rows: Rows) -> None:
        chosen = list(rows.values())
        loads = tuple(math.fsum(column) for column in self._load[chosen].T)
        point = _Point(dict(rows), math.fsum(self._cost[chosen]), loads)
        self.points.append(point)

    def feasible(self) -> _Point | None:
        """Return the cheapest point within the limits."""
        return min(filter(self.fits, self.points), key=lambda p: p.cost, default=None)

    def fits(self, point: _Point) -> bool:
        """Return whether a point is within the limits."""
        pairs = zip(point.loads, self._capacity.tolist(), strict=True)
        return all(used <= limit * (1 + 1e-9) for used, limit in pairs)

    def next_prices(self) -> tuple[FloatArray, float]:
        """Return prices at the cutting planes' maximum, and its relative distance to the bound."""
        from ortools.linear_solver import pywraplp  # takes a second or two: only when needed

        solver = pywraplp.Solver.CreateSolver("GLOP")
        most = max(p.cost for p in self.points) or 1.0
        # Prices are in units of cost per limit, so that the numbers are near one.
        unit = [
            max(limit, *(p.loads[k] for p in self.points), 1e-300)
            for k, limit in enumerate(self._capacity.tolist())
        ]
        prices = [solver.NumVar(0.0, _STEEP, "") for _ in unit]
        top = solver.NumVar(-solver.infinity(), solver.infinity(), "")
        for point in self.points:
            slope = [
                (load - limit) / u
                for load, limit, u in zip(point.loads, self._capacity.tolist(), unit, strict=True)
            ]
            terms = [s * price for s, price in zip(slope, prices, strict=True)]
            solver.Add(top <= point.cost / most + solver.Sum(terms))
        solver.Maximize(top)
        if solver.Solve() != pywraplp.Solver.OPTIMAL:
            return np.zeros(len(unit)), 0.0
        found = np.array(
            [most * max(0.0, p.solution_value()) / u for p, u in zip(prices, unit, strict=True)]
        )
        value = most * top.solution_value()
        return found, (value - self.bound) / value if value > 0 else 0.0

    def combined(self) -> RelaxationStep:
        """Combine e-nodes and implementations of all points; return the best within the limits."""
        owner = self._problem.implementation_node()
        nodes = {int(owner[row]) for point in self.points for row in point.rows.values()}
        allowed = np.isin(owner, sorted(nodes))
        objective = Objective({self._problem.metrics[0]: 1.0}, limits=self._limits)
        priced = np.where(allowed, self._cost, np.inf)
        part = reduce_paths(from_problem(self._problem, priced, objective))
        known = self.feasible()
        remaining = self._deadline - time.perf_counter()
        if part is None or remaining <= 0:
            return self._step(known.rows if known else None)
        hint = part.choice(known.rows, [-1] * part.n_classes) if known else None
        solved = solve_paths(
            part,
            hint=hint,
            time_limit_s=remaining,
            work_limit=_MERGE_WORK,
            gap=self._settings.gap / 2,
            seed=self._settings.seed,
            mode="interleaved" if self._settings.deterministic else "parallel",
        )
        if solved.choice is None:
            return self._step(known.rows if known else None)
        return self._step(part.rows(solved.choice))
