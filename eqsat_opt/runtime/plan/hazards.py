"""Check that a plan gives the same result in every order in which its streams can run.

The check refuses: events that order nothing, launches that the end does not wait for, two accesses
to the same bytes that nothing orders and one of which writes, memory that is reused for another
value while the first is still needed, bytes that are written twice for one value, and bytes that
are read before they are written. A plan that passes computes the same in every order: each byte of
a value is written once, before all launches that read it, and nothing else is written to it in
between.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from eqsat_opt.errors import PlanError
from eqsat_opt.runtime.plan.byte_regions import ByteRegion, covers, overlap, region, union
from eqsat_opt.runtime.plan.order import HappensBefore, happens_before
from eqsat_opt.runtime.plan.places import region_of
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.plan.structure import check_structure

__all__ = ["check_plan"]

_START = -1
"""Launch number of the writes of the inputs, which come before all launches."""


@dataclass(frozen=True, eq=False, slots=True)
class _Access:
    """One use of arena memory.

    Attributes:
        launch: number of the launch; `_START` for the inputs, and the number of launches for the
            end of the plan.
        root: the buffer that owns the memory; ``""`` for a workspace.
        region: the bytes that are accessed.
        writes: whether the access writes them.
    """

    launch: int
    root: str
    region: ByteRegion
    writes: bool


def check_plan(plan: Plan) -> HappensBefore:
    """Refuse a plan that is not safe to run; return the order of its launches otherwise.

    Raises:
        PlanError: the plan has a hazard; the message of one line names the launches and the bytes.
    """
    check_structure(plan)
    order = happens_before(plan)
    for number, launch in enumerate(plan.launches):
        if not order.is_joined(number):
            raise PlanError(
                f"the end of the plan does not wait for {launch.name!r} on stream {launch.stream}"
            )
    accesses = _accesses(plan)
    _refuse_inside(plan, accesses)
    _refuse_races(plan, order, accesses)
    _refuse_reuse(plan, accesses)
    _refuse_unwritten(plan, accesses)
    return order


def _accesses(plan: Plan) -> list[_Access]:
    regions: dict[str, ByteRegion] = {}

    def of(name: str) -> ByteRegion:
        if name not in regions:
            regions[name] = region_of(plan, name)
        return regions[name]

    found = [_Access(_START, port.buffer, of(port.buffer), True) for port in plan.inputs]
    for number, launch in enumerate(plan.launches):
        for names, writes in ((launch.reads, False), (launch.writes, True)):
            found.extend(
                _Access(number, plan.root_of(name).name, of(name), writes)
                for name in (names if writes else dict.fromkeys(names))
                if not plan.is_constant(name)
            )
        space = launch.workspace
        if space.size_bytes:
            bytes_ = region(space.offset, (space.size_bytes,), (1,), 1)
            found.append(_Access(number, "", bytes_, True))
    for port in plan.outputs:
        if not plan.is_constant(port.buffer):
            root = plan.root_of(port.buffer).name
            found.append(_Access(len(plan.launches), root, of(port.buffer), False))
    return [access for access in found if access.region.starts.size]


def _name(plan: Plan, number: int) -> str:
    if number == _START:
        return "the inputs"
    return repr(plan.launches[number].name) if number < len(plan.launches) else "the outputs"


def _bytes(interval: tuple[int, int]) -> str:
    return f"bytes {interval[0]} to {interval[1] - 1} of the arena"


def _refuse_inside(plan: Plan, accesses: list[_Access]) -> None:
    """Refuse a write that overlaps another access of the same launch.

    The inputs count as one launch, so two inputs must not overlap either.
    """
    by_launch: dict[int, list[_Access]] = defaultdict(list)
    for access in accesses:
        by_launch[access.launch].append(access)
    for number, group in by_launch.items():
        for i, one in enumerate(group):
            for other in group[:i]:
                hit = overlap(one.region, other.region) if one.writes or other.writes else None
                if hit:
                    raise PlanError(f"{_name(plan, number)} uses {_bytes(hit)} for two things")


def _refuse_races(plan: Plan, order: HappensBefore, accesses: list[_Access]) -> None:
    if plan.streams == 1:
        return
    inner = [a for a in accesses if 0 <= a.launch < len(plan.launches)]
    launch = np.array([a.launch for a in inner], np.int64)
    low = np.array([a.region.low for a in inner], np.int64)
    high = np.array([a.region.high for a in inner], np.int64)
    for one in inner:
        if not one.writes:
            continue
        near = (low < one.region.high) & (high > one.region.low)
        near &= order.concurrent_with(one.launch)[launch]
        for number in np.flatnonzero(near):
            other = inner[int(number)]
            hit = overlap(one.region, other.region)
            if hit:
                first, second = sorted((one.launch, other.launch))
                raise PlanError(
                    f"nothing orders {_name(plan, first)} and {_name(plan, second)}, which both "
                    f"use {_bytes(hit)}"
                )


def _refuse_reuse(plan: Plan, accesses: list[_Access]) -> None:
    """Refuse two values that are live at the same time in overlapping bytes.

    Races have been refused before, so all overlapping accesses are ordered, and the order of
    submission shows which of them come first.
    """
    by_root: dict[tuple[str, int], list[_Access]] = defaultdict(list)
    for access in accesses:
        # Each workspace is a value of its own.
        by_root[access.root, -1 if access.root else access.launch].append(access)
    groups = list(by_root.values())
    first = np.array([min(a.launch for a in group) for group in groups], np.int64)
    last = np.array([max(a.launch for a in group) for group in groups], np.int64)
    low = np.array([min(a.region.low for a in group) for group in groups], np.int64)
    high = np.array([max(a.region.high for a in group) for group in groups], np.int64)
    for number, group in enumerate(groups):
        rest = slice(number + 1, None)
        near = (low[rest] < high[number]) & (high[rest] > low[number])
        near &= (first[rest] <= last[number]) & (last[rest] >= first[number])
        if not near.any():
            continue
        mine = union([access.region for access in group])
        for index in np.flatnonzero(near):
            other = groups[number + 1 + int(index)]
            hit = overlap(mine, union([access.region for access in other]))
            if hit:
                raise PlanError(
                    f"{_bytes(hit)} are for {_what(plan, group[0])} and "
                    f"{_what(plan, other[0])} at the same time"
                )


def _what(plan: Plan, access: _Access) -> str:
    if access.root:
        return f"the value {access.root!r}"
    return f"the workspace of {_name(plan, access.launch)}"


def _refuse_unwritten(plan: Plan, accesses: list[_Access]) -> None:
    """Refuse bytes of a value that are written twice, or read before they are written."""
    written: dict[str, list[ByteRegion]] = defaultdict(list)
    whole: dict[str, ByteRegion] = {}
    for access in accesses:  # in the order of submission; a launch reads before it writes
        if not access.root:
            continue
        known = written[access.root]
        if access.writes:
            for other in known:
                hit = overlap(access.region, other)
                if hit:
                    raise PlanError(
                        f"{_name(plan, access.launch)} writes {_bytes(hit)}, which already hold a "
                        f"part of {access.root!r}"
                    )
            known.append(access.region)
            whole.pop(access.root, None)
            continue
        if access.root not in whole:
            whole[access.root] = union(known)
        if not covers(whole[access.root], access.region):
            raise PlanError(
                f"a part of {access.root!r} is read by {_name(plan, access.launch)} before anybody "
                "has written it"
            )
