"""The stages that improve the answer of one part and prove it, in the order of their price."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from eqsat_opt.extract.instance import Instance, active_classes, options_by_class
from eqsat_opt.extract.simplify.fixpoint import simplify
from eqsat_opt.extract.solve.answer import Answer, EffortSettings, first_answer
from eqsat_opt.extract.solve.branch import branch_and_bound
from eqsat_opt.extract.solve.cutting import Relaxed, tighten
from eqsat_opt.extract.solve.exact import Mode, solve_exactly
from eqsat_opt.extract.solve.greedy import tree_greedy
from eqsat_opt.extract.solve.local import improve_locally
from eqsat_opt.extract.solve.neighbourhood import improve_by_neighbourhoods
from eqsat_opt.extract.solve.relaxation import Mask

__all__ = ["Report", "improve"]

Report = Callable[[str, Answer], None]
"""Function that is called with a stage and the answer after it."""

_STEP = 1e-9  # relative gain that counts
_SOLVER_START_S = 0.02  # with less time left the solver is not worth starting
_BRANCH = {"max_steps": 1500, "max_classes": 100}  # beyond this the solver is quicker
_ALONE_OPTIONS, _ALONE_WORK = 3000, 0.4  # largest part for a single worker, and its work limit
_CORE_OPTIONS, _CORE_SHARE = 20_000, 0.5  # largest part for cores, and share of the time left
# Mode, offset of the seed, and work limit of each try. Most tries are short or far longer, and the
# next one may be lucky.
_CORE_TRIES: tuple[tuple[Mode, int, float], ...] = (
    ("plain-cores", 0, 2.0),
    ("cores", 0, 4.0),
    ("plain-cores", 1, 4.0),
    ("plain-cores", 2, 4.0),
)
_SMALL_OPTIONS = 250  # up to this size one worker proves nearly all, so it precedes the search
_NEIGHBOURHOOD_SHARE = 0.5  # greatest share of a part's time; the rest is for the proof
_CUT_SHARE, _CUT_ROUNDS = 0.3, 200  # share of the time then left, and greatest number of rounds


def improve(
    part: Instance, answer: Answer, settings: EffortSettings, deadline: float, report: Report
) -> Answer:
    """Run the stages in the order of their price, the repeatable ones first."""
    if settings.method == "exact" or answer.choice is None:
        return _reduced(part, answer, settings, deadline)
    choice, proven = branch_and_bound(part, answer.choice, **_BRANCH)
    answer = answer.better(part, choice)
    if proven:
        return answer.bounded(answer.cost)
    searched = settings.method == "local"
    if not searched and part.n_options <= _SMALL_OPTIONS:
        answer = _proven_alone(part, answer, settings, deadline)
        report("solver", answer)
        if answer.closed(settings.gap):
            return answer
        searched = True
    filled = _filled(part, answer.choice or choice)
    filled = improve_locally(part, filled, seed=settings.seed, deadline=deadline)
    answer = answer.better(part, filled)
    report("local search", answer)
    if settings.method == "local":
        return _reduced(part, answer, settings, deadline)
    if not searched:
        answer = _proven_alone(part, answer, settings, deadline)
        report("solver", answer)
    if answer.closed(settings.gap):
        return answer
    relaxed = None
    if settings.method == "auto":
        answer = _proven_by_cores(part, answer, settings, deadline)
        report("cores", answer)
        if answer.closed(settings.gap):
            return answer
        answer, relaxed = _tightened(part, answer, settings, deadline, report=report)
        report("cutting planes", answer)
        if answer.closed(settings.gap):
            return answer
    answer = _searched_around(part, answer, settings, deadline, report=report)
    report("neighbourhoods", answer)
    if answer.closed(settings.gap):
        return answer
    possible = None if relaxed is None else relaxed.possible(answer.cost)
    return _reduced(part, answer, settings, deadline, possible=possible)


def _proven_alone(
    part: Instance, answer: Answer, settings: EffortSettings, deadline: float
) -> Answer:
    """Prove with one worker: many parts are easy, and choice and proof are then repeatable."""
    if part.n_options > _ALONE_OPTIONS:
        return answer
    return _solved(part, answer, settings, deadline, mode="single", work_limit=_ALONE_WORK)


def _proven_by_cores(
    part: Instance, answer: Answer, settings: EffortSettings, deadline: float
) -> Answer:
    """Prove with one worker by cores, which raise the bound from below; this is repeatable too."""
    if part.n_options > _CORE_OPTIONS:
        return answer
    now = time.perf_counter()
    until = now + max(0.0, deadline - now) * _CORE_SHARE
    start = answer
    for mode, number, work in _CORE_TRIES:
        if answer.closed(settings.gap):
            break
        seeded = replace(settings, seed=settings.seed + number)
        # All tries have one start, so that none depends on the result of the others.
        found = _solved(part, start, seeded, until, mode=mode, work_limit=work)
        answer = answer.better(part, found.choice).bounded(found.lower_bound)
    return answer


def _searched_around(
    part: Instance, answer: Answer, settings: EffortSettings, deadline: float, report: Report
) -> Answer:
    if answer.choice is None:
        return answer
    now = time.perf_counter()
    best = answer

    def note(choice: list[int]) -> None:
        nonlocal best
        best = best.better(part, choice)
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
    return best.better(part, choice)


def _filled(part: Instance, choice: Sequence[int]) -> list[int]:
    """Return the choice, completed with trees for the classes that it does not need.

    The trees close no cycle: needed classes never need one of the other classes.
    """
    filled = tree_greedy(part)
    for c in active_classes(part.children, choice, part.roots) or ():
        filled[c] = choice[c]
    return filled


def _tightened(
    part: Instance, answer: Answer, settings: EffortSettings, deadline: float, report: Report
) -> tuple[Answer, Relaxed]:
    """Take the relaxation's bound, and its solution if that is integral."""
    now = time.perf_counter()

    def note(bound: float) -> None:
        report("cutting planes", answer.bounded(bound))

    found = tighten(
        part,
        upper=answer.cost,
        rounds=_CUT_ROUNDS,
        gap=settings.gap,
        seed=settings.seed,
        deadline=now + max(0.0, deadline - now) * _CUT_SHARE,
        report=note,
    )
    answer = answer.better(part, found.choice)
    return answer.bounded(found.lower_bound), found


