"""Memory planning: offsets in one arena for values that live at different times.

Two values may share bytes if all uses of one happen before all uses of the other, in every order
in which the streams can run. The problem is dynamic storage allocation over a partial order instead
of a timeline. There too, placing the largest values first is near the optimum (Pisarchyk and Lee,
Efficient Memory Management for Deep Neural Net Inference, 2020, section 4), and a few such orders
are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eqsat_opt.runtime.plan.order import HappensBefore
from eqsat_opt.runtime.plan.plan import ALIGNMENT_BYTES

__all__ = ["Arena", "LiveValue", "arrange"]

_Numbers = npt.NDArray[np.int64]

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class LiveValue:
    """A value that needs memory.

    Attributes:
        size_bytes: its size; a value of 0 bytes gets no memory.
        launches: the launches that use it.
        from_start: whether it is live before the first launch.
        to_end: whether it is live after the last launch.
    """

    size_bytes: int
    launches: tuple[int, ...]
    from_start: bool = False
    to_end: bool = False


@dataclass(frozen=True, slots=True)
class Arena:
    """Offsets of values in an arena.

    Attributes:
        offsets: by value, its offset in bytes, a multiple of `ALIGNMENT_BYTES`.
        size_bytes: size of the arena.
        lower_bound_bytes: lower bound of the size of any arena: the most bytes that are surely
            live at once, during some launch.
    """

    offsets: tuple[int, ...]
    size_bytes: int
    lower_bound_bytes: int


def arrange(values: Sequence[LiveValue], order: HappensBefore) -> Arena:
    """Place all values in an arena: the smallest one that a few orders of placement give."""
    sizes = np.array([-(-v.size_bytes // ALIGNMENT_BYTES) for v in values], np.int64)
    if not sizes.any():
        return Arena((0,) * len(values), 0, 0)
    life = _life(values, order)
    first_use = np.array([-1 if v.from_start else min(v.launches, default=0) for v in values])
    last_use = np.array(
        [len(order.waits_for) if v.to_end else max(v.launches, default=0) for v in values]
    )
    duration = last_use - first_use + 1
    bound = _lower_bound(values, sizes, order)
    best: tuple[int, _Numbers] | None = None
    for keys in (
        (first_use, -sizes),
        (-duration, -sizes),
        (first_use, -sizes * duration),
        (last_use, -sizes),
    ):
        placed = _placed(np.lexsort(keys), sizes, life)
        size = int((placed + sizes).max())
        if best is None or size < best[0]:
            best = size, placed
        if size <= bound:
            break
    assert best is not None
    best = _improved(*best, sizes, life=life, bound=bound)
    offsets = best[1] * ALIGNMENT_BYTES
    return Arena(
        tuple(int(offset) for offset in offsets), best[0] * ALIGNMENT_BYTES, bound * ALIGNMENT_BYTES
    )


_PATIENCE = 30
"""Number of successive orders of placement without a gain after which the search ends."""

_NEAR = 1.01
"""Ratio of arena size to lower bound below which the search ends."""


def _improved(
    size: int, placed: _Numbers, sizes: _Numbers, *, life: _Life, bound: int
) -> tuple[int, _Numbers]:
    """Improve a placement by local search, and return the best size and offsets.

    Each step takes the value that ends highest in the arena and places it before the values that
    live at the same time.
    """
    best = size, placed
    sequence = [int(i) for i in np.argsort(placed, kind="stable")]
    vain = 0
    while vain < _PATIENCE and best[0] > _NEAR * bound:
        top = int(np.argmax(placed + sizes))
        among = np.zeros(len(sizes), bool)
        among[sequence[: sequence.index(top)]] = True
        below = set(life.beside(top, among).tolist())
        sequence.remove(top)
        first = next((i for i, one in enumerate(sequence) if one in below), 0)
        sequence.insert(first, top)
        placed = _placed(np.array(sequence, np.intp), sizes, life)
        size = int((placed + sizes).max())
        vain += 1
        if size < best[0]:
            best, vain = (size, placed), 0
    return best


@dataclass(frozen=True, eq=False, slots=True)
class _Life:
    """Lifetimes of values.

    One value is surely dead before another is used if its `last` exceeds the `need` of the other on
    no stream. The launches between `begin` and `end` are a coarse filter: a value that is not used
    between them is dead before this one is used, or is first used after this one is dead.

    Attributes:
        last: by value and stream, the position on the stream of its last use.
        need: by value and stream, the last position that has ended before its first uses.
        begin, end: by value, the first and last launch that is not surely before or after it.
        first_use, last_use: by value, the first and last launch that uses it.
    """

    last: _Numbers
    need: _Numbers
    begin: _Numbers
    end: _Numbers
    first_use: _Numbers
    last_use: _Numbers

    def beside(self, number: int, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """Return the values in ``among`` that may live at the same time as this one, ascending."""
        near = among & (self.last_use >= self.begin[number]) & (self.first_use <= self.end[number])
        found = np.flatnonzero(near)
        before = (self.last[found] <= self.need[number]).all(axis=1)
        after = (self.last[number] <= self.need[found]).all(axis=1)
        beside: npt.NDArray[np.intp] = found[~(before | after)]
        return beside


def _life(values: Sequence[LiveValue], order: HappensBefore) -> _Life:
    streams, n = order.clock.shape[1], len(order.waits_for)
    used, launch = _uses(values)
    last = np.full((len(values), streams), -1, np.int64)
    need = np.full((len(values), streams), _NEVER, np.int64)
    first_use, last_use = np.full(len(values), n, np.int64), np.full(len(values), -1, np.int64)
    np.maximum.at(last, (used, order.stream[launch]), order.place[launch])
    np.minimum.at(need, used, order.clock[launch])
    np.minimum.at(first_use, used, launch)
    np.maximum.at(last_use, used, launch)
    idle = np.array([not v.launches for v in values])
    starts = idle | [v.from_start for v in values]  # an unused value is live all the time
    ends = idle | [v.to_end for v in values]
    need[starts], first_use[starts] = -2, -1
    last[ends], last_use[ends] = _NEVER, n
    begin, end = np.full(len(values), n, np.int64), np.full(len(values), -1, np.int64)
    for stream in range(streams):
        here = np.flatnonzero(order.stream == stream)
        known = np.minimum(need[:, stream] + 1, here.size)
        np.minimum(begin, np.append(here, n)[np.maximum(known, 0)], out=begin)
        for other in range(streams):  # along a stream, its clock of another stream never falls
            later = np.searchsorted(order.clock[here, other], last[:, other])
            np.maximum(end, np.insert(here, 0, -1)[later], out=end)
    begin[starts], end[ends] = -1, n
    return _Life(last, need, begin, end, first_use=first_use, last_use=last_use)


def _uses(values: Sequence[LiveValue]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return all pairs of a value and a launch that uses it, as two arrays."""
    counts = [len(value.launches) for value in values]
    launches = [launch for value in values for launch in value.launches]
    return np.repeat(np.arange(len(values)), counts), np.array(launches, np.intp)


