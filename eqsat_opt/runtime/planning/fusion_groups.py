"""Units of launching: single nodes, and regions that one generated kernel computes.

Regions are maximal, like those of models; see `eqsat_opt.runtime.backends.generated.regions`.
Slices and transpositions that only regions read get no unit, because the kernels index through
them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.ops import get_op
from eqsat_opt.runtime.backends.generated.regions import regions
from eqsat_opt.runtime.backends.record import BackendRecord
from eqsat_opt.runtime.backends.registry import fallback, record_of

__all__ = ["FusionGroup", "find_units", "is_able", "is_in_session"]

_LOOSE = frozenset({"pointwise", "movement"})
"""Kinds of operators that join any neighbours in a region, whatever kernels were chosen."""


@dataclass(frozen=True)
class FusionGroup:
    """Nodes that are always launched together.

    Attributes:
        parts: its nodes, in order.
        outputs: values that other units or the graph's outputs need.
        backend, algorithm: the backend that runs it, and the algorithm of that backend.
        is_strided: whether the values that it reads and writes may be views.
    """

    parts: tuple[Node, ...]
    outputs: tuple[str, ...]
    backend: str
    algorithm: str
    is_strided: bool

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Values that it reads from outside."""
        made = {node.output for node in self.parts}
        return tuple(dict.fromkeys(n for p in self.parts for n in p.inputs if n not in made))

    @property
    def is_copy(self) -> bool:
        """Whether it only copies a value, perhaps to another layout, by a Transpose."""
        (first, *others) = self.parts
        axes = first.attr("perm") if first.op == "Transpose" else None
        return not others and not is_in_session(self) and axes == tuple(sorted(axes or ()))


def is_in_session(unit: FusionGroup) -> bool:
    """Return whether a unit may share a session with neighbours of its backend."""
    return record_of(unit.backend).runs_models


def find_units(
    graph: Graph,
    nodes: Sequence[Node],
    backends: Sequence[str],
    algorithms: Sequence[str],
    *,
    strided: Sequence[bool],
    together: Sequence[int | None] = (),
    joins: bool = False,
    constants: Container[str] = (),
) -> list[FusionGroup]:
    """Return the units of a graph that some output needs, each after those that it reads.

    Args:
        graph: a graph of literal sizes.
        nodes: its nodes that are not constant, in order.
        backends: by node, its backend.
        algorithms: by node, its algorithm.
        strided: by node, whether the kernel that runs it takes views.
        together: by node, the number of its unit. ``None``, the default for all, leaves the node
            alone, or in a region that its backend forms with its neighbours.
        joins: whether elementwise kernels of a device that is modelled join their neighbours, as
            generated kernels do.
        constants: values that are known when the plan is loaded.
    """
    by_output = {node.output: i for i, node in enumerate(nodes)}
    in_region: set[int] = set()
    units: list[tuple[int, FusionGroup]] = []  # with the number of the last node
    fused = _fused(graph, nodes, backends, together, joins=joins)
    loose = ["" if i in fused else backend for i, backend in enumerate(backends)]
    for record, allowed in _generators(nodes, loose):
        for parts, views, outputs in _regions(graph, nodes, allowed):
            if not record.is_on_host:
                parts, outputs = _written_in_place(graph, nodes, parts, outputs, strided=strided)
            chosen = sorted(by_output[name] for name in {*parts, *views})
            unit = FusionGroup(
                tuple(nodes[i] for i in chosen),
                outputs,
                record.name,
                "default",
                is_strided=all(strided[by_output[name]] for name in parts),
            )
            if not record.is_on_host and not record.can_generate(graph, unit.parts, outputs):
                continue
            in_region.update(by_output[name] for name in parts)
            units.append((chosen[-1], unit))
    left: list[tuple[int, FusionGroup]] = []
    for i, node in enumerate(nodes):
        if i not in in_region:
            backend, algorithm, is_strided = backends[i], algorithms[i], strided[i]
            if i not in fused and not is_able(graph, node, backend, constants):
                backend, algorithm = fallback(), "default"
                is_strided = record_of(backend).takes_views
            unit = FusionGroup((node,), (node.output,), backend, algorithm, is_strided=is_strided)
            left.append((i, unit))
    if together:
        number_of = [
            None if _regroups(backends[i]) and i not in fused else one
            for i, one in enumerate(together)
        ]
        left = list(_joined(graph, left, number_of, nodes))
    units += left
    return _needed([unit for _, unit in sorted(units, key=lambda one: one[0])], graph.outputs)


