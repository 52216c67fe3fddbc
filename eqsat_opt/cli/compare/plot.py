"""`eqsat-opt compare --plot`: cost against CPU time, and the front of two metrics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from eqsat_opt.cli.plotting import save_figure

if TYPE_CHECKING:
    from eqsat_opt.lab.comparison import Comparison

__all__ = ["draw_comparison", "front_of"]

_TITLES = {
    "time_us": "predicted time, µs",
    "energy_uj": "predicted energy, µJ",
    "bytes": "memory traffic, B",
    "flops": "FLOPs",
    "launches": "kernel launches",
}
"""Titles of metrics that may be axes of the front, in the order of preference."""

Point = tuple[float, float]


def draw_comparison(found: Comparison, path: str) -> None:
    """Draw the falling cost of each run, and the results in the plane of two metrics.

    Raises:
        OptionError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    names = _axes_of(found)
    figure = Figure(figsize=(6.4 if names is None else 11.2, 4.8), layout="constrained")
    panels = figure.subplots(1, 1 if names is None else 2, squeeze=False)[0]
    colours = {name: f"C{number % 10}" for number, name in enumerate(found.settings.methods)}
    _draw_curves(panels[0], found, colours)
    if names is not None:
        _draw_front(panels[1], found, names, colours)
    figure.suptitle(_plain(found.model))
    save_figure(figure, path)


def front_of(points: Iterable[Point]) -> list[Point]:
    """Return the Pareto front of points in two metrics, from left to right."""
    front: list[Point] = []
    for point in sorted(set(points)):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    return front


def _axes_of(found: Comparison) -> tuple[str, str] | None:
    """Return the two metrics to draw, or None if fewer are known for all results.

    Metrics of the objective are preferred.
    """
    original = found.original
    if original is None or not found.results:
        return None
    told = [original.metrics, *(one.metrics for one in found.results)]
    known = [name for name in _TITLES if all(name in one for one in told)]
    known.sort(key=lambda name: not found.settings.goal.weighs(name))
    return (known[0], known[1]) if len(known) > 1 else None


def _draw_curves(panel: Any, found: Comparison, colours: dict[str, str]) -> None:
    unit = "predicted time, µs" if found.settings.is_time else found.settings.objective
    drawn = {one.method: one.trace for one in found.results}
    end_s = max((one.cpu_s for one in found.results), default=1.0)
    start_s = min(
        (moment.cpu_s for one in found.results for moment in one.trace if moment.cpu_s > 0),
        default=end_s,
    )
    left_s = 0.8 * min(start_s, end_s)
    for one in found.results:
        moments = [moment for moment in one.trace if math.isfinite(moment.cost)]
        if not moments:
            continue
        # A logarithmic axis does not have the time 0 of the start.
        xs = [max(moment.cpu_s, left_s) for moment in moments] + [max(one.cpu_s, left_s)]
        ys = [moment.cost for moment in moments] + [moments[-1].cost]
        label = _plain(one.method) if drawn[one.method] is one.trace else None
        panel.step(xs, ys, where="post", color=colours[one.method], label=label, linewidth=1.2)
        panel.plot(xs[-1], ys[-1], "o", color=colours[one.method], markersize=4)
        if one.lower_bound is not None and math.isfinite(one.lower_bound):
            panel.axhline(one.lower_bound, color=colours[one.method], linestyle=":", linewidth=0.8)
    panel.set_xscale("log")
    panel.set_xlabel("CPU time, s (dotted: proven bound)")
    panel.set_ylabel(_plain(unit))
    if panel.get_legend_handles_labels()[0]:
        panel.legend()


def _draw_front(
    panel: Any, found: Comparison, names: tuple[str, str], colours: dict[str, str]
) -> None:
    assert found.original is not None

    def point(metrics: Any) -> Point:
        return metrics[names[0]], metrics[names[1]]

    points = [(one.method, point(one.metrics)) for one in found.results]
    start = point(found.original.metrics)
    front = front_of([start, *(place for _, place in points)])
    panel.step(*_columns(front), where="post", color="0.6", linewidth=1, label="front")
    panel.plot(*start, "s", color="0.3", label="original")
    for number, (method, place) in enumerate(points):
        is_first = method not in [name for name, _ in points[:number]]
        label = _plain(method) if is_first else None
        panel.plot(*place, "o", color=colours[method], label=label, alpha=0.8)
    panel.set_xlabel(_TITLES[names[0]])
    panel.set_ylabel(_TITLES[names[1]])
    panel.legend()


def _columns(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _plain(text: str) -> str:
    """Escape dollar signs, which would begin a formula."""
    return text.replace("$", r"\$")
