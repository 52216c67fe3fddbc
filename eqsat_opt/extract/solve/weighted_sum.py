"""Weighted sums of metrics: simplify, search the independent parts, put the answers together.

The stages are in the order of their price: problems that simplification or a small search proves
never start the solver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.critical_path import costliest_chain
from eqsat_opt.extract.extraction import Choice, active_order, relative_gap
from eqsat_opt.extract.instance import Instance, active_classes, from_problem
from eqsat_opt.extract.problem import FloatArray, Problem
from eqsat_opt.extract.simplify.fixpoint import SimplifiedInstance, simplify
from eqsat_opt.extract.solve.answer import Answer, EffortSettings, first_answer
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy
from eqsat_opt.extract.solve.stages import improve

__all__ = ["BestRows", "Rows", "Solution", "lower_choice", "raise_choice", "solve_priced"]

_TIE = 1e-12  # relative difference below which the incumbent stays

Rows = Mapping[int, int]
"""Class to row of `Problem.impl_cost`."""


@dataclass(frozen=True)
class Solution:
    """Best choice in rows (None: nothing found) and a bound, infinite if there is no solution."""

    rows: Rows | None
    lower_bound: float


def raise_choice(problem: Problem, rows: Rows) -> dict[int, tuple[int, int]]:
    """Return rows as (e-node, implementation), for the needed classes in ascending order.

    Raises:
        ExtractionError: the rows are incomplete or cyclic.
    """
    owner = problem.implementation_node()
    choice = {}
    for c, row in rows.items():
        node = int(owner[row])
        choice[c] = (node, row - int(problem.impl_ptr[node]))
    return {c: choice[c] for c in sorted(active_order(problem, choice))}


def lower_choice(problem: Problem, choice: Choice) -> dict[int, int]:
    """Return the rows of a choice, for the classes that it needs; the inverse of `raise_choice`.

    Raises:
        ExtractionError: the choice is incomplete or cyclic.
    """
    try:
        order = active_order(problem, choice)
    except ExtractionError as error:
        raise ExtractionError(f"the incumbent is not a solution: {error}") from error
    return {c: problem.row(*choice[c]) for c in order}


class BestRows:
    """The best solution offered; an earlier one stays unless a later one is clearly better.

    `value_of` is infinite for a solution that breaks a limit.
    """

    def __init__(self, value_of: Callable[[Rows], float]) -> None:
        self._value_of = value_of
        self.rows: Rows | None = None
        self.value = math.inf

    def offer(self, rows: Rows | None) -> None:
        """Take a solution, if it is better."""
        value = math.inf if rows is None else self._value_of(rows)
        if value < self.value * (1 - _TIE) or (self.rows is None and math.isfinite(value)):
            self.rows, self.value = rows, value


def solve_priced(
    problem: Problem,
    cost: FloatArray,
    *,
    incumbent: Choice | None,
    settings: EffortSettings,
    time_limit_s: float,
    note: Callable[[str, float, float], None] = lambda stage, cost, bound: None,
) -> Solution:
    """Minimise the total of prices `cost [n_implementations]`; an infinite price forbids.

    Raises:
        ExtractionError: the incumbent is not a solution.
    """
    deadline = time.perf_counter() + time_limit_s
    instance = from_problem(problem, cost)
    known = None if incumbent is None else lower_choice(problem, incumbent)
    start = _start_options(problem, instance, known)
    best = BestRows(lambda rows: math.fsum(cost[list(rows.values())]))
    best.offer(known)
    try:
        reduction = simplify(instance, start=start, until_s=deadline)
    except KeyboardInterrupt:
        if not settings.interruptible:
            raise
        _offer_greedies(instance, best)
        return Solution(best.rows, min(instance.trivial_bound(), best.value))
    note("simplify", math.inf, 0.0)
    if reduction is None:
        return Solution(None, math.inf)
    parts = reduction.parts
    answers = [first_answer(part, start, deadline) for part in parts]
    chain = costliest_chain(
        instance.members,
        instance.option_class,
        instance.children,
        instance.cost,
        roots=instance.roots,
    )
    tally = _Tally(reduction, answers, note, chain)
    tally.tell("greedy")
    if settings.method != "greedy" and relative_gap(tally.cost(), chain) > settings.gap + _TIE:
        try:
            tally.answers = _search_parts(parts, answers, settings, deadline, report=tally.update)
        except KeyboardInterrupt:
            if not settings.interruptible:
                raise
    answers = tally.answers
    lower_bound = tally.lower_bound()
    if math.isinf(lower_bound):
        return Solution(None, math.inf)
    if all(answer.choice is not None for answer in answers):
        best.offer(_assembled(instance, reduction, parts, answers))
    if relative_gap(best.value, lower_bound) > _TIE or math.isinf(best.value):
        # Greedies can be worse on the simplified problem, but no result may be worse than those on
        # the original one, as far as there is time.
        if best.rows is None:
            _offer_greedies(instance, best)
        elif time.perf_counter() < deadline:
            _offer_greedies(instance, best, until_s=deadline)
    return Solution(best.rows, min(lower_bound, best.value))


def _search_parts(
    parts: Sequence[Instance],
    answers: Sequence[Answer],
    settings: EffortSettings,
    deadline: float,
    report: Callable[[int, str, Answer], None] = lambda index, stage, answer: None,
) -> list[Answer]:
    """Improve the answer of each part, small parts first; equal parts are solved once.

    `report` is called with the number of a part, the stage and its new answer.
    """
    improved = list(answers)
    solved: dict[tuple[object, ...], Answer] = {}
    order = sorted(range(len(parts)), key=lambda k: (parts[k].n_options, k))
    size_left = sum(part.n_options for part in parts)
    for k in order:
        part, answer = parts[k], improved[k]
        now = time.perf_counter()
        share = part.n_options / size_left
        size_left -= part.n_options
        if answer.closed(settings.gap) or now >= deadline:
            continue
        shape = part.shape()
        if shape in solved:
            known = solved[shape]
            answer = answer.better(part, known.choice).bounded(known.lower_bound)
        else:
            until = min(deadline, now + max(0.0, deadline - now) * share)

            def note(stage: str, found: Answer, k: int = k) -> None:
                report(k, stage, found)

            answer = improve(part, answer, settings, until, report=note)
            solved[shape] = answer
        improved[k] = answer
        report(k, "solver", answer)
    return improved


def _offer_greedies(instance: Instance, best: BestRows, until_s: float = math.inf) -> None:
    for choice in (tree_greedy(instance), sharing_greedy(instance, until_s=until_s)):
        if choice is not None:
            best.offer(_rows(instance, choice))


class _Tally:
    """The sum of the answers of all parts: one cost, and one bound not below a known one."""

    def __init__(
        self,
        reduction: SimplifiedInstance,
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
        # This is called very often, so it sums quickly; returned values are summed exactly.
        cost = self._base + float(self._costs.sum())
        self._note(stage, cost, max(self._floor, self._base + float(self._bounds.sum())))

    def update(self, index: int, stage: str, answer: Answer) -> None:
        self.answers[index] = answer
        self._costs[index], self._bounds[index] = answer.cost, answer.lower_bound
        self.tell(stage)


def _start_options(
    problem: Problem, instance: Instance, known: Mapping[int, int] | None
) -> dict[int, int]:
    """Return the known solution in the instance's options, which are one per e-node."""
    owner = problem.implementation_node()
    by_node = {int(owner[row]): row for row in instance.option_ids}
    options = ((c, by_node.get(int(owner[row]))) for c, row in (known or {}).items())
    return {c: option for c, option in options if option is not None}


def _rows(instance: Instance, choice: list[int]) -> dict[int, int] | None:
    order = active_classes(instance.children, choice, instance.roots)
    if order is None:
        return None
    return {instance.class_ids[c]: instance.option_ids[choice[c]] for c in order}


def _assembled(
    instance: Instance,
    reduction: SimplifiedInstance,
    parts: tuple[Instance, ...],
    answers: list[Answer],
) -> dict[int, int] | None:
    """Return the answers of all parts and the settled classes, as far as they are needed."""
    rows = dict(reduction.settled)
    for part, answer in zip(parts, answers, strict=True):
        if answer.choice is not None:
            rows.update(_rows(part, answer.choice) or {})
    position = {row: i for i, row in enumerate(instance.option_ids)}
    choice = [position[rows[c]] if c in rows else -1 for c in range(instance.n_classes)]
    return _rows(instance, choice)
