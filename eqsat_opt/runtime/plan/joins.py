"""What became of concatenations in a plan: parts that are written where they belong, and copies."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["Concatenations", "concatenations"]


@dataclass(frozen=True)
class Concatenations:
    """Of a plan.

    Attributes:
        views: tensors of which launches write parts; several that are parts of one are one.
        in_place: parts that are written by the kernels which compute them.
        copied: parts that are copied there.
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
    copied = sum(not launch.body.steps for launch in parts.values())
    return Concatenations(
        views=len({plan.root_of(name).name for name in parts}),
        in_place=len(parts) - copied,
        copied=copied,
        computed=sum(
            any(step.op == "Concat" for step in launch.body.steps) for launch in plan.launches
        ),
    )
