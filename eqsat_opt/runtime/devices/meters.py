"""Energy meters, and a check of their plausibility.

A counter that opens may still not count: virtual machines offer some that stay 0, so that every
plan would cost nothing. A meter is therefore used only if it rises plausibly while a processor is
busy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

from eqsat_opt.errors import RuntimeFailed, reason
from eqsat_opt.runtime.devices.gpu_meter import NvmlMeter
from eqsat_opt.runtime.devices.perf_events import OpenCounter, open_counter

__all__ = [
    "EnergyMeter",
    "FoundMeter",
    "PerfMeter",
    "RaplMeter",
    "find_meter",
    "found_meter",
    "open_meter",
]

_LEAST_W, _MOST_W = 0.5, 5e3
"""Plausible power, W: no busy processor draws less, and no machine draws more."""

_PROOF_S = 0.3
_IDLE_S = 0.1


class EnergyMeter(Protocol):
    """A counter of energy."""

    @property
    def name(self) -> str:
        """Name of the counter, such as ``RAPL``."""

    @property
    def scope(self) -> str:
        """Hardware whose energy it counts, other processes included: ``2 processor packages``."""

    @property
    def place(self) -> str:
        """Text by which `open_meter` opens it in another process."""

    @property
    def resolution_uj(self) -> float:
        """Smallest step of the counter, µJ."""

    def read(self) -> float:
        """Return the energy since an arbitrary moment, µJ.

        Raises:
            RuntimeFailed: the counter cannot be read.
        """


_POWERCAP, _PERF, _NVML = "powercap", "perf", "nvml"


@dataclass(frozen=True, slots=True)
class _Domain:
    """The counter of a processor package, in µJ; it wraps around after ``range_uj``."""

    path: Path
    range_uj: int


class RaplMeter:
    """The package domains that Linux shows as ``powercap/intel-rapl:N``, also for AMD processors.

    A counter may wrap around once between two readings, which takes minutes.

    Args:
        powercap: the folder of the domains.

    Raises:
        RuntimeFailed: there is no such domain, or it cannot be read.
    """

    name = "RAPL"
    resolution_uj = 1.0

    def __init__(self, powercap: Path = Path("/sys/class/powercap")) -> None:
        try:
            # Exclude intel-rapl-mmio:N, which counts the same package again, and parts of packages.
            folders = sorted(
                f for f in powercap.iterdir() if re.fullmatch(r"intel-rapl:\d+", f.name)
            )
        except OSError as error:
            raise RuntimeFailed(f"{powercap}: {reason(error)}") from error
        self._domains = [
            _Domain(folder / "energy_uj", _whole(folder / "max_energy_range_uj"))
            for folder in folders
            if _text(folder / "name").startswith("package")
        ]
        if not self._domains:
            raise RuntimeFailed(f"{powercap} has no domain of a processor package")
        self.place = f"{_POWERCAP}:{powercap}"
        self.scope = _packages(len(self._domains))
        self._last = [_whole(one.path) for one in self._domains]
        self._total_uj = 0

    def read(self) -> float:
        """Return the energy of all packages since the meter was made, µJ."""
        now = [_whole(one.path) for one in self._domains]
        for domain, before, after in zip(self._domains, self._last, now, strict=True):
            self._total_uj += after - before + (domain.range_uj if after < before else 0)
        self._last = now
        return float(self._total_uj)


class PerfMeter:
    """The event ``power/energy-pkg/`` of Linux, which counts like RAPL; one counter per package.

    Args:
        root: the folder of the performance counters of processors.
        open_counter: opens a counter, and returns a function that reads it.

    Raises:
        RuntimeFailed: there is no such event, or it may not be read.
    """

    name = "RAPL, by perf"

    def __init__(
        self,
        root: Path = Path("/sys/bus/event_source/devices"),
        open_counter: OpenCounter = open_counter,
    ) -> None:
        folder = root / "power"
        event = folder / "events" / "energy-pkg"
        config, unit = _text(event), _text(event.with_name("energy-pkg.unit"))
        found = re.fullmatch(r"event=(0x[0-9a-f]+)", config)
        scale = _text(event.with_name("energy-pkg.scale"))
        cpus = _text(folder / "cpumask")
        if (
            found is None
            or unit != "Joules"
            or not re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", scale)
            or not re.fullmatch(r"\d+(,\d+)*", cpus)
        ):
            raise RuntimeFailed(f"{event} is described in a way that is not known")
        kind = _whole(folder / "type")
        self.resolution_uj = float(scale) * 1e6
        self._counters = [
            open_counter(kind, int(found[1], 16), int(cpu)) for cpu in cpus.split(",")
        ]
        self.place = f"{_PERF}:{root}"
        self.scope = _packages(len(self._counters))

    def read(self) -> float:
        """Return the energy of all packages since the meter was made, µJ."""
        return sum(counter() for counter in self._counters) * self.resolution_uj


def _packages(count: int) -> str:
    return f"{count} processor package{'s' * (count > 1)}"


def open_meter(place: str) -> EnergyMeter:
    """Open the meter that another process has found, by its `EnergyMeter.place`.

    Raises:
        RuntimeFailed: it cannot be read in this process.
    """
    kind, _, root = place.partition(":")
    if kind == _NVML:
        return NvmlMeter(root)
    return RaplMeter(Path(root)) if kind == _POWERCAP else PerfMeter(Path(root))


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError as error:
        raise RuntimeFailed(f"{path}: {reason(error)}") from error


def _whole(path: Path) -> int:
    text = _text(path)
    if not (text.isascii() and text.isdecimal()):
        raise RuntimeFailed(f"{path} holds no count")
    return int(text)


@dataclass(frozen=True)
class FoundMeter:
    """Result of the search for a meter.

    Attributes:
        meter: the first meter that counts; ``None`` if there is none.
        tried: for each meter before it, the reason for its refusal, a sentence without a period.
        idle_w: power by the meter while this process slept, W.
    """

    meter: EnergyMeter | None
    tried: tuple[str, ...]
    idle_w: float = 0.0


def _be_busy(seconds: float) -> float:
    """Keep a core busy, and return the seconds that it took."""
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        sum(range(1000))
    return passed


def _sleep(seconds: float) -> float:
    start = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - start


_OPENERS: tuple[Callable[[], EnergyMeter], ...] = (RaplMeter, PerfMeter)
"""Meters of processors. A GPU's meter is not among them: it rises, but counts no processor."""


