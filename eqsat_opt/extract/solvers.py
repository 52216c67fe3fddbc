"""The choice of a search for each kind of objective."""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.extract.extraction import Choice
from eqsat_opt.extract.objective import AnyObjective, Product, Ratio
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.weighted_sum import Solution
from eqsat_opt.extract.tradeoff.product import solve_product
from eqsat_opt.extract.tradeoff.ratio import solve_ratio
from eqsat_opt.extract.tradeoff.weighted import solve_sum

__all__ = ["solve"]


def solve(
    problem: Problem,
    cost: FloatArray,
    objective: AnyObjective,
    *,
    incumbent: Choice | None,
    settings: EffortSettings,
    time_limit_s: float,
    note: Callable[[str, float, float], None] = lambda stage, cost, bound: None,
) -> Solution:
    """Solve under prices `cost [n_implementations]`, the linear part; an infinite price forbids.

    Args:
        problem: the problem.
        cost: `[n_implementations]`; for products and quotients only where it is infinite matters.
        objective: the objective and its limits.
        incumbent: a known solution; the result is not worse if it keeps the limits.
        settings: effort of the search.
        time_limit_s: wall-clock limit of the search.
        note: function that is called with stage, best value and bound.

    Raises:
        ExtractionError: the incumbent is not a solution.
    """
    search: Callable[..., Solution] = solve_sum
    if isinstance(objective, Product):
        search = solve_product
    elif isinstance(objective, Ratio):
        search = solve_ratio
    return search(
        problem,
        cost,
        objective,
        incumbent=incumbent,
        settings=settings,
        time_limit_s=time_limit_s,
        note=note,
    )
