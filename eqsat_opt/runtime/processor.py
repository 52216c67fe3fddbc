"""Fingerprint of the processor to which a measurement belongs."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = [
    "DeviceFingerprint",
    "crowd",
    "device_fingerprint",
    "fingerprint_of",
    "usable_cores",
]

_CPUINFO = Path("/proc/cpuinfo")
# Libraries choose kernels by these flags; other flags change with updates of Linux.
_ISA_PREFIXES = ("sse", "ssse", "avx", "fma", "amx", "bmi", "asimd", "sve")
_ISA_EXACT = frozenset(("bf16", "f16c", "fphp", "i8mm", "neon", "sme", "sme2"))


@dataclass(frozen=True)
class DeviceFingerprint:
    """Identity of a processor for the purpose of timing.

    Attributes:
        id: short stable key, stored with each measurement.
        name: readable name.
        isa: its vector extensions, sorted.
        is_virtual: whether there is a hypervisor, under which the same chip is often slower.
    """

    id: str
    name: str
    isa: tuple[str, ...]
    is_virtual: bool


def usable_cores() -> int:
    """Return the number of cores on which this process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crowd() -> str:
    """Return a note that the machine is busy, to append to a reason; empty if it is not.

    The machine counts as busy if each core served more than two processes on average over the last
    minute: work takes twice its time then. The note is also empty if the load is unknown.
    """
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):
        return ""
    cores = usable_cores()
    if load <= 2 * cores:
        return ""
    return f"; the machine is busy ({load:.0f} processes for {cores} core{'s' * (cores > 1)})"


@lru_cache(maxsize=1)
def device_fingerprint() -> DeviceFingerprint:
    """Return the fingerprint of this machine's processor."""
    return fingerprint_of(_processor_facts())


def fingerprint_of(facts: Mapping[str, str]) -> DeviceFingerprint:
    """Return the fingerprint of a processor from facts in the form of Linux's `/proc/cpuinfo`."""
    flags = set((facts.get("flags") or facts.get("Features") or "").split())
    isa = tuple(
        sorted(flag for flag in flags if flag.startswith(_ISA_PREFIXES) or flag in _ISA_EXACT)
    )
    is_virtual = "hypervisor" in flags
    model = facts.get("model name") or facts.get("CPU part") or "unknown processor"
    # Clouds sell several generations under one model name.
    parts = [facts.get(key, "") for key in ("vendor_id", "cpu family", "model", "stepping")]
    identity = "\n".join([model, *parts, platform.machine(), " ".join(isa), str(is_virtual)])
    best = next(
        (name for name in ("amx_tile", "avx512f", "avx2", "sve", "asimd") if name in isa), ""
    )
    extras = [text for text in (best, "virtual" if is_virtual else "") if text]
    return DeviceFingerprint(
        id="cpu-" + hashlib.sha256(identity.encode()).hexdigest()[:12],
        name=" ".join(model.split()) + (f" ({', '.join(extras)})" if extras else ""),
        isa=isa,
        is_virtual=is_virtual,
    )


def _processor_facts() -> dict[str, str]:
    """Return the properties of the first processor; without `/proc`, those that Python knows."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"model name": platform.processor() or platform.machine()}
    facts: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts
