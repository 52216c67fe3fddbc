"""Metrics: names that are distinct, and the page that tells them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from eqsat_opt.cost.metrics import (
    ENERGY,
    METRICS,
    PEAK,
    TIME,
    WORKSPACE,
    Metric,
    columns,
    metric_name,
    metric_names,
    peaks_capped,
    require_priced,
)
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import Objective, Product

PAGE = Path(__file__).parents[3] / "docs" / "objectives.md"


def test_no_two_metrics_share_a_name() -> None:
    names = [name for m in METRICS.values() for name in {m.name, m.alias} if name]
    assert len(names) == len(set(names))
    assert [metric_name(name) for name in metric_names()] == list(METRICS)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_the_page_tells_each(metric: Metric) -> None:
    rows = re.findall(r"^\| `([^`]+)`(?: \(or `([^`]+)`\))? \|", PAGE.read_text("utf-8"), re.M)
    assert (metric.alias or metric.name, metric.alias and metric.name) in rows


def test_a_problem_has_what_is_known_of_each_kernel() -> None:
    assert columns((TIME,)) == ("launches", "flops", "bytes", "weight_bytes", TIME, PEAK)
    assert columns((WORKSPACE, TIME, ENERGY)) == tuple(METRICS)


def test_what_has_no_price_is_refused() -> None:
    require_priced(Objective({TIME: 1.0, "bytes": 1.0}), (TIME,))
    for objective in (
        Objective({ENERGY: 1.0}),
        Product({TIME: 1.0, ENERGY: 1.0}),
        Objective({TIME: 1.0}, limits={ENERGY: 1.0}),
    ):
        with pytest.raises(OptionError, match=r"'energy' has no prices: .*--energy-model FILE"):
            require_priced(objective, (TIME,))
    with pytest.raises(OptionError, match="'workspace' has no prices"):
        require_priced(Objective({TIME: 1.0}, caps={WORKSPACE: 1.0}), (TIME, ENERGY))


def test_a_limit_on_a_peak_is_a_cap_on_each_kernel() -> None:
    given = Objective({TIME: 1.0}, limits={WORKSPACE: 8.0, TIME: 2.0}, caps={"bytes": 3.0})
    expected = Objective({TIME: 1.0}, limits={TIME: 2.0}, caps={WORKSPACE: 8.0, "bytes": 3.0})
    assert peaks_capped(given) == expected
    kept = Objective({TIME: 1.0}, limits={PEAK: 8.0}, caps={PEAK: 3.0})
    assert peaks_capped(kept) == kept  # the order decides whether a graph keeps it
    assert peaks_capped(Objective({PEAK: 1.0})) == Objective({PEAK: 1.0})
    both = Objective({TIME: 1.0}, limits={WORKSPACE: 8.0}, caps={WORKSPACE: 3.0})
    assert peaks_capped(both).caps == {WORKSPACE: 3.0}
    for objective in (
        Objective({WORKSPACE: 1.0}),
        Objective({TIME: 1.0}, 1.0, path={WORKSPACE: 1.0}),
        Product({TIME: 1.0, WORKSPACE: 1.0}),
    ):
        with pytest.raises(OptionError, match="'workspace' is the largest of all kernels"):
            peaks_capped(objective)
