"""Launches on streams, with as few events as can be.

Two launches that nothing orders shall be on different streams, and what is on one stream needs no
event. The edges that matter are those of the transitive reduction; a maximum matching of sources
with targets links as many of them as possible into chains, which become streams (Nimble, NeurIPS
2020, section 4.2, theorems 1 to 3). Where a device has fewer streams than there are chains, a chain
goes where it is done first.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from eqsat_opt.runtime.plan.plan import Plan

__all__ = [
    "Schedule",
    "begins_us",
    "makespan_us",
    "schedule",
    "schedule_of",
    "serial",
    "stretches_of",
    "with_events",
]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Where launches run; those that the lists are about are numbered as they were given.

    Attributes:
        order: in which they are submitted.
        stream: of each launch.
        waits: events of each launch.
        records: events of each launch.
        joins: events that the end waits for.
    """

    order: tuple[int, ...]
    stream: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]
    records: tuple[tuple[int, ...], ...]
    joins: tuple[int, ...] = ()

    @property
    def events(self) -> int:
        """How many events there are."""
        return sum(map(len, self.records))

    @property
    def streams(self) -> int:
        """How many streams are used."""
        return len(set(self.stream)) or 1


def serial(n: int) -> Schedule:
    """All on one stream, as they stand."""
    nothing = ((),) * n
    return Schedule(tuple(range(n)), (0,) * n, nothing, nothing)


def schedule_of(plan: Plan) -> Schedule:
    """The schedule of a plan; its launches are numbered as they are submitted."""
    return Schedule(
        tuple(range(len(plan.launches))),
        tuple(launch.stream for launch in plan.launches),
        tuple(launch.waits for launch in plan.launches),
        tuple(launch.records for launch in plan.launches),
        joins=plan.joins,
    )


def schedule(
    time_us: Sequence[float],
    edges: Sequence[tuple[int, int]],
    max_streams: int,
    event_us: float = 0.0,
) -> Schedule:
    """Launches on at most ``max_streams`` streams.

    Args:
        time_us: of each launch; they stand in an order in which they could run.
        edges: (first, second), where the second needs what the first has made.
        max_streams: 1 or more.
        event_us: what waiting for an event of another stream adds.
    """
    n = len(time_us)
    if max_streams == 1 or n < 2:
        return serial(n)
    reduced = _transitive_reduction(n, edges)
    chain = _chains(n, reduced)
    order = _by_urgency(time_us, reduced)
    stream = _streams(order, chain, time_us, reduced, max_streams=max_streams, event_us=event_us)
    return with_events(order, stream, reduced)


def stretches_of(placed: Schedule) -> list[int]:
    """Of each launch, the number of its stretch: launches of one stream that may be one.

    Nothing waits for less than a stretch, and it waits for nothing but in the beginning, so that
    nothing begins later if all launches of each are one.
    """
    stretch, count = [0] * len(placed.order), 0
    open_: dict[int, int] = {}  # by stream, the stretch that may go on
    for number in placed.order:
        own = placed.stream[number]
        if placed.waits[number] or own not in open_:
            open_[own], count = count, count + 1
        stretch[number] = open_[own]
        if placed.records[number]:
            del open_[own]
    return stretch


def makespan_us(placed: Schedule, time_us: Sequence[float], event_us: float = 0.0) -> float:
    """When the last launch ends if nothing but streams and events delays them."""
    begin_us = begins_us(placed, time_us, event_us)
    ends = [begin + time for begin, time in zip(begin_us, time_us, strict=True)]
    recorded = {event: ends[n] for n, events in enumerate(placed.records) for event in events}
    own = max(
        (end for end, stream in zip(ends, placed.stream, strict=True) if not stream), default=0.0
    )
    return max((own, *(recorded[event] + event_us for event in placed.joins)))


def begins_us(
    placed: Schedule, time_us: Sequence[float], event_us: float = 0.0
) -> tuple[float, ...]:
    """When each launch begins if nothing but streams and events delays them."""
    free: dict[int, float] = defaultdict(float)
    recorded: dict[int, float] = {}
    begins = [0.0] * len(time_us)
    for number in placed.order:
        stream = placed.stream[number]
        begin = max((free[stream], *(recorded[e] + event_us for e in placed.waits[number])))
        begins[number] = begin
        free[stream] = begin + time_us[number]
        recorded.update(dict.fromkeys(placed.records[number], free[stream]))
    return tuple(begins)


