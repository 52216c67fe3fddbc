"""Launches that share a device, and graphs that cost what streams take."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.cost.analytic import ProfilePricer
from eqsat_opt.errors import OptionError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search import BackendPricer, Frame, PriceCache
from eqsat_opt.lab.search.frame import Level
from eqsat_opt.lab.search.pricing.streaming import Streams, eager
from eqsat_opt.lab.testing import GraphMaker
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import DeviceProfile, load_profile
from eqsat_opt.runtime.plan.simulation import LaunchLoad, simulate
from eqsat_opt.runtime.plan.streams import makespan_us, schedule, serial

V100 = load_profile("v100")


def device(**figures: float) -> DeviceProfile:
    """One that launches for free and waits for free unless it is said."""
    named = {"launch_us": 0.0, "event_us": 0.0, **figures}
    return replace(V100, **{name: Figure(value, "made up") for name, value in named.items()})  # type: ignore[arg-type]


def together(*loads: LaunchLoad) -> float:
    """Until all end that begin at once, each on a stream of its own."""
    placed = schedule([one.time_us for one in loads], [], len(loads))
    return simulate(placed, loads).makespan_us


# ** one device **


@pytest.mark.parametrize(
    ("widths", "makespan"),
    [((0.5, 0.5), 4.0), ((1.0, 1.0), 8.0), ((0.75, 0.75), 6.0), ((1.0, 0.0), 4.0), ((0.5,), 4.0)],
)
def test_the_device_is_shared(widths: tuple[float, ...], makespan: float) -> None:
    assert together(*(LaunchLoad(busy_us=4.0, width=width) for width in widths)) == makespan


def test_a_launch_leaves_the_device_free() -> None:
    # The second is launched while the first computes, and computes alone.
    assert together(LaunchLoad(0.0, 3.0), LaunchLoad(3.0, 2.0)) == 5.0
    # Both compute from 1 on: at half the speed until 5, where the shorter one ends.
    assert together(LaunchLoad(1.0, 2.0), LaunchLoad(1.0, 4.0)) == 7.0


def test_waiting_costs_an_event() -> None:
    loads = [LaunchLoad(1.0, 3.0, 0.5)] * 3
    placed = schedule([4.0] * 3, [(0, 2), (1, 2)], 2)
    found = simulate(placed, loads, 1.5)
    assert found.begin_us == (0.0, 0.0, 5.5)
    assert found.end_us == (4.0, 4.0, 9.5)
    assert found.makespan_us == 9.5
    assert simulate(serial(3), loads, 1.5).makespan_us == 12.0
    assert simulate(serial(0), []).makespan_us == 0.0


@st.composite
def dags(draw: st.DrawFn) -> tuple[list[LaunchLoad], list[tuple[int, int]]]:
    n = draw(st.integers(1, 8))
    pairs = [(a, b) for b in range(n) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=12)) if pairs else []
    quarters = st.integers(0, 4)
    loads = [
        LaunchLoad(draw(quarters) / 4, draw(st.integers(0, 5)), draw(quarters) / 4)
        for _ in range(n)
    ]
    return loads, edges


@given(dags(), st.integers(1, 4), st.integers(0, 2))
def test_between_no_device_and_one_that_takes_turns(
    graph: tuple[list[LaunchLoad], list[tuple[int, int]]], streams: int, event_us: int
) -> None:
    loads, edges = graph
    times = [one.time_us for one in loads]
    placed = schedule(times, edges, streams, event_us)
    found = simulate(placed, loads, event_us)
    endless = simulate(placed, [replace(one, width=0.0) for one in loads], event_us)
    assert endless.makespan_us == pytest.approx(makespan_us(placed, times, event_us))
    assert found.makespan_us >= endless.makespan_us - 1e-9
    assert found.makespan_us >= sum(one.width * one.busy_us for one in loads) - 1e-9
    for number, load in enumerate(loads):
        assert found.end_us[number] >= found.begin_us[number] + load.time_us - 1e-9
    for first, second in edges:
        assert found.begin_us[second] >= found.end_us[first] - 1e-9
    if streams == 1:
        assert found.makespan_us == pytest.approx(sum(times))


@given(dags(), st.integers(1, 4), st.integers(0, 2))
def test_eager_kernels_keep_the_order(
    graph: tuple[list[LaunchLoad], list[tuple[int, int]]], most: int, event_us: int
) -> None:
    loads, edges = graph
    loads = [replace(one, launch_us=one.launch_us + 1.0) for one in loads]
    placed = eager([one.time_us for one in loads], edges, most, event_us)
    assert sorted(placed.order) == list(range(len(loads)))
    assert placed.streams <= most
    found = simulate(placed, loads, event_us)
    for first, second in edges:
        assert found.begin_us[second] >= found.end_us[first] - 1e-9


def test_an_event_that_costs_more_than_waiting_is_avoided() -> None:
    # A long kernel beside two short ones, which stay in a row; then what reads all of them.
    times, edges = [9.0, 2.0, 2.0, 1.0], [(0, 3), (1, 3), (2, 3)]
    placed = eager(times, edges, 4, 3.0)
    assert placed.stream[0] == placed.stream[3]
    assert (placed.streams, placed.events) == (3, 2)
    assert eager(times, edges, 2, 3.0).stream == (0, 1, 1, 0)


# ** widths **


def matmul(rows: int, columns: int, depth: int) -> Kernel:
    g = GraphMaker()
    graph = g.graph(g("MatMul", g.input("x", rows, depth), g.weight(depth, columns)))
    frame = framed(graph, V100, "operators")
    (one,) = frame.outcome(frame.start).kernels.values()
    assert one.kernel is not None
    return one.kernel


def framed(graph: Graph, profile: DeviceProfile, level: Level = "streams") -> Frame:
    pricer = ProfilePricer(profile)
    prices = PriceCache.of(BackendPricer(pricer))
    return Frame(graph, (), prices, level, profile=profile, backends=pricer.backends)


def test_the_width_is_what_tiles_keep_busy() -> None:
    height, width = (int(one.value) for one in V100.tile)
    units = int(V100.units.value)
    for rows, share in [(height * 4, 4 / units), (height * units, 1.0)]:
        kernel = matmul(rows, width, 4096)
        load = V100.load(kernel)
        assert load.width == pytest.approx(share)
        assert load.time_us == V100.kernel_us(kernel)
    # Nothing but traffic, which one launch can use up.
    assert V100.load(matmul(1, 4096, 4096)).width == 1.0
    assert V100.load(matmul(0, 8, 8)).busy_us > 0  # weights are read all the same


# ** graphs **


def branches(count: int) -> Graph:
    """Branches of one product each, and their sum."""
    g = GraphMaker()
    x = g.input("x", 128, 4096)
    total, *rest = (g("MatMul", x, g.weight(4096, 64)) for _ in range(count))
    for one in rest:
        total = g("Add", total, one)
    return g.graph(total)


def test_branches_run_side_by_side() -> None:
    graph = branches(2)
    profile = device(launch_us=2.0, event_us=1.0)
    one, many = framed(graph, profile, "kernels"), framed(graph, profile)
    found = many.outcome(many.start)
    assert found.value == many.start.value < one.start.value
    assert found.metrics["time_us"] == pytest.approx(found.value)
    assert found.streams == len({kernel.stream for kernel in found.kernels.values()}) == 2
    (last,) = [name for name, kernel in found.kernels.items() if kernel.waits]
    assert last == graph.outputs[0]
    (waited,) = found.kernels[last].waits
    assert found.kernels[waited].stream != found.kernels[last].stream


def test_waiting_that_costs_more_than_it_gains_is_left_out() -> None:
    graph = branches(3)
    slow = framed(graph, device(event_us=1e6))
    assert slow.start.value == pytest.approx(framed(graph, device(), "kernels").start.value)
    assert slow.outcome(slow.start).streams == 1
    single = framed(graph, device(streams=1))
    assert single.start.value == pytest.approx(slow.start.value)


def test_branches_are_not_put_in_a_row_by_a_fused_sum() -> None:
    g = GraphMaker()
    x, y = g.input("x", 1, 64, 14, 14), g.input("y", 1, 64, 14, 14)
    left, right = (g.conv(one, g.weight(64, 64, 3, 3), pad=1) for one in (x, y))
    graph = g.graph(g("Add", left, right))
    alone, beside = framed(graph, device(), "kernels"), framed(graph, device())
    kernels = alone.outcome(alone.start).kernels
    assert len(kernels) == 2  # one convolution adds the other
    found = beside.outcome(beside.start)
    assert (len(found.kernels), found.streams) == (3, 2)
    longest = max(one.metrics["time_us"] for one in kernels.values())
    assert longest < found.value < alone.start.value
    # With nothing to gain from the streams, the fused sum stays.
    assert framed(graph, device(streams=1)).start.value == pytest.approx(alone.start.value)
    # A chain matters to an objective that reads it, too.
    guide = beside.guided(Objective({"time_us": 1.0}, critical_path=10.0))
    assert len(guide.outcome(guide.start).kernels) == 3


def test_the_time_stands_for_the_sum_in_other_objectives() -> None:
    graph, profile = branches(2), device(launch_us=2.0)
    pricer = ProfilePricer(profile)
    objective = Objective({"time_us": 1.0, "launches": 10.0})
    prices = PriceCache.of(BackendPricer(pricer), objective)
    frame = Frame(graph, (), prices, "streams", profile=profile, backends=pricer.backends)
    found = frame.outcome(frame.start)
    assert found.value == pytest.approx(found.metrics["time_us"] + 10 * found.metrics["launches"])
    limited = Objective({"time_us": 1.0}, limits={"time_us": framed(graph, profile).start.value})
    prices = PriceCache.of(BackendPricer(pricer), limited)
    frame = Frame(graph, (), prices, "streams", profile=profile, backends=pricer.backends)
    assert frame.start.value == framed(graph, profile).start.value  # the sum is above the limit


def test_streams_need_a_device() -> None:
    with pytest.raises(OptionError, match="the profile of a device"):
        Streams.of(None)
