"""CP-SAT model with finish times, limits and several implementations: proofs and small repairs.

    min  Σ cost·x + alpha·CP        x: option chosen, y: class needed, F: its finish, CP >= F(root)
    F(c) >= F(d) + path(i)                          if option i of c is chosen and d is its child
    F(c) >= Σ_i x(i) · (path(i) + max_d L(d))       with L the exact least finish of each class
    F(c) >= F(d) + Σ_i x(i) · path(i)               if every option of c waits for d
    Σ load·x <= capacity,   CP <= path limit

The models are those of AutoGraph (Zheng et al., 2023, eq. 1) with the strengthening rows. Numbers
are scaled to integers and rounded down, so the model is a relaxation and its bound holds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from eqsat_opt.extract.paths.instance import PathInstance
from eqsat_opt.extract.paths.rows import PathModel
from eqsat_opt.extract.solve.exact import Mode, Solved, solve_model

__all__ = ["solve_paths"]


def solve_paths(
    instance: PathInstance,
    *,
    hint: Sequence[int] | None = None,
    time_limit_s: float = 10.0,
    work_limit: float = math.inf,
    gap: float = 0.0,
    seed: int = 0,
    mode: Mode = "parallel",
) -> Solved:
    """Minimise the value of an instance, whose costs may be negative; see `exact.solve_exactly`.

    Raises:
        ExtractionError: the solver refused the model.
    """
    from ortools.sat.python import cp_model  # takes a second or two: only when needed

    start_s = time.perf_counter()
    if any(not instance.members[r] for r in instance.roots):
        return Solved(None, math.inf, True)
    if not instance.roots:
        return Solved([-1] * instance.n_classes, 0.0, True)
    build = PathModel(instance, cp_model.CpModel())
    build.limits(cp_model)
    build.objective(cp_model)
    if hint is not None:
        build.hint(hint)
    solver, status = solve_model(
        build.model,
        mode,
        time_limit_s=time_limit_s - (time.perf_counter() - start_s),
        work_limit=work_limit,
        gap=gap,
        seed=seed,
    )
    if status == cp_model.INFEASIBLE:
        return Solved(None, math.inf, True)
    bound = -math.inf
    if math.isfinite(solver.best_objective_bound):
        bound = solver.best_objective_bound / build.scale
    if status == cp_model.UNKNOWN:
        return Solved(None, bound, False)
    return Solved(build.choice(solver), bound, status == cp_model.OPTIMAL)
