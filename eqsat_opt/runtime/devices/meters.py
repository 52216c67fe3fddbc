"""Counters of energy, and which of them can be believed.

A counter that opens may still not count: virtual machines offer some that stay 0, by which every
plan would cost nothing. So a meter is used only if it rises plausibly while a processor is busy.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eqsat_opt.errors import RuntimeFailed, reason

__all__ = ["EnergyMeter", "FoundMeter", "RaplMeter", "find_meter"]

_LEAST_W, _MOST_W = 0.5, 5e3
"""No busy processor draws less, and no machine draws more."""

_PROOF_S = 0.3


class EnergyMeter(Protocol):
    """What counts energy."""

    @property
    def name(self) -> str:
        """Of the counter: ``RAPL``."""

    @property
    def scope(self) -> str:
        """What the energy is of, other processes included: ``2 processor packages``."""

    @property
    def resolution_uj(self) -> float:
        """The smallest step that it may tell, µJ."""

    def read(self) -> float:
        """Energy since an arbitrary moment, µJ.

        Raises:
            RuntimeFailed: the counter cannot be read.
        """


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
        n = len(self._domains)
        self.scope = f"{n} processor package{'s' * (n > 1)}"
        self._last = [_whole(one.path) for one in self._domains]
        self._total_uj = 0

    def read(self) -> float:
        """Energy of all packages since the meter was made, µJ."""
        now = [_whole(one.path) for one in self._domains]
        for domain, before, after in zip(self._domains, self._last, now, strict=True):
            self._total_uj += after - before + (domain.range_uj if after < before else 0)
        self._last = now
        return float(self._total_uj)


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
    """

    meter: EnergyMeter | None
    tried: tuple[str, ...]


def _be_busy(seconds: float) -> float:
    """Keep a core busy; the seconds that it took."""
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        sum(range(1000))
    return passed


def find_meter(
    openers: Sequence[Callable[[], EnergyMeter]] = (RaplMeter,),
    busy: Callable[[float], float] = _be_busy,
) -> FoundMeter:
    """The first meter that rises by 0.5 W to 5 kW during a busy loop of 0.3 s.

    Args:
        openers: how to make the meters.
        busy: keeps the processor busy for so many seconds; returns how many it were.
    """
    tried = []
    for opener in openers:
        try:
            meter = opener()
            begin = meter.read()
            seconds = busy(_PROOF_S)
            power_w = (meter.read() - begin) / (seconds * 1e6)
        except RuntimeFailed as error:
            tried.append(str(error))
            continue
        if _LEAST_W <= power_w <= _MOST_W:
            return FoundMeter(meter, tuple(tried))
        tried.append(f"{meter.name} told {power_w:.3g} W of a busy processor, which cannot be")
    return FoundMeter(None, tuple(tried))
