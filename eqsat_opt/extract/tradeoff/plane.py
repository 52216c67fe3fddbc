"""The plane of two totals: regions without any solution, and the hull of the points found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Box", "Cut", "HalfPlane", "corners", "lower_hull"]

_ROUNDING = 1e-12


@dataclass(frozen=True)
class HalfPlane:
    """The condition `first·x + second·y >= bound` on the totals (x, y) of every solution."""

    first: float
    second: float
    bound: float

    def factor(self, x: float, y: float) -> float:
        """Return the largest factor by which a point within can be below (x, y) in both totals."""
        # An infinite coordinate has no effect where it has no weight.
        value = (self.first * x if self.first else 0.0) + (self.second * y if self.second else 0.0)
        if self.bound <= 0:
            return math.inf if value > 0 else 1.0
        return value / self.bound

    def excludes(self, x: float, y: float, tolerance: float) -> bool:
        """Return whether (x, y) is clearly outside."""
        return self.first * x + self.second * y < self.bound * (1 - tolerance)

    def crossing(self, other: HalfPlane) -> tuple[float, float] | None:
        """Return the point where two borders meet; None if they are parallel."""
        det = self.first * other.second - other.first * self.second
        scale = math.hypot(self.first, self.second) * math.hypot(other.first, other.second)
        if abs(det) <= 1e-13 * scale:
            return None
        x = (self.bound * other.second - other.bound * self.second) / det
        y = (self.first * other.bound - other.first * self.bound) / det
        return x, y


@dataclass(frozen=True)
class Box:
    """A box without solutions: first totals of at most `first` and second ones below `second`."""

    first: float
    second: float

    def factor(self, x: float, y: float) -> float:
        """Return the largest factor by which a point outside can be below (x, y) in both totals."""
        across = x / self.first if self.first > 0 else (math.inf if x > 0 else 1.0)
        down = y / self.second if self.second > 0 else (math.inf if y > 0 else 1.0)
        return max(across, down)

    def excludes(self, x: float, y: float, tolerance: float) -> bool:
        """Return whether (x, y) is clearly inside."""
        return x <= self.first and y < self.second * (1 - tolerance)


Cut = HalfPlane | Box


def corners(cuts: Sequence[HalfPlane]) -> list[tuple[float, float]]:
    """Return the vertices of the intersection of all half-planes, by first coordinate.

    One half-plane must bound the first total alone, and one the second.
    """
    found = []
    for i, one in enumerate(cuts):
        for other in cuts[i + 1 :]:
            point = one.crossing(other)
            if point is not None and all(
                c.first * point[0] + c.second * point[1]
                >= c.bound - _ROUNDING * (abs(c.bound) + math.hypot(*point))
                for c in cuts
            ):
                found.append(point)
    return sorted(found)


def lower_hull(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that some positive weighting of both coordinates prefers, ascending."""
    hull: list[tuple[float, float]] = []
    for x, y in sorted(points):
        if hull and y >= hull[-1][1]:
            continue
        while len(hull) >= 2:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull
