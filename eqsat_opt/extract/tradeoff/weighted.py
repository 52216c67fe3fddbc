"""Weighted sums as part of other searches, and a known solution to start from."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.extract.extraction import Choice, measured
from eqsat_opt.extract.objective import Objective, Product, Ratio
from eqsat_opt.extract.paths.mixed import solve_constrained
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.weighted_sum import BestRows, Solution, lower_choice, solve_priced

__all__ = ["Mask", "offer_incumbent", "solve_sum", "solve_weighted"]

Mask = npt.NDArray[np.bool_]


def solve_sum(problem: Problem, cost: FloatArray, objective: Objective, **options: Any) -> Solution:
    """Minimise the total, under limits and with a critical path if there are any."""
    if objective.needs_path or objective.limits:
        return solve_constrained(problem, cost, objective, **options)
    return solve_priced(problem, cost, **options)


def solve_weighted(
    problem: Problem,
    objective: Objective,
    forbidden: Mask,
    *,
    settings: EffortSettings,
    time_limit_s: float,
) -> Solution:
    """Minimise a weighted sum without the forbidden implementations."""
    prices = np.where(forbidden, np.inf, problem.impl_cost @ objective.vector(problem.metrics))
    return solve_sum(
        problem, prices, objective, incumbent=None, settings=settings, time_limit_s=time_limit_s
    )


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
    rows = lower_choice(problem, incumbent)
    used = measured(problem, objective, {c: incumbent[c] for c in rows})
    if objective.broken_limit(used) is None and not forbidden[list(rows.values())].any():
        best.offer(rows)
