"""Charts as coordinates: round numbers on axes, each mark within the chart, worse is further."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.pipeline.page.charts import NAMES, WIDTH, race_chart, ticks, trace_chart
from tests.unit.machines import Machine

numbers = st.floats(0, 1e9, allow_nan=False)


@given(numbers, numbers, st.integers(2, 8))
def test_ticks_are_few_and_inside(one: float, other: float, most: int) -> None:
    low, high = sorted((one, other))
    found = ticks(low, high, most)
    assert len(found) <= most + 1
    slack = 1e-6 * max(1.0, high)
    assert all(low - slack <= tick <= high + slack for tick in found)


def test_ticks_are_round() -> None:
    assert ticks(0, 10, 6) == [0, 2, 4, 6, 8, 10]
    assert ticks(130, 870, 4) == [200, 400, 600, 800]
    assert ticks(5, 5) == [5]


def test_faster_is_further_left() -> None:
    chart = race_chart(Machine().race(rounds=1, original=1000.0, best=500.0).to_json())
    assert chart is not None
    original, best = chart.rows
    assert (original.is_original, best.is_winner) == (True, True)
    assert max(dot.at for dot in best.dots) < min(dot.at for dot in original.dots)
    assert all(NAMES <= dot.at <= WIDTH for row in chart.rows for dot in row.dots)
    assert chart.rows[-1].y < chart.height


def test_no_race_no_chart() -> None:
    assert race_chart({}) is None
    lost = {"a": {"session_us": (None, math.inf), "median_us": math.inf}}
    assert race_chart({"entries": lost, "original": "a", "winner": "a"}) is None


def test_costs_fall_and_bounds_rise() -> None:
    chart = trace_chart([(0.1, 9.0, 1.0), (0.5, 7.0, 4.0), (1.0, 6.0, 6.0)], "µs")
    assert chart is not None
    paths = chart.cost, chart.bound
    costs, bounds = ([float(y) for y in re.findall(r"[V ]([\d.]+)", path)] for path in paths)
    assert costs == sorted(costs)  # y grows downwards
    assert bounds == sorted(bounds, reverse=True)
    assert costs[-1] == bounds[-1]


def test_one_point_is_no_chart() -> None:
    assert trace_chart([(0.1, 9.0, 1.0)], "µs") is None
    assert trace_chart([(0.1, math.inf, 1.0), (0.2, 4.0, 1.0)], "µs") is None
