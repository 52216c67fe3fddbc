"""Counters of energy, and which of them can be believed.

A counter that opens may still not count: virtual machines offer some that stay 0, by which every
plan would cost nothing. So a meter is used only if it rises plausibly while a processor is busy.
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
"""No busy processor draws less, and no machine draws more."""

_PROOF_S = 0.3
_IDLE_S = 0.1


class EnergyMeter(Protocol):
    """What counts energy."""

    @property
    def name(self) -> str:
        """Of the counter: ``RAPL``."""

    @property
    def scope(self) -> str:
        """What the energy is of, other processes included: ``2 processor packages``."""

    @property
    def place(self) -> str:
        """What `open_meter` opens it by in another process."""

    @property
    def resolution_uj(self) -> float:
        """The smallest step that it may tell, µJ."""

    def read(self) -> float:
        """Energy since an arbitrary moment, µJ.

        Raises:
            RuntimeFailed: the counter cannot be read.
        """


_POWERCAP, _PERF, _NVML = "powercap", "perf", "nvml"


@dataclass(frozen=True, slots=True)
class _Domain:
    """The counter of a processor package, in µJ; it begins anew after ``range_uj``."""

    path: Path
    range_uj: int


class RaplMeter:
    """The package domains that Linux shows as ``powercap/intel-rapl:N``, AMD's among them.

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
            # Not intel-rapl-mmio:N, which counts the same package again, nor parts of a package.
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
        """Energy of all packages since the meter was made, µJ."""
        now = [_whole(one.path) for one in self._domains]
        for domain, before, after in zip(self._domains, self._last, now, strict=True):
            self._total_uj += after - before + (domain.range_uj if after < before else 0)
        self._last = now
        return float(self._total_uj)


class PerfMeter:
    """The event ``power/energy-pkg/`` of Linux, which counts as RAPL does; one count per package.

    Args:
        root: the folder of the performance counters of processors.
        open_counter: how to open one; it is read by calling it.

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
        """Energy of all packages since the meter was made, µJ."""
        return sum(counter() for counter in self._counters) * self.resolution_uj


def _packages(count: int) -> str:
    return f"{count} processor package{'s' * (count > 1)}"


def open_meter(place: str) -> EnergyMeter:
    """The meter that another process has found.

    Raises:
        RuntimeFailed: it cannot be read here.
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
    """The search for a meter.

    Attributes:
        meter: the first that counts; ``None`` if there is none.
        tried: why each one before it does not, as sentences without a period.
        idle_w: power that it told while this process slept.
    """

    meter: EnergyMeter | None
    tried: tuple[str, ...]
    idle_w: float = 0.0


def _be_busy(seconds: float) -> float:
    """Keep a core busy; the seconds that it took."""
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        sum(range(1000))
    return passed


def _sleep(seconds: float) -> float:
    start = time.perf_counter()
    time.sleep(seconds)
    return time.perf_counter() - start


_OPENERS: tuple[Callable[[], EnergyMeter], ...] = (RaplMeter, PerfMeter)
"""Those of processors. That of a GPU knows nothing of them, although it rises all the same."""


def find_meter(
    openers: Sequence[Callable[[], EnergyMeter]] | None = None,
    busy: Callable[[float], float] = _be_busy,
    rest: Callable[[float], float] = _sleep,
) -> FoundMeter:
    """The first meter that rises by 0.5 W to 5 kW during a busy loop of 0.3 s.

    Args:
        openers: how to make the meters; by default all that there are.
        busy: keeps the processor busy for so many seconds; returns how many it were.
        rest: leaves it alone for so many seconds; returns how many it were.
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
    """`find_meter` on this machine; the search is made once."""
    return find_meter()
