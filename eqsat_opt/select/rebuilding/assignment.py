"""The choice of an extraction by nodes of the graph: backend, algorithm, launch and form of each.

A chosen kernel is one launch, whatever operators it has. Where it needs a value in another layout
than it was made in, a copy precedes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import SPLIT
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import DEFAULT, Implementation
from eqsat_opt.runtime.backends.registry import record_of
from eqsat_opt.select.choosing.forms import MadeValue, Placed
from eqsat_opt.select.rebuilding.raising import Raised
from eqsat_opt.select.tiling.candidates import Selected

__all__ = ["Assigned", "PlacedGraph", "Way", "assigned"]


@dataclass(frozen=True)
class PlacedGraph:
    """A graph with the kernels that were chosen for it.

    Attributes:
        raised: the graph.
        placed: the chosen kernels and conversions.
        interface: the form of inputs and outputs.
    """

    raised: Raised
    placed: Placed
    interface: Form = PLAIN

    @property
    def graph(self) -> Graph:
        """The graph itself."""
        return self.raised.graph


@dataclass(frozen=True)
class Assigned:
    """Backend, algorithm, launch and form of each node of a graph.

    Attributes:
        graph: the graph, with a copy of each value for each layout in which it is needed but was
            not made.
        backend_of, algorithm_of: backend and algorithm of a node.
        workspace_of: bytes that the kernel of a node needs in addition to operands and results.
        precision_of: precision in which a node multiplies.
        is_strided: whether the kernel of a node takes views.
        unit_of: number of the launch of a node; nodes with equal numbers are one launch.
        form_of: the form of a value.
    """

    graph: Graph
    backend_of: Callable[[Node], str]
    algorithm_of: Callable[[Node], str]
    workspace_of: Callable[[Node], int]
    precision_of: Callable[[Node], Precision]
    is_strided: Callable[[Node], bool]
    unit_of: Callable[[Node], int | None]
    form_of: Callable[[str], Form]


Way = Callable[[Selected], tuple[str, str]]
"""Function that returns the backend and the algorithm in plans of a selected kernel."""


def assigned(one: PlacedGraph, fallback: Callable[[Node], str], way: Way) -> Assigned:
    """Assign nodes to backends, algorithms, launches and forms, as they were chosen.

    If a value was made in several layouts, each by a kernel of its own, the first one is made and
    the others are copies of it. Spaces of one layout share memory: a session reads and writes where
    the plan demands.

    Args:
        one: the graph and the choice.
        fallback: function that gives the backend of copies, and of nodes that no kernel was chosen
            for.
        way: function that gives the backend and the algorithm of a kernel in plans.
    """
    graph, kernel_of = one.graph, one.raised.kernel_of
    first: dict[int, MadeValue] = {}
    for made in one.placed:
        if isinstance(made, MadeValue):
            first.setdefault(made.cls, made)
    layouts = {
        name: first[cls].form.layout for name, cls in one.raised.class_of.items() if cls in first
    }
    units: dict[str, int] = {}
    runs: dict[str, tuple[str, str, bool]] = {}
    chosen: dict[str, Implementation] = {}
    nodes: list[Node] = []
    copies: dict[tuple[str, str], str] = {}
    types = dict(graph.types)

    def wanted(name: str, layout: str) -> str:
        """Return the name of the value in a layout; add a copy if there is none."""
        type_ = graph.tensor_type(name)
        if layout == layouts.get(name, layout) or not isinstance(type_, TensorType):
            return name
        if (name, layout) not in copies:
            copy = f"{name} {layout}"
            while copy in types:
                copy += "_"
            types[copy], layouts[copy], copies[name, layout] = type_, layout, copy
            stay = attributes(perm=tuple(range(type_.rank)))
            nodes.append(Node("Transpose", (name,), (copy,), stay, name=copy))
        return copies[name, layout]

    for node in graph.nodes:
        unit = _unit(first, kernel_of.get(node.outputs[0], -1))
        reads = {} if unit is None else _layouts_read(unit, one.interface)
        inputs = tuple(
            wanted(name, reads.get(one.raised.class_of.get(name, -1), layouts.get(name, "")))
            for name in node.inputs
        )
        nodes.append(replace(node, inputs=inputs))
        if unit is not None and unit.run.backend:
            how = *way(unit.run), unit.run.implementation.strided
            runs.update(dict.fromkeys(node.outputs, how))
            chosen.update(dict.fromkeys(node.outputs, unit.run.implementation))
            if node.op != SPLIT:  # its parts may be views, each by itself
                units.update(dict.fromkeys(node.outputs, unit.cls))
    outputs = tuple(wanted(name, one.interface.layout) for name in graph.outputs)

    def way_of(node: Node) -> tuple[str, str, bool]:
        if node.output in runs:
            return runs[node.output]
        backend = fallback(node)
        return backend, DEFAULT.algorithm, record_of(backend).takes_views

    return Assigned(
        graph=replace(graph, nodes=tuple(nodes), types=types, outputs=outputs),
        backend_of=lambda node: way_of(node)[0],
        algorithm_of=lambda node: way_of(node)[1],
        is_strided=lambda node: way_of(node)[2],
        workspace_of=lambda node: chosen.get(node.output, DEFAULT).workspace_bytes,
        precision_of=lambda node: Precision.of_peak(chosen.get(node.output, DEFAULT).precision),
        unit_of=lambda node: units.get(node.output),
        form_of=lambda name: Form(one.interface.space, layouts.get(name, one.interface.layout)),
    )


def _unit(first: Mapping[int, MadeValue], cls: int) -> MadeValue | None:
    """Return the value of the kernel that computes a class.

    For one of several results, it is that of the joint kernel's own class.
    """
    made = first.get(cls)
    if made is not None and made.run.candidate.kind == "part":
        return first.get(made.run.candidate.reads[0])
    return made


def _layouts_read(unit: MadeValue, interface: Form) -> dict[int, str]:
    """Return the layouts that a kernel needs, by the classes that it reads."""
    operands, reads = unit.run.candidate.operands, unit.run.implementation.reads
    pairs = zip(operands, reads or (interface,) * len(operands), strict=True)
    return {ref.cls: form.layout for ref, form in pairs}