def _fused(
    graph: Graph,
    nodes: Sequence[Node],
    backends: Sequence[str],
    together: Sequence[int | None],
    *,
    joins: bool,
) -> frozenset[int]:
    """Return the nodes of kernels that stay as they were chosen.

    They are those that contain a reduction or a window, of the backends whose kernels join others.
    """
    groups: dict[int, list[int]] = {}
    found: set[int] = set()
    for i, number in enumerate(together):
        is_modelled = record_of(backends[i]).is_modelled
        if is_modelled and not joins:
            found.add(i)
        elif number is not None and (is_modelled or _regroups(backends[i])):
            groups.setdefault(number, []).append(i)
    for group in groups.values():
        parts = [nodes[i] for i in group]
        if len(group) > 1 and not all(get_op(one.op).kind in _LOOSE for one in parts):
            outputs = _read_outside(group, nodes, graph.outputs)
            record = record_of(backends[group[0]])
            if outputs and record.can_generate(graph, parts, outputs):
                found.update(group)
    return frozenset(found)


def _read_outside(
    group: Sequence[int], nodes: Sequence[Node], outputs: Sequence[str]
) -> tuple[str, ...]:
    """Return the results of a group of nodes that other nodes or the graph's outputs read."""
    inside = set(group)
    read = {n for i, node in enumerate(nodes) if i not in inside for n in node.inputs}
    read.update(outputs)
    return tuple(nodes[i].output for i in group if nodes[i].output in read)


def _joined(
    graph: Graph,
    units: Sequence[tuple[int, FusionGroup]],
    together: Sequence[int | None],
    nodes: Sequence[Node],
) -> Iterator[tuple[int, FusionGroup]]:
    """Yield units of one node, merged where one number, backend and algorithm join them."""
    groups: dict[object, list[tuple[int, FusionGroup]]] = {}
    for i, unit in units:
        number = together[i]
        groups.setdefault(("alone", i) if number is None else number, []).append((i, unit))
    for group in groups.values():
        if len({(unit.backend, unit.algorithm) for _, unit in group}) > 1:
            yield from group
            continue
        made = _read_outside([i for i, _ in group], nodes, graph.outputs) or group[-1][1].outputs
        last, one = group[-1]
        parts = tuple(part for _, unit in group for part in unit.parts)
        record = record_of(one.backend)
        is_checked = not record.is_on_host and record.generates
        if is_checked and not record.can_generate(graph, parts, made):
            yield from group
            continue
        is_strided = all(unit.is_strided for _, unit in group)
        yield last, replace(one, parts=parts, outputs=made, is_strided=is_strided)


def _regroups(backend: str) -> bool:
    """Return whether a backend generates kernels for the host.

    There, neighbours without a reduction or a window form regions whatever kernels were chosen.
    """
    record = record_of(backend)
    return record.generates is not None and record.is_on_host


def _generators(
    nodes: Sequence[Node], backends: Sequence[str]
) -> Iterator[tuple[BackendRecord, frozenset[str]]]:
    """Yield backends that generate kernels of regions, with the outputs of the nodes they allow.

    On a GPU, a Concat of results of kernels of other kinds, or of parts of such results, stays
    outside of regions: those kernels write into its memory directly, and nothing is copied.
    """
    for record in map(record_of, dict.fromkeys(backends)):
        if record.generates is None:
            continue
        own = {n.output for n, by in zip(nodes, backends, strict=True) if by == record.name}
        if not record.is_on_host:
            own -= _written_by_others(nodes, own)
        if own:
            yield record, frozenset(own)


def _written_by_others(nodes: Sequence[Node], own: Container[str]) -> set[str]:
    """Return the Concats that kernels outside of regions write into.

    A slice of a result can be written in place only if it is the first or last operand of the
    Concat. A slice elsewhere is copied in any case, so the kernel of its neighbours copies it.
    """
    concats: set[str] = set()
    others: set[str] = set()
    parts: set[str] = set()
    for node in nodes:
        if node.op == "Slice" and (node.inputs[0] in others or node.inputs[0] in parts):
            parts.add(node.output)
        ends = (node.inputs[0], node.inputs[-1]) if node.op == "Concat" else ()
        if node.op == "Concat" and not (others.isdisjoint(node.inputs) and parts.isdisjoint(ends)):
            concats.add(node.output)
        is_own = node.output in own and _is_chain(node)
        if node.output in concats or not is_own:
            others.add(node.output)
    return concats


