"""What searches by way of weighted sums share: the sums, and the best solution so far."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from eqsat_opt.extract.extraction import Choice, active_order, measured
from eqsat_opt.extract.objective import Objective, Product, Ratio
from eqsat_opt.extract.paths.mixed import solve_constrained
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import Settings
from eqsat_opt.extract.solve.weighted_sum import Rows, Solution, solve_priced

__all__ = ["BestRows", "Mask", "offer_incumbent", "solve_weighted"]

Mask = npt.NDArray[np.bool_]

_TIE = 1e-12  # relative difference below which the earlier solution stays


def solve_weighted(
    problem: Problem,
    objective: Objective,
    forbidden: Mask,
    *,
    settings: Settings,
    time_limit_s: float,
) -> Solution:
    """Solve for a weighted sum, under limits if there are any."""
    cost: FloatArray = problem.impl_cost @ objective.vector(problem.metrics)
    cost = np.where(forbidden, np.inf, cost)
    constrained = objective.needs_path or objective.limits
    solve = solve_constrained if constrained else solve_priced
    return solve(
        problem,
        cost,
        objective,
        incumbent=None,
        settings=settings,
        time_limit_s=time_limit_s,
    )


class BestRows:
    """The best solution offered; an earlier one stays unless a later one is clearly better."""

    def __init__(self, value_of: Callable[[Rows], float]) -> None:
        self._value_of = value_of
        self.rows: Rows | None = None
        self.value = math.inf

    def offer(self, rows: Rows) -> None:
        value = self._value_of(rows)
        if value < self.value * (1 - _TIE) or (self.rows is None and math.isfinite(value)):
            self.rows, self.value = rows, value


def offer_incumbent(
    problem: Problem,
    objective: Product | Ratio,
    forbidden: Mask,
    incumbent: Choice,
    best: BestRows,
) -> None:
    """Offer a known solution if it keeps all limits.

    Raises:
        ExtractionError: it is not a solution.
    """
    order = active_order(problem, incumbent)
    used = measured(problem, objective, {c: incumbent[c] for c in order})
    rows = {c: int(problem.impl_ptr[incumbent[c][0]]) + incumbent[c][1] for c in order}
    if objective.broken_limit(used) is None and not forbidden[list(rows.values())].any():
        best.offer(rows)
