"""Which processor a measurement belongs to."""

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
# A kernel is chosen by these flags; the rest of the list changes with kernel updates.
_ISA_PREFIXES = ("sse", "ssse", "avx", "fma", "amx", "bmi", "asimd", "sve")
_ISA_EXACT = frozenset(("bf16", "f16c", "fphp", "i8mm", "neon", "sme", "sme2"))


@dataclass(frozen=True)
class DeviceFingerprint:
    """Identity of a processor for the purpose of timing.

    Attributes:
        id: short stable key, as stored with each measurement.
        name: what a person would call it.
        isa: its vector extensions, sorted.
        is_virtual: whether a hypervisor was seen; the same chip is often slower then.
    """

    id: str
    name: str
    isa: tuple[str, ...]
    is_virtual: bool


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def crowd() -> str:
    """That the machine is busy, to be put behind a reason; empty where it is not, or cannot tell.

    It counts as busy where on the average of the last minute each core had to serve more than two
    processes: what runs here took twice its time then.
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
    """The processor of this machine."""
    return fingerprint_of(_processor_facts())


def fingerprint_of(facts: Mapping[str, str]) -> DeviceFingerprint:
    """The fingerprint of a processor described as Linux does in `/proc/cpuinfo`."""
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
    """Properties of the first processor; without `/proc`, what Python knows."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {"model name": platform.processor() or platform.machine()}
    facts: dict[str, str] = {}
    for line in text.partition("\n\n")[0].splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts
