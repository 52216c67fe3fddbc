"""What an extraction chose, as who runs which node of the graph: backend, algorithm, launch, form.

A kernel that was chosen is one launch, whatever operators it has. Where it wants a value in another
layout than it was made in, a copy stands before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import SPLIT
from eqsat_opt.ir.values.forms import PLAIN, Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.launching import takes_views
from eqsat_opt.runtime.backends.protocol import DEFAULT, Implementation
from eqsat_opt.select.choosing.forms import MadeValue, Placed
from eqsat_opt.select.rebuilding.raising import Raised
from eqsat_opt.select.tiling.candidates import Selected

__all__ = ["Assigned", "PlacedGraph", "Way", "assigned"]


@dataclass(frozen=True)
class PlacedGraph:
    """A graph with the kernels that were chosen for it.

    Attributes:
        raised: the graph.
        placed: what was chosen.
        interface: the form of inputs and outputs.
    """

    raised: Raised
    placed: Placed
    interface: Form = PLAIN

    @property
    def graph(self) -> Graph:
        """Itself."""
        return self.raised.graph


@dataclass(frozen=True)
class Assigned:
    """Who runs each node of a graph.

    Attributes:
        graph: with a copy of each value for each layout in which it is wanted and was not made.
        backend_of, algorithm_of: by node.
        workspace_of: by node, bytes that the kernel needs beside operands and results.
        precision_of: by node, in which it multiplies.
        is_strided: by node, whether what runs it takes views.
        unit_of: nodes of one number are one launch.
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
"""The backend of plans and the algorithm of what runs a kernel."""


def assigned(one: PlacedGraph, fallback: Callable[[Node], str], way: Way) -> Assigned:
    """Who runs what, as it was chosen.

    Of a value that was made in several layouts, each by a kernel of its own, the first is made and
    the others are copies of it. Spaces of one layout share memory: a session reads and writes where
    the plan says.

    Args:
        one: the graph and what was chosen.
        fallback: who runs copies, and nodes that no kernel was chosen for.
        way: what plans call who runs a kernel, and how.
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
        """The value in a layout."""
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
            if node.op != SPLIT:  # whose parts may be views, each by itself
                units.update(dict.fromkeys(node.outputs, unit.cls))
    outputs = tuple(wanted(name, one.interface.layout) for name in graph.outputs)

    def way_of(node: Node) -> tuple[str, str, bool]:
        if node.output in runs:
            return runs[node.output]
        backend = fallback(node)
        return backend, DEFAULT.algorithm, takes_views(backend)

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
    """What runs a kernel: of one with several results that is another class."""
    made = first.get(cls)
    if made is not None and made.run.candidate.kind == "part":
        return first.get(made.run.candidate.reads[0])
    return made


def _layouts_read(unit: MadeValue, interface: Form) -> dict[int, str]:
    """The layouts that a kernel wants, by the classes that it reads."""
    operands, reads = unit.run.candidate.operands, unit.run.implementation.reads
    pairs = zip(operands, reads or (interface,) * len(operands), strict=True)
    return {ref.cls: form.layout for ref, form in pairs}
