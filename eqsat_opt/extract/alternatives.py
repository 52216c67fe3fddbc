"""Further good solutions, for a race on the device where prices were only estimates."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from eqsat_opt.extract.engine import conclude, price
from eqsat_opt.extract.extraction import Choice, Extraction
from eqsat_opt.extract.objective import AnyObjective, Objective, Product, Ratio
from eqsat_opt.extract.problem import FloatArray, IntArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.weighted_sum import raise_choice
from eqsat_opt.extract.solvers import solve

__all__ = ["alternatives", "distance"]

_PENALTY = 0.05  # added to the price of an implementation for each solution that used it
_ATTEMPTS = 4  # number of searches for each requested solution


def distance(one: Choice, other: Choice) -> float:
    """Return the share of implementations that only one of two solutions has (Jaccard), 0 to 1."""
    a, b = set(one.items()), set(other.items())
    return 1.0 - len(a & b) / len(a | b) if a or b else 0.0


def alternatives(
    problem: Problem,
    objective: AnyObjective,
    extraction: Extraction,
    k: int,
    *,
    min_distance: float | None = None,
    min_cost_difference: float | None = None,
    time_limit_s: float = 5.0,
    seed: int = 0,
) -> tuple[Extraction, ...]:
    """Return up to `k` solutions that differ from the extraction and from each other.

    They are sorted by cost. Two sources take turns: implementations used so far get a higher price
    (which gives solutions that differ in many places), and one costly implementation is forbidden
    (which gives the best neighbours). Only local search is used, no solver.

    Args:
        problem: the problem.
        objective: the objective, whose limits are kept.
        extraction: the solution to deviate from; its bound is the bound of all solutions.
        k: greatest number of solutions.
        min_distance: solutions count as different if their `distance` is larger than this.
        min_cost_difference: solutions also count as different if their costs differ by more than
            this share of the cheaper one. Without either number, any two different choices count.
        time_limit_s: time after which no further attempt begins, s.
        seed: random seed of local search.
    """
    if k < 1 or not extraction.choice:
        return ()
    deadline = time.perf_counter() + time_limit_s
    cost, aim = _linear(problem, objective, extraction.metrics)
    used = np.zeros(len(cost))
    used[_rows(problem, extraction)] += 1
    pool: dict[tuple[tuple[int, tuple[int, int]], ...], Extraction] = {}
    picked: tuple[Extraction, ...] = ()
    forbidden = _replaceable(problem, cost, extraction)
    for attempt in range(_ATTEMPTS * k):
        if len(picked) >= k or time.perf_counter() > deadline:
            break
        if attempt % 2 == 0:
            prices = cost * (1 + _PENALTY * used)
        else:
            row = next(forbidden, None)
            if row is None:
                continue
            prices = cost.copy()
            prices[row] = np.inf
        solution = solve(
            problem,
            prices,
            aim,
            incumbent=extraction.choice,
            settings=EffortSettings("local", 0.0, seed, True),
            time_limit_s=max(0.0, deadline - time.perf_counter()),
        )
        if solution.rows is None:
            continue
        choice = raise_choice(problem, solution.rows)
        other = conclude(problem, objective, choice, extraction.lower_bound, open_status="feasible")
        used[_rows(problem, other)] += 1
        pool.setdefault(tuple(sorted(other.choice.items())), other)
        picked = _different(
            extraction, pool.values(), k, min_distance, min_cost_difference=min_cost_difference
        )
    return picked


def _linear(
    problem: Problem, objective: AnyObjective, metrics: Mapping[str, float]
) -> tuple[FloatArray, Objective]:
    """Return prices near the extraction, and an objective whose linear part they are.

    A product falls like the sum of its metrics, each weighed by exponent / total; a quotient is
    represented by its numerator.
    """
    if isinstance(objective, Product):
        weights = {m: x / (metrics[m] or 1.0) for m, x in objective.exponents.items()}
        objective = objective.weighted(weights)
    elif isinstance(objective, Ratio):
        objective = objective.weighted(objective.numerator)
    return price(problem, objective), objective


def _different(
    extraction: Extraction,
    pool: Iterable[Extraction],
    k: int,
    min_distance: float | None,
    min_cost_difference: float | None,
) -> tuple[Extraction, ...]:
    """Return the cheapest of the pool that differ from the extraction and from each other."""

    def differ(one: Extraction, other: Extraction) -> bool:
        if min_distance is None and min_cost_difference is None:
            return one.choice != other.choice
        if min_distance is not None and distance(one.choice, other.choice) > min_distance:
            return True
        apart = abs(one.cost - other.cost)
        return min_cost_difference is not None and apart > min_cost_difference * min(
            one.cost, other.cost
        )

    taken = [extraction]
    for candidate in sorted(pool, key=lambda e: e.cost):
        if len(taken) <= k and all(differ(candidate, other) for other in taken):
            taken.append(candidate)
    return tuple(taken[1:])


def _rows(problem: Problem, extraction: Extraction) -> IntArray:
    rows = [problem.row(*chosen) for chosen in extraction.choice.values()]
    return np.array(rows, dtype=np.int64)


def _replaceable(problem: Problem, cost: FloatArray, extraction: Extraction) -> Iterator[int]:
    """Return the used implementations that can be replaced, the most expensive first."""
    owner = problem.implementation_node()
    count = np.bincount(problem.node_class[owner], minlength=problem.n_classes)
    rows = [int(r) for r in _rows(problem, extraction) if count[problem.node_class[owner[r]]] > 1]
    return iter(sorted(rows, key=lambda row: (-cost[row], row)))
