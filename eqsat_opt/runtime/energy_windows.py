"""The energy protocol: windows from tick to tick of a counter, under a load that does not pause.

The counter of a GPU moves ten times a second, and its sensor looks a quarter of the time (Yang,
Adamek and Armour, "Part-time power measurements", SC 2024). So a load runs back to back for some
seconds, from one movement of the counter to another; loads take turns in a shuffled order; one is
measured under a second name, and what these two differ by is the least difference that means
anything. A window that was throttled, warmed up or is contradicted by the sensor does not count.
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
    "Load",
    "LoadEnergy",
    "SensingMeter",
    "Terms",
    "Window",
    "energy_report",
    "take_window",
    "windows_in_turn",
]

AGAIN = " again"
"""What the name of the load ends with that is measured twice."""

_MOST_DRIFT_C = 3.0
_MOST_CONTRADICTION = 0.05
_BATCH_S = 0.05  # beside it what a call from Python takes is nothing
_POLLED = 0.95  # of a batch; a tick in the rest is seen when the next one begins
_POLL_S = 0.005
_STILL_S = 2.0


class SensingMeter(EnergyMeter, Protocol):
    """A meter that also tells whether it can be believed."""

    def power_w(self) -> float:
        """Power at this moment, not by the counter, W."""

    def temperature_c(self) -> float:
        """Temperature, °C."""

    def throttling(self) -> tuple[str, ...]:
        """Why clocks are lower than they may be."""


@dataclass(frozen=True)
class Load:
    """What is run again and again.

    Attributes:
        name: of the load.
        queue: begins one replay, and may return before it is done.
        wait: returns when all is done that was queued.
        runs: inferences, or launches, of one replay.
    """

    name: str
    queue: Callable[[], object]
    wait: Callable[[], object]
    runs: int = 1


@dataclass(frozen=True)
class Terms:
    """How long and how often.

    Attributes:
        window_s: a window lasts at least so long.
        windows: of each load, that count.
        more: how many further rounds there are for loads with windows that do not count.
        warm_s: a load runs so long before its window.
        seed: of the order of loads in each round.
    """

    window_s: float = 3.0
    windows: int = 5
    more: int = 2
    warm_s: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Window:
    """One load from tick to tick.

    Attributes:
        load: its name.
        seconds: between the ticks.
        ticks: of the counter within it.
        power_w: by the counter, of all that it counts.
        sensed_w: mean of what the sensor told.
        time_us: of one run.
        temperature_c: at the end.
        drift_c: difference of the highest and the lowest temperature.
        throttled: why clocks were lower than they may be.
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
        """Of one run, the idle power of the device included, µJ."""
        return self.power_w * self.time_us

    @property
    def refusal(self) -> str:
        """Why it does not count; empty if it does."""
        if self.throttled:
            return f"throttled: {', '.join(self.throttled)}"
        if self.drift_c > _MOST_DRIFT_C:
            return f"the temperature moved by {self.drift_c:.0f} °C"
        if not abs(self.sensed_w - self.power_w) <= _MOST_CONTRADICTION * self.power_w:
            return f"the counter tells {self.power_w:.4g} W, the sensor {self.sensed_w:.4g} W"
        return ""

    def to_json(self) -> dict[str, Any]:
        """A flat mapping, with the energy, and why the window does not count."""
        return {**asdict(self), "energy_uj": self.energy_uj, "refusal": self.refusal}


class _Watch:
    """What is read while a load runs; nothing counts before the first tick."""

    def __init__(self, meter: SensingMeter, clock: Clock) -> None:
        self._meter, self._clock = meter, clock
        self._seen_uj, self._seen_ns = meter.read(), clock.wall_ns()
        self.ticks: list[tuple[int, float]] = []  # ns, µJ
        self.watts: list[float] = []
        self.degrees: list[float] = []
        self.throttled: dict[str, None] = {}

    @property
    def seconds(self) -> float:
        """From the first tick to the last."""
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
        """Read what changes slowly, if the window has begun."""
        if self.ticks:
            self.degrees.append(self._meter.temperature_c())
            self.throttled.update(dict.fromkeys(self._meter.throttling()))


def take_window(
    load: Load, meter: SensingMeter, terms: Terms | None = None, clock: Clock = SYSTEM_CLOCK
) -> Window:
    """Run a load for one window.

    Raises:
        RuntimeFailed: the counter does not move, or cannot be read.
    """
    terms = Terms() if terms is None else terms
    replays, batch_s = _warm(load, terms.warm_s, clock)
    watch, begin_ns, batches = _Watch(meter, clock), clock.wall_ns(), 0
    while watch.seconds < terms.window_s:
        polled_ns = clock.wall_ns() + round(_POLLED * batch_s * 1e9)
        for _ in range(replays):
            load.queue()
        watch.poll()  # once at least, should the load not have returned before it was done
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


def _warm(load: Load, seconds: float, clock: Clock) -> tuple[int, float]:
    """Run a load for a while; replays that make a batch, and the seconds that it takes."""
    load.queue()
    load.wait()  # what comes first may allocate
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
    loads: Sequence[Load],
    meter: SensingMeter,
    terms: Terms | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Iterator[Window]:
    """Windows of all loads and of the first a second time, as they are taken.

    Rounds go on for loads with windows that do not count.

    Args:
        loads: of different names.
        meter: of the device that they run on.
        terms: how long and how often.
        clock: source of times.

    Raises:
        RuntimeFailed: the counter does not move, or cannot be read.
    """
    terms = Terms() if terms is None else terms
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
    """What the windows of one load tell.

    Attributes:
        load: its name.
        energy_uj: of one run, median of the windows that count; NaN if there is none.
        mad_uj: their median absolute deviation.
        power_w: median.
        time_us: of one run, median.
        windows: how many count.
        refused: why the others do not.
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
    """What windows tell of all loads.

    Attributes:
        loads: in the order of their first windows.
        noise: share of an energy that loads have to differ by to differ at all: what one load
            differs from itself by, measured twice; NaN where that was not done.
    """

    loads: tuple[LoadEnergy, ...]
    noise: float

    def gain(self, load: str, base: str) -> float:
        """Share of the energy of ``base`` that another load saves; 0 within the noise."""
        found = {one.load: one.energy_uj for one in self.loads}
        share = 1 - found[load] / found[base]
        return 0.0 if abs(share) <= self.noise else share


def energy_report(windows: Iterable[Window]) -> EnergyReport:
    """Sum up windows of several loads."""
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
