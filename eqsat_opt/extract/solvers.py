"""Which search solves which objective; all have the signature of `weighted_sum.solve_priced`."""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.extract.extraction import Choice
from eqsat_opt.extract.objective import AnyObjective, Product, Ratio
from eqsat_opt.extract.paths.mixed import solve_constrained
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import Settings
from eqsat_opt.extract.solve.weighted_sum import Solution, solve_priced
from eqsat_opt.extract.tradeoff.product import solve_product
from eqsat_opt.extract.tradeoff.ratio import solve_ratio

__all__ = ["solve"]


def solve(
    problem: Problem,
    cost: FloatArray,
    objective: AnyObjective,
    *,
    incumbent: Choice | None,
    settings: Settings,
    time_limit_s: float,
    note: Callable[[str, float, float], None] = lambda stage, cost, bound: None,
) -> Solution:
    """Solve under prices `cost [n_implementations]`; an infinite price forbids.

    Raises:
        ExtractionError: the incumbent is not a solution.
    """
    return _search_for(objective)(
        problem,
        cost,
        objective,
        incumbent=incumbent,
        settings=settings,
        time_limit_s=time_limit_s,
        note=note,
    )


def _search_for(objective: AnyObjective) -> Callable[..., Solution]:
    if isinstance(objective, Product):
        return solve_product
    if isinstance(objective, Ratio):
        return solve_ratio
    return solve_constrained if objective.limits or objective.needs_path else solve_priced
