"""Counts of concatenations in a plan: parts written in place, and parts that are copied."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["Concatenations", "concatenations"]


@dataclass(frozen=True)
class Concatenations:
    """Counts of the concatenations of a plan.

    Attributes:
        views: tensors that launches write in parts; nested parts count for their root tensor.
        in_place: parts that the kernels which compute them write into the tensor.
        copied: parts that are copied into the tensor, by a copying launch or inside a kernel.
        computed: launches whose kernel contains a Concat, alone or with other operators.
    """

    views: int
    in_place: int
    copied: int
    computed: int


def concatenations(plan: Plan) -> Concatenations:
    """Count the concatenations of a plan."""
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
    """Count the operands of concatenations that are operands of the kernel, or slices of them."""
    moved = set(range(len(body.operands)))
    for number, step in enumerate(body.steps, start=len(body.operands)):
        if step.op == "Slice" and moved.issuperset(step.operands):
            moved.add(number)
    return sum(
        operand in moved for step in body.steps if step.op == "Concat" for operand in step.operands
    )