def _reduced(
    part: Instance,
    answer: Answer,
    settings: EffortSettings,
    deadline: float,
    possible: Mask | None = None,
) -> Answer:
    """Simplify again with the cost now known, and prove what is left or improve on it.

    `possible` excludes options that are in no solution better than the answer.
    """
    start = _numbered(part, answer.choice)
    reduction = simplify(part if possible is None else _kept(part, possible), start=start)
    if reduction is None:
        return answer
    rest = reduction.parts
    if len(rest) == 1 and rest[0].n_options == part.n_options:
        return _solved(part, answer, settings, deadline)
    answers = []
    for sub in rest:
        known = first_answer(sub, start)
        if len(rest) == 1:
            known = known.bounded(answer.lower_bound - reduction.cost)
        answers.append(_proven(sub, known, settings, deadline))
    numbered = dict(reduction.settled)
    for sub, found in zip(rest, answers, strict=True):
        numbered.update(_numbered(sub, found.choice))
    option = {number: i for i, number in enumerate(part.option_ids)}
    choice = [option[numbered[c]] if c in numbered else -1 for c in part.class_ids]
    answer = answer.better(part, choice)
    return answer.bounded(reduction.cost + math.fsum(found.lower_bound for found in answers))


def _kept(part: Instance, possible: Mask) -> Instance:
    """Return the part without its impossible options."""
    kept = np.flatnonzero(possible).tolist()
    option_class = [part.option_class[i] for i in kept]
    return Instance(
        members=options_by_class(option_class, part.n_classes),
        option_class=option_class,
        children=[part.children[i] for i in kept],
        cost=[part.cost[i] for i in kept],
        roots=part.roots,
        class_ids=part.class_ids,
        option_ids=[part.option_ids[i] for i in kept],
    )


def _proven(part: Instance, answer: Answer, settings: EffortSettings, deadline: float) -> Answer:
    """Prove what is left of a part after its second simplification."""
    if settings.method != "exact" and answer.choice is not None:
        choice, proven = branch_and_bound(part, answer.choice, **_BRANCH)
        answer = answer.better(part, choice)
        if proven:
            return answer.bounded(answer.cost)
        if settings.method != "local":
            answer = _proven_alone(part, answer, settings, deadline)
    if answer.closed(settings.gap):
        return answer
    return _solved(part, answer, settings, deadline)


def _numbered(part: Instance, choice: Sequence[int] | None) -> dict[int, int]:
    """Return a choice in the problem's numbers, for the classes that it needs."""
    order = active_classes(part.children, choice, part.roots) if choice is not None else None
    if order is None or choice is None:
        return {}
    return {part.class_ids[c]: part.option_ids[choice[c]] for c in order}


def _solved(
    part: Instance,
    answer: Answer,
    settings: EffortSettings,
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
        time_limit_s=remaining,
        work_limit=work_limit,
        lower_bound=answer.lower_bound,
        gap=settings.gap / 2,
        seed=settings.seed,
        mode=mode,
    )
    # The parallel solver returns any of the solutions within the gap, so the known one stays.
    margin = max(settings.gap / 2, _STEP) if mode == "parallel" else 0.0
    if found.choice is not None and part.evaluate(found.choice) < answer.cost * (1 - margin):
        answer = answer.better(part, found.choice)
    return answer.bounded(found.lower_bound)
