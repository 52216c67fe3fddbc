"""Objectives with a critical path, and limits: search and bound on the path instance.

The bound combines two problems that are each easy to bound: every solution has at least the least
total (an ordinary extraction; under limits its Lagrangian dual, `lagrange`) and at least the least
critical path (exact, Knuth), so value >= total bound + alpha · least path. The gap that is left
also limits the critical path of every better solution, which excludes many options.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace

from eqsat_opt.extract.extraction import Choice
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.paths.branch import branch_paths
from eqsat_opt.extract.paths.instance import PathInstance, from_problem
from eqsat_opt.extract.paths.lagrange import bound_limited
from eqsat_opt.extract.paths.model import solve_paths
from eqsat_opt.extract.paths.neighbourhoods import (
    improve_by_exchanges,
    improve_by_neighbourhoods,
    portfolio,
)
from eqsat_opt.extract.paths.rules import prune, reduce_paths
from eqsat_opt.extract.paths.state import Note, PathState
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings
from eqsat_opt.extract.solve.exact import Mode
from eqsat_opt.extract.solve.weighted_sum import Solution, lower_choice, raise_choice, solve_priced
from eqsat_opt.extract.trees import cheapest_trees

__all__ = ["solve_constrained"]

_SEARCH_SHARE = 0.5  # greatest share of the time left for neighbourhoods; they end by patience
_BOUND_SHARE = 0.6  # greatest share of the time left for the bound on the total
_ALONE_OPTIONS, _ALONE_WORK = 3000, 0.5  # largest instance for one worker, and its work limit
_SOLVER_START_S = 0.05  # with less time left the solver is not worth starting


def solve_constrained(
    problem: Problem,
    cost: FloatArray,
    objective: Objective,
    *,
    incumbent: Choice | None,
    settings: EffortSettings,
    time_limit_s: float,
    note: Note = lambda stage, cost, bound: None,
) -> Solution:
    """Minimise total + alpha · critical path under limits; for arguments see `solvers.solve`."""
    deadline = time.perf_counter() + time_limit_s
    raw = from_problem(problem, cost, objective)
    state = PathState(raw, note)
    if incumbent is not None:
        state.offer(lower_choice(problem, incumbent))
    instance = reduce_paths(raw)
    if instance is None:
        return Solution(None, math.inf)
    least = instance.finish()
    least_path = max((least[r] for r in instance.roots), default=0.0)
    state.path_value = objective.critical_path * least_path
    state.raise_bound(instance.total_bound())
    for choice in portfolio(instance):
        state.offer_choice(instance, choice)
    state.tell("greedy")
    if settings.method != "greedy":
        try:
            inner = replace(settings, interruptible=False)  # the first interrupt stops all stages
            _search(
                problem, cost, objective, instance, state=state, settings=inner, deadline=deadline
            )
        except KeyboardInterrupt:
            if state.rows is None or not settings.interruptible:
                raise
    return Solution(state.rows, min(state.bound, state.value))


def _search(
    problem: Problem,
    cost: FloatArray,
    objective: Objective,
    instance: PathInstance,
    state: PathState,
    settings: EffortSettings,
    deadline: float,
) -> None:
    """Run the stages in the order of their price, each on what the bounds so far leave."""
    if state.closed(settings.gap):
        return
    found, proven = branch_paths(instance, _start(instance, state))
    if found is not None:
        state.offer_choice(instance, found)
    if proven:
        state.raise_bound(0.0, state.value)
        state.tell("branch and bound")
        return
    start = _start(instance, state)
    if start is not None:
        better = improve_by_exchanges(instance, start, seed=settings.seed, deadline=deadline)
        state.offer_choice(instance, better)
        state.tell("local search")
    if settings.method == "local":
        return
    if objective.totals_limited:  # many problems need no prices of the limits
        pruned = _proven_alone(instance, state, settings, deadline)
        if pruned is None or state.closed(settings.gap):
            return
        instance = pruned
    # The bound on the total comes next, because it excludes many options, and because the solutions
    # on the way are good starting points.
    _bound_total(problem, cost, objective, state, settings=settings, deadline=deadline)
    state.tell("bound on the total")
    if state.closed(settings.gap):
        return
    left = _proven_alone(instance, state, settings, deadline)
    if left is None or state.closed(settings.gap):
        return
    left = _searched_around(left, state, settings, deadline, share=_SEARCH_SHARE)
    if left is not None and settings.method != "lns" and not state.closed(settings.gap):
        _solved(left, state, settings, deadline)


def _proven_alone(
    instance: PathInstance, state: PathState, settings: EffortSettings, deadline: float
) -> PathInstance | None:
    """Prove with one worker: many problems are easy, and choice and proof are then repeatable.

    Returns:
        The instance of options that may still improve the solution; None if there are none.
    """
    left = _pruned(instance, state)
    if left is None or settings.method == "exact" or left.n_options > _ALONE_OPTIONS:
        return left
    _solved(left, state, settings, deadline, mode="single", work_limit=_ALONE_WORK)
    return left


def _solved(
    left: PathInstance,
    state: PathState,
    settings: EffortSettings,
    deadline: float,
    *,
    mode: Mode | None = None,
    work_limit: float = math.inf,
) -> None:
    """Let the solver prove what is left, or improve on it."""
    remaining = deadline - time.perf_counter()
    if remaining < _SOLVER_START_S:
        return
    solved = solve_paths(
        left,
        hint=_start(left, state),
        time_limit_s=remaining,
        work_limit=work_limit,
        gap=settings.gap,
        seed=settings.seed,
        mode=mode or ("interleaved" if settings.deterministic else "parallel"),
    )
    if solved.choice is not None:
        state.offer_choice(left, solved.choice)
    # Pruned options are worse than the best solution, so the bound must not exceed its value.
    state.raise_bound(0.0, min(solved.lower_bound, state.value))
    state.tell("solver")


def _searched_around(
    instance: PathInstance,
    state: PathState,
    settings: EffortSettings,
    deadline: float,
    share: float,
) -> PathInstance | None:
    """Search neighbourhoods; return the instance that may still be better, None if none can."""
    left = _pruned(instance, state)
    if left is None or settings.method == "exact" or state.closed(settings.gap):
        return left
    start = _start(left, state)
    if start is None:
        return left
    now = time.perf_counter()
    better = improve_by_neighbourhoods(
        left,
        start,
        patience=settings.patience,
        total_bound=state.total_bound,
        seed=settings.seed,
        target=state.bound * (1 + settings.gap),
        deadline=now + max(0.0, deadline - now) * share,
        report=lambda value: state.note("neighbourhoods", value, min(value, state.bound)),
    )
    state.offer_choice(left, better)
    return _pruned(left, state)


def _pruned(instance: PathInstance, state: PathState) -> PathInstance | None:
    """Return the options for a better solution; None, with a raised bound, if there is none."""
    if state.rows is None:
        return instance
    left = prune(instance, state.value, state.total_bound)
    if left is not None and any(state.multipliers):
        left = prune(left, state.value, state.priced_bound, state.multipliers)
    if left is None:
        state.raise_bound(0.0, state.value)
    return left


def _start(instance: PathInstance, state: PathState) -> list[int] | None:
    """Return the best solution in the instance's options, completed with trees."""
    if state.rows is None:
        return None
    cost = [max(0.0, c) for c in instance.cost]
    trees = cheapest_trees(instance.members, instance.option_class, instance.children, cost)[1]
    start = instance.choice(state.rows, trees)
    if math.isinf(instance.value(start)):
        start = instance.choice(state.rows, [-1] * instance.n_classes)
    return start if math.isfinite(instance.value(start)) else None


def _bound_total(
    problem: Problem,
    cost: FloatArray,
    objective: Objective,
    state: PathState,
    settings: EffortSettings,
    deadline: float,
) -> None:
    """Compute a bound on the total cost alone, and offer its solutions."""
    limits = objective.totals_limited
    remaining = max(0.0, deadline - time.perf_counter())
    if limits:
        for step in bound_limited(
            problem,
            cost,
            limits,
            settings=settings,
            deadline=time.perf_counter() + _BOUND_SHARE * remaining,
            best=lambda: state.value if not objective.needs_path else math.inf,
        ):
            if step.rows is not None:
                state.offer(step.rows)
            state.raise_bound(step.lower_bound)
            state.multipliers, state.priced_bound = step.multipliers, step.lower_bound
            state.tell("bound on the total")
    else:
        solution = solve_priced(
            problem,
            cost,
            incumbent=raise_choice(problem, state.rows) if state.rows is not None else None,
            settings=settings,
            time_limit_s=_BOUND_SHARE * remaining,
        )
        if solution.rows is not None:
            state.offer(solution.rows)
        state.raise_bound(solution.lower_bound)
