"""All numbers of a report, as tables for `--verbose`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from eqsat_opt.common.text import (
    amount_text,
    change_text,
    count_text,
    counted,
    plain_table,
    quantity_text,
    race_text,
    sizes_text,
    stage_text,
    time_text,
)
from eqsat_opt.cost.metrics import ENERGY, METRICS, TIME
from eqsat_opt.pipeline.report.report import is_below
from eqsat_opt.runtime.devices import HOST

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eqsat_opt.pipeline.report.report import Report

__all__ = ["comparison_table", "end_text", "metric_text", "search_grid", "tables"]

_ENDED = {
    "saturated": "nothing is left to rewrite",
    "algebra": "nothing is left to rewrite but the order of sums and products",
}
"""Reasons for the end of saturation other than limits."""

_TITLES = {
    **{name: metric.title for name, metric in METRICS.items()},
    "critical_path_us": "predicted longest chain",
    "simulated_us": "simulated on {streams} streams",
    "critical_path": "predicted critical path",
}
"""Titles of totals by name, in the order of the table."""


def end_text(stopped_by: str) -> str:
    """Return why saturation ended, for people."""
    return _ENDED.get(stopped_by, f"stopped by {stopped_by}")


def tables(report: Report) -> Iterator[RenderableType]:
    """Yield the tables: a comparison of original and result, and the facts of all stages."""
    yield comparison_table(report)
    yield ""
    yield _grid([*_search_facts(report), *_outcome_facts(report)])


def comparison_table(report: Report) -> RenderableType:
    """Return a table that compares original and result, a row for each number."""
    table = plain_table("", "before", "after", "change", right=slice(1, None))
    before, after = (sum(c.values()) for c in (report.operators_before, report.operators_after))
    table.add_row("operators", count_text(before), count_text(after), change_text(before, after))
    for name, title in _TITLES.items():
        if name in report.metrics_before and name in report.metrics_after:
            old, new = report.metrics_before[name], report.metrics_after[name]
            if name == "critical_path" and new == report.metrics_after.get("critical_path_us"):
                continue  # it has a row in microseconds
            texts = metric_text(name, old), metric_text(name, new)
            table.add_row(title.format(streams=report.streams), *texts, change_text(old, new))
    if {"original", "result"} <= report.latency.keys():
        runs = (report.latency["original"], report.latency["result"])
        gain = f"{report.speedup:.2f}x" if report.status == "improved" else ""
        table.add_row(
            "measured time", *(time_text(run.median_us) for run in runs), gain, style="bold"
        )
        table.add_row("  spread of sessions", *(f"{run.spread:.1%}" for run in runs), "")
        energies = [run.energy_uj for run in runs if run.energy_uj is not None]
        if len(energies) == len(runs):
            title = f"measured energy ({report.race['meter']})"
            values = (metric_text(ENERGY, value) for value in energies)
            table.add_row(title, *values, change_text(*energies))
    if "session" in report.latency:
        tuned, gain = report.latency["session"], f"{report.session_speedup:.2f}x"
        table.add_row("  with session option", "", time_text(tuned.median_us), gain)
    return table


def search_grid(report: Report) -> RenderableType:
    """Return a table of the e-graph and the extraction, without the stages after them."""
    return _grid(_search_facts(report))


def _search_facts(report: Report) -> list[tuple[str, str]]:
    if not report.was_searched:
        return []
    aim = [("objective", report.goal)] if report.goal != TIME else []
    if report.limits:
        kept = f"the original breaks one: {report.original_breaks}" * bool(report.original_breaks)
        aim.append(("limits", "; ".join(filter(None, (", ".join(report.limits), kept)))))
    return [
        *aim,
        (
            "e-graph",
            f"{count_text(report.enodes_loaded)} → {count_text(report.enodes)} e-nodes in "
            f"{count_text(report.eclasses)} e-classes, {counted(report.iterations, 'iteration')}, "
            + end_text(report.stopped_by),
        ),
        *([("coverage", report.coverage)] if report.coverage else []),
        ("predicted", f"{_costs_text(report)}; {report.optimality}"),
        *([("energy", report.energy)] if report.energy else []),
        (
            "kernels",
            _prices_text(report),
        ),
    ]


def _prices_text(report: Report) -> str:
    """Describe the sources of prices, and how many prices are only bounds."""
    recorded = report.prices.get("recorded", 0)
    if report.target == HOST:
        how, all_of_them = f"{count_text(report.kernels_measured)} measured now", "measured"
    elif recorded:
        how, all_of_them = f"{count_text(recorded)} recorded on {report.target}", "recorded"
    else:
        how, all_of_them = f"prices are analytic, by the profile of {report.target}", "of it"
    if not report.kernels_unmeasured:
        return f"{how}; all prices used here are {all_of_them}"
    count, total = map(count_text, (report.kernels_unmeasured, sum(report.prices.values())))
    what = "expected from others" if report.prices.get("expected") else "only bounds"
    return f"{how}; {count} of the {total} prices used here are {what}"


def _costs_text(report: Report) -> str:
    """List the costs of result, cheapest graph found and original, each once."""
    parts = []
    if report.winner != "original" and report.result_cost is not None:
        parts.append(f"result {_cost(report, report.result_cost)}")
    known = report.result_cost
    if known is None or is_below(report.cost, known):
        parts.append(f"cheapest found {_cost(report, report.cost)}")
    return ", ".join([*parts, f"original {_cost(report, report.original_cost)}"])


def _outcome_facts(report: Report) -> list[tuple[str, str]]:
    facts = [("sizes", text)] if (text := sizes_text(report.sizes)) else []
    if report.rules:
        facts.append(
            ("rules", ", ".join(f"{name} ×{count}" for name, count in report.rules.items()))
        )
    changes = _operator_changes(report)
    if changes:
        facts.append(("changed", changes))
    if report.errors:
        facts.append(("outputs", f"agree: {_errors_text(report)}"))
    race = race_text(report.race, decides=report.is_decided_by_time)
    if race:
        facts.append(("race", f"{race}; {counted(report.threads, 'thread')}"))
    for number, further in enumerate(report.further_races, start=2):
        facts.append((f"race {number}", race_text(further, decides=report.is_decided_by_time)))
    if report.tuned is not None:
        facts.append(("tuned", report.tuned.text))
    if report.planned is not None:
        facts.append(("plan", report.planned.text))
    total = sum(report.stages_s.values())
    shown = {stage_text(n): s for n, s in report.stages_s.items() if s >= 0.005}
    stages = ", ".join(f"{name} {s:.2f}" for name, s in shown.items())
    facts.append(("seconds", f"{total:.2f}: {stages}" if stages else f"{total:.2f}"))
    return facts


def _errors_text(report: Report) -> str:
    worst = max(report.errors, key=lambda one: (one.max_rel, one.max_abs))
    if worst.max_rel:
        return (
            f"a difference of {worst.max_abs:.1e}; {worst.max_rel:.1e} beyond rounding, where "
            f"{worst.tolerance:.1e} is allowed"
        )
    if report.max_abs_error:
        return f"a difference of {report.max_abs_error:.1e}, all of it rounding"
    return "no difference"


def _cost(report: Report, value: float) -> str:
    return metric_text(report.goal, value) if report.goal in METRICS else f"{value:.6g}"


def metric_text(name: str, value: float) -> str:
    """Format a total in the unit of its metric."""
    if name.endswith("_us"):
        return amount_text(value, METRICS[TIME].unit)
    return amount_text(value, METRICS[name].unit) if name in METRICS else quantity_text(value)


def _grid(facts: Sequence[tuple[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    for title, text in facts:
        table.add_row(title, Text(text))
    return table


def _operator_changes(report: Report) -> str:
    parts = []
    for name in sorted({*report.operators_before, *report.operators_after}):
        before, after = report.operators_before.get(name, 0), report.operators_after.get(name, 0)
        if before != after:
            parts.append(f"{name} {before} → {after}")
    return ", ".join(parts)
