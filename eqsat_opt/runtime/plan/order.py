"""Happens-before relation of launches: which ones surely end before another one begins.

A launch waits for the one before it on its stream and for the launches that record the events it
waits for. With few streams the relation is a vector clock per launch (Fidge 1988, Mattern 1989):
by stream, the last launch that has surely ended when this one begins.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import PlanError
from eqsat_opt.runtime.plan.plan import Launch, Plan

__all__ = ["HappensBefore", "happens_before", "linear_extension"]


@dataclass(frozen=True, eq=False)
class HappensBefore:
    """The order of a plan; launches are numbered as they are submitted.

    Attributes:
        stream: by launch, its stream.
        place: by launch, its position on its stream, from 0.
        clock: by launch and stream, the last position on the stream that has ended when the launch
            begins; -1 for none.
        end: by stream, the last position that has ended when the plan has ended.
        waits_for: by launch, the launches that it waits for directly.
    """

    stream: npt.NDArray[np.int64]
    place: npt.NDArray[np.int64]
    clock: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    waits_for: tuple[tuple[int, ...], ...]

    def is_before(self, first: int, second: int) -> bool:
        """Return whether launch ``first`` has surely ended when ``second`` begins."""
        return bool(self.clock[second, self.stream[first]] >= self.place[first])

    def is_joined(self, launch: int) -> bool:
        """Return whether the launch has surely ended when the plan has ended."""
        return bool(self.end[self.stream[launch]] >= self.place[launch])

    def concurrent_with(self, launch: int) -> npt.NDArray[np.bool_]:
        """Return, by launch, whether it is another launch that nothing orders with this one."""
        later = self.clock[:, self.stream[launch]] >= self.place[launch]
        earlier = self.clock[launch][self.stream] >= self.place
        result: npt.NDArray[np.bool_] = ~(later | earlier)
        result[launch] = False
        return result


def happens_before(plan: Plan) -> HappensBefore:
    """Compute the order that streams and events impose on the launches of a plan.

    Raises:
        PlanError: an event is recorded twice or never, or is recorded by a launch that is submitted
            later than one that waits for it; launches wait for each other in a circle.
    """
    launches = plan.launches
    recorder = _recorders(launches)
    waits_for = _waits_for(launches, recorder)
    _require_submitted_before(launches, waits_for)
    stream = np.array([launch.stream for launch in launches], np.int64)
    place, counts = np.zeros(len(launches), np.int64), [0] * plan.streams
    clock = np.full((len(launches), plan.streams), -1, np.int64)
    for number, launch in enumerate(launches):
        place[number] = counts[launch.stream]
        counts[launch.stream] += 1
        for other in waits_for[number]:
            np.maximum(clock[number], clock[other], out=clock[number])
            known = clock[number, stream[other]]
            clock[number, stream[other]] = max(known, place[other])
    end = np.full(plan.streams, -1, np.int64)
    joined = [number for number, launch in enumerate(launches) if launch.stream == 0][-1:]
    for event in plan.joins:
        if event not in recorder:
            raise PlanError(f"the end of the plan waits for event {event}, which nobody records")
        joined.append(recorder[event])
    for number in joined:
        np.maximum(end, clock[number], out=end)
        end[stream[number]] = max(end[stream[number]], place[number])
    return HappensBefore(stream, place, clock, end, waits_for=waits_for)


def linear_extension(order: HappensBefore, seed: int) -> list[int]:
    """Draw a random order in which the launches may run; every possible order can be drawn."""
    generator = np.random.default_rng(seed)
    n = len(order.waits_for)
    after: list[list[int]] = [[] for _ in range(n)]
    open_waits = [len(waits) for waits in order.waits_for]
    for number, waits in enumerate(order.waits_for):
        for other in waits:
            after[other].append(number)
    ready = [(generator.random(), number) for number in range(n) if not open_waits[number]]
    heapq.heapify(ready)
    result = []
    while ready:
        _, number = heapq.heappop(ready)
        result.append(number)
        for later in after[number]:
            open_waits[later] -= 1
            if not open_waits[later]:
                heapq.heappush(ready, (generator.random(), later))
    return result


def _recorders(launches: Sequence[Launch]) -> dict[int, int]:
    recorder: dict[int, int] = {}
    for number, launch in enumerate(launches):
        for event in launch.records:
            if event in recorder:
                raise PlanError(
                    f"event {event} is recorded twice, by {launches[recorder[event]].name!r} and "
                    f"{launch.name!r}"
                )
            recorder[event] = number
    return recorder


def _waits_for(launches: Sequence[Launch], recorder: dict[int, int]) -> tuple[tuple[int, ...], ...]:
    last: dict[int, int] = {}
    result = []
    for number, launch in enumerate(launches):
        before = set()
        if launch.stream in last:
            before.add(last[launch.stream])
        for event in launch.waits:
            if event not in recorder:
                raise PlanError(f"{launch.name!r} waits for event {event}, which nobody records")
            before.add(recorder[event])
        last[launch.stream] = number
        result.append(tuple(sorted(before)))
    return tuple(result)


def _require_submitted_before(
    launches: Sequence[Launch], waits_for: Sequence[Sequence[int]]
) -> None:
    late = [(n, other) for n, waits in enumerate(waits_for) for other in waits if other >= n]
    if not late:
        return
    number, other = late[0]
    seen, stack = set(), [other]
    while stack:
        one = stack.pop()
        if one == number:
            raise PlanError(
                f"{launches[number].name!r} and {launches[other].name!r} wait for each other in a "
                "circle"
            )
        if one not in seen:
            seen.add(one)
            stack.extend(waits_for[one])
    raise PlanError(
        f"{launches[number].name!r} waits for {launches[other].name!r}, which is submitted after "
        "it; an event that is not recorded yet orders nothing"
    )
