"""Construction of a plan for a graph: backends, streams and memory.

Each step returns a value that the next one takes: nodes become tasks (`segments`, `views`), tasks
are assigned to streams (`plan.streams`), buffers are placed (`plan.memory`), and the plan is
checked like one that was read from a file (`plan.hazards`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node, sized
from eqsat_opt.ir.values.dims import dim_names, evaluate_dim
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType, ValueType, numpy_dtype
from eqsat_opt.runtime.backends.registry import load_launcher, record_of
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.profile import HOST_PROFILE, DeviceProfile, load_profile
from eqsat_opt.runtime.plan.constants import Tensors, digest_of
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.plan import (
    ComputedConstant,
    Launch,
    Plan,
    Port,
    Recipe,
    Stored,
    Workspace,
    layout_strides,
)
from eqsat_opt.runtime.plan.streams import Schedule, schedule, stretches_of, with_events
from eqsat_opt.runtime.planning.buffers import buffers_of, used_constants, with_memory
from eqsat_opt.runtime.planning.channels import with_parts_at_ends
from eqsat_opt.runtime.planning.fusion_groups import FusionGroup, find_units
from eqsat_opt.runtime.planning.legalize import legalized
from eqsat_opt.runtime.planning.recipes import Recipes
from eqsat_opt.runtime.planning.tasks import copy_of, edges_of, kernel_of, tasks_of, unit_us
from eqsat_opt.runtime.planning.views import find_views

__all__ = ["Seat", "make_plan", "static_graph"]

_MOVING = frozenset({"Concat", "Reshape", "Slice"})


def _default(_node: Node) -> str:
    return "default"


def _alone(_node: Node) -> None:
    return None


def _none(_node: Node) -> int:
    return 0


def _strict(_node: Node) -> Precision:
    return Precision.STRICT


def _plain(_name: str) -> Form:
    return PLAIN


@dataclass(frozen=True, slots=True)
class Seat:
    """The position of a launch in the order of submission, and its stream.

    Attributes:
        rank: its rank among all launches, in the order in which they are submitted.
        stream: the stream on which it is queued.
        waits: values whose launches it waits for, even if it does not read them.
    """

    rank: int
    stream: int
    waits: tuple[str, ...] = ()


def make_plan(
    graph: Graph,
    tensors: Tensors,
    backend_of: Callable[[Node], str],
    *,
    algorithm_of: Callable[[Node], str] = _default,
    workspace_of: Callable[[Node], int] = _none,
    precision_of: Callable[[Node], Precision] = _strict,
    is_strided: Callable[[Node], bool] | None = None,
    unit_of: Callable[[Node], int | None] = _alone,
    joins: bool = False,
    form_of: Callable[[str], Form] = _plain,
    seats: Mapping[str, Seat] | None = None,
    sizes: Mapping[str, int] | None = None,
    streams: int = 1,
    target: str = HOST,
    profile: DeviceProfile | None = None,
    precision: Precision = Precision.STRICT,
) -> Plan:
    """Build a plan that computes a graph, and check it for hazards.

    Args:
        graph: a graph whose nodes are operators of the registry.
        tensors: the tensors that the model stores, from which constants are made.
        backend_of: returns the backend of a node. A node that ``generated`` or ``cuda`` cannot run
            goes to ``numpy``.
        algorithm_of: returns the algorithm of a node, where its backend has several.
        workspace_of: returns the bytes that a node needs besides operands and results, where its
            launcher does not know.
        precision_of: returns the precision in which a node multiplies.
        is_strided: returns whether the kernel that runs a node takes views; if not, the values that
            it reads and writes are packed by copying launches. The default is whether launches of
            the node's backend take views.
        unit_of: returns the number of a node's launch; nodes of one number share a launch.
        joins: whether elementwise kernels of a device that is modelled join their neighbours.
        form_of: returns the space and layout of a value; a view has the layout of the value that it
            is a part of.
        seats: by value, the seat of the launch that writes it; by default the planner assigns
            launches to streams.
        sizes: sizes of symbolic dimensions.
        streams: largest number of streams to which the planner assigns launches.
        target: the device that the plan is for.
        profile: the device profile whose analytic times order launches; by default that of the
            target.
        precision: the precision policy that the plan is made under.

    Raises:
        OptionError: a size is not given, or there is no such device.
        PlanError: a plan cannot hold an operator, element type or constant of the graph.
    """
    if streams < 1:
        raise OptionError(f"a plan needs 1 stream or more, not {streams}")
    if profile is None:
        profile = load_profile(HOST_PROFILE if target == HOST else target)
    graph = static_graph(graph, dict(sizes or {}))
    by_output = {node.outputs[0]: backend_of(node) for node in graph.nodes}

    def takes_strides(node: Node) -> bool:
        if is_strided:
            return is_strided(node)
        return record_of(by_output[node.outputs[0]]).takes_views

    graph = with_parts_at_ends(graph, takes_strides)
    recipes, nodes, graph = _constants(graph, tensors)
    backends = [by_output[node.output] for node in nodes]
    for name in dict.fromkeys(backends):
        load_launcher(name)
    algorithms = [algorithm_of(node) for node in nodes]
    units = find_units(
        graph,
        nodes,
        backends,
        algorithms,
        strided=list(map(takes_strides, nodes)),
        together=[unit_of(node) for node in nodes],
        joins=joins,
        constants=recipes,
    )
    nodes = _of_units(nodes, units)
    dims = {name: graph.static_type(name).shape for name in _values(graph, nodes, recipes)}
    movable = {
        unit.parts[0].output
        for unit in units
        if unit.is_strided and unit.parts[0].op in _MOVING and len(unit.parts) == 1
    }
    packed = {n for one in units if not one.is_strided for n in (*one.reads, *one.outputs)}
    given = {*graph.inputs, *recipes} & dims.keys()
    strides = {
        name: layout_strides(dims[name], form_of(name).layout) for name in dims if name not in given
    }

    def is_cheaper(node: Node, copied: Sequence[int]) -> bool:
        """Return whether copies of some operands cost no more than a launch of the whole Concat."""
        whole, _ = kernel_of(graph, (node,), (node.output,), recipes)
        parts = (copy_of(graph, node.inputs[number], recipes) for number in copied)
        return sum(map(profile.kernel_us, parts)) <= profile.kernel_us(whole)

    views = find_views(
        nodes,
        dims,
        movable,
        given,
        strides=strides,
        packed=packed,
        aligned=_aligned(graph, units),
        is_cheaper=is_cheaper,
    )
    before = _before(units)
    stretches = [0] * len(units)
    if seats is not None or streams > 1:
        inner = [(first, number) for number, firsts in enumerate(before) for first in firsts]
        if seats is not None:
            seated = _seated([unit.outputs for unit in units], inner, seats)
        else:
            spent = [unit_us(graph, unit, views, recipes, profile=profile) for unit in units]
            seated = schedule(spent, inner, streams, profile.event_us.value)
        stretches = stretches_of(seated)
    tasks = tasks_of(
        graph,
        units,
        views,
        recipes,
        before=before,
        stretches=stretches,
        workspace_of=workspace_of,
        precision_of=precision_of,
    )
    launchers = {t.backend: load_launcher(t.backend) for t in tasks}
    used = used_constants(graph, tasks, recipes)
    buffers = buffers_of(graph, tasks, views, used, form_of=form_of)
    edges = edges_of(nodes, tasks, views)
    times = [profile.kernel_us(task.body, precision=task.precision.peak) for task in tasks]
    if seats is None:
        placed = schedule(times, edges, streams, profile.event_us.value)
    else:
        placed = _seated([task.values for task in tasks], edges, seats)
    launches = tuple(
        Launch(
            task.name,
            task.backend,
            task.body,
            task.algorithm,
            reads=task.reads,
            writes=task.writes,
            workspace=Workspace(size_bytes=task.workspace_bytes),
            stream=placed.stream[number],
            waits=placed.waits[number],
            records=placed.records[number],
            precision=task.precision,
        )
        for number in placed.order
        for task in (tasks[number],)
    )
    plan = Plan(
        target=target,
        precision=precision,
        sizes=dict(sizes or {}),
        inputs=tuple(Port(name, name) for name in graph.inputs if name not in recipes),
        outputs=tuple(
            Port(name, buffer)
            for name, buffer in zip(_output_names(graph), graph.outputs, strict=True)
        ),
        buffers=buffers,
        constants=used,
        launches=launches,
        joins=placed.joins,
        versions={name: one.version() for name, one in sorted(launchers.items())
                  if any(task.backend == name for task in tasks)},
    )  # fmt: skip
    plan = with_memory(plan, launchers)
    check_plan(plan)
    return plan


# ** the graph **


def static_graph(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return the graph with literal extents and only operators and types that a plan can hold.

    Raises:
        OptionError: a size is not given.
        PlanError: a plan cannot hold an operator or element type of the graph.
    """
    sizes = dict(sizes)
    graph = legalized(graph, sizes)
    nodes = graph.nodes
    names = dict.fromkeys(graph.inputs)
    names.update(dict.fromkeys(name for node in nodes for name in (*node.inputs, *node.outputs)))
    names.update(dict.fromkeys(graph.outputs))
    _require_sizes(graph, names, sizes)
    for node in nodes:
        if node.op == OPAQUE:
            what = node.payload.op_type if node.payload is not None else "a node"
            named = f"{what} {node.name!r}" if node.name else what
            raise PlanError(f"{named} cannot stand in a plan: no backend of plans knows it")
    types: dict[str, ValueType] = {}
    for name in names:
        type_ = graph.tensor_type(name)
        if type_ is None or type_.dtype == "string":
            raise PlanError(f"{name!r} is {graph.types[name]}, which cannot stand in a plan")
        types[name] = TensorType(type_.dtype, tuple(evaluate_dim(d, sizes) for d in type_.shape))
    literal = tuple(replace(node, attrs=sized(node.attrs, sizes)) for node in nodes)
    constants = {name: one for name, one in graph.constants.items() if name in names}
    return replace(graph, nodes=literal, constants=constants, types=types)