def _placed(sequence: npt.NDArray[np.intp], sizes: _Numbers, life: _Life) -> _Numbers:
    """Place values in sequence, each in the smallest gap between values live at the same time."""
    places = np.zeros(len(sizes), np.int64)
    done = np.zeros(len(sizes), bool)
    for number in sequence:
        size = int(sizes[number])
        if not size:
            continue
        near = life.beside(int(number), done)
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


def _lower_bound(values: Sequence[LiveValue], sizes: _Numbers, order: HappensBefore) -> int:
    """Return the most memory that values surely need at once, in units of the alignment.

    Values are summed that surely live during one launch, before the first or after the last. Along
    a stream, the set of uses that have surely begun grows and the set of uses still to come
    shrinks, so a value surely lives during an interval of its launches.
    """
    starts = np.array([v.from_start for v in values])
    ends = np.array([v.to_end for v in values])
    bound = max(int(sizes[starts].sum()), int(sizes[ends].sum()), int(sizes.max()))
    streams = order.clock.shape[1]
    used, launch = _uses(values)
    first = np.full((len(values), streams), _NEVER, np.int64)
    final = np.full((len(values), streams), -1, np.int64)
    np.minimum.at(first, (used, order.stream[launch]), order.place[launch])
    np.maximum.at(final, (used, order.stream[launch]), order.place[launch])
    on = [np.flatnonzero(order.stream == stream) for stream in range(streams)]
    for own, here in enumerate(on):
        places = np.arange(here.size)
        begin = np.where(starts, 0, here.size)
        end = np.where(ends, here.size, 0)
        for stream in range(streams):
            # reach: the position that the other stream has surely passed when a launch here begins.
            # after: the first position on the other stream that waits for that launch.
            reach = places if stream == own else order.clock[here, stream]
            after = np.searchsorted(order.clock[on[stream], own], places)
            after = np.minimum(after, places) if stream == own else after
            np.minimum(begin, np.searchsorted(reach, first[:, stream]), out=begin)
            np.maximum(end, np.searchsorted(after, final[:, stream], side="right"), out=end)
        alive = begin < end
        change = np.zeros(here.size + 1, np.int64)
        np.add.at(change, begin[alive], sizes[alive])
        np.subtract.at(change, end[alive], sizes[alive])
        bound = max(bound, int(np.cumsum(change).max()))
    return bound
