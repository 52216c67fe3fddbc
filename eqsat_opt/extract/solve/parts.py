"""Solve the independent parts of a problem; the time that one does not use goes to the others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.solve.answer import Answer, Settings
from eqsat_opt.extract.solve.stages import improve

__all__ = ["search_parts"]


def search_parts(
    parts: Sequence[Instance],
    answers: Sequence[Answer],
    settings: Settings,
    deadline: float,
    report: Callable[[int, str, Answer], None] = lambda index, stage, answer: None,
) -> list[Answer]:
    """Improve the answer of each part, small parts first; equal parts are solved once.

    Told are the number of a part, the stage and its new answer.
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
