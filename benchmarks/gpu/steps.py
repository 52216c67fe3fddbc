"""The steps that run on a device, by name; each module is imported when its step is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

from benchmarks.gpu.unit import STEPS, Task, Unit

__all__ = ["SHARES", "TOGETHER", "units_of"]

SHARES = {"probe": 1.0, "correctness": 3.0, "measure": 3.0, "compare": 4.0, "energy": 4.0}
"""Of the time of all; what a step leaves over is shared by those that follow."""

TOGETHER = frozenset({"correctness"})
"""Steps that take no times, whose units may run at the same time."""

_MODULES: Mapping[str, tuple[str, ...]] = {
    "probe": ("benchmarks.gpu.probe",),
    "correctness": ("benchmarks.gpu.correctness",),
    "measure": ("benchmarks.gpu.measuring",),
    "compare": ("benchmarks.gpu.compare", "benchmarks.gpu.peers.compared"),
    "energy": ("benchmarks.gpu.energy",),
}
"""Whose function ``units(task)`` lists the units of a step."""


def units_of(step: str, task: Task) -> Sequence[Unit]:
    """All units of a step.

    Raises:
        EqsatError: what it needs was not prepared.
    """
    assert step in STEPS
    return [unit for name in _MODULES[step] for unit in import_module(name).units(task)]
