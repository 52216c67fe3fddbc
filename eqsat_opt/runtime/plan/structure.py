"""Checks of the structure of a plan: names, types and places, independent of its order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod

from eqsat_opt.errors import PlanError
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType
from eqsat_opt.runtime.plan.places import region_of
from eqsat_opt.runtime.plan.plan import Buffer, ComputedConstant, Launch, Literal, Plan, Stored

__all__ = ["check_structure"]


def check_structure(plan: Plan) -> None:
    """Refuse a plan that cannot be run in any order.

    Raises:
        PlanError: the plan is malformed; the message names the buffer or launch, and its fault.
    """
    _require_distinct((b.name for b in plan.buffers), "buffers")
    _require_distinct((launch.name for launch in plan.launches), "launches")
    for what, ports in (("input", plan.inputs), ("output", plan.outputs)):
        for port in ports:
            _require(port.buffer in plan.buffer_of, f"{what} {port.name!r} has no buffer")
    _require_distinct((port.name for port in plan.inputs), "inputs")
    _require_distinct((port.name for port in plan.outputs), "outputs")
    for buffer in plan.buffers:
        _check_layout(buffer)
    for buffer in plan.buffers:
        _check_place(plan, buffer)
    _check_constants(plan)
    for port in plan.inputs:
        buffer = plan.buffer_of[port.buffer]
        _require(
            not buffer.base and not plan.is_constant(buffer.name) and _is_writable(plan, buffer),
            f"input {port.name!r} does not lie in arena memory of its own",
        )
    for launch in plan.launches:
        _check_launch(plan, launch)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise PlanError(message)


def _require_distinct(names: Iterable[str], nouns: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    _require(not twice, f"two {nouns} are called {twice[0] if twice else ''!r}")


def _check_layout(buffer: Buffer) -> None:
    name = f"buffer {buffer.name!r}"
    _require(
        buffer.dtype in DTYPE_CODES and buffer.dtype != "string",
        f"{name} has the element type {buffer.dtype!r}, which no memory holds",
    )
    _require(
        len(buffer.dims) == len(buffer.strides), f"{name} has another number of strides than axes"
    )
    _require(min((*buffer.dims, *buffer.strides, buffer.offset), default=0) >= 0,
             f"{name} has a negative extent, stride or offset")  # fmt: skip
    _require(
        buffer.offset % buffer.itemsize == 0,
        f"{name} begins at byte {buffer.offset}, amid an element of {buffer.itemsize} bytes",
    )


def _check_place(plan: Plan, buffer: Buffer) -> None:
    name = f"buffer {buffer.name!r}"
    if buffer.base:
        base = plan.buffer_of.get(buffer.base)
        _require(base is not None, f"{name} is a view into {buffer.base!r}, which is not there")
        assert base is not None
        _require(not base.base, f"{name} is a view into a view; name the buffer behind it")
        _require(
            base.dtype == buffer.dtype and base.form.space == buffer.form.space,
            f"{name} has another element type or space than {base.name!r}, which it is a view into",
        )
        limit = base.span_bytes
    elif buffer.name in plan.constants:
        _require(
            buffer.offset == 0 and buffer.is_dense, f"the constant {buffer.name!r} is not dense"
        )
        return
    else:
        limit = plan.arena_bytes
    end = buffer.offset + buffer.span_bytes
    _require(end <= limit, f"{name} ends at byte {end} of {limit}")


def _check_constants(plan: Plan) -> None:
    made: set[str] = set()
    for name, recipe in plan.constants.items():
        buffer = plan.buffer_of.get(name)
        _require(buffer is not None, f"the constant {name!r} has no buffer")
        assert buffer is not None
        _require(not buffer.base, f"the constant {name!r} is a view")
        match recipe:
            case ComputedConstant(body, operands):
                missing = sorted(set(operands) - made)
                _require(
                    not missing,
                    f"the constant {name!r} is computed of {missing[0] if missing else ''!r}, "
                    "which is not made before it",
                )
                _require(len(body.outputs) == 1, f"the constant {name!r} has several values")
                _check_signature(plan, f"the constant {name!r}", body, operands, writes=(name,))
            case Literal(values):
                _require(
                    len(values) in (1, prod(buffer.dims)),
                    f"the constant {name!r} has {len(values)} values for {prod(buffer.dims)} "
                    "elements",
                )
            case Stored():
                pass
        made.add(name)


def _check_launch(plan: Plan, launch: Launch) -> None:
    name = f"launch {launch.name!r}"
    unknown = [one for one in (*launch.reads, *launch.writes) if one not in plan.buffer_of]
    _require(not unknown, f"{name} uses {unknown[0] if unknown else ''!r}, which is no buffer")
    _check_signature(plan, name, launch.body, launch.reads, writes=launch.writes)
    for operand, read in zip(launch.body.operands, launch.reads, strict=True):
        _require(
            operand.const == plan.is_constant(read),
            f"{name} takes {read!r} for {'a' if operand.const else 'no'} constant",
        )
    for write in launch.writes:
        buffer = plan.buffer_of[write]
        _require(not plan.is_constant(write), f"{name} writes the constant {write!r}")
        _require(
            _is_writable(plan, buffer), f"{name} writes several elements of {write!r} to one place"
        )
    space = launch.workspace
    _require(
        min(space.offset, space.size_bytes, launch.stream) >= 0, f"{name} has a negative number"
    )
    end = space.offset + space.size_bytes
    _require(
        not space.size_bytes or end <= plan.arena_bytes,
        f"{name} has a workspace up to byte {end} of an arena of {plan.arena_bytes}",
    )


def _check_signature(
    plan: Plan, name: str, body: Kernel, reads: tuple[str, ...], writes: tuple[str, ...]
) -> None:
    """Check that the operands and results of a body have the types of its buffers."""
    _require(
        len(reads) == len(body.operands) and len(writes) == len(body.outputs),
        f"{name} has {len(reads)} operands and {len(writes)} results, its body "
        f"{len(body.operands)} and {len(body.outputs)}",
    )
    types = (*(o.type for o in body.operands), *(body.types[i] for i in body.outputs))
    for buffer, type_ in zip((*reads, *writes), types, strict=True):
        one = plan.buffer_of[buffer]
        found = TensorType(one.dtype, one.dims)
        _require(found == type_, f"{name} takes {buffer!r} for {type_}; it is {found}")


def _is_writable(plan: Plan, buffer: Buffer) -> bool:
    """Return whether no two elements of a buffer share bytes."""
    return region_of(plan, buffer.name).size_bytes == prod(buffer.dims) * buffer.itemsize
