"""The charts of a page as coordinates: times of a race, and cost and bound of an extraction.

Both are few marks on one axis or two, which a page draws without a library.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.common.text import entrant_text, time_text

__all__ = ["ChartRow", "RaceChart", "Tick", "TraceChart", "race_chart", "ticks", "trace_chart"]

WIDTH, RIGHT = 720.0, 24.0
"""Width of a chart, and of the margin at its end, in its own units."""

NAMES, COSTS = 200.0, 100.0
"""Width of the margin for the names of entrants, and for costs, in the same units."""

ROW, TOP, BOTTOM = 34.0, 10.0, 30.0
"""Height of a row of a race, and of the margins, in the same units."""

_TRACE_HEIGHT = 220.0


@dataclass(frozen=True)
class Tick:
    """A place on an axis, and its label."""

    at: float
    text: str


@dataclass(frozen=True)
class ChartRow:
    """The times of one entrant.

    Attributes:
        label: its name in words.
        y: middle of its row.
        dots: place and text of each session.
        median: place of the median.
        text: the median in words.
        is_original, is_winner: its role.
    """

    label: str
    y: float
    dots: tuple[Tick, ...]
    median: float
    text: str
    is_original: bool
    is_winner: bool


@dataclass(frozen=True)
class RaceChart:
    """The best time of each session of a race, a row for each entrant."""

    height: float
    axis: tuple[Tick, ...]
    rows: tuple[ChartRow, ...]


@dataclass(frozen=True)
class TraceChart:
    """Cost and bound over the time of an extraction, as steps of SVG paths."""

    height: float
    x_axis: tuple[Tick, ...]
    y_axis: tuple[Tick, ...]
    cost: str
    bound: str


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` round numbers from `low` to `high`, in equal steps."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(m * power for m in (1, 2, 5, 10, 20) if span / (m * power) <= most)
    first = math.ceil(low / step - 1e-9)
    return [step * i for i in range(first, math.floor(high / step + 1e-9) + 1)]


def race_chart(race: Mapping[str, Any]) -> RaceChart | None:
    """Return the chart of a race in its JSON form; ``None`` if nobody ran."""
    entries = {
        name: [time_us for time_us in entry["session_us"] if time_us and math.isfinite(time_us)]
        for name, entry in race.get("entries", {}).items()
    }
    entries = {name: times for name, times in entries.items() if times}
    if not entries:
        return None
    low = min(map(min, entries.values()))
    high = max(map(max, entries.values()))
    pad = 0.06 * (high - low) or 0.05 * high
    scale = _Scale(max(0.0, low - pad), high + pad, NAMES, WIDTH - RIGHT)
    rows = []
    for number, (name, times) in enumerate(entries.items()):
        median_us = race["entries"][name]["median_us"]
        rows.append(
            ChartRow(
                label=entrant_text(name),
                y=TOP + ROW * (number + 0.5),
                dots=tuple(Tick(scale(one), time_text(one)) for one in times),
                median=scale(median_us),
                text=time_text(median_us),
                is_original=name == race["original"],
                is_winner=name == race["winner"],
            )
        )
    return RaceChart(
        height=TOP + ROW * len(rows) + BOTTOM,
        axis=tuple(Tick(scale(one), time_text(one)) for one in ticks(scale.low, scale.high)),
        rows=tuple(rows),
    )


def trace_chart(points: Sequence[tuple[float, float, float]], unit: str) -> TraceChart | None:
    """Return the chart of an extraction; ``None`` with fewer than two points.

    Args:
        points: time in seconds, cost and bound.
        unit: unit of the cost; ``µs`` is given a readable prefix.
    """
    points = [one for one in points if all(map(math.isfinite, one))]
    if len(points) < 2 or points[-1][0] <= 0:
        return None
    costs, bounds = [one[1] for one in points], [one[2] for one in points]
    low, high = min(bounds), max(costs)
    pad = 0.08 * (high - low) or 0.05 * high or 1.0
    x = _Scale(0.0, points[-1][0], COSTS, WIDTH - RIGHT)
    y = _Scale(max(0.0, low - pad), high + pad, _TRACE_HEIGHT - BOTTOM, TOP)
    times = [one[0] for one in points]
    return TraceChart(
        height=_TRACE_HEIGHT,
        x_axis=tuple(Tick(x(one), f"{one:g} s") for one in ticks(0.0, points[-1][0])),
        y_axis=tuple(
            Tick(y(one), time_text(one) if unit == "µs" else f"{one:.4g} {unit}".strip())
            for one in ticks(y.low, y.high, 5)
        ),
        cost=_steps(map(x, times), map(y, costs)),
        bound=_steps(map(x, times), map(y, bounds)),
    )


@dataclass(frozen=True)
class _Scale:
    """A linear map from values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 1)


def _steps(xs: Iterable[float], ys: Iterable[float]) -> str:
    """Return an SVG path that keeps each value until the next one."""
    pairs = list(zip(xs, ys, strict=True))
    path = [f"M{pairs[0][0]} {pairs[0][1]}"]
    path += [f"H{x}V{y}" for x, y in pairs[1:]]
    return "".join(path)
