"""The step `energy`: the plans of models in windows of a counter, and kernels that a model fits.

Of each model its plans are measured by turns, and one of them twice: plans that differ by less than
that one from itself are equal. Kernels are chosen so that operations, bytes and time differ as much
as they can; `merge` makes a model of energy of them and compares it with the plans.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any

from benchmarks.gpu.energy_windows import (
    AGAIN,
    RepeatedLoad,
    SensingMeter,
    Window,
    WindowOptions,
    energy_report,
    windows_in_turn,
)
from benchmarks.gpu.kernels import by_algorithm, repeated
from benchmarks.gpu.measuring import bad_units, copies_of
from benchmarks.gpu.prepared import (
    KernelPlan,
    Prepared,
    kernel_constants,
    kernel_feeds,
    loaded,
    model_inputs,
    read_prepared,
)
from benchmarks.gpu.unit import Bench, Task, Unit
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.runtime.devices.gpu_meter import NvmlMeter
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.measure import SYSTEM_CLOCK, Clock
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["chosen_kernels", "run", "units"]

STEP = "energy"

_PLANS_S, _KERNEL_S, _SPARE_S = 110.0, 40.0, 8.0
_LEAST_PLANS_S, _LEAST_KERNEL_S = 50.0, 20.0
"""With less no two windows of each load are done."""

_VALUES = {"squeezenet": 4.0, "resnet50": 2.5, "inception_v3": 2.4, "bert": 2.3}
_KERNELS = 4
"""Of each backend; they are measured after the plans of the first model."""

_MOST_PLANS = 3
_WINDOWS = {"plans": 5, "kernel": 2}
_WATCHED_S, _POLL_S, _FEWEST_TICKS = 3.0, 0.001, 3
_REHEARSED_W, _REHEARSED_US, _TICK_S = 300.0, 20_000.0, 0.1


def units(task: Task) -> Sequence[Unit]:
    """One for the plans of each model, and one for each kernel that was chosen."""
    prepared, bad = read_prepared(task.folder).of(task.models), bad_units(task.folder)
    return tuple(_units(prepared, str(task.folder), bad))


def _units(prepared: Prepared, folder: str, bad: frozenset[str]) -> Iterator[Unit]:
    scale = "full" if any(one.scale == "full" for one in prepared.plans) else "tiny"
    names: dict[str, list[str]] = {}
    for entry in prepared.plans:
        if entry.scale == scale and entry.name not in bad:
            names.setdefault(entry.model, []).append(entry.name)
    for model, several in names.items():
        request = {"folder": folder, "plans": several[:_MOST_PLANS]}
        value = _VALUES.get(model, 1.0)
        yield Unit(
            STEP, f"{model}: plans", __name__, value, _PLANS_S, request, _LEAST_PLANS_S
        )  # fmt: skip
    good = [k for k in prepared.kernels if f"{k.name}: {k.ways[0].algorithm}" not in bad]
    for kernel in chosen_kernels(good):
        request = {"folder": folder, "kernel": kernel.name}
        yield Unit(STEP, kernel.name, __name__, 3.0, _KERNEL_S, request, _LEAST_KERNEL_S)


def chosen_kernels(kernels: Sequence[KernelPlan], most: int = _KERNELS) -> list[KernelPlan]:
    """Some kernels of each backend that lie far apart in operations and bytes.

    The first of a backend has the most operations; each further one is farthest from all before,
    in the logarithms of both.
    """
    found: list[KernelPlan] = []
    for backend in sorted({one.backend for one in kernels}):
        waiting = [one for one in kernels if one.backend == backend]
        chosen = [max(waiting, key=lambda one: (_place(one)[0], one.name))]
        while len(chosen) < min(most, len(waiting)):
            rest = [one for one in waiting if one not in chosen]
            chosen.append(
                max(rest, key=lambda one: min(math.dist(_place(one), _place(c)) for c in chosen))
            )
        found += chosen
    return found


def _place(kernel: KernelPlan) -> tuple[float, float]:
    flops, size_bytes = _work(kernel.plan)
    return math.log(flops + 1), math.log(size_bytes + 1)


def _work(plan: Plan) -> tuple[float, float]:
    """Operations and bytes of the first launch, as profiles count them."""
    return next(_works(plan))


def _works(plan: Plan) -> Iterator[tuple[float, float]]:
    profile = load_profile(plan.target)
    for launch in plan.launches:
        yield profile.work(launch.body, launch.algorithm, launch.workspace.size_bytes)


def _work_by_algorithm(plan: Plan) -> dict[str, list[float]]:
    """Operations and bytes of all launches together."""
    found: dict[str, list[float]] = {}
    for launch, (flops, size_bytes) in zip(plan.launches, _works(plan), strict=True):
        sums = found.setdefault(launch.algorithm, [0.0, 0.0])
        sums[0] += flops
        sums[1] += size_bytes
    return found


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    """Windows, and what they tell of each load; or how often the counter moves."""
    meter, clock = _meter(bench)
    if "ticks" in unit.request:
        return _ticks(meter, clock)
    prepared = read_prepared(unit.request["folder"])
    deadline = Deadline.after(unit.deadline_s - _SPARE_S)
    if "kernel" in unit.request:
        kernel = next(one for one in prepared.kernels if one.name == unit.request["kernel"])
        return _kernel_energy(kernel, bench, meter, clock, deadline=deadline)
    wanted = {name: number for number, name in enumerate(unit.request["plans"])}
    entries = sorted(
        (one for one in prepared.plans if one.name in wanted), key=lambda one: wanted[one.name]
    )
    loads, why, work = [], {}, {}
    for entry in entries:
        try:
            plan, constants = loaded(entry)
            executable = bench.load(plan, constants)
        except EqsatError as error:
            why[entry.title] = str(error)
            continue
        executable.bind(model_inputs(entry.model, entry.scale))
        loads.append(_load(entry.title, executable, bench, clock))
        work[entry.title] = _work_by_algorithm(plan)
    if not loads:
        raise RuntimeFailed(next(iter(why.values()), "there is no plan"))
    windows = list(_windows(loads, meter, clock, deadline, _WINDOWS["plans"]))
    report = energy_report(windows)
    counted = [o for o in report.loads if o.windows and not o.load.endswith(AGAIN)]
    return {
        "model": entries[0].model, "scale": entries[0].scale, "meter": meter.scope,
        "loads": [asdict(one) for one in report.loads], "noise": report.noise, "why": why,
        "work": work,
        "least_time": min(counted, key=lambda o: o.time_us).load if counted else "",
        "least_energy": min(counted, key=lambda o: o.energy_uj).load if counted else "",
        "windows": [one.to_json() for one in windows],
    }  # fmt: skip


def _ticks(meter: SensingMeter, clock: Clock) -> Mapping[str, Any]:
    """How often the counter moves and by how much, medians, while nothing runs."""
    begin_ns, last_uj = clock.wall_ns(), meter.read()
    at_ns, steps_uj = [], []
    while clock.wall_ns() - begin_ns < _WATCHED_S * 1e9:
        clock.sleep(_POLL_S)
        now_uj = meter.read()
        if now_uj != last_uj:
            at_ns.append(clock.wall_ns())
            steps_uj.append(now_uj - last_uj)
            last_uj = now_uj
    if len(at_ns) < _FEWEST_TICKS:
        raise RuntimeFailed(
            f"the counter of {meter.name} moved {len(at_ns)} times in {_WATCHED_S:.0f} s, so "
            f"nothing tells the energy of {meter.scope}"
        )
    return {
        "meter": meter.scope, "ticks": len(at_ns),
        "tick_ms": statistics.median(b - a for a, b in pairwise(at_ns)) / 1e6,
        "step_uj": statistics.median(steps_uj[1:]),
    }  # fmt: skip


def _kernel_energy(
    kernel: KernelPlan, bench: Bench, meter: SensingMeter, clock: Clock, *, deadline: Deadline
) -> Mapping[str, Any]:
    way = kernel.ways[0]
    count, is_cold = copies_of(kernel.plan)
    plan = repeated(by_algorithm(kernel.plan, way.algorithm, way.workspace_bytes), count)
    executable = bench.load(plan, kernel_constants(kernel, plan))
    executable.bind(kernel_feeds(kernel, plan))
    load = _load(kernel.name, executable, bench, clock, runs=count)
    windows = list(_windows([load], meter, clock, deadline, _WINDOWS["kernel"]))
    report = energy_report(windows)
    flops, size_bytes = _work(plan)
    one = report.loads[0]
    if not one.windows:
        raise RuntimeFailed(one.refused[0])
    return {
        "kernel": kernel.name, "backend": kernel.backend, "algorithm": way.algorithm,
        "cache": "cold" if is_cold else "warm", "flops": flops, "size_bytes": size_bytes,
        "time_us": one.time_us, "energy_uj": one.energy_uj, "mad_uj": one.mad_uj,
        "power_w": one.power_w, "noise": report.noise,
        "windows": [window.to_json() for window in windows],
    }  # fmt: skip


def _windows(
    loads: Sequence[RepeatedLoad], meter: SensingMeter, clock: Clock, deadline: Deadline, count: int
) -> Iterator[Window]:
    """As many as there is time for."""
    for window in windows_in_turn(loads, meter, WindowOptions(windows=count), clock):
        yield window
        if deadline.expired:
            return


def _load(
    name: str, executable: Executable, bench: Bench, clock: Clock, runs: int = 1
) -> RepeatedLoad:
    """Replays without a pause, on what the inputs hold; in a rehearsal time passes instead."""
    if isinstance(clock, _Rehearsal):
        time_us = bench.sampler(executable)()
        replays = math.ceil(_REHEARSED_US / max(time_us, 1.0))
        queue = partial(clock.queue, replays * time_us / 1e6)
        return RepeatedLoad(name, queue, clock.wait, replays * runs)
    return RepeatedLoad(name, executable.replay, executable.wait, runs)


def _meter(bench: Bench) -> tuple[SensingMeter, Clock]:
    """Of the GPU that CuPy uses, whatever NVML calls the first one.

    Raises:
        RuntimeFailed: nothing counts its energy.
    """
    if bench.name != "gpu":
        rehearsal = _Rehearsal()
        return rehearsal, rehearsal
    try:
        bus_id = import_module("cupy").cuda.runtime.deviceGetPCIBusId(0)
    except Exception as error:
        raise RuntimeFailed(f"there is no GPU: {error}") from error
    return NvmlMeter(bus_id), SYSTEM_CLOCK


class _Rehearsal:
    """A clock on which time passes only when it is told so, and a meter of constant power."""

    name, scope, place, resolution_uj = "invented", "a rehearsal", "", 1e3

    def __init__(self) -> None:
        self._now_ns, self._end_ns = 0, 0

    def queue(self, seconds: float) -> None:
        """Work that takes so long."""
        self._end_ns = max(self._end_ns, self._now_ns) + round(seconds * 1e9)

    def wait(self) -> None:
        """Until it is done."""
        self._now_ns = max(self._end_ns, self._now_ns)

    def wall_ns(self) -> int:
        return self._now_ns

    cpu_ns = wall_ns

    def preemptions(self) -> int:
        return 0

    def cpu_step_ns(self) -> int:
        return 1

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)

    def read(self) -> float:
        return _REHEARSED_W * _TICK_S * (self._now_ns // round(_TICK_S * 1e9)) * 1e6

    def power_w(self) -> float:
        return _REHEARSED_W

    def temperature_c(self) -> float:
        return 40.0

    def throttling(self) -> tuple[str, ...]:
        return ()
