"""Proven optima and lower bounds by CP-SAT.

Hard instances get eight workers even on few cores: the portfolio matters more than the speed of
each worker. One worker is repeatable at no price and starts sooner; it is enough for small
instances.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.solve.choice_model import ChoiceModel, scale_of

__all__ = [
    "Mode",
    "Solved",
    "run_solver",
    "solve_exactly",
    "solve_model",
]

Mode = Literal["parallel", "interleaved", "single", "cores", "plain-cores"]
"""The workers of a search.

They are workers that race (fast; ties go to the first one), the same ones taking turns in a fixed
order (repeatable, several times as slow), or a single one, which is repeatable. The single one
either follows the linear relaxation, or raises the bound by unsatisfiable cores of the cheapest
options, with or without tightening each core. Cores prove most problems for which the relaxation is
too weak; their time is a matter of luck, so another try may be short where one was long.
"""

_WORKERS = 8
_COST_BITS = 36  # of the scaled objective, so that each option loses at most 1e-11 of it


@dataclass(frozen=True)
class Solved:
    """The result of the solver.

    Attributes:
        choice: `[n_classes]` options (-1: not needed), or None when it found no solution.
        lower_bound: lower bound on the value of every solution; infinite when there is none.
        proven: whether the search ended (within the requested gap) before time or work ran out.
    """

    choice: list[int] | None
    lower_bound: float
    proven: bool


def solve_exactly(
    instance: Instance,
    *,
    hint: Sequence[int] | None = None,
    time_limit_s: float = 10.0,
    work_limit: float = math.inf,
    lower_bound: float = 0.0,
    gap: float = 0.0,
    seed: int = 0,
    mode: Mode = "parallel",
) -> Solved:
    """Minimise the DAG cost of an instance.

    Args:
        instance: the instance to extract from.
        hint: a solution to start from, `[n_classes]` options.
        time_limit_s: wall-clock limit.
        work_limit: limit on the solver's own count of work, about as many seconds on one core.
        lower_bound: known lower bound on the instance's cost.
        gap: relative gap at which to stop.
        seed: random seed of the solver.
        mode: the workers; all but `parallel` give equal choices from run to run unless the wall
            clock strikes.

    Raises:
        ExtractionError: the solver refused the model.
    """
    from ortools.sat.python import cp_model  # takes a second or two: only when needed

    if not instance.n_classes:
        return Solved([], 0.0, True)
    build = ChoiceModel(instance, cp_model.CpModel())
    costs = {i: instance.cost[i] for i in build.x}
    reference = most = math.fsum(
        max((instance.cost[i] for i in instance.members[c]), default=0.0) for c in build.order
    )
    if hint is not None:
        build.hint(hint)
        reference = min(instance.evaluate(hint), most)
    scale = scale_of(costs.values(), most, _COST_BITS, reference)
    variables, numbers, constant = build.scaled_sum(costs, scale)
    total = cp_model.LinearExpr.weighted_sum(variables, numbers) + constant
    build.model.minimize(total)
    if lower_bound > 0 and mode not in ("cores", "plain-cores"):
        # Costs were rounded down, each by less than one. Cores do without the row, because they
        # would have to explain it.
        build.model.add(total >= math.floor(lower_bound * scale) - instance.n_options)
    solver, status = solve_model(
        build.model, mode, time_limit_s=time_limit_s, work_limit=work_limit, gap=gap, seed=seed
    )
    if status == cp_model.INFEASIBLE:
        return Solved(None, math.inf, True)
    bound = max(lower_bound, instance.trivial_bound())
    if math.isfinite(solver.best_objective_bound):
        bound = max(bound, solver.best_objective_bound / scale)
    if status == cp_model.UNKNOWN:
        return Solved(None, bound, False)
    return Solved(build.choice(solver), bound, status == cp_model.OPTIMAL)


def solve_model(
    model: Any, mode: Mode, *, time_limit_s: float, work_limit: float, gap: float, seed: int
) -> tuple[Any, Any]:
    """Run a solver on a model; return the solver and its status.

    Raises:
        ExtractionError: the solver refused the model.
    """
    from ortools.sat.python import cp_model  # takes a second or two: only when needed

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = _WORKERS if mode in ("parallel", "interleaved") else 1
    if mode == "single":
        # The LP relaxation of all constraints is slow, and closes a small gap at once.
        solver.parameters.linearization_level = 2
    if mode in ("cores", "plain-cores"):
        solver.parameters.optimize_with_core = True
        solver.parameters.linearization_level = 0
        solver.parameters.cover_optimization = mode == "cores"
    solver.parameters.interleave_search = mode == "interleaved"
    solver.parameters.max_time_in_seconds = max(time_limit_s, 0.01)
    solver.parameters.relative_gap_limit = gap
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = work_limit
    status = run_solver(solver, model)
    if status == cp_model.MODEL_INVALID:
        raise ExtractionError(
            f"CP-SAT refused the model ({model.validate().splitlines()[:1]}); "
            "rescale the costs or drop a limit"
        )
    return solver, status


def run_solver(solver: Any, model: Any) -> Any:
    """Run the solver so that Ctrl-C ends it.

    On its own the solver would swallow the signal, and Python would not see it. The solver runs in
    a thread, because Python handles signals in the main thread and between its own instructions.
    """
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(max_workers=1) as pool:
        try:
            return pool.submit(solver.solve, model).result()
        except BaseException:
            solver.stop_search()
            raise
