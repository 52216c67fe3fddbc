"""`extract`: simplify, greedies, local search, exact solver; always with a bound, never worse.

The order of the stages is that of their price: what simplification or a small search proves never
starts the solver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.extraction import (
    Choice,
    Extraction,
    Status,
    TracePoint,
    active_order,
    measured,
    relative_gap,
)
from eqsat_opt.extract.instance import Instance, active_classes, from_problem, join
from eqsat_opt.extract.objective import AnyObjective, Objective
from eqsat_opt.extract.paths.critical_path import dearest_chain
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.simplify.fixpoint import Reduction, simplify
from eqsat_opt.extract.solve.answer import Answer, Method, Settings, first_answer, overload
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy
from eqsat_opt.extract.solve.parts import search_parts

__all__ = ["Solution", "conclude", "extract", "price", "raise_choice", "solve_priced", "value_of"]

_METHODS = ("auto", "greedy", "local", "lns", "exact")
_PROVEN = 1e-6  # relative gap that counts as optimal: float sums and the solver's integers
_STEP = 1e-3  # of the cost: smaller movements of the bound are not reported
_TIE = 1e-12  # relative difference below which the incumbent stays

Rows = Mapping[int, int]
"""Class to row of `Problem.impl_cost`."""


@dataclass(frozen=True)
class Solution:
    """Best choice in rows (None: nothing found) and a bound, infinite if there is no solution."""

    rows: Rows | None
    lower_bound: float


class _Recorder:
    """Keeps the best cost and bound seen and tells the caller when one of them moves.

    Small steps of the bound are passed over: with hundreds of parts there are hundreds of them.
    The time between two notes belongs to the stage of the second: a stage notes what it has done.
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
    """Choose an implementation for every class that the roots need, at least total cost.

    Args:
        problem: what to choose from.
        objective: what to minimise, under which limits.
        incumbent: a known solution, class to (e-node, implementation). The result is never worse,
            and is the incumbent itself when nothing strictly cheaper is found. An incumbent that
            breaks a limit is only a starting point.
        method: `greedy` (both greedies), `local` (adds local search and a search of small parts),
            `lns` (adds large neighbourhood search), `auto` (adds CP-SAT for what is still open) or
            `exact` (CP-SAT for all that simplification leaves).
        time_limit_s: wall-clock limit of the search; simplification and greedies always run.
        gap: relative gap at which to stop.
        seed: of local search and solver.
        deterministic: equal choices from run to run unless the time limit strikes. All searches but
            the last, of CP-SAT's parallel workers, are repeatable anyway; this makes the workers
            take turns, and they take several times as long to prove hard problems. Without it the
            choice can only vary where they improve on the other searches by more than half the gap.
        patience: neighbourhoods without a gain after which large neighbourhood search ends.
        interruptible: answer `KeyboardInterrupt` during the search with the best so far.
        progress: called when the best cost falls or the bound rises noticeably.

    Returns:
        The best solution found with a lower bound; status `infeasible` if it is proven that there
        is none.

    Raises:
        ExtractionError: an option has no meaning, the incumbent is not a solution, or no solution
            within the limits was found in time.
    """
    from eqsat_opt.extract.solvers import solve  # its searches are built on this module

    _check_options(method, time_limit_s, gap)
    recorder = _Recorder(progress)
    solution = solve(
        problem,
        price(problem, objective),
        objective,
        incumbent=incumbent,
        settings=Settings(
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
        return Extraction({}, math.inf, math.inf, 0.0, "infeasible", {}, objective)
    choice = raise_choice(problem, solution.rows)
    cost = value_of(problem, objective, choice)
    open_status: Status = "greedy" if method == "greedy" else "feasible"
    recorder.note("result", cost, solution.lower_bound)
    return replace(
        conclude(problem, objective, choice, solution.lower_bound, open_status),
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
    """The extraction for a complete choice: cost recomputed, `optimal` if the bound meets it."""
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
    """`[n_implementations]`: the linear part of the objective; infinite above a cap."""
    cost: FloatArray = problem.impl_cost @ objective.vector(problem.metrics)
    for name, cap in objective.caps.items():
        cost = np.where(problem.impl_cost[:, problem.metrics.index(name)] <= cap, cost, np.inf)
    return cost


def value_of(problem: Problem, objective: AnyObjective, choice: Choice) -> float:
    """Objective of a choice, from its metrics."""
    return objective.value(measured(problem, objective, choice))


def raise_choice(problem: Problem, rows: Rows) -> dict[int, tuple[int, int]]:
    """Rows to (e-node, implementation), for the needed classes in ascending order.

    Raises:
        ExtractionError: the rows are incomplete or cyclic.
    """
    owner = problem.implementation_node()
    choice = {}
    for c, row in rows.items():
        node = int(owner[row])
        choice[c] = (node, row - int(problem.impl_ptr[node]))
    return {c: choice[c] for c in sorted(active_order(problem, choice))}


def solve_priced(
    problem: Problem,
    cost: FloatArray,
    objective: Objective,
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
    deadline = time.perf_counter() + time_limit_s
    instance = from_problem(problem, cost, objective)
    known = _incumbent_rows(problem, incumbent)
    start = _start_options(problem, instance, known)
    limits = tuple(objective.limits.values())
    best = _Best(
        cost, problem.impl_cost[:, [*map(problem.metrics.index, objective.limits)]], limits
    )
    best.offer(known)
    try:
        reduction = simplify(instance, start=start)
    except KeyboardInterrupt:
        if not settings.interruptible:
            raise
        _offer_greedies(instance, limits, best)
        return Solution(best.rows, min(instance.trivial_bound(), best.cost))
    note("simplify", math.inf, 0.0)
    if reduction is None:
        return Solution(None, math.inf)
    parts = reduction.parts
    if limits:
        parts = (join(parts),) if parts else ()
        room = [limit - used for limit, used in zip(limits, reduction.load, strict=True)]
        if any(r < -1e-9 * limit for r, limit in zip(room, limits, strict=True)):
            return Solution(None, math.inf)
        settings = replace(settings, capacity=tuple(max(r, 0.0) for r in room))
    answers = [first_answer(part, start, settings) for part in parts]
    chain = dearest_chain(
        instance.members, instance.option_class, instance.children, instance.cost, instance.roots
    )
    tally = _Tally(reduction, answers, note, chain)
    tally.tell("greedy")
    if settings.method != "greedy" and relative_gap(tally.cost(), chain) > settings.gap + _TIE:
        try:
            tally.answers = search_parts(parts, answers, settings, deadline, tally.update)
        except KeyboardInterrupt:
            if not settings.interruptible:
                raise
    answers = tally.answers
    lower_bound = tally.lower_bound()
    if math.isinf(lower_bound):
        return Solution(None, math.inf)
    if all(answer.choice is not None for answer in answers):
        best.offer(_assembled(instance, reduction, parts, answers))
    if relative_gap(best.cost, lower_bound) > _TIE or math.isinf(best.cost):
        # Greedies can do worse on the simplified problem, and nothing may be worse than they are.
        _offer_greedies(instance, limits, best)
    return Solution(best.rows, min(lower_bound, best.cost))


def _offer_greedies(instance: Instance, limits: tuple[float, ...], best: _Best) -> None:
    for choice in (tree_greedy(instance), sharing_greedy(instance)):
        if choice is not None and not overload(instance, choice, limits):
            best.offer(_rows(instance, choice))


class _Best:
    """The cheapest solution offered; an earlier one stays unless a later one is clearly cheaper."""

    def __init__(self, cost: FloatArray, load: FloatArray, limits: tuple[float, ...]) -> None:
        self._price, self._load, self._limits = cost, load, limits
        self.rows: Rows | None = None
        self.cost = math.inf

    def offer(self, rows: Rows | None) -> None:
        if not rows:
            return
        chosen = list(rows.values())
        used = self._load[chosen].sum(axis=0)
        if any(u > limit * (1 + 1e-9) for u, limit in zip(used, self._limits, strict=True)):
            return
        cost = math.fsum(self._price[chosen])
        if cost < self.cost * (1 - _TIE) or (self.rows is None and math.isfinite(cost)):
            self.rows, self.cost = rows, cost


class _Tally:
    """Sums the answers of the parts into one cost and one bound, not below a known one."""

    def __init__(
        self,
        reduction: Reduction,
        answers: list[Answer],
        note: Callable[[str, float, float], None],
        floor: float,
    ) -> None:
        self.answers = list(answers)
        self._costs = np.array([answer.cost for answer in answers])
        self._bounds = np.array([answer.lower_bound for answer in answers])
        self._floor = floor
        self._base = reduction.cost
        self._note = note

    def lower_bound(self) -> float:
        return max(self._floor, self._base + math.fsum(a.lower_bound for a in self.answers))

    def cost(self) -> float:
        return self._base + math.fsum(a.cost for a in self.answers)

    def tell(self, stage: str) -> None:
        # Told very often, so summed quickly; what is returned is summed with care.
        cost = self._base + float(self._costs.sum())
        self._note(stage, cost, max(self._floor, self._base + float(self._bounds.sum())))

    def update(self, index: int, stage: str, answer: Answer) -> None:
        self.answers[index] = answer
        self._costs[index], self._bounds[index] = answer.cost, answer.lower_bound
        self.tell(stage)


def _check_options(method: str, time_limit_s: float, gap: float) -> None:
    if method not in _METHODS:
        raise ExtractionError(f"unknown method {method!r}; choose one of {', '.join(_METHODS)}")
    if not math.isfinite(time_limit_s) or time_limit_s < 0:
        raise ExtractionError(f"time_limit_s is {time_limit_s}; give a number of at least 0")
    if not 0 <= gap < 1:
        raise ExtractionError(f"gap is {gap}; give a number from 0 to below 1")


def _incumbent_rows(problem: Problem, incumbent: Choice | None) -> dict[int, int] | None:
    if incumbent is None:
        return None
    try:
        order = active_order(problem, incumbent)
    except ExtractionError as error:
        raise ExtractionError(f"the incumbent is not a solution: {error}") from error
    return {c: int(problem.impl_ptr[incumbent[c][0]]) + incumbent[c][1] for c in order}


def _start_options(
    problem: Problem, instance: Instance, known: Mapping[int, int] | None
) -> dict[int, int]:
    """The known solution in the instance's options: without limits each e-node has one only."""
    if known is None:
        return {}
    owner = problem.implementation_node()
    options = set(instance.option_ids)
    by_node = {int(owner[row]): row for row in instance.option_ids}
    start = {}
    for c, row in known.items():
        option = row if row in options else by_node.get(int(owner[row]))
        if option is not None:
            start[c] = option
    return start


def _rows(instance: Instance, choice: list[int]) -> dict[int, int] | None:
    order = active_classes(instance.children, choice, instance.roots)
    if order is None:
        return None
    return {instance.class_ids[c]: instance.option_ids[choice[c]] for c in order}


def _assembled(
    instance: Instance,
    reduction: Reduction,
    parts: tuple[Instance, ...],
    answers: list[Answer],
) -> dict[int, int] | None:
    """The answers of all parts and what was settled, for the classes that are needed."""
    rows = dict(reduction.settled)
    for part, answer in zip(parts, answers, strict=True):
        if answer.choice is not None:
            rows.update(_rows(part, answer.choice) or {})
    position = {row: i for i, row in enumerate(instance.option_ids)}
    choice = [position[rows[c]] if c in rows else -1 for c in range(instance.n_classes)]
    return _rows(instance, choice)
