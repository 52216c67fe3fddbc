"""Solve the independent parts of a problem, each by the cheapest means that proves it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat_opt.extract.branch import branch_and_bound
from eqsat_opt.extract.exact import Mode, solve_exactly
from eqsat_opt.extract.extraction import relative_gap
from eqsat_opt.extract.greedy import cheapest_trees, sharing_greedy, tree_greedy
from eqsat_opt.extract.instance import Instance, active_classes
from eqsat_opt.extract.local import improve_locally
from eqsat_opt.extract.neighbourhood import improve_by_neighbourhoods
from eqsat_opt.extract.simplify import simplify

__all__ = ["Answer", "Method", "Settings", "first_answer", "overload", "search_parts"]

Method = Literal["auto", "greedy", "local", "lns", "exact"]
Report = Callable[[str, "Answer"], None]

_MULTIPLIERS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # of a limited metric, see _greedies
_STEP = 1e-9  # relative gain that counts
_SOLVER_START_S = 0.02  # with less time left the solver is not worth starting
_ALONE_OPTIONS, _ALONE_WORK = 3000, 0.4  # what one worker is tried on, and how long
_NEIGHBOURHOOD_SHARE = 0.5  # of the time of a part, at most; the rest is for the proof


@dataclass(frozen=True)
class Settings:
    """How hard to search.

    `capacity` holds the largest total of each limited metric; with limits the parts are not
    independent, so there must be one part only. `patience` counts neighbourhoods without a gain.
    """

    method: Method
    gap: float
    seed: int
    deterministic: bool
    capacity: tuple[float, ...] = ()
    patience: int = 24


@dataclass(frozen=True)
class Answer:
    """Best known solution of a part (`[n_classes]` options, or None), its cost and a bound."""

    choice: list[int] | None
    cost: float
    lower_bound: float

    def closed(self, gap: float) -> bool:
        """Whether the gap is small enough to stop."""
        return (
            math.isfinite(self.cost) and relative_gap(self.cost, self.lower_bound) <= gap + 1e-12
        ) or math.isinf(self.lower_bound)

    def better(self, part: Instance, choice: Sequence[int] | None, settings: Settings) -> Answer:
        """This answer, or the given choice if that is strictly cheaper and keeps the limits."""
        if choice is None:
            return self
        cost = part.evaluate(choice)
        if cost >= self.cost or overload(part, choice, settings.capacity):
            return self
        return Answer(list(choice), cost, min(self.lower_bound, cost))

    def bounded(self, lower_bound: float) -> Answer:
        """This answer with another bound, if that one is higher."""
        bound = max(self.lower_bound, lower_bound)
        return Answer(self.choice, self.cost, min(bound, self.cost))


def overload(part: Instance, choice: Sequence[int], capacity: Sequence[float]) -> bool:
    """Whether a complete choice exceeds a limit."""
    if not capacity:
        return False
    order = active_classes(part.children, choice, part.roots) or ()
    return any(
        math.fsum(part.load[choice[c]][column] for c in order) > limit * (1 + 1e-12)
        for column, limit in enumerate(capacity)
    )


def first_answer(part: Instance, start: Mapping[int, int], settings: Settings) -> Answer:
    """Best of the given solution and the greedies; the given one wins ties.

    Args:
        part: what to solve.
        start: class to option (numbers of the problem); need not fit the part completely.
        settings: limits to respect.
    """
    answer = Answer(None, math.inf, part.trivial_bound())
    if start:
        answer = answer.better(part, _completed(part, start), settings)
    for choice in _greedies(part, settings.capacity):
        answer = answer.better(part, choice, settings)
    return answer


def _completed(part: Instance, start: Mapping[int, int]) -> list[int]:
    """A choice that follows the given one wherever the part still has its options."""
    known = {(c, o) for c, o in start.items()}
    cost = [
        0.0 if (part.class_ids[c], part.option_ids[i]) in known else part.cost[i]
        for i, c in enumerate(part.option_class)
    ]
    return cheapest_trees(part.members, part.option_class, part.children, cost)[1]


def _greedies(part: Instance, capacity: Sequence[float]) -> list[list[int] | None]:
    """Greedy choices; under limits also for costs with a share of what is limited added."""
    choices = [tree_greedy(part), sharing_greedy(part)]
    if capacity:
        scale = math.fsum(part.cost) or 1.0
        for multiplier in _MULTIPLIERS:
            cost = [
                c
                + multiplier
                * scale
                * sum(used / (limit or 1.0) for used, limit in zip(load, capacity, strict=True))
                for c, load in zip(part.cost, part.load, strict=True)
            ]
            choices.append(cheapest_trees(part.members, part.option_class, part.children, cost)[1])
    return choices


def search_parts(
    parts: Sequence[Instance],
    answers: Sequence[Answer],
    settings: Settings,
    deadline: float,
    report: Callable[[int, str, Answer], None] = lambda index, stage, answer: None,
) -> list[Answer]:
    """Improve the answer of each part, small parts first; equal parts are solved once.

    Args:
        parts: independent instances.
        answers: what is known of each.
        settings: how hard to search.
        deadline: `time.perf_counter()` value; time that a part does not use goes to larger ones.
        report: called with the number of a part, the stage and its new answer.
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
        if answer.closed(settings.gap):
            continue
        shape = part.shape()
        if shape in solved:
            known = solved[shape]
            answer = answer.better(part, known.choice, settings).bounded(known.lower_bound)
        else:
            until = min(deadline, now + max(0.0, deadline - now) * share)

            def note(stage: str, found: Answer, k: int = k) -> None:
                report(k, stage, found)

            answer = _improved(part, answer, settings, until, note)
            solved[shape] = answer
        improved[k] = answer
        report(k, "parts", answer)
    return improved


