"""Assignments of one algorithm to each kernel of a graph, best for time and energy together.

The search of "Energy-Aware DNN Graph Optimization" (§3.3, Algorithm 2) walks from an assignment to
a better one that differs in at most d kernels; d = 1 solves sums. The exact answers need no walk. A
sum or a product of powers is best at a vertex of the lower hull of all (time, energy) totals. These
vertices are enumerated by taking the steps of the kernels' own hulls from the steepest on. The mean
power is a ratio of sums, which Dinkelbach's iteration solves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, product
from typing import TypeVar

__all__ = ["best_on_hull", "corners", "improved", "least_ratio"]

T = TypeVar("T")

_ROUNDING = 1e-12
"""Relative distance below which a point lies on a side of a hull."""

Point = tuple[float, float]
"""Time and energy of one run."""
_SMALL = 2
"""Number of kernels up to which all changes can be tried: the largest d of the paper."""

Value = Callable[[float, float], float]
"""Objective value of the total time and the total energy."""


def improved(
    choices: Sequence[Sequence[Point]],
    value: Value,
    radius: int,
    start: Sequence[int],
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Return an assignment that no change of at most ``radius`` kernels improves (Algorithm 2).

    The first better assignment is taken, by kernel and then by algorithm, so the result may depend
    on where the walk starts.

    Args:
        choices: for each kernel, its algorithms.
        value: objective value of totals.
        radius: the paper's d, 1 or more.
        start: number of each kernel's algorithm at the start.
        is_over: whether the time for changes of more than two kernels is over, of which there are
            too many to count on all being tried.
    """
    chosen = list(start)
    time, energy = _totals(choices, chosen)
    least = value(time, energy)
    is_better = True
    while is_better:
        is_better = False
        for count in range(1, radius + 1):
            for kernels in combinations(range(len(choices)), count):
                if count > _SMALL and is_over():
                    return chosen
                for others in product(*(range(len(choices[k])) for k in kernels)):
                    trial = chosen.copy()
                    for kernel, other in zip(kernels, others, strict=True):
                        trial[kernel] = other
                    moves = [(choices[k][chosen[k]], choices[k][trial[k]]) for k in kernels]
                    found = value(
                        time + sum(new[0] - old[0] for old, new in moves),
                        energy + sum(new[1] - old[1] for old, new in moves),
                    )
                    if found < least:
                        # Totals are summed anew, so that rounding errors of differences cannot add
                        # up to a walk without an end.
                        totals = _totals(choices, trial)
                        if value(*totals) < least:
                            (time, energy), least = totals, value(*totals)
                            chosen, is_better = trial, True
    return chosen


def best_on_hull(choices: Sequence[Sequence[Point]], value: Value) -> list[int]:
    """Return the best assignment for a quasi-concave value that never falls with time or energy.

    Sums and products of powers with positive weights are such values. The method takes time O(n log
    n) in the number of all algorithms.
    """
    hulls = [_lower_hull(points) for points in choices]
    chosen = [hull[0] for hull in hulls]
    steps = sorted(
        (_slope(choices[kernel][a], choices[kernel][b]), kernel, place)
        for kernel, hull in enumerate(hulls)
        for place, (a, b) in enumerate(pairwise(hull), start=1)
    )
    best, least = chosen.copy(), value(*_totals(choices, chosen))
    time, energy = _totals(choices, chosen)
    for _, kernel, place in steps:
        old, new = choices[kernel][chosen[kernel]], choices[kernel][hulls[kernel][place]]
        chosen[kernel] = hulls[kernel][place]
        time, energy = time + new[0] - old[0], energy + new[1] - old[1]
        if (found := value(time, energy)) < least:
            best, least = chosen.copy(), found
    return best


def least_ratio(choices: Sequence[Sequence[Point]]) -> list[int]:
    """Return the assignment of the least quotient of totals, the second number over the first.

    For time and energy that is the mean power. The method is Dinkelbach's (Management Science
    1967). No assignment is better than another where all totals of the first number are 0.
    """
    chosen = [max(range(len(points)), key=lambda i: (points[i][0], -i)) for points in choices]
    below, above = _totals(choices, chosen)
    while below > 0:
        least = above / below
        after = [
            min(range(len(points)), key=lambda i: (points[i][1] - least * points[i][0], i))
            for points in choices
        ]
        below, above = _totals(choices, after)
        if not (below > 0 and above / below < least):
            break
        chosen = after
    return chosen


def corners(
    solved: Callable[[float, float], tuple[float, float, T]],
) -> list[tuple[float, float, T]]:
    """Return the corners of a lower hull from the least first number to the least second one.

    Args:
        solved: returns, for a weight of each number, a point of least sum and what has these
            numbers. Numbers may be negative.
    """
    found = [solved(1.0, 0.0)]
    waiting = [solved(0.0, 1.0)]
    while waiting:
        (a, b, _), (x, y, _) = found[-1], waiting[-1]
        if a < x and y < b:
            between = solved(b - y, x - a)
            least = (b - y) * a + (x - a) * b
            if (b - y) * between[0] + (x - a) * between[1] < least - _ROUNDING * abs(least):
                waiting.append(between)
                continue
        found.append(waiting.pop())
    return found


def _totals(choices: Sequence[Sequence[Point]], chosen: Sequence[int]) -> Point:
    points = [choices[kernel][one] for kernel, one in enumerate(chosen)]
    return sum(time for time, _ in points), sum(energy for _, energy in points)


def _slope(first: Point, second: Point) -> float:
    return (second[1] - first[1]) / (second[0] - first[0])


def _lower_hull(points: Sequence[Point]) -> list[int]:
    """Return vertices from the fastest to the one of least energy; slopes are negative and rise."""
    hull: list[int] = []
    for i in sorted(range(len(points)), key=lambda i: (points[i], i)):
        if hull and points[i][1] >= points[hull[-1]][1]:
            continue
        while len(hull) > 1 and _slope(points[hull[-2]], points[hull[-1]]) >= _slope(
            points[hull[-1]], points[i]
        ):
            hull.pop()
        hull.append(i)
    return hull
