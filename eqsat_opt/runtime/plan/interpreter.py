"""Reference interpreter of plans: evaluates each launch by the operator registry's definition.

All launches run in one arena with the plan's offsets and strides, so errors of layout, reuse and
order show as wrong outputs. The arena is poisoned: it begins as NaN in every floating point type,
and so does each workspace at each use.
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
"""Byte pattern that reads as NaN in all floating point types, and as -1 in signed integers."""


def interpret(
    plan: Plan,
    constants: Mapping[str, Array],
    feeds: Mapping[str, Array],
    seed: int | None = None,
) -> dict[str, Array]:
    """Run a plan and return its outputs by name; with hazards, one of its possible results.

    Args:
        plan: a plan whose structure is sound.
        constants: the arrays that `make_constants` returned.
        feeds: values by input name.
        seed: seed of a random order of the launches among those that streams and events allow;
            ``None`` runs them in the order of submission.

    Raises:
        PlanError: events order nothing, or a launch computes another shape than its buffer has.
        RuntimeFailed: an input is missing or does not fit, or a kernel cannot be evaluated on the
            given values.
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
        # A result may share memory with an operand, and an operand with a written buffer.
        for name, result in zip(launch.writes, [np.array(r) for r in results], strict=True):
            if result.shape != buffers[name].shape:
                raise PlanError(f"launch {launch.name!r} computes another shape than {name!r} has")
            np.copyto(buffers[name], result)
    return {port.name: np.array(buffers[port.buffer], order="C") for port in plan.outputs}
