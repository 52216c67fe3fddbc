"""What became of concatenations in a plan: parts that are written where they belong, and copies."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["Concatenations", "concatenations"]


@dataclass(frozen=True)
class Concatenations:
    """Of a plan.

    Attributes:
        views: tensors of which launches write parts; several that are parts of one are one.
        in_place: parts that are written by the kernels which compute them.
        copied: parts that are copied there, by a launch of their own or with what it computes.
        computed: launches that concatenate among other things, or nothing else.
    """

    views: int
    in_place: int
    copied: int
    computed: int


def concatenations(plan: Plan) -> Concatenations:
    """Count those of a plan."""
    parts = {
        name: launch
        for launch in plan.launches
        for name in launch.writes
        if plan.buffer_of[name].base
    }
    alone = sum(not launch.body.steps for launch in parts.values())
    joining = [launch.body for launch in plan.launches if _joins(launch.body)]
    return Concatenations(
        views=len({plan.root_of(name).name for name in parts}),
        in_place=len(parts) - alone,
        copied=alone + sum(map(_copied, joining)),
        computed=len(joining),
    )


def _joins(body: Kernel) -> bool:
    return any(step.op == "Concat" for step in body.steps)


def _copied(body: Kernel) -> int:
    """How many operands of concatenations are as the kernel reads them, or parts of that."""
    moved = set(range(len(body.operands)))
    for number, step in enumerate(body.steps, start=len(body.operands)):
        if step.op == "Slice" and moved.issuperset(step.operands):
            moved.add(number)
    return sum(
        operand in moved for step in body.steps if step.op == "Concat" for operand in step.operands
    )
