"""Places in one arena for values that live at different times.

Two values may share bytes if all uses of one happen before all uses of the other, in whatever order
the streams run. That makes it dynamic storage allocation on an order instead of a line; as there,
placing the largest values first is near the optimum (Pisarchyk and Lee, Efficient Memory
Management for Deep Neural Net Inference, 2020, section 4), and a few such orders are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqsat_opt.runtime.plan.order import HappensBefore
from eqsat_opt.runtime.plan.plan import ALIGNMENT_BYTES

__all__ = ["Arena", "Value", "arrange"]

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Value:
    """What needs memory.

    Attributes:
        size_bytes: how much; nothing needs no place.
        launches: that use it.
        from_start: it is there before the first launch.
        to_end: it is needed after the last one.
    """

    size_bytes: int
    launches: tuple[int, ...]
    from_start: bool = False
    to_end: bool = False


@dataclass(frozen=True, slots=True)
class Arena:
    """Where values lie.

    Attributes:
        offsets: of each value, a multiple of `ALIGNMENT_BYTES`.
        size_bytes: of the arena.
        lower_bound_bytes: of any arena: what is surely needed at once, during some launch.
    """

    offsets: tuple[int, ...]
    size_bytes: int
    lower_bound_bytes: int


def arrange(values: Sequence[Value], order: HappensBefore) -> Arena:
    """A place for each value; the smallest arena that a few orders of placing give."""
    sizes = np.array([-(-v.size_bytes // ALIGNMENT_BYTES) for v in values], np.int64)
    if not sizes.any():
        return Arena((0,) * len(values), 0, 0)
    last, need = _ends(values, order)
    first_use = np.array([-1 if v.from_start else min(v.launches, default=0) for v in values])
    last_use = np.array(
        [len(order.waits_for) if v.to_end else max(v.launches, default=0) for v in values]
    )
    duration = last_use - first_use + 1
    bound = _lower_bound(values, sizes, last, need, order=order)
    best: tuple[int, _Numbers] | None = None
    for keys in (
        (first_use, -sizes),
        (-duration, -sizes),
        (first_use, -sizes * duration),
        (last_use, -sizes),
    ):
        placed = _placed(np.lexsort(keys), sizes, last, need)
        size = int((placed + sizes).max())
        if best is None or size < best[0]:
            best = size, placed
        if size <= bound:
            break
    assert best is not None
    offsets = best[1] * ALIGNMENT_BYTES
    return Arena(
        tuple(int(offset) for offset in offsets), best[0] * ALIGNMENT_BYTES, bound * ALIGNMENT_BYTES
    )


def _ends(values: Sequence[Value], order: HappensBefore) -> tuple[_Numbers, _Numbers]:
    """By value and stream: the place of its last use, and what has ended before its first ones.

    One value is surely dead before another is used where the former is nowhere above the latter.
    """
    streams = order.clock.shape[1] if order.clock.size else 1
    last = np.full((len(values), streams), -1, np.int64)
    need = np.full((len(values), streams), np.iinfo(np.int64).max, np.int64)
    for number, value in enumerate(values):
        for launch in value.launches:
            stream = order.stream[launch]
            last[number, stream] = max(last[number, stream], order.place[launch])
            np.minimum(need[number], order.clock[launch], out=need[number])
        if value.from_start or not value.launches:
            need[number] = -2  # nothing is dead before it: not even what nobody uses
        if value.to_end or not value.launches:
            last[number] = np.iinfo(np.int64).max
    return last, need


def _placed(
    sequence: npt.NDArray[np.intp], sizes: _Numbers, last: _Numbers, need: _Numbers
) -> _Numbers:
    """Each in the smallest gap that it fits in, among those that live at the same time."""
    places = np.zeros(len(sizes), np.int64)
    done = np.zeros(len(sizes), bool)
    for number in sequence:
        size = int(sizes[number])
        if not size:
            continue
        apart = np.all(last <= need[number], axis=1) | np.all(last[number] <= need, axis=1)
        near = np.flatnonzero(done & ~apart)
        near = near[np.argsort(places[near], kind="stable")]
        begin, best = 0, -1
        if near.size:
            starts, ends = places[near], np.maximum.accumulate(places[near] + sizes[near])
            gaps = starts - np.concatenate(([0], ends[:-1]))
            fitting = np.flatnonzero(gaps >= size)
            if fitting.size:
                choice = int(fitting[np.argmin(gaps[fitting])])
                best = int(ends[choice - 1]) if choice else 0
            begin = int(ends[-1])
        places[number] = best if best >= 0 else begin
        done[number] = True
    return places


def _lower_bound(
    values: Sequence[Value],
    sizes: _Numbers,
    last: _Numbers,
    need: _Numbers,
    order: HappensBefore,
) -> int:
    """The greatest sum of values that surely live during one launch, or before or after all."""
    at_start = sum(int(s) for s, v in zip(sizes, values, strict=True) if v.from_start)
    at_end = sum(int(s) for s, v in zip(sizes, values, strict=True) if v.to_end)
    bound = max(at_start, at_end, int(sizes.max()))
    # first_end[v, s]: the earliest use on stream s; a launch that knows it has v behind it.
    streams = last.shape[1]
    never = np.iinfo(np.int64).max
    first = np.full((len(values), streams), never, np.int64)
    final = np.full((len(values), streams), -1, np.int64)
    for number, value in enumerate(values):
        for launch in value.launches:
            stream, place = order.stream[launch], order.place[launch]
            first[number, stream] = min(first[number, stream], place)
            final[number, stream] = max(final[number, stream], place)
    starts = np.array([v.from_start for v in values])
    ends = np.array([v.to_end for v in values])
    # after[k, s]: the first place on stream s whose launch waits for launch k.
    for launch in range(len(order.waits_for)):
        own = order.stream[launch]
        reach = order.clock[launch].copy()
        reach[own] = order.place[launch]
        begun = starts | np.any(first <= reach, axis=1)
        needed = ends.copy()
        for stream in range(streams):
            column = order.clock[order.stream == stream, own]
            place = int(np.searchsorted(column, order.place[launch]))
            if stream == own:
                place = min(place, int(order.place[launch]))
            needed |= final[:, stream] >= place
        bound = max(bound, int(sizes[begun & needed].sum()))
    return bound
