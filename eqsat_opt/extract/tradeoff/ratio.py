"""Quotients of two totals, exactly, by a sequence of weighted sums.

Dinkelbach, On nonlinear fractional programming (Management Science 13, 1967). With N - λ·D >= β for
all solutions, N/D >= λ + β/D, and D is bounded below. The prices N - λ·D may be negative, so a
solution must contain only needed classes; see `paths.rows`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from eqsat_opt.extract.extraction import Choice, relative_gap
from eqsat_opt.extract.objective import Objective, Ratio
from eqsat_opt.extract.paths.branch import branch_paths
from eqsat_opt.extract.paths.instance import PathInstance, from_problem
from eqsat_opt.extract.paths.model import solve_paths
from eqsat_opt.extract.paths.rules import reduce_paths
from eqsat_opt.extract.paths.state import Note
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.exact import Mode
from eqsat_opt.extract.solve.weighted_sum import BestRows, Rows, Solution
from eqsat_opt.extract.tradeoff.weighted import Mask, offer_incumbent, solve_weighted

__all__ = ["solve_ratio"]

_TIE = 1e-12  # relative gap that rounding leaves
_ROUNDS = 60  # greatest number of weighted sums; a handful is common
_SHARE = 0.5  # share of the time left for one weighted sum
_ALONE_OPTIONS, _ALONE_WORK = 3000, 0.5  # largest instance for one worker, and its work limit


def solve_ratio(
    problem: Problem,
    cost: FloatArray,
    objective: Ratio,
    *,
    incumbent: Choice | None,
    settings: EffortSettings,
    time_limit_s: float,
    note: Note = lambda stage, cost, bound: None,
) -> Solution:
    """Minimise a quotient of two weighted sums; solutions with a denominator of 0 do not count.

    The arguments are those of `solvers.solve`.
    """
    deadline = time.perf_counter() + time_limit_s
    forbidden = ~np.isfinite(cost)
    above = problem.impl_cost @ objective.vector(problem.metrics)
    below = problem.impl_cost @ objective.divisor(problem.metrics)
    best = BestRows(lambda rows: _quotient(above, below, rows))
    if incumbent is not None:
        offer_incumbent(problem, objective, forbidden, incumbent, best=best)
    if not (below[~forbidden] > 0).any():
        return Solution(None, math.inf)
    inner = replace(settings, interruptible=False)
    bound = 0.0
    try:
        for bound in _quotients(
            problem, objective, forbidden, best, settings=inner, deadline=deadline
        ):
            note("quotients", best.value, min(bound, best.value))
            if relative_gap(best.value, bound) <= max(settings.gap, _TIE):
                break
    except KeyboardInterrupt:
        if not settings.interruptible or best.rows is None:
            raise
    return Solution(best.rows, min(bound, best.value))


def _quotients(
    problem: Problem,
    objective: Ratio,
    forbidden: Mask,
    best: BestRows,
    settings: EffortSettings,
    deadline: float,
) -> Iterator[float]:
    """Yield bounds by Dinkelbach's steps, each of which also offers a better solution."""
    above = problem.impl_cost @ objective.vector(problem.metrics)
    below = problem.impl_cost @ objective.divisor(problem.metrics)
    smallest = float(below[(below > 0) & ~forbidden].min())  # denominators of 0 do not count
    for weights in (objective.numerator, objective.denominator):
        solution = solve_weighted(
            problem,
            objective.weighted(weights),
            forbidden,
            settings=settings,
            time_limit_s=max(0.0, deadline - time.perf_counter()) * _SHARE / 2,
        )
        if math.isinf(solution.lower_bound):
            yield math.inf
            return
        if solution.rows is not None:
            best.offer(solution.rows)
    smallest = max(smallest, solution.lower_bound)  # the second solution is that of the denominator
    template = objective.weighted(objective.numerator)
    # A quotient of sums is not below the least quotient of its terms.
    counts = (below > 0) & ~forbidden
    bound = float((above[counts] / below[counts]).min())
    for _ in range(_ROUNDS):
        before = best.value
        factor = before if math.isfinite(before) else _steep(above, below, forbidden)
        prices = np.where(forbidden, np.inf, above - factor * below)
        found, least = _least_signed(
            problem, prices, template, best.rows, settings=settings, deadline=deadline
        )
        if found is not None:
            best.offer(found)
        if best.rows is None and least >= 0:
            yield math.inf  # no solution has a denominator above 0
            return
        if math.isfinite(least):
            bound = max(bound, factor + min(0.0, least) / smallest)
        yield bound
        if not best.value < before * (1 - _TIE) or time.perf_counter() > deadline:
            return


def _steep(
    above: FloatArray,
    below: FloatArray,
    forbidden: Mask,
) -> float:
    """Return a factor at which any solution with a denominator above 0 has a negative price."""
    least = float(below[(below > 0) & ~forbidden].min())
    return 2 * float(above[~forbidden].sum()) / least + 1.0


def _quotient(above: FloatArray, below: FloatArray, rows: Rows) -> float:
    chosen = list(rows.values())
    divisor = math.fsum(below[chosen])
    return math.fsum(above[chosen]) / divisor if divisor > 0 else math.inf


def _least_signed(
    problem: Problem,
    prices: FloatArray,
    template: Objective,
    known: Rows | None,
    settings: EffortSettings,
    deadline: float,
) -> tuple[Rows | None, float]:
    """Return a solution of low price, and a bound on all prices, which may be negative."""
    instance = reduce_paths(from_problem(problem, prices, template))
    if instance is None:
        return None, math.inf
    start = _known_choice(instance, known)
    found, proven = branch_paths(instance, start)
    if proven:
        if found is None:
            return None, math.inf
        return instance.rows(found), instance.value(found)
    if settings.method in ("greedy", "local"):
        return (None if found is None else instance.rows(found)), -math.inf
    least = -math.inf
    modes: list[tuple[Mode, float]] = [("single", _ALONE_WORK)]
    modes.append(("interleaved" if settings.deterministic else "parallel", math.inf))
    for mode, work_limit in modes:
        remaining = deadline - time.perf_counter()
        if remaining <= 0 or (mode == "single" and instance.n_options > _ALONE_OPTIONS):
            continue
        solved = solve_paths(
            instance,
            hint=found,
            time_limit_s=remaining * _SHARE,
            work_limit=work_limit,
            seed=settings.seed,
            mode=mode,
        )
        found = solved.choice if solved.choice is not None else found
        least = max(least, solved.lower_bound)
        if solved.proven:
            break
    return (None if found is None else instance.rows(found)), least


def _known_choice(instance: PathInstance, known: Rows | None) -> list[int] | None:
    if known is None:
        return None
    choice = instance.choice(known, [-1] * instance.n_classes)
    return choice if math.isfinite(instance.value(choice)) else None
