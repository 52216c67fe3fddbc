"""What a plan computes: each launch as the operator registry defines it, in one poisoned arena.

Offsets and strides are those of the plan, so errors of layout, reuse and order show as wrong
outputs. The arena begins as NaN in every floating point type, and so do workspaces at each use.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat_opt.errors import PlanError, RuntimeFailed
from eqsat_opt.ir.graph.evaluation import evaluate_kernel
from eqsat_opt.runtime.plan.feeds import checked_feeds
from eqsat_opt.runtime.plan.order import happens_before, linear_extension
from eqsat_opt.runtime.plan.places import Array, aligned_memory, array_of
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["POISON", "interpret"]

POISON = 0xFF
"""The byte of which all floating point types make NaN, and signed integers -1."""


def interpret(
    plan: Plan,
    constants: Mapping[str, Array],
    feeds: Mapping[str, Array],
    seed: int | None = None,
) -> dict[str, Array]:
    """The outputs by name; of a plan with hazards, one of its possible results.

    Args:
        plan: a plan whose structure is sound.
        constants: what `make_constants` made.
        feeds: input name to value.
        seed: runs the launches in an order drawn from all that streams and events allow; without,
            as they are submitted.

    Raises:
        PlanError: events order nothing.
        RuntimeFailed: an input is missing or does not fit, or a kernel is not defined there.
    """
    arena = aligned_memory(plan.arena_bytes)
    arena[:] = POISON
    buffers = {b.name: array_of(plan, b.name, arena, constants) for b in plan.buffers}
    for name, value in checked_feeds(plan, feeds).items():
        np.copyto(buffers[name], value)
    numbers = range(len(plan.launches))
    order = numbers if seed is None else linear_extension(happens_before(plan), seed)
    for number in order:
        launch = plan.launches[number]
        space = launch.workspace
        arena[space.offset : space.offset + space.size_bytes] = POISON
        try:
            results = evaluate_kernel(launch.body, [buffers[name] for name in launch.reads])
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise RuntimeFailed(f"launch {launch.name!r} failed: {error}") from error
        # A result may share memory with an operand, and an operand with what is written.
        for name, result in zip(launch.writes, [np.array(r) for r in results], strict=True):
            if result.shape != buffers[name].shape:
                raise PlanError(f"launch {launch.name!r} computes another shape than {name!r} has")
            np.copyto(buffers[name], result)
    return {port.name: np.array(buffers[port.buffer], order="C") for port in plan.outputs}
