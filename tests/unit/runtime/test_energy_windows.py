"""Energy of loads on a GPU, by a counter that ticks, on a simulated clock."""

from __future__ import annotations

import ast
import inspect
import math
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from benchmarks.gpu.energy_windows import (
    RepeatedLoad,
    Window,
    WindowOptions,
    energy_report,
    take_window,
    windows_in_turn,
)
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices import gpu_meter, nvml
from eqsat_opt.runtime.devices.gpu_meter import NvmlMeter
from eqsat_opt.runtime.devices.meters import find_meter, open_meter
from tests.tools.fake_nvml import REASONS, FakeNvml
from tests.unit.machines import Machine

SHORT = WindowOptions(window_s=1.0, windows=2, more=1, warm_s=0.2, seed=3)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    made = FakeNvml(Machine())
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def load(
    fake: FakeNvml,
    name: str,
    power_w: float,
    time_us: float,
    then: Callable[[], object] = lambda: None,
) -> RepeatedLoad:
    """Runs for so long, after which nothing is left to do until the next begins."""
    machine, end_ns = fake.machine, 0

    def queue() -> None:
        nonlocal end_ns
        fake.draw(power_w)
        end_ns = max(end_ns, machine.now_ns) + round(time_us * 1e3)

    def wait() -> None:
        machine.now_ns = max(end_ns, machine.now_ns)
        then()

    return RepeatedLoad(name, queue, wait)


@pytest.mark.parametrize("time_us", [300.0, 70_000.0])
def test_a_window_goes_from_tick_to_tick(fake: FakeNvml, time_us: float) -> None:
    meter = NvmlMeter()
    one = take_window(load(fake, "a", 300.0, time_us), meter, WindowOptions(), fake.machine)
    assert one.seconds == pytest.approx(3.0, abs=0.11)
    assert one.ticks == round(one.seconds * 10)
    assert (one.power_w, one.sensed_w) == pytest.approx((300.0, 300.0), rel=5e-3)
    assert one.time_us == pytest.approx(time_us, rel=0.02)
    assert one.energy_uj == pytest.approx(one.power_w * one.time_us)
    assert (one.refusal, one.throttled, one.drift_c) == ("", (), 0.0)
    assert one.to_json()["energy_uj"] == one.energy_uj


def test_several_runs_in_a_replay(fake: FakeNvml) -> None:
    ten = replace(load(fake, "a", 300.0, 5000.0), runs=10)
    assert take_window(ten, NvmlMeter(), SHORT, fake.machine).time_us == pytest.approx(
        500, rel=0.02
    )


def test_a_load_that_returns_when_it_is_done(fake: FakeNvml) -> None:
    late = load(fake, "a", 300.0, 5e4)

    def queue() -> None:
        late.queue()
        late.wait()

    one = take_window(replace(late, queue=queue), NvmlMeter(), SHORT, fake.machine)
    assert one.power_w == pytest.approx(300.0, rel=0.1)


@pytest.mark.parametrize("bits", [32, 64])
def test_a_counter_that_begins_anew(fake: FakeNvml, bits: int) -> None:
    fake.range_mj = 1 << bits
    fake.begin_mj = fake.range_mj - 50_000  # 50 J before
    meter = NvmlMeter()
    one = take_window(load(fake, "a", 100.0, 300.0), meter, SHORT, fake.machine)
    assert one.power_w == pytest.approx(100.0, rel=5e-3)
    assert meter.read() > 1e5 * 1e3


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_counter_that_does_not_move(fake: FakeNvml, is_busy: bool) -> None:
    fake.begin_mj = 0
    meter = NvmlMeter()
    with pytest.raises(RuntimeFailed, match=r"of NVML did not move in 2 s of load.* of Fake$"):
        take_window(load(fake, "a", 0.0, 300.0 if is_busy else 7e4), meter, SHORT, fake.machine)


@pytest.mark.parametrize(
    ("bit", "text"), [*zip(REASONS.values(), gpu_meter._SLOWED.values(), strict=True)]
)
def test_throttled_windows_do_not_count(fake: FakeNvml, bit: int, text: str) -> None:
    counts = iter(range(1000))

    def then() -> None:
        fake.reasons = bit | 1 if next(counts) == 15 else 1  # for one batch only

    one = take_window(load(fake, "a", 300.0, 5e4, then), NvmlMeter(), SHORT, fake.machine)
    assert one.refusal == f"throttled: {text}"


@pytest.mark.parametrize(("degrees", "is_refused"), [(3.0, False), (4.0, True), (-4.0, True)])
def test_what_warms_up_does_not_count(fake: FakeNvml, degrees: float, is_refused: bool) -> None:
    counts = iter(range(1000))

    def then() -> None:
        fake.temperature_c = 40 + degrees * (next(counts) > 15)

    one = take_window(load(fake, "a", 300.0, 5e4, then), NvmlMeter(), SHORT, fake.machine)
    assert one.drift_c == abs(degrees)
    assert bool(one.refusal) is is_refused


@pytest.mark.parametrize("has_instant", [True, False])
@pytest.mark.parametrize(("share", "is_refused"), [(1.04, False), (0.9, True), (1.1, True)])
def test_the_sensor_contradicts(
    fake: FakeNvml, share: float, has_instant: bool, is_refused: bool
) -> None:
    fake.sensed, fake.has_instant = share, has_instant
    one = take_window(load(fake, "a", 300.0, 5e4), NvmlMeter(), SHORT, fake.machine)
    assert bool(one.refusal) is is_refused
    assert not is_refused or one.refusal.startswith("the counter tells 30")


def test_a_sensor_that_tells_no_number() -> None:
    odd = Window("a", 3.0, ticks=30, power_w=300.0, sensed_w=math.nan, time_us=1.0,
                 temperature_c=40.0, drift_c=0.0)  # fmt: skip
    assert odd.refusal
    assert not replace(odd, sensed_w=300.0).refusal


def test_loads_take_turns_and_one_is_measured_twice(fake: FakeNvml) -> None:
    loads = [load(fake, "a", 300.0, 400.0), load(fake, "b", 200.0, 500.0)]
    taken = list(windows_in_turn(loads, NvmlMeter(), SHORT, fake.machine))
    names = [one.load for one in taken]
    assert [sorted(names[i : i + 3]) for i in (0, 3)] == [["a", "a again", "b"]] * 2
    assert len(names) == 6
    again = list(windows_in_turn(loads, NvmlMeter(), SHORT, fake.machine))
    assert [one.load for one in again] == names
    others = set()
    for seed in range(4):
        terms = replace(SHORT, seed=seed, warm_s=0.0, window_s=0.1)
        turns = windows_in_turn(loads, NvmlMeter(), terms, fake.machine)
        others.add(tuple(one.load for one in turns))
    assert len(others) > 1
    report = energy_report(taken)
    a, b = (next(one for one in report.loads if one.load == name) for name in "ab")
    assert a.energy_uj == pytest.approx(300 * 400, rel=0.02)
    assert (a.windows, a.refused) == (2, ())
    assert a.power_w == pytest.approx(300, rel=5e-3)
    assert report.noise < 0.02
    assert report.gain("b", "a") == pytest.approx(1 - b.energy_uj / a.energy_uj)
    assert replace(report, noise=0.5).gain("b", "a") == 0.0
    with pytest.raises(ValueError, match="one name"):
        list(windows_in_turn([*loads, loads[0]], NvmlMeter(), SHORT, fake.machine))


def test_rounds_go_on_for_what_does_not_count(fake: FakeNvml) -> None:
    def hot() -> None:
        fake.reasons = REASONS["SwThermalSlowdown"]

    def cool() -> None:
        fake.reasons = 1

    loads = [load(fake, "a", 300.0, 5e4, cool), load(fake, "b", 300.0, 5e4, hot)]
    taken = list(windows_in_turn(loads, NvmlMeter(), SHORT, fake.machine))
    report = energy_report(taken)
    of = {one.load: one for one in report.loads}
    assert (of["a"].windows, of["a again"].windows) == (2, 2)
    assert (of["b"].windows, len(of["b"].refused)) == (0, 3)
    assert math.isnan(of["b"].energy_uj)
    assert math.isnan(energy_report(taken[:1]).noise)


# ** what may be missing **


def test_what_nvml_lacks_is_said_in_one_line(
    fake: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nvmlInit", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetTotalEnergyConsumption"):
        fake.failing = {name}
        with pytest.raises(RuntimeFailed, match=f"^NVML.*: {name} is not supported$"):
            NvmlMeter()
    fake.failing = {"nvmlDeviceGetHandleByPciBusId"}
    with pytest.raises(RuntimeFailed, match="PciBusId is not supported"):
        NvmlMeter("0000:3B:00.0")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(RuntimeFailed, match=r"run pip install 'eqsat-opt\[gpu\]'$"):
        NvmlMeter()


def test_another_process_opens_the_same_gpu(fake: FakeNvml) -> None:
    meter = NvmlMeter("0000:3B:00.0")
    assert (meter.scope, meter.place) == ("Fake", "nvml:0000:3B:00.0")
    again = open_meter(meter.place)
    assert isinstance(again, NvmlMeter)
    assert again._nvml._gpu == "gpu at 0000:3B:00.0"


def test_a_processor_is_not_measured_by_a_gpu(fake: FakeNvml) -> None:
    fake.begin_mj = 0
    found = find_meter(busy=lambda s: s, rest=lambda s: s)
    assert not isinstance(found.meter, NvmlMeter)


def test_nothing_is_set() -> None:
    """Neither clocks nor limits."""
    for module in (nvml, gpu_meter):
        tree = ast.parse(inspect.getsource(module))
        texts = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        asked = {name for name in texts | names if name.startswith("nvmlDevice")}
        assert all(name.startswith("nvmlDeviceGet") for name in asked)
