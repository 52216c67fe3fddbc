"""IOS: stages of kernels that run side by side (Ding et al., MLSys 2021, §4).

A schedule is a sequence of stages; a stage ends when all its kernels have. Its kernels run in
groups, each group on a stream, and kernels that depend on each other are in one group; or they are
convolutions of one value, which become one kernel. A dynamic program over the remaining kernels of
a block tries every possible last stage. Stages hold few groups of few kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.objective import Objective
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.merging import mergeable, merged
from eqsat_opt.lab.search.pricing.outcome import PricedGraph
from eqsat_opt.lab.search.rewriting.parts import part_of
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult, SearchTrace
from eqsat_opt.runtime.plan.simulation import simulate
from eqsat_opt.runtime.plan.streams import Schedule, with_events

__all__ = ["Ios", "best_stages", "blocks", "endings"]


@dataclass(frozen=True)
class Ios:
    """The schedule and its parameters.

    Attributes:
        groups: groups of a stage, at most.
        operators: kernels of a group, at most.
        block: kernels that are scheduled together, at most; larger sets are cut in their order.
        stages: stages that are tried for one block, at most; the rest is then cut into stages of
            all kernels that no later kernel reads. 0 for no limit.
        merge: whether convolutions of one value may become one.
    """

    name: ClassVar[str] = "ios"
    exact: ClassVar[bool] = False
    places: ClassVar[bool] = True

    groups: int = 8
    operators: int = 3
    block: int = 100
    stages: int = 500_000
    merge: bool = True

    def __post_init__(self) -> None:
        for name in ("groups", "operators", "block"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.stages < 0:
            raise OptionError(f"stages is {self.stages}; give a number, or 0 for no limit")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Schedule the kernels in stages; the search is deterministic.

        Stages that are tried are counted as substitutions tried.
        """
        run = Run(frame, budget)
        # A residual connection that is fused with a convolution puts two branches in a row.
        found = [self._staged(frame, run, joins=joins) for joins in (True, False)]
        outcome, stages, merges = min(found, key=lambda one: one[0].value)
        original = frame.outcome(frame.start)
        trace: tuple[SearchTrace, ...] = (run.moment(outcome.value),)
        return run.result(
            outcome=outcome,
            original=original,
            steps=("ios/merge",) * merges,
            trace=trace if outcome.value < original.value else (),
            notes=(f"ios: {stages} stages, {merges} of them merged",),
        )

    def _staged(self, frame: Frame, run: Run, *, joins: bool) -> tuple[PricedGraph, int, int]:
        """Return kernels in stages, the number of stages, and the number of merged ones."""
        guide = frame.guided(Objective({TIME: 1.0}), joins=joins)
        start = guide.outcome(guide.start)
        stages = _Stages(guide, start, self)
        found: list[int] = []
        for members in blocks(start.reads, self.block):
            reads = {i: [c for c in start.reads[i] if c in members] for i in members}
            found += best_stages(
                reads,
                stages.time_us,
                self.groups,
                operators=self.operators,
                may_go=_Counted(run, self.stages).may_go,
            )
        merges = sum(stages.is_merged(mask) for mask in found)
        return stages.outcome(frame, found), len(found), merges


@dataclass
class _Counted:
    """A counter of the stages of a block that are tried."""

    run: Run
    most: int
    count: int = 0

    def may_go(self) -> bool:
        """Count one more stage; return whether it may be tried."""
        if self.run.is_spent or (self.most and self.count >= self.most):
            return False
        self.count += 1
        with self.run:
            self.run.charge()
        return not self.run.is_spent


# ** time of a stage **


