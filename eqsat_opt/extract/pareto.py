"""The trade-off between two metrics, with a certified gap.

Weighted sums find the points on the lower-left hull and half-planes that contain every solution;
where the hull is too coarse, the least second total under a limit on the first (epsilon-constraint,
Haimes et al., 1971) finds points between, and boxes that contain no solution. The region that
half-planes and boxes leave between two neighbouring points bounds how far any solution can be ahead
of both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.engine import extract
from eqsat_opt.extract.extraction import Extraction
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.problem import Problem
from eqsat_opt.extract.tradeoff.plane import Box, Cut, HalfPlane

__all__ = ["Front", "pareto"]

_ROUNDING = 1e-7  # gaps below this count as none
_STEP = 2e-8  # relative; limits are kept up to 1e-9, so a limit below a point must be this far off
_SHARE = 0.4  # greatest share of the time left for one weighted sum or one limit


@dataclass(frozen=True)
class Front:
    """Solutions of which none is better than another in both metrics.

    Attributes:
        metrics: the two metrics.
        points: solutions by ascending first total, so by descending second one.
        gap: for every solution there is a point that is at most `1 + gap` times as large in both
            metrics; infinite if nothing is known of one end.
        cuts: half-planes and boxes that prove the gap.
    """

    metrics: tuple[str, str]
    points: tuple[Extraction, ...]
    gap: float
    cuts: tuple[Cut, ...]

    @property
    def totals(self) -> list[tuple[float, float]]:
        """The two totals of each point."""
        first, second = self.metrics
        return [(p.metrics[first], p.metrics[second]) for p in self.points]

    def check(self, problem: Problem) -> float:
        """Check all points from the problem's arrays, their order, and the gap from the cuts.

        Returns:
            The recomputed gap.

        Raises:
            ExtractionError: a claim is wrong.
        """
        for point in self.points:
            point.check(problem)
        for (x0, y0), (x1, y1) in zip(self.totals, self.totals[1:], strict=False):
            if not (x0 < x1 and y0 > y1):
                raise ExtractionError(f"({x1}, {y1}) follows ({x0}, {y0}), so one beats the other")
        for x, y in self.totals:
            if any(cut.excludes(x, y, _ROUNDING) for cut in self.cuts):
                raise ExtractionError(f"a point has the totals ({x}, {y}), which a cut forbids")
        # The claim that there is no solution is taken from the search, as for a single objective.
        gap = _gap(self.totals, self.cuts) if self.points else 0.0
        if gap > self.gap * (1 + 1e-6) + _ROUNDING:
            raise ExtractionError(f"the claimed gap {self.gap} is {gap} when recomputed")
        return gap

    def to_json(self) -> dict[str, Any]:
        """Return plain values for `json.dumps`; an infinite gap becomes `None`."""
        return {
            "metrics": list(self.metrics),
            "gap": self.gap if math.isfinite(self.gap) else None,
            "points": [point.to_json() for point in self.points],
        }


def pareto(
    problem: Problem,
    first: str,
    second: str,
    *,
    points: int = 16,
    gap: float = 0.01,
    limits: Mapping[str, float] | None = None,
    caps: Mapping[str, float] | None = None,
    time_limit_s: float = 60.0,
    seed: int = 0,
    deterministic: bool = False,
    interruptible: bool = False,
    progress: Callable[[Front], None] | None = None,
) -> Front:
    """Trade one metric against another.

    Args:
        problem: the problem.
        first: a metric.
        second: another metric.
        points: greatest number of points.
        gap: gap at whose proof the search stops.
        limits: metric name to the largest total allowed.
        caps: metric name to the largest value of one chosen implementation.
        time_limit_s: wall-clock limit of the search.
        seed: random seed of the searches.
        deterministic: whether choices are equal from run to run, unless the time limit strikes.
        interruptible: whether to answer `KeyboardInterrupt` during the search with the front so
            far.
        progress: function that is called with the front so far after each search.

    Returns:
        The front; without points if there is no solution at all.

    Raises:
        ExtractionError: a metric does not exist, both are the same, or an option is invalid.
    """
    if first == second:
        raise ExtractionError("a trade-off needs two different metrics")
    if points < 2:
        raise ExtractionError(f"points is {points}; a trade-off has at least 2")
    sweep = _Sweep(
        problem=problem,
        first=first,
        second=second,
        limits=limits or {},
        caps=caps or {},
        deadline=time.perf_counter() + time_limit_s,
        seed=seed,
        deterministic=deterministic,
    )
    try:
        for weights in ((1.0, 0.0), (0.0, 1.0)):
            sweep.weighted(weights, gap)
            if not sweep.points:
                return Front((first, second), (), 0.0, ())
        while len(sweep.front().points) < points and not sweep.late():
            if progress is not None:
                progress(sweep.front())
            if not sweep.refine(gap):
                break
    except KeyboardInterrupt:
        if not interruptible:
            raise
    return sweep.front()


@dataclass(kw_only=True)
class _Sweep:
    """The search so far: points and cuts."""

    problem: Problem
    first: str
    second: str
    limits: Mapping[str, float]
    caps: Mapping[str, float]
    deadline: float
    seed: int
    deterministic: bool
    points: dict[tuple[float, float], Extraction] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    asked: set[tuple[float, float, float]] = field(default_factory=set)

    def late(self) -> bool:
        """Return whether the time is up."""
        return time.perf_counter() >= self.deadline

    def front(self) -> Front:
        """Return the points that no other one beats, and the gap."""
        kept: list[tuple[float, float]] = []
        for x, y in sorted(self.points):
            if not kept or y < kept[-1][1]:
                kept.append((x, y))
        return Front(
            (self.first, self.second),
            tuple(self.points[point] for point in kept),
            _gap(kept, self.cuts),
            tuple(self.cuts),
        )

    def weighted(self, weights: tuple[float, float], gap: float) -> None:
        """Find a point of the hull and a half-plane that contains all solutions."""
        objective = Objective(
            {self.first: weights[0], self.second: weights[1]},
            limits=self.limits,
            caps=self.caps,
        )
        found = self._solve(objective, gap)
        if found is not None and found.choice:
            self.cuts.append(HalfPlane(*weights, found.lower_bound))

    def limited(self, limit: float, gap: float) -> None:
        """Find the least second total under a limit on the first, and a box without solutions."""
        limits = {**self.limits, self.first: limit}
        objective = Objective({self.second: 1.0}, limits=limits, caps=self.caps)
        found = self._solve(objective, gap)
        if found is not None:
            self.cuts.append(Box(limit, found.lower_bound))

    def _solve(self, objective: Objective, gap: float) -> Extraction | None:
        try:
            found = extract(
                self.problem,
                objective,
                gap=gap / 4,
                time_limit_s=max(0.0, self.deadline - time.perf_counter()) * _SHARE,
                seed=self.seed,
                deterministic=self.deterministic,
            )
        except ExtractionError:
            if self.points:
                return None  # a search that finds nothing in time proves nothing
            raise
        if found.choice:
            totals = found.metrics[self.first], found.metrics[self.second]
            self.points.setdefault(totals, found)
        return found

    def refine(self, gap: float) -> bool:
        """Search where the gap is widest; return false if it is reached or no search is left.

        A weighted sum along the line between two neighbours comes first: without limits it is the
        easier problem, and its half-plane holds everywhere.
        """
        totals = self.front().totals
        wide = sorted(
            ((_corner_gap(corner, self.cuts), k) for k, corner in enumerate(_corners(totals))),
            key=lambda pair: (-pair[0], pair[1]),
        )
        for width, k in wide:
            if width <= gap + _ROUNDING:
                return False
            if k == 0 or k == len(totals):
                continue  # beyond the ends; only a better proof for the end could help
            (x0, y0), (x1, y1) = totals[k - 1], totals[k]
            total = (y0 - y1) + (x1 - x0)
            weights = (y0 - y1) / total, (x1 - x0) / total
            if self._ask((*weights, -1.0)):
                self.weighted(weights, gap)
                return True
            limit = x1 / (1 + max(gap, _STEP))
            if limit > x0 and self._ask((limit, y0, y1)):
                self.limited(limit, gap)
                return True
        return False

    def _ask(self, question: tuple[float, float, float]) -> bool:
        if question in self.asked:
            return False
        self.asked.add(question)
        return True


def _corners(totals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the upper right corners of the regions that no point beats, from left to right."""
    if not totals:
        return []
    xs = [x for x, _ in totals]
    ys = [y for _, y in totals]
    return list(zip([*xs, math.inf], [math.inf, *ys], strict=True))


def _corner_gap(corner: tuple[float, float], cuts: Sequence[Cut]) -> float:
    """Return how far a solution to the left of and below a corner can be ahead of it in both."""
    return max(0.0, min((cut.factor(*corner) for cut in cuts), default=math.inf) - 1.0)


def _gap(totals: Sequence[tuple[float, float]], cuts: Sequence[Cut]) -> float:
    return max((_corner_gap(corner, cuts) for corner in _corners(totals)), default=math.inf)
