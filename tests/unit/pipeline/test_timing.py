"""Times on several streams: chains, schedules, and what the report tells of them."""

from __future__ import annotations

import pytest

import eqsat_opt.api
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import Objective, Problem, ProblemBuilder, extract
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options
from eqsat_opt.select.choosing.timing import PATH, SIMULATED, stream_times

TIME = Objective({"time_us": 1.0})


def diamond(free: bool) -> Problem:
    """Two branches of 3 and 4 µs between kernels of 1 µs; what joins them may be no kernel."""
    builder = ProblemBuilder(("time_us",))
    source, left, right, end = (builder.add_class() for _ in range(4))
    builder.add_node(source, (), [(1.0,)])
    builder.add_node(left, (source,), [(3.0,)])
    builder.add_node(right, (source,), [(4.0,)])
    builder.add_node(end, (left, right), [(0.0 if free else 1.0,)])
    return builder.build([end])


@pytest.mark.parametrize(
    ("free", "streams", "event_us", "simulated"),
    [
        (False, 1, 0.5, 9.0),
        (False, 2, 0.0, 6.0),
        (False, 2, 0.5, 6.0),  # the shorter branch waits and is waited for
        (False, 4, 0.0, 6.0),
        (True, 2, 0.0, 5.0),
    ],
)
def test_kernels_side_by_side(free: bool, streams: int, event_us: float, simulated: float) -> None:
    problem = diamond(free)
    choice = extract(problem, TIME).choice
    found = stream_times(problem, choice, streams, event_us)
    assert found[PATH] == (5.0 if free else 6.0)
    assert found[SIMULATED] == simulated


def test_one_kernel_and_none() -> None:
    builder = ProblemBuilder(("time_us",))
    leaf, top = builder.add_class(), builder.add_class()
    builder.add_node(leaf, (), [(0.0,)])
    builder.add_node(top, (leaf,), [(2.0,)])
    for root, time_us in ((leaf, 0.0), (top, 2.0)):
        problem = builder.build([root])
        choice = extract(problem, TIME).choice
        assert stream_times(problem, choice, 3, 1.0) == {PATH: time_us, SIMULATED: time_us}


def test_the_report_tells_times_on_streams() -> None:
    options = Options(
        objective="time+0.5*critical_path(time)",
        effort="quick",
        race=False,
        check=0,
        store="",
        threads=1,
        streams=3,
    )
    model = zoo.build("squeezenet", scale="tiny")
    report = eqsat_opt.api.run(model, options).report
    for metrics in (report.metrics_before, report.metrics_after):
        assert metrics[PATH] == pytest.approx(metrics["critical_path"])
        assert metrics[PATH] <= metrics[SIMULATED] * (1 + 1e-9)
        assert metrics[SIMULATED] <= metrics["time_us"] * (1 + 1e-9)
    assert report.metrics_before[PATH] < report.metrics_before["time_us"]
    assert report.to_json()["streams"] == 3


def test_streams_are_a_positive_number() -> None:
    for streams in (0, -1, 129):
        with pytest.raises(OptionError, match="give a number from 1 to 128"):
            Options(streams=streams)