def _require_sizes(graph: Graph, names: Iterable[str], sizes: Mapping[str, int]) -> None:
    inputs = filter(None, map(graph.tensor_type, graph.inputs))
    own = {one for type_ in inputs for dim in type_.shape for one in dim_names(dim)}
    for name in names:
        type_ = graph.tensor_type(name)
        shape = () if type_ is None else type_.shape
        open_ = sorted({one for dim in shape for one in dim_names(dim)} - sizes.keys())
        if open_ and not own.intersection(open_):
            raise OptionError(
                f"a size of {name!r} is known only when the model runs, and a plan is for fixed "
                "sizes; leave the plan out"
            )
        open_ = [one for one in open_ if one in own]
        if open_:
            raise OptionError(
                f"{name!r} is {type_}, and a plan is for fixed sizes; give {open_[0]!r} one with "
                f"--input-shape {open_[0]}:SIZE"
            )


def _output_names(graph: Graph) -> tuple[str, ...]:
    """Return the model's names of the outputs; an extracted graph may use other names."""
    if graph.model is None:
        return graph.outputs
    return tuple(str(value.name) for value in graph.model.graph.outputs)


def _values(graph: Graph, nodes: Sequence[Node], recipes: Mapping[str, Recipe]) -> list[str]:
    return list(dict.fromkeys((*graph.inputs, *recipes, *(node.output for node in nodes))))


