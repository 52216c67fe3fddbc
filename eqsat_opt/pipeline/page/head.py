"""The head of a page, for notebooks: the verdict, and what is compared before and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from eqsat_opt.common.text import amount_text, change_text, count_text, time_text
from eqsat_opt.cost.metrics import METRICS
from eqsat_opt.pipeline.report.report import Report

__all__ = ["Fact", "facts_of", "head_html"]


@dataclass(frozen=True)
class Fact:
    """One number of original and result.

    Attributes:
        title: its name.
        before, after: both values with units.
        change: the relative change; empty if there is none.
    """

    title: str
    before: str
    after: str
    change: str


def facts_of(report: Report) -> Iterator[Fact]:
    """Yield what is compared: operators, totals by metric, and the measured time."""
    before, after = (sum(c.values()) for c in (report.operators_before, report.operators_after))
    change = change_text(before, after)
    yield Fact("operators", count_text(before), count_text(after), change)
    for name, metric in METRICS.items():
        if name in report.metrics_before and name in report.metrics_after:
            values = report.metrics_before[name], report.metrics_after[name]
            old, new = (amount_text(value, metric.unit) for value in values)
            yield Fact(metric.title, old, new, change_text(*values))
    if {"original", "result"} <= report.latency.keys():
        times = [report.latency[role].median_us for role in ("original", "result")]
        old, new = map(time_text, times)
        yield Fact("measured time", old, new, change_text(*times))


def head_html(report: Report) -> str:
    """Return the verdict and a table as HTML, with names escaped."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(fact.title)}</th>"
        f"<td>{escape(fact.before)}</td><td>{escape(fact.after)}</td>"
        f"<td>{escape(fact.change)}</td></tr>"
        for fact in facts_of(report)
    )
    advice = f"<p>{escape(report.advice)}</p>" if report.advice else ""
    return (
        f"<p><strong>{escape(report.model)}</strong>: {escape(report.headline)}</p>{advice}"
        f"<table><thead><tr><th></th><th>before</th><th>after</th><th>change</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )
