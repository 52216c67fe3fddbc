"""Devices that execute, and profiles of those that do not."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.plan_oracle import branching_graph
from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.devices.description import PROPERTIES
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.host import HostDevice
from eqsat_opt.runtime.devices.profile import load_profile, profile_names, profile_text
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.planning.planner import make_plan
from tests.tools.recording_device import RecordingDevice

NAMES = ("a100", "b200", "h200", "k80", "l4", "p100", "rtx2080ti", "t4", "v100", "xeon")


def matmul(rows: int, columns: int, depth: int = 64) -> Kernel:
    operands = (
        Operand(TensorType("float32", (rows, depth)), False),
        Operand(TensorType("float32", (depth, columns)), True),
    )
    return Kernel(operands, (Step("MatMul", attributes(), (0, 1)),), (2,))


# ** executing devices **


def test_host_memory_is_aligned() -> None:
    device = HostDevice()
    assert device.alloc(0).nbytes == 0
    for size in (1, 1000):
        memory = device.alloc(size)
        assert memory.nbytes == size
        assert memory.ctypes.data % 256 == 0
    with pytest.raises(RuntimeFailed, match="cannot allocate"):
        device.alloc(1 << 60)


def test_an_event_is_recorded_before_it_is_waited_for() -> None:
    device = HostDevice()
    event = device.event()
    with pytest.raises(RuntimeFailed, match="not yet recorded"):
        device.wait(event, 0)
    device.record(event, 0)
    device.wait(event, 1)
    assert device.event() != event


def test_a_capture_runs_when_it_is_replayed() -> None:
    device, done = HostDevice(), list[int]()

    def queue() -> None:
        device.launch(partial(done.append, 1), 0)
        device.launch(partial(done.append, 2), 0)

    def fail() -> None:
        raise ZeroDivisionError

    captured = device.capture(queue)
    assert done == []
    device.replay(captured)
    device.replay(captured)
    assert done == [1, 2, 1, 2]
    with pytest.raises(ZeroDivisionError):
        device.capture(fail)
    queue()
    assert done[4:] == [1, 2]
    assert device.clock() <= device.clock()


@pytest.mark.parametrize("streams", [1, 3])
def test_the_log_of_a_device_is_the_schedule(streams: int) -> None:
    graph = branching_graph(3)
    tensors = {name: constant.load for name, constant in graph.constants.items()}
    plan = make_plan(graph, tensors, lambda node: "numpy", streams=streams)
    assert plan.streams == streams
    device = RecordingDevice()
    constants = make_constants(plan, tensors)
    executable = Executable(plan, constants, device, {"numpy": load_launcher("numpy")})
    log = device.log
    assert log[0] == ("alloc", plan.arena_bytes)
    begin, end = log.index(("capture",)), log.index(("captured", len(plan.launches)))
    calls = [call for call in log[begin:end] if call[0] in ("launch", "wait", "record")]
    events = [call[1] for call in log[begin:end] if call[0] == "event"]
    number = dict(zip([e for one in plan.launches for e in one.records], events, strict=False))
    expected: list[tuple[object, ...]] = []
    if streams > 1:  # all streams begin after stream 0, on which inputs are copied
        expected.append(("record", events[-1], 0))
        expected += [("wait", events[-1], stream) for stream in range(1, streams)]
    for launch in plan.launches:
        expected += [("wait", number[event], launch.stream) for event in launch.waits]
        expected.append(("launch", launch.name, launch.stream))
        expected += [("record", number[event], launch.stream) for event in launch.records]
    expected += [("wait", number[event], 0) for event in plan.joins]
    assert calls == expected
    log.clear()
    feeds = {
        port.name: np.ones(plan.buffer_of[port.buffer].dims, np.float32) for port in plan.inputs
    }
    executable.run(feeds)
    assert [call[0] for call in log] == (
        ["upload"] * len(plan.inputs) + ["replay", "synchronize"] + ["download"] * len(plan.outputs)
    )


# ** profiles **


def test_the_profiles_that_ship() -> None:
    assert profile_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_figure_says_where_it_is_from(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    kinds = ("data sheet: ", "derived: ", "assumed: ", "measured: ")
    figures = dict(profile.figures())
    assert len(figures) >= 15
    assert all(figure.source.startswith(kinds) for figure in figures.values())
    assert profile.assumptions
    assert not any(figures[one].source.startswith("data sheet") for one in profile.assumptions)
    assert {"direct", "gemm", "winograd", "fft"} == profile.multipliers.keys()
    assert profile.energy is None  # nobody has measured one


@pytest.mark.parametrize("name", NAMES)
def test_profiles_are_canonical(name: str, tmp_path: Path) -> None:
    text = profile_text(load_profile(name))
    path = tmp_path / "mine.json"
    path.write_text(text)
    assert profile_text(load_profile(path)) == text


@pytest.mark.parametrize("name", ["a100", "b200", "h200", "l4", "t4"])
def test_what_libraries_are_told_of_a_device(name: str) -> None:
    profile = load_profile(name)
    described = profile.description
    assert described is not None
    told = json.loads(described.text)
    assert told.keys() == {*PROPERTIES, "deviceName"}
    assert told["multiProcessorCount"] == told["smCountOrigin"] == profile.units.value
    assert told["totalGlobalMem"] == profile.memory_bytes.value
    assert described.architecture in ("sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda one: one["properties"].pop("smCountOrigin"), "'smCountOrigin' is missing"),
        (
            lambda one: one["properties"].update(warpSize=1.5),
            "Expected `int | array`, got `float` - at `\\$.description.properties.warpSize`",
        ),
        (lambda one: one["properties"].update(maxGridSize=[1, 2]), "maxGridSize is three numbers"),
        (lambda one: one.update(more=1), "a field that is not known - at `\\$.description.more`"),
    ],
)
def test_a_description_that_is_none(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path
) -> None:
    value = json.loads(profile_text(load_profile("l4")))
    change(value["description"])
    (tmp_path / "mine.json").write_text(json.dumps(value))
    with pytest.raises(OptionError, match=message):
        load_profile(tmp_path / "mine.json")


def test_a_profile_of_before_has_no_description(tmp_path: Path) -> None:
    value = json.loads(profile_text(load_profile("l4")))
    del value["description"]
    (tmp_path / "mine.json").write_text(json.dumps(value))
    assert load_profile(tmp_path / "mine.json").description is None


def test_waves_make_merged_siblings_pay() -> None:
    """Two products of 40 tiles each leave 28 of 80 units idle twice over; together they fit."""
    v100 = load_profile("v100")
    one, both = matmul(128 * 41, 64, 4096), matmul(128 * 41, 128, 4096)
    assert v100.occupancy(one) == pytest.approx(41 / 80)
    assert v100.occupancy(both) == pytest.approx(82 / 160)
    half, whole = matmul(128 * 40, 64, 4096), matmul(128 * 40, 128, 4096)
    assert v100.occupancy(half) == 0.5
    assert v100.occupancy(whole) == 1.0
    assert v100.kernel_us(whole) < 1.1 * v100.kernel_us(half)
    assert v100.kernel_us(both) > 1.8 * v100.kernel_us(one)


def test_times_follow_the_roofline() -> None:
    v100 = load_profile("v100")
    relu = Kernel(
        (Operand(TensorType("float32", (1 << 20,)), False),), (Step("Relu", (), (0,)),), (1,)
    )
    assert v100.occupancy(relu) == 1.0
    assert v100.kernel_us(relu) == pytest.approx(v100.launch_us.value + 8 * (1 << 20) / 900e3)
    large = matmul(1 << 14, 1 << 10, 1 << 10)
    flops_us = 2 * (1 << 34) / 15.7e6
    assert v100.kernel_us(large) == pytest.approx(
        v100.launch_us.value + flops_us / v100.occupancy(large), rel=0.01
    )
    assert v100.kernel_us(large, "winograd") < v100.kernel_us(large)
    assert v100.kernel_us(large, precision="fp16") < v100.kernel_us(large)
    reshape = Kernel(
        (Operand(TensorType("float32", (4, 2)), False),),
        (Step("Reshape", attributes(shape=(8,)), (0,)),),
        (1,),
    )
    assert v100.kernel_us(reshape) == 0.0
    copy = Kernel(reshape.operands, (), (0,))
    assert v100.kernel_us(copy) > v100.launch_us.value
    nothing = matmul(0, 3)
    assert v100.kernel_us(nothing) == pytest.approx(v100.launch_us.value, rel=0.01)
    with pytest.raises(OptionError, match="no precision 'int4'; it has fp16, fp32, fp64"):
        v100.kernel_us(relu, precision="int4")


def test_energy_is_static_and_dynamic() -> None:
    model = EnergyModel(Figure(100.0, "x"), {"fp32": Figure(10.0, "x")}, Figure(50.0, "x"))
    # 2 µs at 100 W are 200 µJ; 1e6 FLOP of 10 pJ are 10 µJ; 2e5 bytes of 50 pJ are 10 µJ.
    assert model.energy_uj(2.0, 1e6, 2e5, "fp32") == pytest.approx(220.0)
    with pytest.raises(OptionError, match="no precision 'fp16'"):
        model.energy_uj(1.0, 1.0, 1.0, "fp16")


def test_an_algorithm_may_need_less_for_the_same_operations() -> None:
    figure = Figure(10.0, "x")
    model = EnergyModel(figure, {"fp32": figure}, figure, {"gemm": Figure(0.5, "Table 1")})
    by = {name: model.energy_uj(1.0, 1e6, 1e6, "fp32", algorithm=name) for name in ("gemm", "fft")}
    assert by == {"gemm": pytest.approx(20.0), "fft": pytest.approx(30.0)}
    assert model.source == "x; Table 1"


def test_a_profile_of_ones_own_may_say_energy(tmp_path: Path) -> None:
    value = json.loads(profile_text(load_profile("v100")))
    figure = {"value": 30, "source": "measured: 2026-01-01, driver 1"}
    value["energy"] = {"static_w": figure, "pj_per_flop": {"fp32": figure}, "pj_per_byte": figure}
    (tmp_path / "v.json").write_text(json.dumps(value))
    profile = load_profile(tmp_path / "v.json")
    assert profile.energy is not None
    assert profile.energy.pj_per_flop["fp32"].value == 30
    assert "energy.pj_per_flop.fp32" in dict(profile.figures())
    assert not profile.energy.of_algorithm
    value["energy"]["of_algorithm"] = {"gemm": figure}
    (tmp_path / "v.json").write_text(json.dumps(value))
    profile = load_profile(tmp_path / "v.json")
    assert profile.energy is not None
    assert profile.energy.of_algorithm["gemm"].value == 30
    assert "energy.of_algorithm.gemm" in dict(profile.figures())


def broken(value: dict[str, object], place: str) -> dict[str, object]:
    changes: dict[str, object] = {
        "format": "eqsat-opt device 9",
        "units": {"value": 0, "source": "x"},
        "bandwidth_gb_s": {"value": "fast", "source": "x"},
        "launch_us": {"value": -1, "source": "x"},
        "memory_bytes": {"value": 1},
        "copy_us": {"value": 1e300, "source": "x"},
        "event_us": {"value": 1, "source": ""},
        "tile": [],
        "tile.0": [{"value": 0.25, "source": "x"}, {"value": 64, "source": "x"}],
        "streams": {"value": 1.5, "source": "x"},
        "kind": "a/b",
        "colour": "green",
    }
    return {**value, place.partition(".")[0]: changes[place]}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("format", "format"),
        ("units", "which no device has"),
        ("bandwidth_gb_s", "`int | float`, got `str` - at `\\$.bandwidth_gb_s.value`"),
        ("launch_us", "which no device has"),
        ("copy_us", "which no device has"),
        ("memory_bytes", "missing required field `source` - at `\\$.memory_bytes`"),
        ("event_us", "does not say where it is from"),
        ("tile", "`array` of length 2, got 0 - at `\\$.tile`"),
        ("tile.0", "is 0.25; it is a whole number of 1 or more"),
        ("streams", "is 1.5; it is a whole number of 1 or more"),
        ("kind", "is 'a/b'; it is cuda or cpu"),
        ("colour", "not known - at `\\$.colour`"),
    ],
)
def test_what_is_no_profile(tmp_path: Path, place: str, message: str) -> None:
    value = json.loads(profile_text(load_profile("t4")))
    path = tmp_path / "p.json"
    path.write_text(json.dumps(broken(value, place)))
    with pytest.raises(OptionError, match=message):
        load_profile(path)


def test_what_is_no_device(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="unknown device 'cray'; there are a100, "):
        load_profile("cray")
    with pytest.raises(OptionError, match=r"unknown device 'H20O'; .*; did you mean h200\?$"):
        load_profile("H20O")
    with pytest.raises(OptionError, match="cannot read"):
        load_profile(tmp_path / "none.json")
