"""Verdicts on published numbers: whether ours go the same way.

The verdict is on the direction, the reason says how far. A difference of the paper's that ours do
not have, or the other way round, is not shown: equality is a reproduction only where the paper
claims it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

__all__ = [
    "NOT_COMPARABLE",
    "NOT_SHOWN",
    "OPPOSITE",
    "REPRODUCED",
    "TIE",
    "VERDICTS",
    "Figure",
    "Judgement",
    "change",
    "falling",
    "order",
    "settled",
]

REPRODUCED, NOT_SHOWN, OPPOSITE, NOT_COMPARABLE = VERDICTS = (
    *("reproduced", "not shown", "opposite", "not comparable"),
)

TIE = 0.005
"""Relative difference of numbers that are taken for equal."""

Judgement = tuple[str, str]
"""A verdict and its reason."""


@dataclass(frozen=True)
class Figure:
    """One published number, or several, and ours.

    Attributes:
        where: table or figure of the paper.
        what: what the number counts, and of which model.
        paper: its figure.
        ours: the same; empty where there is none.
        verdict: one of `VERDICTS`.
        why: the reason; empty for a reproduction of about the same size.
        cpu_s: budget of each search, in CPU seconds; 0 for that of the table.
        since_s: the smallest budget from which on the verdict is the same.
        spread: range of ours over the seeds; empty where nothing is drawn.
    """

    where: str
    what: str
    paper: str
    ours: str
    verdict: str
    why: str = ""
    cpu_s: float = 0.0
    since_s: float = 0.0
    spread: str = ""


def change(paper: tuple[float, float], ours: tuple[float, float]) -> Judgement:
    """Compare a number before and after with the paper's.

    Sizes of changes are compared as logarithms of ratios, and are about the same from a half to
    twice the paper's.
    """
    theirs, own = _ratio(*paper), _ratio(*ours)
    if not 0 < own < math.inf:
        return NOT_COMPARABLE, "ours has no ratio"
    told = f"ours {_way(own)}, the paper's {_way(theirs)}"
    signs = _sign(theirs, 1.0), _sign(own, 1.0)
    if signs == (0, 0):
        return REPRODUCED, ""
    if signs[0] != signs[1]:
        return (OPPOSITE if all(signs) else NOT_SHOWN), told
    size = math.log(own) / math.log(theirs)
    if 0.5 <= size <= 2:
        return REPRODUCED, ""
    return REPRODUCED, f"{'less than half' if size < 1 else 'more than twice'} as far: {told}"


def order(paper: Mapping[str, float], ours: Mapping[str, float], tie: float = TIE) -> Judgement:
    """Compare the order of several numbers with the paper's.

    Args:
        paper: its figures.
        ours: the same.
        tie: relative difference of ours that are taken for equal.
    """
    words = {-1: "below", 0: "equal to", 1: "above"}
    found: Judgement = (REPRODUCED, "")
    for one, other in combinations(paper, 2):
        theirs, own = _sign(paper[one], paper[other]), _sign(ours[one], ours[other], tie)
        why = f"{one} is {words[own]} {other} here, and {words[theirs]} it in the paper"
        if own * theirs < 0:
            return OPPOSITE, why
        if theirs != own and found[0] == REPRODUCED:
            found = NOT_SHOWN, why
    return found


def falling(ours: Mapping[str, float]) -> Judgement:
    """Judge what never rises in the paper from one number to the next, and falls in the end."""
    for one, other in pairwise(ours):
        if _sign(ours[one], ours[other]) < 0:
            return OPPOSITE, f"{other} is above {one}"
    first, *_, last = ours.values()
    if _sign(first, last) == 0:
        return NOT_SHOWN, "ours stays the same"
    return REPRODUCED, ""


def settled(figures: Sequence[Figure]) -> Figure:
    """Return the figure of the largest budget, with the budget from which its verdict holds.

    Args:
        figures: the same figure under budgets, the smallest first.
    """
    last = since = figures[-1]
    for one in reversed(figures):
        if one.verdict != last.verdict:
            why = filter(None, (last.why, f"{one.verdict} with {one.cpu_s:g} s"))
            return replace(last, why="; ".join(why), since_s=since.cpu_s)
        since = one
    return replace(last, since_s=since.cpu_s)


def _ratio(before: float, after: float) -> float:
    return after / before if before else math.nan


def _sign(one: float, other: float, tie: float = TIE) -> int:
    if one == other or math.isclose(one, other, rel_tol=tie):
        return 0
    return 1 if one > other else -1


def _way(ratio: float) -> str:
    return {-1: "falls to", 0: "stays at", 1: "rises to"}[_sign(ratio, 1.0)] + f" {ratio:.3f}"