def _improved(
    part: Instance, answer: Answer, settings: Settings, deadline: float, report: Report
) -> Answer:
    """The stages in the order of their price; the repeatable ones first."""
    if settings.capacity or settings.method == "exact" or answer.choice is None:
        return _reduced(part, answer, settings, deadline)
    choice, proven = branch_and_bound(part, answer.choice)
    answer = answer.better(part, choice, settings)
    if proven:
        return answer.bounded(answer.cost)
    filled = _filled(part, answer.choice or choice)
    filled = improve_locally(part, filled, seed=settings.seed, deadline=deadline)
    answer = answer.better(part, filled, settings)
    report("local search", answer)
    if settings.method == "local":
        return _reduced(part, answer, settings, deadline)
    answer = _proven_alone(part, answer, settings, deadline)
    if answer.closed(settings.gap):
        return answer
    answer = _searched_around(part, answer, settings, deadline, report)
    return _reduced(part, answer, settings, deadline)


def _proven_alone(part: Instance, answer: Answer, settings: Settings, deadline: float) -> Answer:
    """One worker: many parts are easy, and then choice and proof are repeatable."""
    if part.n_options > _ALONE_OPTIONS:
        return answer
    return _solved(part, answer, settings, deadline, mode="single", work_limit=_ALONE_WORK)


def _searched_around(
    part: Instance, answer: Answer, settings: Settings, deadline: float, report: Report
) -> Answer:
    if answer.choice is None:
        return answer
    now = time.perf_counter()
    best = answer

    def note(choice: list[int]) -> None:
        nonlocal best
        best = best.better(part, choice, settings)
        report("neighbourhoods", best)

    choice = improve_by_neighbourhoods(
        part,
        _filled(part, answer.choice),
        patience=settings.patience,
        seed=settings.seed,
        target=answer.lower_bound * (1 + settings.gap),
        deadline=now + max(0.0, deadline - now) * _NEIGHBOURHOOD_SHARE,
        report=note,
    )
    return best.better(part, choice, settings)


def _filled(part: Instance, choice: Sequence[int]) -> list[int]:
    """The choice, with trees for the classes that it does not need.

    The trees close no cycle: what the choice needs never needs one of the other classes.
    """
    filled = tree_greedy(part)
    for c in active_classes(part.children, choice, part.roots) or ():
        filled[c] = choice[c]
    return filled


def _reduced(part: Instance, answer: Answer, settings: Settings, deadline: float) -> Answer:
    """Simplify again with the cost now known, and prove what is left or improve on it."""
    if settings.capacity:
        return _solved(part, answer, settings, deadline)
    start = _numbered(part, answer.choice)
    reduction = simplify(part, start=start)
    if reduction is None:
        return answer
    rest = reduction.parts
    if len(rest) == 1 and rest[0].n_options == part.n_options:
        return _solved(part, answer, settings, deadline)
    answers = [
        _proven(sub, first_answer(sub, start, settings), settings, deadline) for sub in rest
    ]
    numbered = dict(reduction.settled)
    for sub, found in zip(rest, answers, strict=True):
        numbered.update(_numbered(sub, found.choice))
    option = {number: i for i, number in enumerate(part.option_ids)}
    choice = [option[numbered[c]] if c in numbered else -1 for c in part.class_ids]
    answer = answer.better(part, choice, settings)
    return answer.bounded(reduction.cost + math.fsum(found.lower_bound for found in answers))


def _proven(part: Instance, answer: Answer, settings: Settings, deadline: float) -> Answer:
    """What is left of a part after its second simplification."""
    if settings.method != "exact" and answer.choice is not None:
        choice, proven = branch_and_bound(part, answer.choice)
        answer = answer.better(part, choice, settings)
        if proven:
            return answer.bounded(answer.cost)
        if settings.method != "local":
            answer = _proven_alone(part, answer, settings, deadline)
    if answer.closed(settings.gap):
        return answer
    return _solved(part, answer, settings, deadline)


def _numbered(part: Instance, choice: Sequence[int] | None) -> dict[int, int]:
    """A choice in the problem's numbers, for the classes that it needs."""
    order = active_classes(part.children, choice, part.roots) if choice is not None else None
    if order is None or choice is None:
        return {}
    return {part.class_ids[c]: part.option_ids[choice[c]] for c in order}


def _solved(
    part: Instance,
    answer: Answer,
    settings: Settings,
    deadline: float,
    *,
    mode: Mode | None = None,
    work_limit: float = math.inf,
) -> Answer:
    remaining = deadline - time.perf_counter()
    mode = mode or ("interleaved" if settings.deterministic else "parallel")
    if remaining < _SOLVER_START_S:
        return answer
    if mode != "single" and settings.method not in ("auto", "exact"):
        return answer
    found = solve_exactly(
        part,
        hint=answer.choice,
        capacity=settings.capacity,
        time_limit_s=remaining,
        work_limit=work_limit,
        gap=settings.gap / 2,
        seed=settings.seed,
        mode=mode,
    )
    # Which of two solutions within the gap the parallel solver has is chance: then ours stays.
    margin = max(settings.gap / 2, _STEP) if mode == "parallel" else 0.0
    if found.choice is not None and part.evaluate(found.choice) < answer.cost * (1 - margin):
        answer = answer.better(part, found.choice, settings)
    return answer.bounded(found.lower_bound)
