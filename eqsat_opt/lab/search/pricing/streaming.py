"""Kernels of a graph on the streams of a device, as level ``streams`` prices them.

Kernels are assigned to streams as Nimble does it (`eqsat_opt.runtime.plan.streams`), and the device
is simulated (`eqsat_opt.runtime.plan.simulation`). Waiting may cost more than the streams gain. So
list schedules on several numbers of streams and a single stream are simulated too, and the
assignment whose last kernel ends first is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search.pricing.pricing import Quoted
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.plan.simulation import LaunchLoad, simulate
from eqsat_opt.runtime.plan.streams import Schedule, schedule, serial, with_events

__all__ = ["StreamDevice", "StreamedKernels", "Streams", "eager", "waiting"]


class StreamDevice(Protocol):
    """A device that runs streams: a profile, or the cores of this processor."""

    @property
    def streams(self) -> Figure:
        """The number of streams beyond which more gain nothing."""

    @property
    def launch_us(self) -> Figure:
        """The part of a kernel's time in which it does not use the device."""

    @property
    def event_us(self) -> Figure:
        """Time that waiting for an event of another stream adds."""

    def load(
        self, kernel: Kernel, algorithm: str = "direct", *, workspace_bytes: int = 0
    ) -> LaunchLoad:
        """Return the load of a kernel of literal sizes on the device; only its width is read."""


@dataclass(frozen=True, slots=True)
class StreamedKernels:
    """Kernels on streams, numbered as they were given.

    Attributes:
        schedule: schedule of the kernels.
        makespan_us: when the last one ends.
    """

    schedule: Schedule
    makespan_us: float


@dataclass
class Streams:
    """The streams of one device.

    Attributes:
        profile: the device.
    """

    profile: StreamDevice
    _widths: dict[Offer, float] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, profile: StreamDevice | None) -> Streams:
        """Build the streams of a device.

        Raises:
            OptionError: there is no device.
        """
        if profile is None:
            raise OptionError(
                "streams are simulated by the profile of a device; give one, or level kernels"
            )
        return cls(profile)

    def load(self, kernel: Kernel | None, quoted: Quoted | None) -> LaunchLoad:
        """Return the load of a kernel of literal sizes on the device; empty if it takes no time.

        Args:
            kernel: the kernel; ``None`` for an unknown one, which takes the whole device.
            quoted: its implementation and time; ``None`` for a kernel that does not run.
        """
        time_us = 0.0 if quoted is None else quoted.metrics[TIME]
        if quoted is None or not time_us:
            return LaunchLoad(width=0.0)
        width = 1.0
        if kernel is not None and kernel.static_types is not None:
            offer = Offer(kernel, quoted.backend, quoted.implementation)
            if offer not in self._widths:
                how = quoted.implementation
                self._widths[offer] = self.profile.load(
                    offer.body, how.algorithm, workspace_bytes=how.workspace_bytes
                ).width
            width = self._widths[offer]
        launch_us = min(self.profile.launch_us.value, time_us)
        return LaunchLoad(launch_us, time_us - launch_us, width)

    def place(self, loads: Sequence[LaunchLoad], reads: Sequence[Sequence[int]]) -> StreamedKernels:
        """Assign kernels to streams, and simulate when they end.

        Args:
            loads: load of each kernel.
            reads: for each kernel, the numbers of the kernels that it reads, which precede it.
        """
        edges, event_us = waiting(loads, reads), self.profile.event_us.value
        running = [n for n, load in enumerate(loads) if load.time_us]
        alone = StreamedKernels(serial(len(loads)), sum(loads[n].time_us for n in running))
        most = int(self.profile.streams.value)
        if most == 1 or len(running) < 2:
            return alone
        place = {n: i for i, n in enumerate(running)}
        own = [loads[n] for n in running]
        inner = [(place[first], place[second]) for first, second in edges]
        times = [load.time_us for load in own]
        best = alone
        widest = eager(times, inner, most, event_us)
        fewer = (eager(times, inner, count, event_us) for count in range(2, widest.streams))
        for found in (schedule(times, inner, most, event_us), widest, *fewer):
            makespan_us = simulate(found, own, event_us).makespan_us
            if makespan_us < best.makespan_us:
                best = StreamedKernels(found, makespan_us)
        if best is alone:
            return alone
        return StreamedKernels(_with_idle(best.schedule, running, reads), best.makespan_us)


def eager(
    times_us: Sequence[float], edges: Sequence[tuple[int, int]], most: int, event_us: float
) -> Schedule:
    """Schedule each kernel on the stream where it begins first, waiting for events included.

    The kernel with the longest chain of work after it goes first: list scheduling by upward rank
    (HEFT: Topcuoglu et al., IEEE TPDS 2002) on at most ``most`` equal streams. Unlike Nimble it
    leaves two kernels on one stream where an event would cost more.
    """
    n = len(times_us)
    before: list[list[int]] = [[] for _ in range(n)]
    urgency = list(times_us)
    for first, second in sorted(edges, reverse=True):  # edges lead from lower to higher numbers
        before[second].append(first)
        urgency[first] = max(urgency[first], times_us[first] + urgency[second])
    order = sorted(range(n), key=lambda one: (-urgency[one], one))
    free, end, stream = [0.0], [0.0] * n, [0] * n
    for number in order:
        told = max((end[b] + event_us for b in before[number]), default=0.0)
        starts = [max(own, told) for own in free]
        for one in {stream[b] for b in before[number]}:
            ends = (end[b] + event_us * (stream[b] != one) for b in before[number])
            starts[one] = max(free[one], *ends)
        if len(free) < most:
            starts.append(told)
        place = min(range(len(starts)), key=lambda one: (starts[one], one))
        if place == len(free):
            free.append(0.0)
        stream[number] = place
        free[place] = end[number] = starts[place] + times_us[number]
    return with_events(order, stream, edges)


def waiting(loads: Sequence[LaunchLoad], reads: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Return the pairs (first, second) of kernels where the second waits for the first.

    A kernel that takes no time is in no pair: its readers wait for the kernels that it reads.
    """
    behind: list[tuple[int, ...]] = []
    edges = []
    for number, (load, before) in enumerate(zip(loads, reads, strict=True)):
        needed = tuple(dict.fromkeys(one for other in before for one in behind[other]))
        if load.time_us:
            edges += [(one, number) for one in needed]
            needed = (number,)
        behind.append(needed)
    return edges


def _with_idle(found: Schedule, running: Sequence[int], reads: Sequence[Sequence[int]]) -> Schedule:
    """Add the kernels that take no time to a schedule, each after the last kernel that it reads."""
    n = len(reads)
    stream, rank = [0] * n, [-1] * n
    waits: list[tuple[int, ...]] = [()] * n
    records = waits.copy()
    for place, i in enumerate(found.order):
        number = running[i]
        stream[number], rank[number] = found.stream[i], place
        waits[number], records[number] = found.waits[i], found.records[i]
    for number in sorted(set(range(n)).difference(running)):
        last = max(reads[number], key=lambda one: rank[one], default=None)
        if last is not None:
            stream[number], rank[number] = stream[last], rank[last]
    order = sorted(range(n), key=lambda one: (rank[one], one))
    return Schedule(tuple(order), tuple(stream), tuple(waits), tuple(records), joins=found.joins)
