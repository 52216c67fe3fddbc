"""Tasks, which become launches: nodes that run together, and copies into Concats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.runtime.backends.registry import fallback, record_of
from eqsat_opt.runtime.devices.profile import DeviceProfile
from eqsat_opt.runtime.plan.plan import Recipe
from eqsat_opt.runtime.planning.fusion_groups import FusionGroup, is_in_session
from eqsat_opt.runtime.planning.partitions import segments
from eqsat_opt.runtime.planning.views import Views

__all__ = ["Task", "copy_of", "edges_of", "kernel_of", "tasks_of", "unit_us"]


@dataclass(frozen=True, slots=True)
class Task:
    """A launch before it has a stream and buffers.

    Attributes:
        name: name of the launch.
        backend: name of the backend that runs it.
        body: the kernel that it computes.
        algorithm: name of the backend's algorithm.
        reads: values that it reads.
        writes: buffers that it writes: values, and the parts of a Concat that are copied.
        workspace_bytes: scratch memory that its algorithm is known to need.
        precision: the precision of its multiplications.
        values: all values that it computes, including those that only it reads.
    """

    name: str
    backend: str
    body: Kernel
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    algorithm: str = "default"
    workspace_bytes: int = 0
    precision: Precision = Precision.STRICT
    values: tuple[str, ...] = ()


def kernel_of(
    graph: Graph, nodes: Sequence[Node], outputs: Sequence[str], recipes: Mapping[str, Recipe]
) -> tuple[Kernel, tuple[str, ...]]:
    """Return the kernel of some nodes, and the values that they read from outside."""
    inner = {node.output for node in nodes}
    reads = tuple(dict.fromkeys(n for node in nodes for n in node.inputs if n not in inner))
    number = {name: i for i, name in enumerate((*reads, *(node.output for node in nodes)))}
    operands = tuple(Operand(graph.static_type(name), name in recipes) for name in reads)
    steps = tuple(Step(n.op, n.attrs, tuple(number[i] for i in n.inputs)) for n in nodes)
    return Kernel(operands, steps, tuple(number[name] for name in outputs)), reads


def unit_us(
    graph: Graph,
    unit: FusionGroup,
    views: Views,
    recipes: Mapping[str, Recipe],
    profile: DeviceProfile,
) -> float:
    """Return the analytic time of a unit that runs alone; 0 for a view."""
    if unit.outputs[0] in views.nodes:
        return 0.0
    body, _ = kernel_of(graph, unit.parts, unit.outputs, recipes)
    return profile.kernel_us(body)


def tasks_of(
    graph: Graph,
    units: Sequence[FusionGroup],
    views: Views,
    recipes: Mapping[str, Recipe],
    *,
    before: Sequence[Sequence[int]],
    stretches: Sequence[int],
    workspace_of: Callable[[Node], int],
    precision_of: Callable[[Node], Precision],
) -> list[Task]:
    """Return the tasks of units, in an order in which they can run.

    Units that may share a session become one task if they are in one stretch of a stream.
    """
    labels = [
        (unit.backend, stretch)
        if is_in_session(unit) and unit.outputs[0] not in views.nodes
        else None
        for unit, stretch in zip(units, stretches, strict=True)
    ]
    copied: dict[str, list[int]] = {}
    for value, number in views.copies:
        copied.setdefault(value, []).append(number)
    readers: dict[str, set[int]] = {}
    for i, unit in enumerate(units):
        for name in unit.reads:
            readers.setdefault(name, set()).add(i)
    tasks = []
    for group in segments(before, labels):
        inside = set(group)
        first = units[group[0]]
        if first.outputs[0] in views.nodes:
            (node,) = first.parts
            for number in copied.get(node.output, ()):
                source = node.inputs[number]
                name = views.copies[node.output, number]
                body = copy_of(graph, source, recipes)
                copier = _copier(first)
                tasks.append(Task(name, copier, body, (source,), writes=(name,), values=(name,)))
            continue
        outputs = tuple(
            name
            for i in group
            for name in units[i].outputs
            if name in graph.outputs or readers.get(name, set()) - inside
        )
        parts = [node for i in group for node in units[i].parts]
        body, reads = kernel_of(graph, parts, outputs, recipes)
        if first.is_copy and len(group) == 1:
            body = Kernel(body.operands, (), (0,))
        way = first.backend, first.algorithm
        made = Task(outputs[0], way[0], body, reads, writes=outputs, algorithm=way[1])
        values = tuple(name for i in group for name in units[i].outputs)
        space = max(map(workspace_of, parts))
        tasks.append(
            replace(made, workspace_bytes=space, precision=precision_of(parts[0]), values=values)
        )
    return tasks


def copy_of(graph: Graph, name: str, recipes: Mapping[str, Recipe]) -> Kernel:
    return Kernel((Operand(graph.static_type(name), name in recipes),), (), (0,))


def _copier(unit: FusionGroup) -> str:
    """Return the backend that copies an operand into a Concat."""
    return unit.backend if record_of(unit.backend).copies else fallback()


def edges_of(nodes: Sequence[Node], tasks: Sequence[Task], views: Views) -> list[tuple[int, int]]:
    """Return pairs of tasks (first, second) where the second reads a result of the first.

    Reads through views count as reads of the values behind them.
    """
    writers: dict[str, tuple[int, ...]] = {
        name: (number,) for number, task in enumerate(tasks) for name in task.writes
    }
    for node in nodes:
        if node.output not in views.nodes:
            continue
        parts = [
            views.copies.get((node.output, number), name) for number, name in enumerate(node.inputs)
        ]
        found = (one for name in parts for one in writers.get(name, ()))
        writers[node.output] = tuple(dict.fromkeys(found))
    return sorted(
        {
            (writer, number)
            for number, task in enumerate(tasks)
            for name in task.reads
            for writer in writers.get(name, ())
        }
    )
