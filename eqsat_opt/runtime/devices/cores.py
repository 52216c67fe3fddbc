"""The cores of this processor as streams, for the simulation of plans with several streams.

Kernels of the host have their own prices, rooflines or measurements, so unlike a device profile
this model gives no times of kernels. Each kernel runs on one thread and occupies one core. The
model neglects that concurrent kernels share caches and memory, and that values change their layout
between sessions.
"""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.plan.simulation import LaunchLoad

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
        streams: number of cores.
        event_us: delay that waiting for an event of another stream adds.
        launch_us: 0, because prices of kernels include launching.
    """

    streams: Figure
    event_us: Figure = _EVENT
    launch_us: Figure = _LAUNCH

    @classmethod
    def of(cls, count: int) -> Cores:
        """Make the model of a number of cores."""
        return cls(Figure(float(count), "derived: the threads that were asked for"))

    def load(
        self, kernel: Kernel, algorithm: str = "direct", *, workspace_bytes: int = 0
    ) -> LaunchLoad:
        """Return a load of one core; its time comes from the kernel's price."""
        return LaunchLoad(width=1 / self.streams.value)