def find_meter(
    openers: Sequence[Callable[[], EnergyMeter]] | None = None,
    busy: Callable[[float], float] = _be_busy,
    rest: Callable[[float], float] = _sleep,
) -> FoundMeter:
    """Find the first meter that shows 0.5 W to 5 kW during a busy loop of 0.3 s.

    Args:
        openers: functions that make the meters; by default all meters of processors.
        busy: keeps the processor busy for a number of seconds; returns the seconds that it took.
        rest: leaves it idle for a number of seconds; returns the seconds that it took.
    """
    tried = []
    for opener in _OPENERS if openers is None else openers:
        try:
            meter = opener()
            idle_w = _power_w(meter, rest, _IDLE_S)
            busy_w = _power_w(meter, busy, _PROOF_S)
        except RuntimeFailed as error:
            tried.append(str(error))
            continue
        if _LEAST_W <= busy_w <= _MOST_W:
            return FoundMeter(meter, tuple(tried), idle_w=max(idle_w, 0.0))
        tried.append(f"{meter.name} told {busy_w:.3g} W of a busy processor, which cannot be")
    return FoundMeter(None, tuple(tried))


def _power_w(meter: EnergyMeter, act: Callable[[float], float], seconds: float) -> float:
    begin_uj = meter.read()
    passed_s = act(seconds)
    return (meter.read() - begin_uj) / (passed_s * 1e6)


@cache
def found_meter() -> FoundMeter:
    """Return the result of `find_meter` on this machine; the search runs once per process."""
    return find_meter()
