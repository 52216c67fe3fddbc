"""The summary of a report: what was gained, what it rests on, and what to try next.

Its words are those of somebody who has a model, and knows nothing of how it was searched.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eqsat_opt.common.text import (
    count_text,
    counted,
    entrant_text,
    percent_text,
    sizes_text,
)
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.pipeline.report.report import is_below
from eqsat_opt.pipeline.report.tables import metric_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eqsat_opt.pipeline.report.report import Report

__all__ = ["TITLE_WIDTH", "summary", "summary_rows"]

TITLE_WIDTH = 8
"""Width of the titles of rows."""


_MOST_RULES = 3
"""Most rewrites that are named."""

_MOST_KINDS = 4
"""Most kinds of operators that are named."""

_TOTALS = {"flops": "", "memory_bytes": " of memory traffic", "weight_bytes": " of weights"}
"""Totals whose change is shown, with the words behind them."""

_VISIBLE = 0.005
"""Least relative change of a total that is worth a word."""


def summary(report: Report) -> Iterator[RenderableType]:
    """Yield the summary for a terminal, without warnings and notes."""
    from rich.table import Table
    from rich.text import Text

    style = "green" if report.status == "improved" else "yellow"
    yield Text(f"{report.model}: {report.headline}", style=f"bold {style}")
    if report.advice:
        yield Text(report.advice, style="bold green")
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True, width=TITLE_WIDTH)
    for title, text in summary_rows(report):
        rows.add_row(title, Text(text))
    yield rows


def summary_rows(report: Report) -> list[tuple[str, str]]:
    """Return the titles and texts of all rows, without those that have nothing to say."""
    rows = {
        "goal": _goal(report),
        "changed": _changes(report),
        "rewrites": _rewrites(report),
        "kept": _passing(report),
        "measured": _measurement(report),
        "checked": _check(report),
        "low bits": report.approximated.text if report.approximated else "",
        "room": _room(report),
        "tuned": report.tuned.text if report.tuned else "",
        "plan": report.planned.text if report.planned else "",
    }
    return [(title, text) for title, text in rows.items() if text]


def _goal(report: Report) -> str:
    if report.goal == TIME and not report.limits:
        return ""
    parts = [f"least {report.goal}"]
    if report.limits:
        parts.append(f"with {', '.join(report.limits)}")
    if report.original_breaks:
        parts.append(f"which the original breaks: {report.original_breaks}")
    return " ".join(parts)


def _changes(report: Report) -> str:
    if report.winner == "original":
        return ""
    before, after = (
        sum(counts.values()) for counts in (report.operators_before, report.operators_after)
    )
    parts = [
        f"{count_text(before)} → {counted(after, 'operator')}"
        if before != after
        else counted(after, "operator")
    ]
    for name, words in _TOTALS.items():
        old, new = report.metrics_before.get(name), report.metrics_after.get(name)
        if old and new is not None and abs(new - old) > _VISIBLE * old:
            parts.append(f"{metric_text(name, old)} → {metric_text(name, new)}{words}")
    return ", ".join(parts)


def _rewrites(report: Report) -> str:
    if report.winner in ("original", "previous"):
        return ""
    if not report.rules:
        return "none: what is constant was computed, and what is not needed left out"
    named = sorted(report.rules.items(), key=lambda one: -one[1])
    parts = [f"{name} ×{count}" for name, count in named[:_MOST_RULES]]
    if len(named) > _MOST_RULES:
        parts.append(f"{len(named) - _MOST_RULES} more")
    return ", ".join(parts)


def _passing(report: Report) -> str:
    if not report.operators_passing or report.operators_inside is None:
        return ""
    kinds = list(report.operators_passing.items())
    parts = [f"{name} ×{count}" for name, count in kinds[:_MOST_KINDS]]
    if len(kinds) > _MOST_KINDS:
        parts.append(f"{len(kinds) - _MOST_KINDS} more kinds")
    total = sum(report.operators_passing.values())
    share = report.passing_share
    time = "" if share is None else f", {percent_text(share)} of the time"
    of_all = counted(report.operators_inside + total, "operator")
    return (
        f"{count_text(total)} of {of_all} as they were: no rule is about {', '.join(parts)}{time}"
    )


def _measurement(report: Report) -> str:
    sizes = sizes_text(report.sizes)
    at_sizes = f", with {sizes}" if sizes else ""
    race = report.race
    if not race:
        return f"not raced{at_sizes}" if sizes else ""
    parts = [f"in turns with the original, {counted(report.threads, 'thread')}{at_sizes}"]
    lost = {
        name: entry
        for name, entry in race["entries"].items()
        if name != race["original"] and not entry["note"]
    }
    if report.winner == "original" and report.is_decided_by_time and lost:
        name, entry = min(lost.items(), key=lambda one: one[1]["ratio"])
        limit = 1 / (1 + race["threshold"])
        parts.append(
            f"{entrant_text(name)} took {entry['ratio']:.3f} of its time, where less than "
            f"{limit:.3f} is more than noise"
        )
    return "; ".join(parts)


def _check(report: Report) -> str:
    if not report.errors:
        return ""
    worst = max(report.errors, key=lambda one: (one.max_rel, one.max_abs))
    if worst.max_rel:
        return (
            f"outputs differ by {worst.max_rel:.1e} beyond rounding, where "
            f"{worst.tolerance:.1e} is allowed"
        )
    if report.max_abs_error:
        return f"outputs are equal but for rounding, at most {report.max_abs_error:.1e}"
    return "outputs are equal"


def _room(report: Report) -> str:
    """Return how much faster, or cheaper, a graph could be, as predicted."""
    cost = report.result_cost
    if report.status == "replayed":
        return ""
    if not report.was_searched:
        return "not known: there was no time to look for another graph"
    if cost is None:
        return ""
    if is_below(report.cost, cost):
        less = percent_text(1 - report.cost / cost)
        return f"a graph was found that promises {less} less, but {report.passed_over}"
    if report.extraction_status == "optimal":
        within = " within the limits" if report.limits else ""
        which = (
            f", for the {counted(report.operators_inside or 0, 'operator')} that they are about"
            if report.operators_passing
            else ""
        )
        return f"none of the equal graphs that were found costs less{within}: proven{which}"
    if report.is_bound_loose:
        return "not known: prices and search were not completed in this time"
    excess = percent_text(1 - report.lower_bound / cost)
    return f"the best of the equal graphs that were found costs at most {excess} less"
