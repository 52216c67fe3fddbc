"""The energy protocol: windows from tick to tick of a counter, under a load that does not pause.

The counter of a GPU moves ten times a second, and its sensor samples a quarter of the time (Yang,
Adamek and Armour, "Part-time power measurements", SC 2024). A load therefore runs back to back for
some seconds, from one tick of the counter to another, and loads take turns in a shuffled order. One
load is measured a second time under another name; the difference of its two results is the noise,
below which differences mean nothing. A window does not count if clocks were throttled, if the
temperature drifted, or if the sensor contradicts the counter.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.meters import EnergyMeter
from eqsat_opt.runtime.measure import SYSTEM_CLOCK, Clock

__all__ = [
    "AGAIN",
    "EnergyReport",
    "LoadEnergy",
    "RepeatedLoad",
    "SensingMeter",
    "Window",
    "WindowOptions",
    "energy_report",
    "take_window",
    "windows_in_turn",
]

AGAIN = " again"
"""Suffix of the name of the load that is measured a second time."""

_MOST_DRIFT_C = 3.0
_MOST_CONTRADICTION = 0.05
_BATCH_S = 0.05  # long enough that the cost of a call from Python is negligible
_POLLED = 0.95  # share of a batch; a tick in the rest is seen when the next batch begins
_POLL_S = 0.005
_STILL_S = 2.0


class SensingMeter(EnergyMeter, Protocol):
    """A meter that also has sensors, by which its counter can be checked."""

    def power_w(self) -> float:
        """Return the power at this moment by the sensor, not by the counter, W."""

    def temperature_c(self) -> float:
        """Return the temperature, °C."""

    def throttling(self) -> tuple[str, ...]:
        """Return the reasons for which clocks are lower than they may be."""


@dataclass(frozen=True)
class RepeatedLoad:
    """A load that is run many times.

    Attributes:
        name: name of the load.
        queue: begins one replay, and may return before it is done.
        wait: returns when all queued replays are done.
        runs: number of inferences, or launches, of one replay.
    """

    name: str
    queue: Callable[[], object]
    wait: Callable[[], object]
    runs: int = 1


@dataclass(frozen=True)
class WindowOptions:
    """Durations and counts of a measurement.

    Attributes:
        window_s: shortest duration of a window.
        windows: number of windows that must count, for each load.
        more: number of further rounds for loads with windows that do not count.
        warm_s: time for which a load runs before its window.
        seed: seed of the order of loads in each round.
    """

    window_s: float = 3.0
    windows: int = 5
    more: int = 2
    warm_s: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Window:
    """Measurement of one load from one tick of the counter to another.

    Attributes:
        load: name of the load.
        seconds: time between the first and the last tick.
        ticks: number of ticks of the counter after the first.
        power_w: power by the counter, of all hardware that it counts.
        sensed_w: mean power by the sensor.
        time_us: time of one run.
        temperature_c: temperature at the end.
        drift_c: difference of the highest and the lowest temperature.
        throttled: reasons for which clocks were lower than they may be.
    """

    load: str
    seconds: float
    ticks: int
    power_w: float
    sensed_w: float
    time_us: float
    temperature_c: float
    drift_c: float
    throttled: tuple[str, ...] = ()

    @property
    def energy_uj(self) -> float:
        """Energy of one run, the idle power of the device included, µJ."""
        return self.power_w * self.time_us

    @property
    def refusal(self) -> str:
        """Reason for which the window does not count; empty if it counts."""
        if self.throttled:
            return f"throttled: {', '.join(self.throttled)}"
        if self.drift_c > _MOST_DRIFT_C:
            return f"the temperature moved by {self.drift_c:.0f} °C"
        if not abs(self.sensed_w - self.power_w) <= _MOST_CONTRADICTION * self.power_w:
            return f"the counter tells {self.power_w:.4g} W, the sensor {self.sensed_w:.4g} W"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return a flat mapping of the attributes, the energy, and the refusal."""
        return {**asdict(self), "energy_uj": self.energy_uj, "refusal": self.refusal}


class _Watch:
    """Readings while a load runs; readings before the first tick do not count."""

    def __init__(self, meter: SensingMeter, clock: Clock) -> None:
        self._meter, self._clock = meter, clock
        self._seen_uj, self._seen_ns = meter.read(), clock.wall_ns()
        self.ticks: list[tuple[int, float]] = []  # ns, µJ
        self.watts: list[float] = []
        self.degrees: list[float] = []
        self.throttled: dict[str, None] = {}

    @property
    def seconds(self) -> float:
        """Time from the first tick to the last."""
        return (self.ticks[-1][0] - self.ticks[0][0]) / 1e9 if self.ticks else 0.0

    def poll(self) -> None:
        """Read the counter, and the sensor if the window has begun.

        Raises:
            RuntimeFailed: the counter does not move, or cannot be read.
        """
        now_uj, now_ns = self._meter.read(), self._clock.wall_ns()
        if now_uj != self._seen_uj:
            self._seen_uj, self._seen_ns = now_uj, now_ns
            self.ticks.append((now_ns, now_uj))
        elif now_ns - self._seen_ns > _STILL_S * 1e9:
            raise RuntimeFailed(
                f"the counter of {self._meter.name} did not move in {_STILL_S:.0f} s of load, so "
                f"nothing tells the energy of {self._meter.scope}"
            )
        if self.ticks:
            self.watts.append(self._meter.power_w())
        self._clock.sleep(_POLL_S)

    def feel(self) -> None:
        """Read temperature and throttling, which change slowly, if the window has begun."""
        if self.ticks:
            self.degrees.append(self._meter.temperature_c())
            self.throttled.update(dict.fromkeys(self._meter.throttling()))