def _written_in_place(
    graph: Graph,
    nodes: Sequence[Node],
    parts: tuple[str, ...],
    outputs: tuple[str, ...],
    strided: Sequence[bool],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a region and its outputs without the Concats of its results that become views.

    A kernel that writes the operands of a Concat to their places, as separate results, needs no
    choice between operands in each thread, and other kernels can write their operands in place as
    well. Results of different extents need a kernel each, which pays only where an operand from
    outside would be copied otherwise.
    """
    by_output = {node.output: i for i, node in enumerate(nodes)}
    inside = set(parts)
    for name in outputs:
        concat = nodes[by_output[name]]
        if concat.op != "Concat" or any(name in nodes[by_output[one]].inputs for one in inside):
            continue
        own = [one for one in concat.inputs if one in inside]
        others = [one for one in concat.inputs if one not in inside]
        is_free = len(set(concat.inputs)) == len(concat.inputs) and all(
            one in by_output
            and strided[by_output[one]]
            and nodes[by_output[one]].op not in ("Slice", "Reshape", "Transpose")
            and sum(node.op == "Concat" and one in node.inputs for node in nodes) == 1
            for one in concat.inputs
        )
        shapes = {graph.types[one] for one in own}
        if own and is_free and (others or len(shapes) == 1):
            parts = tuple(one for one in parts if one != name)
            outputs = tuple(dict.fromkeys([*(one for one in outputs if one != name), *own]))
            inside.remove(name)
    return parts, outputs


def _is_chain(node: Node) -> bool:
    """Return whether regions admit the operator of a node."""
    return get_op(node.op).kind in ("pointwise", "movement")


def _regions(
    graph: Graph, nodes: Sequence[Node], allowed: Container[str]
) -> Iterator[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]:
    """Yield regions: their nodes, the views that they read through, and their outputs."""
    made = {node.output for node in nodes}
    leaves = dict.fromkeys(n for node in nodes for n in node.inputs if n not in made)
    # Nodes are identified by their outputs, and constants are read like other inputs.
    named = tuple(replace(node, name="", sources=(node.output,)) for node in nodes)
    bare = replace(
        graph, inputs=tuple(leaves), nodes=named, constants={}, parameters=frozenset(), model=None
    )
    for region in regions(bare, allowed=allowed, fewest=1):
        yield region.nodes, region.views, region.outputs


def is_able(graph: Graph, node: Node, backend: str, constants: Container[str]) -> bool:
    """Return whether a backend has a kernel for a node; checks the backends with few operators."""
    record = record_of(backend)
    if record.generates:
        return record.can_generate(graph, (node,), (node.output,))
    if record.has_kernel is None:
        return True
    names = tuple(dict.fromkeys(node.inputs))  # a launch reads each value once
    types = [graph.tensor_type(name) for name in names]
    if None in types:
        return False
    operands = tuple(
        Operand(type_, name in constants)
        for name, type_ in zip(names, types, strict=True)
        if type_ is not None
    )
    step = Step(node.op, node.attrs, tuple(map(names.index, node.inputs)))
    return bool(record.has_kernel(Kernel(operands, (step,), (len(operands),))))


def _needed(units: Sequence[FusionGroup], outputs: Sequence[str]) -> list[FusionGroup]:
    """Return the units that outputs need, in an order in which they can run."""
    producer = {name: i for i, unit in enumerate(units) for name in unit.outputs}
    above = [[producer[n] for n in unit.reads if n in producer] for unit in units]
    needed: set[int] = set()
    stack = [producer[name] for name in outputs if name in producer]
    while stack:
        if (i := stack.pop()) not in needed:
            needed.add(i)
            stack += above[i]
    done: dict[int, FusionGroup] = {}
    for start in sorted(needed):
        stack = [start]
        while stack:
            i = stack[-1]
            missing = [one for one in above[i] if one not in done]
            if i in done or not missing:
                done.setdefault(stack.pop(), units[i])
            else:
                stack += missing
    return list(done.values())
