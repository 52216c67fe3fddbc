"""Oracles for plans: graphs to plan, the origin of each byte that is read, and mutants."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.types import require_static
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.order import happens_before, linear_extension
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Launch, Plan, Workspace

__all__ = ["MUTATIONS", "branching_graph", "judge", "mutants", "provenance", "siblings_graph"]

_Tags = npt.NDArray[np.int64]


# ** graphs **


def branching_graph(seed: int, nodes: int = 16) -> Graph:
    """Build a random graph with branches, joins and movements: images of few channels, two samples.

    Every element of every value reaches an output, and no operator hides a difference.
    """
    generator = np.random.default_rng(seed)
    maker = GraphMaker(seed)
    values = [maker.input("x", 2, 3, 4, 4), maker.input("y", 2, 2, 4, 4)]

    shape = maker.shape

    def beside(name: str) -> tuple[int, ...]:
        return (shape(name)[0], *shape(name)[2:])

    while len(values) < nodes + 2:
        # Recent values are drawn more often, so that there are chains as well as branches.
        x = values[int(len(values) * generator.random() ** 0.5)]
        match int(generator.integers(10)):
            case 0 | 1 | 2:
                made = maker.conv(x, maker.weight(int(generator.integers(1, 4)), shape(x)[1], 1, 1))
            case 3:
                made = maker("Tanh", x)
            case 4 | 5:
                same = [v for v in values if beside(v) == beside(x) and v != x]
                parts = [x, *(str(generator.choice(same)) for _ in range(2) if same)]
                made = maker("Concat", *parts, axis=1)
            case 6:  # the second part before the first
                axis = int(generator.choice([n for n, size in enumerate(shape(x)) if size > 1]))
                cut = int(generator.integers(1, shape(x)[axis]))
                first = maker("Slice", x, axis=axis, lo=0, hi=cut)
                second = maker("Slice", x, axis=axis, lo=cut, hi=shape(x)[axis])
                made = maker("Concat", second, first, axis=axis)
            case 7:
                flat = maker("Reshape", x, shape=(shape(x)[0], int(np.prod(shape(x)[1:]))))
                weight = maker.weight(shape(flat)[1], shape(flat)[1])
                made = maker("Reshape", maker("MatMul", flat, weight), shape=shape(x))
            case 8:
                made = maker("Transpose", x, perm=(0, 1, 3, 2))
            case _:
                same = [v for v in values if shape(v) == shape(x)]
                made = maker("Add", x, str(generator.choice(same)))
        if require_static(maker.type(made)).size <= 1024:
            values.append(made)
    used = {name for node in maker.graph(values[-1]).nodes for name in node.inputs}
    return maker.graph(*(name for name in values if name not in used))


def siblings_graph(seed: int, blocks: int = 4) -> Graph:
    """Build a random graph of merged siblings, whose parts are concatenated or read further.

    Every element of every value reaches an output.
    """
    generator = np.random.default_rng(seed)
    maker = GraphMaker(seed)
    values = [maker.input("x", int(generator.integers(1, 3)), 3, 4, 2)]

    shape = maker.shape

    def merged(x: str, sizes: list[int]) -> list[str]:
        """Return parts of one product or convolution, after elementwise operators on it."""
        total = sum(sizes)
        whole = maker.conv(x, maker.weight(total, shape(x)[1], 1, 1), maker.weight(total))
        steps = generator.permutation(["Add", "Tanh", "Mul", "Square", "BatchNormalization"])
        for op in steps[: generator.integers(5)].tolist():
            match op:
                case "Tanh":
                    whole = maker("Tanh", whole)
                case "Square":  # of small values: rounding errors grow with them
                    whole = maker("Tanh", whole)
                    whole = maker("Mul", whole, whole)
                case "BatchNormalization":
                    numbers = [maker.weight(total) for _ in range(3)]
                    variance = maker.constant(np.arange(1, total + 1, dtype=np.float32))
                    whole = maker(op, whole, *numbers, variance, epsilon=0.1)
                case _:
                    factor = maker.weight(1, int(generator.choice([1, total])), 1, 1)
                    whole = maker(op, whole, factor)
        ends = np.cumsum(sizes).tolist()
        if generator.random() < 0.3 and len(sizes) > 2:  # a part of a part
            outer = maker("Slice", whole, axis=1, lo=sizes[0], hi=total)
            inner = [
                maker("Slice", outer, axis=1, lo=end - size - sizes[0], hi=end - sizes[0])
                for size, end in list(zip(sizes, ends, strict=True))[1:]
            ]
            return [maker("Slice", whole, axis=1, lo=0, hi=sizes[0]), *inner]
        return [
            maker("Slice", whole, axis=1, lo=end - size, hi=end)
            for size, end in zip(sizes, ends, strict=True)
        ]

    for _ in range(blocks):
        x = str(generator.choice(values[-3:]))
        parts = merged(x, generator.integers(1, 4, generator.integers(2, 5)).tolist())
        if generator.random() < 0.3:  # two parts in one concatenation, or one in two
            parts += merged(x, [1, 2])
        further = generator.random(len(parts)) < 0.5
        inside = [
            maker.conv(part, maker.weight(2, shape(part)[1], 1, 1)) if is_read else part
            for part, is_read in zip(generator.permutation(parts).tolist(), further, strict=True)
        ]
        whole = maker("Concat", *inside, axis=1)
        if generator.random() < 0.4:
            both = [whole, str(generator.choice(parts))]
            whole = maker("Concat", *generator.permutation(both).tolist(), axis=1)
        values.append(whole)
        if generator.random() < 0.3:
            batch, channels, height, width = shape(whole)
            values.append(maker("Reshape", whole, shape=(batch, channels, width, height)))
            values.append(maker("Reshape", values[-1], shape=(batch, channels, height, width)))
    used = {name for node in maker.graph(values[-1]).nodes for name in node.inputs}
    every = [node.outputs[0] for node in maker.graph(values[-1]).nodes]
    return maker.graph(*(name for name in every if name not in used))


# ** the origin of data **


def provenance(plan: Plan, seed: int | None = None) -> dict[tuple[str, int], _Tags]:
    """Return, for each operand of a launch and each output, the origin of each of its bytes.

    A tag identifies one byte of one value. Nothing is computed: a launch writes tags of its own
    into an arena of tags. So two plans with equal tags compute the same, whatever the kernels are.

    Args:
        plan: a plan that `order.happens_before` accepts.
        seed: seed of the order in which launches run; without it, they run as submitted.

    Returns:
        (launch, operand) to tags; outputs of the plan are operands of ``""``.
    """
    arena = np.full(plan.arena_bytes, -1, np.int64)
    own = {name: _first_tag("constant", name) for name in plan.constants}
    found: dict[tuple[str, int], _Tags] = {}

    def places(name: str) -> npt.NDArray[np.int64]:
        """Return the byte positions of the elements, in C order of the elements."""
        buffer = plan.buffer_of[name]
        place = np.full((), plan.start_of(name), np.int64)
        for dim, stride in zip(buffer.dims, buffer.strides, strict=True):
            place = place[..., None] + np.arange(dim, dtype=np.int64) * stride * buffer.itemsize
        return (place[..., None] + np.arange(buffer.itemsize)).reshape(-1)

    def read(name: str) -> _Tags:
        root = plan.root_of(name).name
        tags = places(name)
        return own[root] + tags if root in own else arena[tags]

    def write(name: str, tag: int) -> None:
        bytes_ = places(name)
        arena[bytes_] = tag + np.arange(bytes_.size)

    for port in plan.inputs:
        write(port.buffer, _first_tag("input", port.name))
    numbers = range(len(plan.launches))
    order = numbers if seed is None else linear_extension(happens_before(plan), seed)
    for number in order:
        launch = plan.launches[number]
        space = launch.workspace
        arena[space.offset : space.offset + space.size_bytes] = -1
        for operand, name in enumerate(launch.reads):
            found[launch.name, operand] = read(name)
        for result, name in enumerate(launch.writes):
            write(name, _first_tag(launch.name, str(result)))
    for number, port in enumerate(plan.outputs):
        found["", number] = read(port.buffer)
    return found


def _first_tag(kind: str, name: str) -> int:
    """Return the first tag of a value: a hash, with room after it for the bytes of the value."""
    digest = hashlib.sha256(f"{kind}\0{name}".encode()).digest()
    return int.from_bytes(digest[:4], "little") << 31


# ** mutants **

_Mutation = Callable[[Plan, np.random.Generator], Plan | None]


def _pick(generator: np.random.Generator, items: Sequence[int]) -> int | None:
    return int(generator.choice(items)) if len(items) else None


def _drop_wait(plan: Plan, generator: np.random.Generator) -> Plan | None:
    waits = [(n, w) for n, launch in enumerate(plan.launches) for w in range(len(launch.waits))]
    waits += [(-1, w) for w in range(len(plan.joins))]
    number = _pick(generator, range(len(waits)))
    if number is None:
        return None
    launch, wait = waits[number]
    if launch < 0:
        return replace(plan, joins=plan.joins[:wait] + plan.joins[wait + 1 :])
    one = plan.launches[launch]
    changed = replace(one, waits=one.waits[:wait] + one.waits[wait + 1 :])
    return _with_launch(plan, launch, changed)


def _with_launch(plan: Plan, number: int, launch: Launch) -> Plan:
    launches = list(plan.launches)
    launches[number] = launch
    return replace(plan, launches=tuple(launches))


def _shift_offset(plan: Plan, generator: np.random.Generator) -> Plan | None:
    choices = [n for n, b in enumerate(plan.buffers) if b.name not in plan.constants]
    number = _pick(generator, choices)
    if number is None:
        return None
    buffer = plan.buffers[number]
    step = int(generator.choice([buffer.itemsize, 64, 256, 1024]))
    offset = buffer.offset + step * int(generator.choice([-1, 1]))
    return _with_buffer(plan, number, offset=offset)


def _with_buffer(plan: Plan, number: int, **changes: object) -> Plan:
    buffers = list(plan.buffers)
    buffers[number] = replace(buffers[number], **changes)  # type: ignore[arg-type]
    return replace(plan, buffers=tuple(buffers))


def _swap_launches(plan: Plan, generator: np.random.Generator) -> Plan | None:
    number = _pick(generator, range(len(plan.launches) - 1))
    if number is None:
        return None
    launches = list(plan.launches)
    launches[number], launches[number + 1] = launches[number + 1], launches[number]
    return replace(plan, launches=tuple(launches))


def _shrink_workspace(plan: Plan, generator: np.random.Generator) -> Plan | None:
    number = _pick(generator, [n for n, x in enumerate(plan.launches) if x.workspace.size_bytes])
    if number is None:
        return None
    launch = plan.launches[number]
    size = int(generator.integers(0, launch.workspace.size_bytes))
    space = Workspace(launch.workspace.offset, size)
    return _with_launch(plan, number, replace(launch, workspace=space))


def _alter_stride(plan: Plan, generator: np.random.Generator) -> Plan | None:
    number = _pick(generator, [n for n, b in enumerate(plan.buffers) if b.dims])
    if number is None:
        return None
    buffer = plan.buffers[number]
    axis = int(generator.integers(len(buffer.dims)))
    stride = buffer.strides[axis] + int(generator.choice([-1, 1, buffer.dims[axis]]))
    strides = (*buffer.strides[:axis], stride, *buffer.strides[axis + 1 :])
    return _with_buffer(plan, number, strides=strides)


def _move_stream(plan: Plan, generator: np.random.Generator) -> Plan | None:
    number = _pick(generator, range(len(plan.launches)))
    if number is None:
        return None
    launch = plan.launches[number]
    stream = (launch.stream + 1) % (plan.streams + 1)
    return _with_launch(plan, number, replace(launch, stream=stream))


MUTATIONS: Mapping[str, _Mutation] = {
    "drop a wait": _drop_wait,
    "shift an offset": _shift_offset,
    "swap launches": _swap_launches,
    "shrink a workspace": _shrink_workspace,
    "alter a stride": _alter_stride,
    "move to another stream": _move_stream,
}


def mutants(plan: Plan, count: int, seed: int) -> Iterator[tuple[str, Plan]]:
    """Yield plans with one change each, and the kind of the change; fewer where none applies."""
    generator = np.random.default_rng(seed)
    kinds = list(MUTATIONS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        mutant = MUTATIONS[kind](plan, generator)
        if mutant is not None and mutant != plan:
            yield kind, mutant


def judge(
    plan: Plan,
    mutant: Plan,
    constants: Mapping[str, Array],
    feeds: Sequence[Mapping[str, Array]],
    workspace_bytes: Callable[[Plan, int], int],
    orders: int = 3,
) -> str:
    """Classify a mutant by its effect.

    Args:
        plan: the original.
        mutant: a mutant of it.
        constants: the constants of both.
        feeds: several sets of inputs.
        workspace_bytes: returns the workspace that a launch of a plan, given by number, needs.
        orders: how many orders of the launches are tried.

    Returns:
        ``refused``; ``harmless``: every byte that any launch or output reads is the same byte of
        the same value, in every order tried; ``changes an output``; or ``missed``.
    """
    try:
        check_plan(mutant)
        for number, launch in enumerate(mutant.launches):
            if launch.workspace.size_bytes < workspace_bytes(mutant, number):
                return "refused"
    except EqsatError:
        return "refused"
    seeds = range(orders)
    before = provenance(plan)
    if all(_equal(before, provenance(mutant, seed)) for seed in seeds):
        return "harmless"
    for given in feeds:
        wanted = interpret(plan, constants, given)
        for seed in seeds:
            try:
                found = interpret(mutant, constants, given, seed)
            except EqsatError:
                return "changes an output"
            if any(found[name].tobytes() != wanted[name].tobytes() for name in wanted):
                return "changes an output"
    return "missed"


def _equal(a: Mapping[tuple[str, int], _Tags], b: Mapping[tuple[str, int], _Tags]) -> bool:
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)
