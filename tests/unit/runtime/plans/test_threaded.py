"""Streams of a plan on threads: together, bit by bit as on one thread, and nothing is left over."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.plan_oracle import branching_graph
from benchmarks.plans import tensors_of
from eqsat_opt.errors import PlanError, RuntimeFailed
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.team import Team
from eqsat_opt.runtime.devices.threaded import ThreadedHost
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.plan import Launch, Plan
from eqsat_opt.runtime.planning.planner import make_plan

LONG_S = 20.0
"""After which a test that would block for ever fails."""

UNORDERED = r"nothing orders|does not wait for"


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def branches(count: int) -> tuple[Plan, Executable]:
    """A plan of as many streams, on which a launch each comes between a first and a last one."""
    g = GraphMaker()
    x = g("Relu", g.input("x", 4, 6))
    parts = [g("MatMul", x, g.weight(6, 6)) for _ in range(count)]
    while len(parts) > 1:
        parts = [g("Add", parts[0], parts[1]), *parts[2:]]
    graph = g.graph(parts[0])
    tensors = tensors_of(graph)
    plan = make_plan(graph, tensors, lambda node: "numpy", streams=count)
    assert plan.streams == count
    return plan, started(plan, make_constants(plan, tensors))


def started(plan: Plan, constants: dict[str, np.ndarray]) -> Executable:
    return Executable(plan, constants, ThreadedHost(), {"numpy": load_launcher("numpy")})


def queued(*works: tuple[int, Callable[[], object]]) -> tuple[ThreadedHost, Team]:
    """Works on streams that nothing orders."""
    device = ThreadedHost()

    def queue() -> None:
        for stream, work in works:
            device.launch(work, stream)

    return device, device.capture(queue)


def feeds_of(plan: Plan) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(0)
    return {
        port.name: draw.standard_normal(plan.buffer_of[port.buffer].dims).astype(np.float32)
        for port in plan.inputs
    }


@pytest.mark.parametrize("streams", [2, 3, 4])
def test_the_same_bits_as_on_one_thread(streams: int) -> None:
    graph = branching_graph(streams, nodes=24)
    tensors = tensors_of(graph)
    plan = make_plan(graph, tensors, lambda node: "numpy", streams=streams)
    constants, feeds = make_constants(plan, tensors), feeds_of(plan)
    launchers = {"numpy": load_launcher("numpy")}
    one = Executable(plan, constants, HostDevice(), launchers)
    several = Executable(plan, constants, ThreadedHost(), launchers)
    wanted = [array.tobytes() for array in one.run(feeds)]
    for _ in range(20):
        assert [array.tobytes() for array in several.run(feeds)] == wanted
    several.bind(feeds)()
    assert threading.active_count() == own_threads() + plan.streams - 1


def own_threads() -> int:
    return sum(not thread.name.startswith("stream ") for thread in threading.enumerate())


def test_streams_run_side_by_side() -> None:
    """Each waits until all have begun, which one after another they never would."""
    meeting = threading.Barrier(3, timeout=LONG_S)
    device, captured = queued(*((stream, meeting.wait) for stream in range(3)))
    device.replay(captured)
    device.replay(captured)
    assert not meeting.broken


def test_a_launch_waits_for_what_it_reads() -> None:
    """However long the other stream takes, and in each run anew."""
    device, seen = ThreadedHost(), list[str]()
    go = threading.Event()

    def slow() -> None:
        assert go.wait(LONG_S)
        seen.append("first")

    def queue() -> None:
        device.launch(slow, 1)
        event = device.event()
        device.record(event, 1)
        device.launch(go.set, 0)
        device.wait(event, 0)
        device.launch(partial(seen.append, "second"), 0)

    captured = device.capture(queue)
    for _ in range(3):
        go.clear()
        device.replay(captured)
    assert seen == ["first", "second"] * 3


def test_an_event_stands_for_what_was_queued_before_it() -> None:
    """What waits is not held up by what its stream does after the event."""
    device, seen = ThreadedHost(), list[str]()
    done = threading.Event()

    def queue() -> None:
        first, second, third = device.event(), device.event(), device.event()
        device.record(first, 1)  # of nothing: it is there from the beginning
        device.wait(first, 0)
        device.launch(partial(seen.append, "a"), 0)
        device.record(second, 0)
        device.wait(second, 1)
        device.record(third, 1)  # behind a wait, and before any launch of its stream
        device.wait(third, 2)
        device.launch(partial(done.wait, LONG_S), 1)
        device.launch(partial(seen.append, "c"), 1)
        device.launch(partial(seen.append, "b"), 2)
        device.launch(done.set, 2)

    device.replay(device.capture(queue))
    assert seen == ["a", "b", "c"]


def test_waiting_for_an_event_of_another_capture_is_refused() -> None:
    device = ThreadedHost()
    event = device.event()
    with pytest.raises(RuntimeFailed, match="not yet recorded"):
        device.capture(partial(device.wait, event, 1))
    device.record(event, 0)
    device.wait(event, 1)
    with pytest.raises(RuntimeFailed, match="before what is captured"):
        device.capture(partial(device.wait, event, 1))


def test_outside_of_a_capture_work_is_done_at_once() -> None:
    device, seen = ThreadedHost(), list[int]()
    device.launch(partial(seen.append, 1), 3)
    assert seen == [1]
    device.replay(device.capture(lambda: None))


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_launch_that_raises_stops_all(failing: int) -> None:
    """Whoever waits for it is woken, and the next run is whole again."""
    device, seen, broken = ThreadedHost(), list[int](), [True]

    def work(stream: int) -> None:
        if broken[0] and stream == failing:
            raise ZeroDivisionError(f"stream {stream}")
        seen.append(stream)

    def queue() -> None:
        events = [device.event() for _ in range(3)]
        for stream in range(3):
            device.launch(partial(work, stream), stream)
            device.record(events[stream], stream)
        for stream in range(3):  # all wait for all
            for event in events[:stream] + events[stream + 1 :]:
                device.wait(event, stream)
            device.launch(partial(seen.append, 10 + stream), stream)

    captured = device.capture(queue)
    for _ in range(3):
        seen.clear()
        with pytest.raises(ZeroDivisionError, match=f"stream {failing}"):
            device.replay(captured)
        assert all(one < 10 for one in seen)
    broken[0] = False
    seen.clear()
    device.replay(captured)
    assert sorted(seen) == [0, 1, 2, 10, 11, 12]


def test_of_several_failures_one_is_raised() -> None:
    meeting = threading.Barrier(3, timeout=LONG_S)

    def fail(stream: int) -> None:
        meeting.wait()
        raise RuntimeFailed(f"stream {stream}")

    device, captured = queued(*((stream, partial(fail, stream)) for stream in range(3)))
    with pytest.raises(RuntimeFailed, match=r"^stream \d$"):
        device.replay(captured)


def test_a_launch_of_a_plan_that_fails_is_named() -> None:
    plan, runner = branches(3)
    feeds = feeds_of(plan)
    wanted = runner.run(feeds)[0]

    class Failing:
        name = "numpy"
        broken = True

        def __getattr__(self, name: str) -> object:
            return getattr(load_launcher("numpy"), name)

        def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
            work = load_launcher("numpy").build(launch, bound)

            def run() -> None:
                if self.broken and launch.stream == 2:
                    raise RuntimeFailed(f"launch {launch.name!r} failed")
                work()

            return run

    launcher = Failing()
    constants = runner._constants
    other = Executable(plan, constants, ThreadedHost(), {"numpy": launcher})  # type: ignore[dict-item]
    with pytest.raises(RuntimeFailed, match=r"launch '\w+' failed"):
        other.run(feeds)
    Failing.broken = False
    assert np.array_equal(other.run(feeds)[0], wanted)


def test_an_interrupt_ends_the_run() -> None:
    """As when a user presses Ctrl-C while the first stream waits for another one."""
    device, seen = ThreadedHost(), list[str]()
    held = threading.Event()

    def interrupt() -> None:
        held.set()
        raise KeyboardInterrupt

    def queue() -> None:
        device.launch(interrupt, 0)
        device.launch(lambda: held.wait(LONG_S), 1)
        event = device.event()
        device.record(event, 1)
        device.wait(event, 2)
        device.launch(partial(seen.append, "too far"), 2)

    with pytest.raises(KeyboardInterrupt):
        device.replay(device.capture(queue))


def test_no_thread_to_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread(threading.Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    device, captured = queued((0, bool), (1, bool))
    with monkeypatch.context() as patch:
        patch.setattr(threading, "Thread", NoThread)
        with pytest.raises(RuntimeFailed, match="plan with fewer streams"):
            device.replay(captured)
    device.replay(captured)


def test_threads_end_with_the_plan() -> None:
    before = threading.active_count()
    plan, runner = branches(4)
    assert threading.active_count() == before  # a plan that never runs needs none
    runner.run(feeds_of(plan))
    runner.run(feeds_of(plan))
    assert threading.active_count() == before + 3
    del runner
    assert threading.active_count() == before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_process_that_was_forked_has_threads_of_its_own() -> None:
    plan, runner = branches(2)
    feeds = feeds_of(plan)
    wanted = runner.run(feeds)[0].tobytes()
    child = os.fork()
    if not child:
        os._exit(0 if runner.run(feeds)[0].tobytes() == wanted else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_wait_that_is_missing_is_noticed() -> None:
    plan, runner = branches(3)
    assert any(launch.waits for launch in plan.launches)
    for number, launch in enumerate(plan.launches):
        for event in launch.waits:
            others = tuple(one for one in launch.waits if one != event)
            launches = list(plan.launches)
            launches[number] = replace(launch, waits=others)
            changed = replace(plan, launches=tuple(launches))
            with pytest.raises(PlanError, match=UNORDERED):
                check_plan(changed)
            with pytest.raises(PlanError, match=UNORDERED):
                started(changed, dict(runner._constants))
