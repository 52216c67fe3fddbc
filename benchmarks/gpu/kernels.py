"""Plans of one launch: of a kernel in a plan, by another algorithm, several times over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat_opt.runtime.plan.plan import (
    ALIGNMENT_BYTES,
    NO_WORKSPACE,
    Buffer,
    Launch,
    Plan,
    Port,
    Stored,
    Workspace,
)

__all__ = ["alone", "by_algorithm", "crossing", "repeated"]


def alone(launch: Launch, buffers: Mapping[str, Buffer], target: str, version: str) -> Plan:
    """A launch on memory of its own, as far apart as in the plan that it comes from.

    Constants are called ``c0`` and so on, inputs ``x0``, outputs ``y0``.

    Args:
        launch: of a plan.
        buffers: of that plan.
        target: of that plan.
        version: of the backend.
    """
    made: list[Buffer] = []
    constants: dict[str, Stored] = {}
    inputs: list[Port] = []
    outputs: list[Port] = []
    renamed: dict[str, str] = {}
    end = 0
    for name, operand in zip(launch.reads, launch.body.operands, strict=True):
        if name in renamed:
            continue
        buffer = buffers[name]
        new = f"{'c' if operand.const else 'x'}{len(renamed)}"
        renamed[name] = new
        if not operand.const:
            made.append(replace(buffer, name=new, offset=end, base=""))
            inputs.append(Port(new, new))
            end = _after(made[-1])
        elif buffer.is_dense:
            made.append(replace(buffer, name=new, offset=0, base=""))
            constants[new] = Stored(new, "")
        else:  # a constant is dense; this is a part of one
            length = buffer.span_bytes // buffer.itemsize
            whole = Buffer(f"{new} whole", buffer.dtype, (length,), (1,), form=buffer.form)
            made += [whole, replace(buffer, name=new, offset=0, base=whole.name)]
            constants[whole.name] = Stored(whole.name, "")
    for number, name in enumerate(launch.writes):
        renamed[name] = new = f"y{number}"
        made.append(replace(buffers[name], name=new, offset=end, base=""))
        outputs.append(Port(new, new))
        end = _after(made[-1])
    space = NO_WORKSPACE
    if launch.workspace.size_bytes:
        space = Workspace(end, launch.workspace.size_bytes)
        end = _aligned(end + space.size_bytes)
    own = Launch(
        "it",
        launch.backend,
        launch.body,
        launch.algorithm,
        reads=tuple(renamed[name] for name in launch.reads),
        writes=tuple(renamed[name] for name in launch.writes),
        workspace=space,
        precision=launch.precision,
    )
    return Plan(
        target, launch.precision, {}, tuple(inputs), tuple(outputs),
        buffers=tuple(made), constants=constants, launches=(own,), arena_bytes=end,
        lower_bound_bytes=end, versions={launch.backend: version},
    )  # fmt: skip


def by_algorithm(plan: Plan, algorithm: str, workspace_bytes: int) -> Plan:
    """The plan of one launch with another algorithm."""
    (launch,) = plan.launches
    start = max((_after(one) for one in plan.buffers if not _is_outside(plan, one)), default=0)
    space = Workspace(start, workspace_bytes) if workspace_bytes else NO_WORKSPACE
    end = _aligned(start + workspace_bytes)
    launch = replace(launch, algorithm=algorithm, workspace=space)
    return replace(plan, launches=(launch,), arena_bytes=end, lower_bound_bytes=end)


def repeated(plan: Plan, count: int) -> Plan:
    """The launch of a plan so many times, one after another, each on memory of its own.

    Names of the first copy stay; those of the others end with ``#`` and its number.
    """
    (launch,) = plan.launches
    buffers: list[Buffer] = []
    launches: list[Launch] = []
    constants = {}
    inputs: list[Port] = []
    outputs: list[Port] = []
    for number in range(count):
        start, mark = number * _aligned(plan.arena_bytes), f"#{number}" if number else ""
        for one in plan.buffers:
            offset = one.offset if _is_outside(plan, one) or one.base else one.offset + start
            base = one.base and one.base + mark
            buffers.append(replace(one, name=one.name + mark, offset=offset, base=base))
        constants.update({name + mark: recipe for name, recipe in plan.constants.items()})
        inputs += [Port(port.name + mark, port.buffer + mark) for port in plan.inputs]
        outputs += [Port(port.name + mark, port.buffer + mark) for port in plan.outputs]
        space = launch.workspace
        if space.size_bytes:
            space = replace(space, offset=space.offset + start)
        launches.append(
            replace(
                launch,
                name=launch.name + mark,
                reads=tuple(name + mark for name in launch.reads),
                writes=tuple(name + mark for name in launch.writes),
                workspace=space,
            )
        )
    end = count * _aligned(plan.arena_bytes)
    return replace(
        plan, inputs=tuple(inputs), outputs=tuple(outputs), buffers=tuple(buffers),
        constants=constants, launches=tuple(launches), arena_bytes=end, lower_bound_bytes=end,
    )  # fmt: skip


def crossing(plan: Plan) -> Plan:
    """The launches of a plan in the same order, each on another stream than the one before it."""
    last = len(plan.launches) - 1
    launches = tuple(
        replace(one, stream=i % 2, waits=(i - 1,) if i else (), records=(i,))
        for i, one in enumerate(plan.launches)
    )
    return replace(plan, launches=launches, joins=(last,))


def _is_outside(plan: Plan, buffer: Buffer) -> bool:
    """Whether a buffer is a constant, which has memory of its own."""
    return plan.is_constant(buffer.name)


def _after(buffer: Buffer) -> int:
    """Where the next buffer of the arena can begin."""
    return _aligned(buffer.offset + buffer.span_bytes)


def _aligned(size_bytes: int) -> int:
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
