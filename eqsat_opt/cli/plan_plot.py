"""`eqsat-opt plan show --plot`: a timeline of the launches of a plan, by stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.cli.plotting import save_figure
from eqsat_opt.common.text import time_text

__all__ = ["draw_timeline"]

_HEIGHT = 0.8
_INCHES_PER_STREAM = 0.6
_MOST_INCHES = 12.0
_NAMED_SHARE = 0.04
"""Least share of the time for which a launch has room for its name."""

_UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))


def draw_timeline(facts: Mapping[str, Any], path: str, title: str) -> None:
    """Draw bars by stream, coloured by backend, and lines for events; needs matplotlib.

    Args:
        facts: result of `describe_plan`.
        path: path of the picture; its extension decides the format.
        title: title of the picture.

    Raises:
        OptionError: the file cannot be written.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    launches: Sequence[Mapping[str, Any]] = facts["launches"]
    analytic = facts["analytic"]
    end_us = max(analytic["makespan_us"], *(_end(one) for one in launches), 0.0)
    scale, unit = next(((s, u) for s, u in _UNITS if end_us >= s), (1.0, "µs"))
    streams = sorted({one["stream"] for one in launches}) or [0]
    height = min(1.6 + _INCHES_PER_STREAM * len(streams), _MOST_INCHES)
    figure = Figure(figsize=(10.0, height), layout="constrained")
    axes = figure.add_subplot()
    backends = list(dict.fromkeys(one["backend"] for one in launches))
    colours = {name: f"C{number % 10}" for number, name in enumerate(backends)}
    for name in backends:
        own = [one for one in launches if one["backend"] == name]
        axes.barh(
            [one["stream"] for one in own],
            [one["analytic_us"] / scale for one in own],
            left=[one["begin_us"] / scale for one in own],
            height=_HEIGHT,
            color=colours[name],
            edgecolor="white",
            linewidth=0.5,
        )
    for one in launches:
        if one["analytic_us"] >= _NAMED_SHARE * end_us > 0:
            middle = (one["begin_us"] + one["analytic_us"] / 2) / scale
            axes.text(
                middle,
                one["stream"],
                _plain(one["name"]),
                ha="center",
                va="center",
                fontsize=7,
                color="white",
                clip_on=True,
            )
    recorded = {event: one for one in launches for event in one["records"]}
    for one in launches:
        for event in one["waits"]:
            first = recorded[event]
            axes.plot(
                [_end(first) / scale, one["begin_us"] / scale],
                [first["stream"], one["stream"]],
                color="0.4",
                linewidth=0.7,
            )
    axes.set_yticks(streams, [f"stream {number}" for number in streams])
    axes.invert_yaxis()
    axes.set_xlim(0.0, end_us / scale or 1.0)
    axes.set_xlabel(f"{unit}, analytic by the profile {analytic['profile']}, not measured")
    axes.set_title(
        f"{_plain(title)}, for {_plain(facts['target'])}: {time_text(analytic['makespan_us'])}"
    )
    axes.legend(
        handles=[Patch(color=colours[name], label=_plain(name)) for name in backends],
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
    save_figure(figure, path)


def _end(launch: Mapping[str, Any]) -> float:
    return float(launch["begin_us"]) + float(launch["analytic_us"])


def _plain(text: str) -> str:
    """Escape dollar signs, which would begin a formula."""
    return text.replace("$", r"\$")
