"""Simulation of launches on streams that share one device.

A launch first waits for its turn, then is launched, which keeps its stream busy but not the device,
and then computes. Each launch that computes occupies a share of the device, its width. While the
widths sum to at most 1, all launches run at full speed; beyond that all are slowed down by the same
factor. The work done per unit of time is therefore the same however launches overlap, and
overlapping gains only the capacity that a launch leaves idle: units without a tile, and the time of
launching.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.runtime.plan.streams import Schedule

__all__ = ["LaunchLoad", "Simulation", "simulate"]


@dataclass(frozen=True, slots=True)
class LaunchLoad:
    """The load that one launch puts on a device.

    Attributes:
        launch_us: time before it computes, during which the device is idle.
        busy_us: time that it computes if it is alone on the device.
        width: share of the device that it keeps busy while it computes, from 0 to 1.
    """

    launch_us: float = 0.0
    busy_us: float = 0.0
    width: float = 1.0

    @property
    def time_us(self) -> float:
        """Time of the launch if it is alone on the device."""
        return self.launch_us + self.busy_us

    @property
    def work_us(self) -> float:
        """Time for which the launch would keep the whole device busy."""
        return self.width * self.busy_us


@dataclass(frozen=True, slots=True)
class Simulation:
    """Times at which launches run.

    Attributes:
        begin_us: by launch, the time at which its turn comes.
        end_us: by launch, the time at which it ends.
        makespan_us: time of the end, which waits for stream 0 and all joined events.
    """

    begin_us: tuple[float, ...]
    end_us: tuple[float, ...]
    makespan_us: float


def simulate(placed: Schedule, loads: Sequence[LaunchLoad], event_us: float = 0.0) -> Simulation:
    """Simulate a schedule event by event.

    Args:
        placed: a schedule whose launches are numbered like ``loads`` and whose events are recorded
            before they are waited for.
        loads: the load of each launch.
        event_us: delay that waiting for an event of another stream adds.
    """
    recorder = {event: n for n in placed.order for event in placed.records[n]}
    behind: list[list[tuple[int, float]]] = [[] for _ in loads]  # by launch: waiters, their delay
    missing = [0] * len(loads)
    last: dict[int, int] = {}
    for number in placed.order:
        before = [(recorder[event], event_us) for event in placed.waits[number]]
        if placed.stream[number] in last:
            before.append((last[placed.stream[number]], 0.0))
        last[placed.stream[number]] = number
        missing[number] = len(before)
        for other, delay_us in before:
            behind[other].append((number, delay_us))
    begin, end = [0.0] * len(loads), [0.0] * len(loads)
    launching = [(loads[n].launch_us, n) for n in placed.order if not missing[n]]
    heapq.heapify(launching)
    # All computing launches slow down by the same factor, so each ends when a clock that slows down
    # with them has advanced by the launch's own time.
    computing: list[tuple[float, int]] = []
    now, clock, wanted = 0.0, 0.0, 0.0
    while launching or computing:
        slowdown = max(1.0, wanted)
        done_us = now + max(0.0, computing[0][0] - clock) * slowdown if computing else None
        if done_us is None or (launching and launching[0][0] < done_us):
            time_us, number = heapq.heappop(launching)
            clock += (time_us - now) / slowdown
            now = time_us
            heapq.heappush(computing, (clock + loads[number].busy_us, number))
            wanted += loads[number].width
            continue
        clock, number = heapq.heappop(computing)
        now = end[number] = done_us
        wanted = wanted - loads[number].width if computing else 0.0
        for other, delay_us in behind[number]:
            begin[other] = max(begin[other], now + delay_us)
            missing[other] -= 1
            if not missing[other]:
                heapq.heappush(launching, (begin[other] + loads[other].launch_us, other))
    joined = [end[recorder[event]] + event_us for event in placed.joins]
    own = end[last[0]] if 0 in last else 0.0
    return Simulation(tuple(begin), tuple(end), max((own, *joined)))
