"""`extract`, the entry point for all objectives: always bounded, never worse than an incumbent."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.extraction import (
    Choice,
    Extraction,
    Status,
    TracePoint,
    measured,
    relative_gap,
)
from eqsat_opt.extract.objective import AnyObjective
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.solve.answer import EffortSettings, Method
from eqsat_opt.extract.solve.weighted_sum import raise_choice
from eqsat_opt.extract.solvers import solve

__all__ = ["conclude", "extract", "price", "value_of"]

_METHODS = ("auto", "greedy", "local", "lns", "exact")
_PROVEN = 1e-6  # relative gap that counts as optimal: float sums and the solver's integers
_STEP = 1e-3  # share of the cost: smaller steps of the bound are not reported


class _Recorder:
    """The best cost and bound so far, reported to the caller when one of them changes.

    Small steps of the bound are not reported, because hundreds of parts cause hundreds of them. The
    time between two notes belongs to the stage of the second, because a stage notes what it has
    done.
    """

    def __init__(self, progress: Callable[[TracePoint], None] | None) -> None:
        self._start = self._last = time.perf_counter()
        self._progress = progress
        self.trace: list[TracePoint] = []
        self.stages_s: dict[str, float] = {}
        self._cost, self._bound = math.inf, 0.0

    def note(self, stage: str, cost: float, lower_bound: float) -> None:
        now = time.perf_counter()
        self.stages_s[stage] = self.stages_s.get(stage, 0.0) + now - self._last
        self._last = now
        if math.isinf(cost) and not self.trace:
            return
        self._cost = min(self._cost, cost)
        self._bound = max(self._bound, min(lower_bound, self._cost))
        last = self.trace[-1] if self.trace else None
        if (
            last is None
            or self._cost < last.cost
            or self._bound - last.lower_bound > _STEP * self._cost
            or (stage == "result" and self._bound > last.lower_bound)
        ):
            point = TracePoint(stage, now - self._start, self._cost, self._bound)
            self.trace.append(point)
            if self._progress is not None:
                self._progress(point)


def extract(
    problem: Problem,
    objective: AnyObjective,
    *,
    incumbent: Choice | None = None,
    method: Method = "auto",
    time_limit_s: float = 10.0,
    gap: float = 0.0,
    seed: int = 0,
    deterministic: bool = False,
    patience: int = 24,
    interruptible: bool = False,
    progress: Callable[[TracePoint], None] | None = None,
) -> Extraction:
    """Choose an implementation for every class that the roots need, at the least total cost.

    Args:
        problem: the problem.
        objective: the objective and its limits.
        incumbent: a known solution, class to (e-node, implementation). The result is never worse,
            and is the incumbent itself when nothing strictly cheaper is found. An incumbent that
            breaks a limit is only a starting point.
        method: `greedy` (both greedies), `local` (adds local search and a search of small parts),
            `lns` (adds large neighbourhood search), `auto` (adds CP-SAT for what is still open) or
            `exact` (CP-SAT for all that simplification leaves).
        time_limit_s: wall-clock limit of the search; simplification and greedies always run.
        gap: relative gap at which to stop.
        seed: random seed of local search and of the solver.
        deterministic: whether choices are equal from run to run, unless the time limit strikes. All
            searches but the last, by CP-SAT's parallel workers, are repeatable anyway; this option
            makes the workers take turns, and they then take several times as long to prove hard
            problems. Without it the choice can only vary where the workers improve on the other
            searches by more than half the gap.
        patience: number of neighbourhoods without a gain after which large neighbourhood search
            ends.
        interruptible: whether to answer `KeyboardInterrupt` during the search with the best so far.
        progress: function that is called when the best cost falls or the bound rises noticeably.

    Returns:
        The best solution found with a lower bound; status `infeasible` if it is proven that there
        is none.

    Raises:
        ExtractionError: an option is invalid, the incumbent is not a solution, or no solution
            within the limits was found in time.
    """
    _check_options(method, time_limit_s, gap)
    recorder = _Recorder(progress)
    solution = solve(
        problem,
        price(problem, objective),
        objective,
        incumbent=incumbent,
        settings=EffortSettings(
            method,
            gap,
            seed,
            deterministic,
            patience=patience,
            interruptible=interruptible,
        ),
        time_limit_s=time_limit_s,
        note=recorder.note,
    )
    if solution.rows is None:
        if not math.isinf(solution.lower_bound):
            raise ExtractionError(
                f"no solution within the limits was found in {time_limit_s:g} s; "
                "allow more time, use method auto or exact, or loosen the limits"
            )
        return Extraction(
            choice={},
            cost=math.inf,
            lower_bound=math.inf,
            gap=0.0,
            status="infeasible",
            metrics={},
            objective=objective,
        )
    choice = raise_choice(problem, solution.rows)
    cost = value_of(problem, objective, choice)
    open_status: Status = "greedy" if method == "greedy" else "feasible"
    recorder.note("result", cost, solution.lower_bound)
    return replace(
        conclude(problem, objective, choice, solution.lower_bound, open_status=open_status),
        trace=tuple(recorder.trace),
        stages_s=recorder.stages_s,
    )


def conclude(
    problem: Problem,
    objective: AnyObjective,
    choice: Choice,
    lower_bound: float,
    open_status: Status,
) -> Extraction:
    """Return the extraction of a complete choice: `optimal` if the bound meets its cost."""
    cost = value_of(problem, objective, choice)
    if math.isnan(lower_bound):
        raise ExtractionError("the lower bound is not a number; please report this problem")
    bound = min(lower_bound, cost)
    gap = relative_gap(cost, bound)
    return Extraction(
        choice=choice,
        cost=cost,
        lower_bound=bound,
        gap=gap,
        status="optimal" if gap <= _PROVEN else open_status,
        metrics=measured(problem, objective, choice),
        objective=objective,
    )


def price(problem: Problem, objective: AnyObjective) -> FloatArray:
    """Return the linear part of the objective, `[n_implementations]`; infinite above a cap.

    Raises:
        ExtractionError: the objective names a metric that does not exist, or sums a peak.
    """
    for name in problem.peaks:
        in_path = objective.needs_path and objective.path.get(name)
        if objective.weighs(name) or name in objective.totals_limited or in_path:
            raise ExtractionError(
                f"{name} is the largest value of one implementation and no sum; cap it: max({name})"
            )
    cost: FloatArray = problem.impl_cost @ objective.vector(problem.metrics)
    for name, cap in objective.caps.items():
        cost = np.where(problem.impl_cost[:, problem.metrics.index(name)] <= cap, cost, np.inf)
    return cost


def value_of(problem: Problem, objective: AnyObjective, choice: Choice) -> float:
    """Return the objective of a choice, from its metrics."""
    return objective.value(measured(problem, objective, choice))


def _check_options(method: str, time_limit_s: float, gap: float) -> None:
    if method not in _METHODS:
        raise ExtractionError(f"unknown method {method!r}; choose from {', '.join(_METHODS)}")
    if not math.isfinite(time_limit_s) or time_limit_s < 0:
        raise ExtractionError(f"time_limit_s is {time_limit_s}; give a number of at least 0")
    if not 0 <= gap < 1:
        raise ExtractionError(f"gap is {gap}; give a number from 0 to below 1")