def _members(mask: int) -> list[int]:
    """Return the numbers in a set of kernels."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


class _Stages:
    """The stages of one graph; each is a set of kernels as bits."""

    def __init__(self, guide: Frame, start: PricedGraph, settings: Ios) -> None:
        self._guide, self._start, self._settings = guide, start, settings
        self._kernels = tuple(start.kernels.values())
        self._streams = guide.streams
        self._loads = [guide.streams.load(one.kernel, one.quoted) for one in self._kernels]
        self._times: dict[int, tuple[float, bool]] = {}

    @cached_property
    def _neighbours(self) -> list[int]:
        found = [0] * len(self._kernels)
        for number, reads in enumerate(self._start.reads):
            for other in reads:
                found[number] |= 1 << other
                found[other] |= 1 << number
        return found

    def time_us(self, mask: int) -> float:
        """Return the time of a stage by itself, from all streams idle to all streams idle."""
        return self._timed(mask)[0]

    def is_merged(self, mask: int) -> bool:
        """Return whether a stage is faster as one convolution."""
        return self._timed(mask)[1]

    def _timed(self, mask: int) -> tuple[float, bool]:
        known = self._times.get(mask)
        if known is None:
            apart_us, one_us = self._side_by_side(mask), self._as_one(mask)
            known = self._times[mask] = min(apart_us, one_us), one_us < apart_us
        return known

    def groups(self, mask: int) -> list[list[int]]:
        """Return the groups of kernels that depend on each other, in order."""
        return [_members(one) for one in _components(mask, self._neighbours)]

    def _side_by_side(self, mask: int) -> float:
        groups = self.groups(mask)
        if len(groups) == 1:
            return sum(self._loads[i].time_us for i in groups[0])
        if len(groups) > self._streams.profile.streams.value:
            return float("inf")
        event_us = self._streams.profile.event_us.value
        numbers = [i for group in groups for i in group]
        stream = [g for g, group in enumerate(groups) for _ in group]
        nothing: tuple[tuple[int, ...], ...] = ((),) * len(numbers)
        last = {g: i for i, g in enumerate(stream)}
        placed = Schedule(
            tuple(range(len(numbers))),
            tuple(stream),
            nothing,
            tuple((g,) if g and last[g] == i else () for i, g in enumerate(stream)),
            joins=tuple(range(1, len(groups))),
        )
        # All but the first group wait until the stage before has ended.
        loads = [self._loads[i] for i in numbers]
        return event_us + simulate(placed, loads, event_us).makespan_us

    def _as_one(self, mask: int) -> float:
        kernels = [self._kernels[i] for i in _members(mask)]
        if not self._settings.merge or not mergeable(self._start.graph, kernels):
            return float("inf")
        graph, inside = merged(self._start.graph, kernels)
        frame = self._guide.on(part_of(graph, inside))
        return frame.start.value

    # ** from stages to a graph **

    def outcome(self, frame: Frame, found: Sequence[int]) -> PricedGraph:
        """Return the graph with merged convolutions, and its kernels in stages."""
        graph = self._start.graph
        stage_of: dict[str, int] = {}
        stream_of: dict[str, int] = {}
        for number, mask in enumerate(found):
            for stream, group in enumerate(self.groups(mask)):
                for name in (name for i in group for name in self._kernels[i].writes):
                    stage_of[name], stream_of[name] = number, stream
            if self.is_merged(mask):
                graph, inside = merged(graph, [self._kernels[i] for i in _members(mask)])
                for name in inside:
                    stage_of[name], stream_of[name] = number, 0
        if frame.level != "streams":
            return frame.judged(graph)
        outcome = frame.guided(frame.objective, joins=self._guide.joins).judged(graph)
        placed = _in_stages(outcome, stage_of, stream_of)
        return frame.scheduled(outcome, placed)


def _in_stages(
    outcome: PricedGraph, stage_of: Mapping[str, int], stream_of: Mapping[str, int]
) -> Schedule:
    """Schedule kernels on streams, each stage after the one before it."""
    kernels, reads = tuple(outcome.kernels.values()), outcome.reads
    stage, stream = [0] * len(kernels), [0] * len(kernels)
    for number in _after_reads(reads):
        known = [name for name in kernels[number].writes if name in stage_of]
        behind = reads[number]
        stage[number] = max(
            (*(stage_of[name] for name in known), *(stage[one] for one in behind)), default=0
        )
        if known:
            stream[number] = stream_of[known[0]]
        elif behind:
            stream[number] = stream[max(behind, key=lambda one: stage[one])]
    rank = {number: i for i, number in enumerate(_after_reads(reads))}
    order = sorted(range(len(kernels)), key=lambda one: (stage[one], rank[one]))
    edges = [(one, number) for number, behind in enumerate(reads) for one in behind]
    before: dict[int, int] = {}  # the last kernel of each stream in the stage before
    own: dict[int, int] = {}
    for place, number in enumerate(order):
        if place and stage[number] > stage[order[place - 1]]:
            before, own = own, {}
        if stream[number] not in own:
            edges += [(one, number) for one in before.values()]
        own[stream[number]] = number
    return with_events(order, stream, edges)


def _after_reads(reads: Sequence[Sequence[int]]) -> list[int]:
    """Return kernels in an order in which each comes after those that it reads."""
    done: dict[int, None] = {}
    for start in range(len(reads)):
        stack = [start]
        while stack:
            missing = [one for one in reads[stack[-1]] if one not in done]
            if missing:
                stack += missing
            else:
                done[stack.pop()] = None
    return list(done)


# ** sets of kernels that can be stages **


def blocks(reads: Sequence[Sequence[int]], most: int) -> list[list[int]]:
    """Cut kernels into blocks, each of which ends with a kernel that is ordered with all others.

    Args:
        reads: for each kernel, the kernels that it reads.
        most: kernels of a block, at most.

    Returns:
        Their numbers, each block after those that it reads.
    """
    order = _after_reads(reads)
    before: dict[int, int] = {}
    for number in order:
        mask = 1 << number
        for one in reads[number]:
            mask |= before[one]
        before[number] = mask
    behind = dict.fromkeys(order, 0)
    for number in reversed(order):
        behind[number] |= 1 << number
        for one in reads[number]:
            behind[one] |= behind[number]
    everything = (1 << len(order)) - 1
    found: list[list[int]] = [[]]
    for number in order:
        found[-1].append(number)
        is_ordered = before[number] | behind[number] == everything
        if is_ordered or len(found[-1]) == most:
            found.append([])
    return [block for block in found if block]


def _components(mask: int, neighbours: Sequence[int]) -> Iterator[int]:
    """Yield the connected components of a set."""
    while mask:
        part = front = mask & -mask
        while front:
            low = front & -front
            front ^= low
            more = neighbours[low.bit_length() - 1] & mask & ~part
            part |= more
            front |= more
        yield part
        mask &= ~part


def endings(
    left: int, reads: Mapping[int, Sequence[int]], groups: int, operators: int
) -> Iterator[int]:
    """Yield every set that may be the last stage of a set: no other remaining kernel reads it.

    Args:
        left: the remaining kernels, as bits.
        reads: for each kernel, the kernels that it reads, which precede it in the mapping.
        groups: connected components, at most.
        operators: kernels of a component, at most.
    """
    numbers = [i for i in reversed(list(reads)) if left >> i & 1]
    readers = dict.fromkeys(reads, 0)
    for number in numbers:
        for one in reads[number]:
            readers[one] |= 1 << number

    def grown(place: int, chosen: int, parts: tuple[int, ...]) -> Iterator[int]:
        if place == len(numbers):
            if chosen and len(parts) <= groups:
                yield chosen
            return
        number = numbers[place]
        if not readers[number] & ~chosen:
            joined, others = 1 << number, []
            for part in parts:
                if part & readers[number]:
                    joined |= part
                else:
                    others.append(part)
            if joined.bit_count() <= operators:
                yield from grown(place + 1, chosen | 1 << number, (*others, joined))
        yield from grown(place + 1, chosen, parts)

    return grown(0, 0, ())


def best_stages(
    reads: Mapping[int, Sequence[int]],
    time_us: Callable[[int], float],
    groups: int,
    *,
    operators: int,
    may_go: Callable[[], bool] = lambda: True,
) -> list[int]:
    """Return the stages of least total time, first to last.

    Args:
        reads: for each kernel, the kernels of the same block that it reads, which precede it.
        time_us: time of a stage.
        groups: groups of a stage, at most.
        operators: kernels of a group, at most.
        may_go: called for each stage; once it returns false, the rest is cut without a search.
    """
    best: dict[int, tuple[float, int]] = {0: (0.0, 0)}

    def rest(left: int) -> None:
        """Take stages of kernels that nothing reads."""
        taken = []
        while left not in best:
            read = 0
            for number in _members(left):
                for one in reads[number]:
                    read |= 1 << one
            ends = _members(left & ~read)
            last = sum(1 << number for number in ends[:groups])
            if time_us(last) == float("inf"):
                last = 1 << ends[-1]
            taken.append((left, last))
            left &= ~last
        for mask, last in reversed(taken):
            best[mask] = (time_us(last) + best[mask & ~last][0], last)

    def solve(left: int) -> float:
        if left in best:
            return best[left][0]
        found = (float("inf"), 0)
        for last in endings(left, reads, groups, operators):
            if not may_go():
                break
            total = time_us(last) + solve(left & ~last)
            found = min(found, (total, last))
        if found[1]:
            best[left] = found
        else:
            rest(left)
        return best[left][0]

    everything = sum(1 << number for number in reads)
    solve(everything)
    stages, left = [], everything
    while left:
        last = best[left][1]
        stages.append(last)
        left &= ~last
    return stages[::-1]