def take_window(
    load: RepeatedLoad,
    meter: SensingMeter,
    terms: WindowOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Window:
    """Run a load for one window.

    Raises:
        RuntimeFailed: the counter does not move, or cannot be read.
    """
    terms = WindowOptions() if terms is None else terms
    replays, batch_s = _warm(load, terms.warm_s, clock)
    watch, begin_ns, batches = _Watch(meter, clock), clock.wall_ns(), 0
    while watch.seconds < terms.window_s:
        polled_ns = clock.wall_ns() + round(_POLLED * batch_s * 1e9)
        for _ in range(replays):
            load.queue()
        watch.poll()  # at least once, even if queueing took as long as the work
        while clock.wall_ns() < polled_ns and watch.seconds < terms.window_s:
            watch.poll()
        load.wait()
        watch.feel()
        batches += 1
    return Window(
        load.name,
        watch.seconds,
        len(watch.ticks) - 1,
        power_w=(watch.ticks[-1][1] - watch.ticks[0][1]) / (watch.seconds * 1e6),
        sensed_w=statistics.fmean(watch.watts),
        time_us=(clock.wall_ns() - begin_ns) / 1e3 / (batches * replays * load.runs),
        temperature_c=watch.degrees[-1],
        drift_c=max(watch.degrees) - min(watch.degrees),
        throttled=tuple(watch.throttled),
    )


def _warm(load: RepeatedLoad, seconds: float, clock: Clock) -> tuple[int, float]:
    """Warm a load up; return the replays that make a batch, and the seconds that a batch takes."""
    load.queue()
    load.wait()  # the first replay may allocate
    begin_ns, replays = clock.wall_ns(), 1
    while True:
        start_ns = clock.wall_ns()
        for _ in range(replays):
            load.queue()
        load.wait()
        end_ns = clock.wall_ns()
        batch_s = max((end_ns - start_ns) / 1e9, 1e-6)
        if batch_s < _BATCH_S:
            replays = math.ceil(replays * min(1.1 * _BATCH_S / batch_s, 100.0))
        elif (end_ns - begin_ns) / 1e9 >= seconds:
            return replays, batch_s


def windows_in_turn(
    loads: Sequence[RepeatedLoad],
    meter: SensingMeter,
    terms: WindowOptions | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Window]:
    """Take windows of all loads, and of the first a second time, and yield them.

    Further rounds follow for loads with windows that do not count.

    Args:
        loads: loads of different names.
        meter: meter of the device on which they run.
        terms: durations and counts.
        clock: source of times.

    Raises:
        RuntimeFailed: the counter does not move, or cannot be read.
    """
    terms = WindowOptions() if terms is None else terms
    entries = [*loads, *(replace(one, name=one.name + AGAIN) for one in loads[:1])]
    counted = dict.fromkeys((one.name for one in entries), 0)
    if len(counted) < len(entries):
        raise ValueError("two loads have one name")
    order = random.Random(terms.seed)
    for _ in range(terms.windows + terms.more):
        lacking = [one for one in entries if counted[one.name] < terms.windows]
        for load in order.sample(lacking, len(lacking)):
            window = take_window(load, meter, terms, clock)
            counted[load.name] += not window.refusal
            yield window


@dataclass(frozen=True)
class LoadEnergy:
    """Summary of the windows of one load.

    Attributes:
        load: name of the load.
        energy_uj: energy of one run, median of the windows that count; NaN if none counts.
        mad_uj: median absolute deviation of these energies.
        power_w: median power.
        time_us: median time of one run.
        windows: number of windows that count.
        refused: reasons for which other windows do not count.
    """

    load: str
    energy_uj: float
    mad_uj: float
    power_w: float
    time_us: float
    windows: int
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnergyReport:
    """Summary of the windows of all loads.

    Attributes:
        loads: summaries in the order of the loads' first windows.
        noise: relative difference of energies up to which two loads count as equal: the largest of
            the difference of one load measured twice and its two relative deviations; NaN if no
            load was measured twice.
    """

    loads: tuple[LoadEnergy, ...]
    noise: float

    def gain(self, load: str, base: str) -> float:
        """Return the share of the energy of ``base`` that a load saves; 0 within the noise."""
        found = {one.load: one.energy_uj for one in self.loads}
        share = 1 - found[load] / found[base]
        return 0.0 if abs(share) <= self.noise else share


def energy_report(windows: Iterable[Window]) -> EnergyReport:
    """Summarise the windows of several loads."""
    by_load: dict[str, list[Window]] = {}
    for window in windows:
        by_load.setdefault(window.load, []).append(window)
    loads = {name: _load_energy(name, taken) for name, taken in by_load.items()}
    noise = math.nan
    for name, again in loads.items():
        one = loads.get(name.removesuffix(AGAIN), again)
        if one is not again:
            noise = max(
                abs(again.energy_uj / one.energy_uj - 1),
                one.mad_uj / one.energy_uj,
                again.mad_uj / again.energy_uj,
            )
    return EnergyReport(tuple(loads.values()), noise)


def _load_energy(name: str, windows: Sequence[Window]) -> LoadEnergy:
    counted = [one for one in windows if not one.refusal]
    energies = [one.energy_uj for one in counted] or [math.nan]
    middle = statistics.median(energies)
    return LoadEnergy(
        name,
        middle,
        statistics.median(abs(energy - middle) for energy in energies),
        statistics.median([one.power_w for one in counted] or [math.nan]),
        time_us=statistics.median([one.time_us for one in counted] or [math.nan]),
        windows=len(counted),
        refused=tuple(one.refusal for one in windows if one.refusal),
    )
