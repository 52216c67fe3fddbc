"""Assignment of launches to streams, with as few events as possible.

Two launches that nothing orders should be on different streams, and launches on one stream need no
events between them. Only the edges of the transitive reduction matter; a maximum matching of
sources with targets links as many of them as possible into chains, which become streams (Nimble,
NeurIPS 2020, section 4.2, theorems 1 to 3). If a device has fewer streams than there are chains, a
chain goes to the stream on which its first launch can begin earliest.

Reduction and matching are not those of rustworkx, which took 42 and 13 times as long on 5,000
launches with 12,000 edges.
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
    """Streams, order and events of launches; launches are numbered as they were given.

    Attributes:
        order: launches in the order in which they are submitted.
        stream: by launch, its stream.
        waits: by launch, the events that it waits for.
        records: by launch, the events that it records.
        joins: events that the end waits for.
    """

    order: tuple[int, ...]
    stream: tuple[int, ...]
    waits: tuple[tuple[int, ...], ...]
    records: tuple[tuple[int, ...], ...]
    joins: tuple[int, ...] = ()

    @property
    def events(self) -> int:
        """Number of events."""
        return sum(map(len, self.records))

    @property
    def streams(self) -> int:
        """Number of streams in use, at least 1."""
        return len(set(self.stream)) or 1


def serial(n: int) -> Schedule:
    """Return the schedule of ``n`` launches on one stream, in the given order."""
    nothing = ((),) * n
    return Schedule(tuple(range(n)), (0,) * n, nothing, nothing)


def schedule_of(plan: Plan) -> Schedule:
    """Return the schedule of a plan; launches are numbered as they are submitted."""
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
    """Schedule launches on at most ``max_streams`` streams.

    Args:
        time_us: time of each launch; launches are given in an order in which they could run.
        edges: pairs (first, second), where the second launch needs a result of the first.
        max_streams: largest number of streams, 1 or more.
        event_us: delay that waiting for an event of another stream adds.
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
    """Return, by launch, the number of its stretch: a run of launches of one stream.

    Only the first launch of a stretch waits for events, and only its last one records any, so
    nothing begins later if all launches of a stretch are merged into one.
    """
    stretch, count = [0] * len(placed.order), 0
    open_: dict[int, int] = {}  # by stream, the stretch that may continue
    for number in placed.order:
        own = placed.stream[number]
        if placed.waits[number] or own not in open_:
            open_[own], count = count, count + 1
        stretch[number] = open_[own]
        if placed.records[number]:
            del open_[own]
    return stretch


def makespan_us(placed: Schedule, time_us: Sequence[float], event_us: float = 0.0) -> float:
    """Return the time at which the schedule ends if only streams and events delay launches."""
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
    """Return, by launch, the time at which it begins if only streams and events delay launches."""
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
    """Return the edges that no longer path implies; edges lead from lower to higher numbers."""
    after: list[list[int]] = [[] for _ in range(n)]
    first_before = list(range(n))
    for first, second in sorted(set(edges)):
        after[first].append(second)
        first_before[second] = min(first_before[second], first)
    done_with: list[list[int]] = [[] for _ in range(n)]
    for number, first in enumerate(first_before):
        done_with[first].append(number)
    # Launches that a launch reaches, as a bit set; deleted once no other launch reads it again.
    reached: dict[int, int] = {}
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
    """Return, by launch, its chain: chains are the paths of edges of a maximum matching."""
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
    """Return, by target, its source in a maximum matching, or -1.

    The matching is found by augmenting paths (Kuhn 1955) from a greedy matching, which leaves few
    paths to find.
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
    came_from: dict[int, int] = {}  # by target, the source from which it was reached
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
            while True:  # flip the matching along the path, from its end
                giver = came_from[target]
                released = matched.get(giver)
                previous[target] = giver
                if giver == source or released is None:
                    return
                target = released


def _by_urgency(time_us: Sequence[float], edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return an order of submission: launches with the longest path of work after them first."""
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
    """Return, by launch, the stream of its chain, chosen when the chain's first launch comes."""
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
    """Build a schedule on given streams, with events for the edges that nothing else implies.

    All launches that wait for one launch share its event.

    Args:
        order: launches in the order in which they are submitted.
        stream: by launch, its stream.
        edges: pairs (first, second), where the second launch waits for the first.
    """
    n = len(stream)
    before: list[list[int]] = [[] for _ in range(n)]
    for first, second in edges:
        before[second].append(first)
    rank = {number: i for i, number in enumerate(order)}
    place, counts, last = [0] * n, [0] * n, dict[int, int]()
    known: list[dict[int, int]] = [{} for _ in range(n)]  # by stream, the last ended position
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
