"""Boards that measure whole outcomes: all kernels of a graph, as they run together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from eqsat_opt.lab.search.pricing.outcome import PricedGraph
from eqsat_opt.lab.search.pricing.streaming import Streams
from eqsat_opt.runtime.plan.simulation import simulate

__all__ = ["Board", "Reading", "SimulatedBoard"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement.

    Attributes:
        time_us: time of one run.
        noise: relative noise; times that differ by less are not distinguishable.
    """

    time_us: float
    noise: float = 0.0

    def is_below(self, other: Reading) -> bool:
        """Return whether this time is lower by more than the noise of both."""
        return self.time_us < other.time_us * (1 - max(self.noise, other.noise))


class Board(Protocol):
    """A device that runs outcomes, or simulates them.

    Attributes:
        tells_backends: whether each kernel runs on the backend that the outcome names.
    """

    tells_backends: ClassVar[bool] = True

    def measure(self, outcome: PricedGraph) -> Reading:
        """Return the time of one run.

        Raises:
            RuntimeFailed: the outcome does not run.
        """


@dataclass(frozen=True)
class SimulatedBoard:
    """A board that simulates every outcome on the streams of a device.

    Attributes:
        streams: streams of the device.
    """

    tells_backends: ClassVar[bool] = True

    streams: Streams

    def measure(self, outcome: PricedGraph) -> Reading:
        """Return the simulated time, which has no noise.

        Kernels that the outcome has put on streams are simulated there; otherwise they are assigned
        to streams first.
        """
        kernels = outcome.kernels.values()
        loads = [self.streams.load(one.kernel, one.quoted) for one in kernels]
        if outcome.streams == 1:
            return Reading(self.streams.place(loads, outcome.reads).makespan_us)
        event_us = self.streams.profile.event_us.value
        return Reading(simulate(outcome.schedule, loads, event_us).makespan_us)
