"""The cores of this processor as streams: what a simulation of plans with several of them asks.

Its kernels have prices of their own, rooflines or measurements, so unlike a device profile this
says nothing of how long they take. Each runs on one thread and so has a core for itself; that
kernels side by side share caches and memory, and that values change their layout between sessions,
is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.plan.simulation import Load

__all__ = ["Cores"]

_EVENT = Figure(
    20.0,
    "measured: 16 µs until a thread that sleeps on another core of an AMD EPYC has gone on "
    "(python -m benchmarks.streams events), and 4 µs for one more session of onnxruntime 1.32",
)

_LAUNCH = Figure(0.0, "derived: the prices of kernels contain what starting them takes")


@dataclass(frozen=True)
class Cores:
    """Some cores of this processor.

    Attributes:
        streams: as many.
        event_us: what waiting for an event of another stream adds.
        launch_us: nothing beyond the prices.
    """

    streams: Figure
    event_us: Figure = _EVENT
    launch_us: Figure = _LAUNCH

    @classmethod
    def of(cls, count: int) -> Cores:
        """So many."""
        return cls(Figure(float(count), "derived: the threads that were asked for"))

    def load(self, kernel: Kernel, algorithm: str = "direct", *, workspace_bytes: int = 0) -> Load:
        """One core, for a time that a price tells."""
        return Load(width=1 / self.streams.value)
