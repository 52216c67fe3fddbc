"""Products of two totals, exactly, by a sequence of weighted sums.

A^p · B^q is increasing and quasi-concave, so its least value over all solutions is at a vertex of
the lower-left hull of (A, B), and its least value over any outer approximation of the hull, at a
vertex of that, is a lower bound. Weighted sums find hull points and cut the outside off.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np

from eqsat_opt.extract.extraction import Choice, relative_gap
from eqsat_opt.extract.objective import Product
from eqsat_opt.extract.paths.state import Note
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.weighted_sum import BestRows, Rows, Solution
from eqsat_opt.extract.tradeoff.plane import HalfPlane, corners, lower_hull
from eqsat_opt.extract.tradeoff.weighted import offer_incumbent, solve_weighted

__all__ = ["solve_product"]

_TIE = 1e-12  # relative gap that rounding leaves
_ROUNDS = 60  # greatest number of weighted sums; a handful is common
_SHARE = 0.5  # share of the time left for one weighted sum


def solve_product(
    problem: Problem,
    cost: FloatArray,
    objective: Product,
    *,
    incumbent: Choice | None,
    settings: EffortSettings,
    time_limit_s: float,
    note: Note = lambda stage, cost, bound: None,
) -> Solution:
    """Minimise a product of two totals; the arguments are those of `solvers.solve`."""
    deadline = time.perf_counter() + time_limit_s
    forbidden = ~np.isfinite(cost)
    (first, p), (second, q) = objective.exponents.items()
    columns = problem.impl_cost[:, [problem.metrics.index(first), problem.metrics.index(second)]]
    best = BestRows(lambda rows: _powers(columns, rows, p, q))
    if incumbent is not None:
        offer_incumbent(problem, objective, forbidden, incumbent, best=best)
    inner = replace(settings, interruptible=False)
    points: list[tuple[float, float]] = []
    cuts: list[HalfPlane] = []

    def cut(weights: tuple[float, float]) -> None:
        solution = solve_weighted(
            problem,
            objective.weighted({first: weights[0], second: weights[1]}),
            forbidden,
            settings=inner,
            time_limit_s=max(0.0, deadline - time.perf_counter()) * _SHARE,
        )
        cuts.append(HalfPlane(*weights, solution.lower_bound))
        if solution.rows is not None:
            best.offer(solution.rows)
            x, y = columns[list(solution.rows.values())].sum(axis=0).tolist()
            points.append((x, y))

    bound = 0.0
    try:
        cut((1.0, 0.0))
        if math.isinf(cuts[0].bound):
            return Solution(None, math.inf)
        cut((0.0, 1.0))
        tried: set[tuple[float, float]] = set()
        for _ in range(_ROUNDS):
            outside = corners(cuts)
            values = [max(0.0, x) ** p * max(0.0, y) ** q for x, y in outside]
            bound = max(bound, min(values, default=0.0))
            note("weighted sums", best.value, min(bound, best.value))
            if relative_gap(best.value, bound) <= max(settings.gap, _TIE):
                break
            weights = _normal(points, outside, values)
            if weights is None or weights in tried:
                break
            tried.add(weights)
            cut(weights)
    except KeyboardInterrupt:
        if not settings.interruptible or best.rows is None:
            raise
    return Solution(best.rows, min(bound, best.value))


def _powers(columns: FloatArray, rows: Rows, p: float, q: float) -> float:
    chosen = columns[list(rows.values())]
    return math.pow(math.fsum(chosen[:, 0]), p) * math.pow(math.fsum(chosen[:, 1]), q)


def _normal(
    points: list[tuple[float, float]],
    outside: list[tuple[float, float]],
    values: list[float],
) -> tuple[float, float] | None:
    """Return weights of the found points' hull edge next to the least corner outside."""
    hull = lower_hull(points)
    if len(hull) < 2 or not outside:
        return None
    x, _ = outside[min(range(len(values)), key=values.__getitem__)]
    k = next((k for k, point in enumerate(hull) if point[0] >= x * (1 + 1e-12)), len(hull) - 1)
    (x0, y0), (x1, y1) = hull[max(k, 1) - 1], hull[max(k, 1)]
    total = (y0 - y1) + (x1 - x0)
    return (y0 - y1) / total, (x1 - x0) / total