def _constants(graph: Graph, tensors: Tensors) -> tuple[dict[str, Recipe], list[Node], Graph]:
    """Return recipes of the values that are known at load time, the other nodes, and the graph."""
    made = Recipes(tensors, graph.types)
    for name, one in graph.constants.items():
        made.add(name, one)
    graph, recipes = replace(graph, types={**made.types, **graph.types}), made.made
    for name in graph.inputs:
        if name in graph.parameters:  # the plan always uses the model's default value
            if name not in tensors:
                raise PlanError(f"the default value of input {name!r} is not stored in the model")
            recipes[name] = Stored(name, digest_of(tensors[name]()))
    nodes = []
    for node in graph.nodes:
        if all(name in recipes for name in node.inputs):
            body, reads = kernel_of(graph, (node,), (node.output,), recipes)
            recipes[node.output] = ComputedConstant(body, reads)
        else:
            nodes.append(node)
    return recipes, nodes, graph


def _aligned(graph: Graph, units: Sequence[FusionGroup]) -> dict[str, int]:
    """Return, by value, the number of elements of which its offset must be a multiple.

    Only values of backends that require an alignment are included. Offsets count from the beginning
    of memory that is aligned for all backends.
    """
    found: dict[str, int] = {}
    for unit in units:
        alignment = record_of(unit.backend).alignment_bytes
        for name in (*unit.reads, *unit.outputs) if alignment > 1 else ():
            itemsize = numpy_dtype(graph.static_type(name).dtype).itemsize
            found[name] = max(found.get(name, 1), alignment // itemsize)
    return found


def _of_units(nodes: Sequence[Node], units: Sequence[FusionGroup]) -> list[Node]:
    """Return the nodes whose results are outputs of units, in their order."""
    outputs = {name for unit in units for name in unit.outputs}
    return [node for node in nodes if node.output in outputs]


def _before(units: Sequence[FusionGroup]) -> list[list[int]]:
    """Return, by unit, the numbers of the units that it reads."""
    producer = {name: i for i, unit in enumerate(units) for name in unit.outputs}
    return [sorted({producer[n] for n in unit.reads if n in producer}) for unit in units]


def _seated(
    made: Sequence[Sequence[str]], edges: Sequence[tuple[int, int]], seats: Mapping[str, Seat]
) -> Schedule:
    """Build the schedule that follows given seats.

    A launch without a seat, which copies, takes stream and rank of the last launch that it reads.
    """
    before: list[list[int]] = [[] for _ in made]
    for first, second in edges:
        before[second].append(first)
    rank, stream = [-1] * len(made), [0] * len(made)
    writer: dict[str, int] = {}
    waits = []
    for number, values in enumerate(made):
        found = [seats[name] for name in values if name in seats]
        if found:
            rank[number] = max(one.rank for one in found)
            stream[number] = found[0].stream
            waits += [(name, number) for one in found for name in one.waits]
            writer.update(dict.fromkeys(values, number))
        elif before[number]:
            last = max(before[number], key=lambda one: rank[one])
            rank[number], stream[number] = rank[last], stream[last]
    extra = [
        (writer[name], number)
        for name, number in waits
        if name in writer and rank[writer[name]] < rank[number]
    ]
    every = sorted({*edges, *extra})
    missing, after = [0] * len(made), [list[int]() for _ in made]
    for first, second in every:
        missing[second] += 1
        after[first].append(second)
    ready = [(rank[n], n) for n in range(len(made)) if not missing[n]]
    heapify(ready)
    order = []
    while ready:
        _, number = heappop(ready)
        order.append(number)
        for later in after[number]:
            missing[later] -= 1
            if not missing[later]:
                heappush(ready, (rank[later], later))
    return with_events(order, stream, every)