def _transitive_reduction(n: int, edges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The edges that no longer path implies; they lead from lower to higher numbers."""
    after: list[list[int]] = [[] for _ in range(n)]
    first_before = list(range(n))
    for first, second in sorted(set(edges)):
        after[first].append(second)
        first_before[second] = min(first_before[second], first)
    done_with: list[list[int]] = [[] for _ in range(n)]
    for number, first in enumerate(first_before):
        done_with[first].append(number)
    reached: dict[int, int] = {}  # by number, a set of later ones as bits; kept while it is read
    kept = []
    for number in reversed(range(n)):
        covered = 0
        for later in after[number]:
            if not covered >> later & 1:
                kept.append((number, later))
                covered |= reached[later]
        reached[number] = covered | 1 << number
        for one in done_with[number]:
            del reached[one]
    return sorted(kept)


def _chains(n: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The chain of each launch: paths along the edges of a maximum matching."""
    after: list[list[int]] = [[] for _ in range(n)]
    for first, second in edges:
        after[first].append(second)
    previous = _matching(after, n)
    chain = list(range(n))
    for number in range(n):  # edges lead from lower to higher numbers
        if previous[number] >= 0:
            chain[number] = chain[previous[number]]
    return chain


def _matching(after: Sequence[Sequence[int]], n: int) -> list[int]:
    """For each target its source in a maximum matching, or -1: augmenting paths (Kuhn 1955).

    A greedy start leaves few paths to look for.
    """
    previous = [-1] * n
    unmatched = []
    for source, targets in enumerate(after):
        free = next((t for t in targets if previous[t] < 0), None)
        if free is None:
            unmatched.append(source)
        else:
            previous[free] = source
    for source in unmatched:
        _augment(source, after, previous)
    return previous


def _augment(source: int, after: Sequence[Sequence[int]], previous: list[int]) -> None:
    seen: set[int] = set()
    came_from: dict[int, int] = {}  # target to the source that looked at it
    stack = [source]
    while stack:
        one = stack.pop()
        for target in after[one]:
            if target in seen:
                continue
            seen.add(target)
            came_from[target] = one
            if previous[target] >= 0:
                stack.append(previous[target])
                continue
            matched = {s: t for t, s in enumerate(previous) if s >= 0}
            while True:  # shift the path by one, from its end
                giver = came_from[target]
                released = matched.get(giver)
                previous[target] = giver
                if giver == source or released is None:
                    return
                target = released


def _by_urgency(time_us: Sequence[float], edges: Sequence[tuple[int, int]]) -> list[int]:
    """An order of submission: what has most work behind it comes first."""
    n = len(time_us)
    after: list[list[int]] = [[] for _ in range(n)]
    missing = [0] * n
    for first, second in edges:
        after[first].append(second)
        missing[second] += 1
    urgency = list(time_us)
    for number in reversed(range(n)):
        urgency[number] += max((urgency[later] for later in after[number]), default=0.0)
    ready = [(-urgency[number], number) for number in range(n) if not missing[number]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, number = heapq.heappop(ready)
        order.append(number)
        for later in after[number]:
            missing[later] -= 1
            if not missing[later]:
                heapq.heappush(ready, (-urgency[later], later))
    return order


def _streams(
    order: Sequence[int],
    chain: Sequence[int],
    time_us: Sequence[float],
    edges: Sequence[tuple[int, int]],
    max_streams: int,
    event_us: float,
) -> list[int]:
    """The stream of each launch: that of its chain, which the first of the chain chooses."""
    before: list[list[int]] = [[] for _ in time_us]
    for first, second in edges:
        before[second].append(first)
    n_chains = len(set(chain))
    chosen: dict[int, int] = {}
    free = [0.0] * min(max_streams, n_chains)
    end = [0.0] * len(time_us)
    stream = [0] * len(time_us)
    for number in order:
        place = chosen.get(chain[number])
        if place is None and len(chosen) < len(free):
            place = len(chosen)  # an empty stream
        starts = [
            max(
                (
                    free[one],
                    *(end[b] + (event_us if stream[b] != one else 0.0) for b in before[number]),
                )
            )
            for one in range(len(free))
        ]
        if place is None:
            place = min(range(len(free)), key=lambda one: (starts[one], one))
        chosen[chain[number]] = stream[number] = place
        free[place] = end[number] = starts[place] + time_us[number]
    return stream


def with_events(
    order: Sequence[int], stream: Sequence[int], edges: Sequence[tuple[int, int]]
) -> Schedule:
    """Launches on given streams, with events for those edges that nothing else implies.

    Who waits for a launch shares its event.

    Args:
        order: in which they are submitted.
        stream: of each.
        edges: (first, second), where the second waits for the first.
    """
    n = len(stream)
    before: list[list[int]] = [[] for _ in range(n)]
    for first, second in edges:
        before[second].append(first)
    rank = {number: i for i, number in enumerate(order)}
    place, counts, last = [0] * n, [0] * n, dict[int, int]()
    known: list[dict[int, int]] = [{} for _ in range(n)]  # stream to the last place that ended
    event_of: dict[int, int] = {}
    waits: list[list[int]] = [[] for _ in range(n)]

    def learn(clock: dict[int, int], other: int) -> None:
        for one, position in (*known[other].items(), (stream[other], place[other])):
            clock[one] = max(clock.get(one, -1), position)

    for number in order:
        own, clock = stream[number], known[number]
        place[number] = counts[own]
        counts[own] += 1
        if own in last:
            learn(clock, last[own])
        for other in sorted(before[number], key=lambda one: -rank[one]):
            if clock.get(stream[other], -1) < place[other]:
                waits[number].append(event_of.setdefault(other, len(event_of)))
                learn(clock, other)
        last[own] = number
    joins, clock = [], dict[int, int]()
    if 0 in last:
        learn(clock, last[0])
    for one in sorted(last, key=lambda s: -rank[last[s]]):
        if clock.get(one, -1) < place[last[one]]:
            joins.append(event_of.setdefault(last[one], len(event_of)))
            learn(clock, last[one])
    records = tuple((event_of[i],) if i in event_of else () for i in range(n))
    return Schedule(
        tuple(order),
        tuple(stream),
        tuple(tuple(sorted(w)) for w in waits),
        records,
        joins=tuple(sorted(joins)),
    )
