"""From a selection back to a graph.

Values keep their names where the model had one; constants are folded lazily, by handles that
compute on load; every new node records the rules that made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eqsat_opt.egraph import EClasses, Lowered
from eqsat_opt.ir.graph.broadcasting import result_type
from eqsat_opt.ir.graph.graph import Attrs, Graph, Node, attributes, index_of
from eqsat_opt.ir.graph.kernel import Step
from eqsat_opt.ir.onnx.exporter import SPLIT
from eqsat_opt.ir.passes.rebuild import GraphWriter
from eqsat_opt.select.choosing.ordering import execution_order
from eqsat_opt.select.rebuilding.constants import Constants, in_shape
from eqsat_opt.select.tiling.candidates import OUTPUTS, Candidate, OperandRef, Selection

__all__ = ["Raised", "raise_graph", "raised", "rules_used"]


@dataclass(frozen=True)
class Raised:
    """A graph, and the classes that it was made from.

    Attributes:
        graph: the graph of a selection.
        kernel_of: for each output of a node the class of the kernel that the node is part of.
        class_of: the class of each value; values inside a kernel have none.
    """

    graph: Graph
    kernel_of: Mapping[str, int]
    class_of: Mapping[str, int]


class _Raiser:
    """Builder of the graph of one selection."""

    def __init__(self, constants: Constants, selection: Selection) -> None:
        self.lowered = lowered = constants.lowered
        self.eclasses = eclasses = constants.eclasses
        self.selection = selection
        self.graph = lowered.graph
        self.constants = constants
        self.constant_names: dict[OperandRef, str] = {}
        self.writer = GraphWriter(lowered.graph)
        self.name_of: dict[int, str] = {}
        self.parts: dict[tuple[int, int], str] = {}
        classes = eclasses.term_class
        self.preferred = self.writer.preferred(
            {n: int(classes[t]) for n, t in lowered.value.items()}
        )
        self.sources = self._sources()

    def _sources(self) -> dict[tuple[str, Attrs, tuple[int, ...]], tuple[str, ...]]:
        """Return the names of the ONNX nodes of each e-node of the model."""
        classes = self.eclasses.term_class
        return {
            (term.op, term.attrs, tuple(int(classes[c]) for c in term.children)): term.sources
            for term in reversed(self.lowered.terms)
        }

    def define(self, cls: int, hint: str) -> str:
        name = self.preferred.get(cls)
        if name is None or name in self.writer.types:
            name = self.writer.fresh(f"eqsat_{hint}_{cls}")
        self.name_of[cls] = name
        return name

    # Operands -------------------------------------------------------------------------------------

    def operand(self, ref: OperandRef) -> str:
        if not self.eclasses.is_const[ref.cls]:
            return self.name_of[ref.cls]
        if ref not in self.constant_names:
            handle = self.constants.handle(ref.cls)
            own = self.constants.names.get(ref.cls)
            if ref.shape is not None and ref.shape != handle.type.shape:
                base = self._unshaped(own, ref.shape)
                if base is not None:
                    own, handle = base, self.graph.constants[base]
                else:
                    own, handle = None, in_shape(handle, ref.shape)
            name = own or f"eqsat_constant_{ref.cls}"
            if own not in self.graph.constants:
                name = self.writer.fresh(name)
            self.writer.constant(name, handle)
            self.constant_names[ref] = name
        return self.constant_names[ref]

    def _unshaped(self, own: str | None, shape: tuple[int, ...]) -> str | None:
        """Return the model's constant that lowering only reshaped, so that it stays as it was."""
        base = self.lowered.view_of.get(own or "", "")
        if base in self.graph.constants and self.graph.constants[base].type.shape == shape:
            return base
        return None

    # Nodes ----------------------------------------------------------------------------------------

    def emit(self, cls: int) -> None:
        item = self.selection[cls].candidate
        match item.kind:
            case "leaf":
                index = index_of(self.eclasses.attrs[item.nodes[0]])
                self.name_of[cls] = self.lowered.leaf_names[index]
            case "const" | "made" | "out" | "outputs":
                pass
            case "opaque":
                self._opaque(item)
            case "split":
                self._split(item)
            case "part":
                self._part(item)
            case _:
                steps = self.selection[cls].implementation.steps
                if steps is None:
                    self._kernel(item)
                else:
                    self._implementation(item, steps)

    def _opaque(self, item: Candidate) -> None:
        node = self.lowered.opaque[index_of(self.eclasses.attrs[item.nodes[0]])]
        operands = [self.operand(OperandRef(c)) for c in self.eclasses.children(item.nodes[0])]
        own = sum(map(bool, node.inputs))
        self.writer.opaque(node, operands[:own], operands[own:])
        for name in filter(None, node.outputs):
            self.name_of[int(self.eclasses.term_class[self.lowered.value[name]])] = name

    def _split(self, item: Candidate) -> None:
        parts: list[dict[str, Any]] = [dict(step.attrs) for step in item.steps]
        classes = [int(self.eclasses.class_of[node]) for node in item.nodes]
        outputs = []
        for index, cls in enumerate(classes):
            wanted = self.selection.get(cls)
            is_ours = (
                wanted is not None
                and wanted.candidate.kind == "part"
                and wanted.candidate.reads == (item.cls,)
                and wanted.candidate.index == index
            )
            name = self.define(cls, "part") if is_ours else self.writer.fresh(f"eqsat_part_{cls}")
            self.parts[(item.cls, index)] = name
            outputs.append(name)
        sizes = tuple(p["hi"] - p["lo"] for p in parts)
        node = Node(
            op=SPLIT,
            inputs=(self.operand(item.operands[0]),),
            outputs=tuple(outputs),
            attrs=attributes(axis=parts[0]["axis"], sizes=sizes),
            rules=self._rules(item.nodes),
        )
        self.writer.node(node, *(self.eclasses.types[cls] for cls in classes))

    def _part(self, item: Candidate) -> None:
        """Add one of several results; outputs of an application are nodes that the export joins."""
        whole = self.selection[item.reads[0]].candidate
        if whole.kind == OUTPUTS:
            steps = (whole.steps[item.index],)
            self._kernel(replace(item, operands=whole.operands, steps=steps))
        else:
            self.name_of[item.cls] = self.parts[(whole.cls, item.index)]

    def _rules(self, nodes: tuple[int, ...]) -> tuple[str, ...]:
        found = (self.eclasses.rule_of(node) for node in nodes)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _kernel(self, item: Candidate) -> None:
        names = [self.operand(ref) for ref in item.operands]
        # There may be fewer steps than nodes where a step absorbs several, such as a bias.
        absorbed = len(item.nodes) - len(item.steps)
        for i, step in enumerate(item.steps):
            nodes = item.nodes[: absorbed + 1] if i == 0 else (item.nodes[absorbed + i],)
            if item.kind == "concat":
                nodes = item.nodes
            last = i == len(item.steps) - 1
            cls = int(self.eclasses.class_of[nodes[-1]])
            if last:
                name = self.define(item.cls, step.op)
            else:
                own = self.preferred.get(cls)
                if own is None or own in self.writer.types or cls in self.selection:
                    own = self.writer.fresh(f"eqsat_{step.op}_{cls}")
                name = own
            sources = tuple(dict.fromkeys(s for n in nodes for s in self._source_of(n)))
            rules = self._rules(nodes)
            node = Node(
                op=step.op,
                inputs=tuple(names[j] for j in step.operands),
                outputs=(name,),
                attrs=step.attrs,
                name=sources[0] if sources and not rules else "",
                sources=sources,
                rules=rules,
            )
            self.writer.node(node, self.eclasses.types[item.cls if last else cls])
            names.append(name)

    def _implementation(self, item: Candidate, steps: tuple[Step, ...]) -> None:
        """Add the steps of a backend in place of the kernel's own, with fresh names in between."""
        names = [self.operand(ref) for ref in item.operands]
        sources = tuple(dict.fromkeys(s for n in item.nodes for s in self._source_of(n)))
        for step in steps:
            operands = tuple(names[j] for j in step.operands)
            if step is steps[-1]:
                name, type_ = self.define(item.cls, step.op), self.eclasses.types[item.cls]
            else:
                name = self.writer.fresh(f"eqsat_{step.op}_{item.cls}")
                types: list[Any] = [self.writer.types[one] for one in operands]
                type_ = result_type(step.op, types, dict(step.attrs))
            node = Node(
                op=step.op,
                inputs=operands,
                outputs=(name,),
                attrs=step.attrs,
                sources=sources,
                rules=self._rules(item.nodes),
            )
            self.writer.node(node, type_)
            names.append(name)

    def _source_of(self, node: int) -> tuple[str, ...]:
        eclasses = self.eclasses
        return self.sources.get(
            (eclasses.op[node], eclasses.attrs[node], eclasses.children(node)), ()
        )

    def raised(self) -> Raised:
        kernel_of: dict[str, int] = {}
        for cls in execution_order(self.selection):
            begin = len(self.writer.nodes)
            self.emit(cls)
            for node in self.writer.nodes[begin:]:
                kernel_of.update(dict.fromkeys(node.outputs, cls))
        values = (self.lowered.value[name] for name in self.graph.outputs)
        classes = [int(self.eclasses.term_class[value]) for value in values]
        graph = self.writer.graph([self.operand(OperandRef(cls)) for cls in classes])
        return Raised(graph, kernel_of, {name: cls for cls, name in self.name_of.items()})


def raise_graph(
    lowered: Lowered,
    eclasses: EClasses,
    selection: Selection,
    constants: Constants | None = None,
) -> Graph:
    """Return only the graph of ``selection``; see `raised`."""
    return raised(lowered, eclasses, selection, constants).graph


def raised(
    lowered: Lowered,
    eclasses: EClasses,
    selection: Selection,
    constants: Constants | None = None,
) -> Raised:
    """Return the graph of ``selection``, with outputs in interface order, whatever their names.

    Args:
        lowered: the model.
        eclasses: its e-graph.
        selection: the selection of kernels.
        constants: constants of this e-graph, as far as they are folded already.
    """
    return _Raiser(constants or Constants(lowered, eclasses), selection).raised()


def rules_used(graph: Graph) -> dict[str, int]:
    """Return for each rule the number of nodes of ``graph`` that it made."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        for rule in node.rules:
            counts[rule] = counts.get(rule, 0) + 1
    return dict(sorted(counts.items()))
