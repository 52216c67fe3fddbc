"""Metrics: names that are distinct, and the page that tells them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsat_opt.cost.metrics import METRICS, Metric, metric_name, metric_names

PAGE = Path(__file__).parents[2] / "docs" / "objectives.md"


def test_no_two_metrics_share_a_name() -> None:
    names = [name for m in METRICS.values() for name in {m.name, m.alias} if name]
    assert len(names) == len(set(names))
    assert [metric_name(name) for name in metric_names()] == list(METRICS)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_page_tells_each(metric: Metric) -> None:
    rows = re.findall(r"^\| `([^`]+)`(?: \(or `([^`]+)`\))? \|", PAGE.read_text("utf-8"), re.M)
    assert (metric.alias or metric.name, metric.alias and metric.name) in rows
