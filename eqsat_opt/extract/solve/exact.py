"""Proven optima and lower bounds by CP-SAT.

Acyclicity needs level variables only inside strongly connected components of more than one class.
Hard instances get eight workers even on few cores: the portfolio matters more than the speed of
each worker. One worker is repeatable at no price and starts sooner; it is enough for small
instances.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.instance import Instance, active_classes, strong_components

__all__ = [
    "Mode",
    "Solved",
    "add_levels",
    "hint_levels",
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
    model = cp_model.CpModel()
    component = strong_components(instance.members, instance.children)
    x, y = _choice_variables(model, instance)
    classes = range(instance.n_classes)
    levels = add_levels(model, classes, component, instance, x=dict(enumerate(x)))
    reference = math.fsum(max((instance.cost[i] for i in m), default=0.0) for m in instance.members)
    if hint is not None:
        reference = min(instance.evaluate(hint), reference)
    costs, scale = _scaled(instance.cost, reference, _COST_BITS)
    total = cp_model.LinearExpr.weighted_sum(x, costs)
    model.minimize(total)
    if lower_bound > 0 and mode not in ("cores", "plain-cores"):
        # Costs were rounded down, each by less than one. Cores do without the row, because they
        # would have to explain it.
        model.add(total >= math.floor(lower_bound * scale) - instance.n_options)
    if hint is not None:
        _add_hint(model, instance, component, hint, x=x, y=y, levels=levels)

    solver, status = solve_model(
        model, mode, time_limit_s=time_limit_s, work_limit=work_limit, gap=gap, seed=seed
    )
    if status == cp_model.INFEASIBLE:
        return Solved(None, math.inf, True)
    bound = max(lower_bound, instance.trivial_bound())
    if math.isfinite(solver.best_objective_bound):
        bound = max(bound, solver.best_objective_bound / scale)
    if status == cp_model.UNKNOWN:
        return Solved(None, bound, False)
    choice = [-1] * instance.n_classes
    for option, variable in enumerate(x):
        if solver.boolean_value(variable):
            choice[instance.option_class[option]] = option
    return Solved(choice, bound, status == cp_model.OPTIMAL)


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


def _choice_variables(model: Any, instance: Instance) -> tuple[list[Any], list[Any]]:
    """Make x for each option and y (needed) for each class; y is None for a root, always needed."""
    x = [model.new_bool_var("") for _ in instance.option_class]
    y: list[Any] = [None] * instance.n_classes
    roots = set(instance.roots)
    for c, m in enumerate(instance.members):
        options = [x[i] for i in m]
        if c in roots:
            model.add_exactly_one(options)
        elif len(m) == 1:
            y[c] = options[0]
        else:
            y[c] = model.new_bool_var("")
            model.add_exactly_one([*options, ~y[c]])
    for c, m in enumerate(instance.members):
        users: dict[int, list[int]] = {}
        for i in m:
            for d in instance.children[i]:
                users.setdefault(d, []).append(i)
        for d, options_using in users.items():
            if y[d] is None:
                continue
            if len(options_using) < len(m):
                # Σ x <= y for all options of c that use d: tighter than one row for each.
                model.add_at_most_one([*(x[i] for i in options_using), ~y[d]])
            elif y[c] is None:
                model.add_bool_or([y[d]])
            else:
                model.add_implication(y[c], y[d])
    return x, y


def add_levels(
    model: Any,
    classes: Sequence[int],
    component: Sequence[int],
    instance: Instance,
    x: Mapping[int, Any],
) -> dict[int, Any]:
    """Add a level for each class on a cycle; every chosen option is above its children.

    `x` is True for an option that every solution has.
    """
    size = Counter(component[c] for c in classes)
    levels = {
        c: model.new_int_var(0, size[component[c]] - 1, "")
        for c in classes
        if size[component[c]] > 1
    }
    for i, chosen in x.items():
        c = instance.option_class[i]
        for d in instance.children[i]:
            if d == c:
                model.add_bool_or([] if chosen is True else [~chosen])
            elif component[d] == component[c]:
                row = model.add(levels[c] >= levels[d] + 1)
                if chosen is not True:
                    row.only_enforce_if(chosen)
    return levels


def hint_levels(
    model: Any,
    levels: Mapping[int, Any],
    component: Sequence[int],
    chosen: Mapping[int, Sequence[int]],
) -> None:
    """Add the levels of a solution as hints; `chosen` has its classes, children first."""
    height: dict[int, int] = {}
    for c, children in chosen.items():
        same = (height[d] + 1 for d in children if component[d] == component[c])
        height[c] = max(same, default=0)
    for c, level in levels.items():
        model.add_hint(level, height.get(c, 0))


def _add_hint(
    model: Any,
    instance: Instance,
    component: Sequence[int],
    hint: Sequence[int],
    x: Sequence[Any],
    y: Sequence[Any],
    levels: dict[int, Any],
) -> None:
    order = active_classes(instance.children, hint, instance.roots)
    if order is None:
        return
    active = set(order)
    for i, c in enumerate(instance.option_class):
        model.add_hint(x[i], c in active and hint[c] == i)
    for c, m in enumerate(instance.members):
        if y[c] is not None and len(m) > 1:
            model.add_hint(y[c], c in active)
    chosen = {c: instance.children[hint[c]] for c in order}
    hint_levels(model, levels, component, chosen)


def _scaled(numbers: Sequence[float], reference: float, bits: int) -> tuple[list[int], float]:
    """Return integers and the scale that makes them: exact where a power of ten suffices.

    Otherwise they are rounded down, so that the scaled problem is a relaxation and its bound holds.
    """
    largest = max(numbers, default=0.0)
    for scale in (1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6):
        if sum(numbers) * scale > 2**bits:
            break
        rounded = [round(n * scale) for n in numbers]
        if all(
            math.isclose(r, n * scale, rel_tol=1e-14) for r, n in zip(rounded, numbers, strict=True)
        ):
            return rounded, scale
    if reference <= 0:
        return [0] * len(numbers), 1.0
    scale = 2.0**bits / reference
    if largest * scale * len(numbers) > 2**61:
        scale = 2.0**61 / (largest * len(numbers))
    return [math.floor(n * scale) for n in numbers], scale
