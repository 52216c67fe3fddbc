"""From a selection back to a graph.

Values keep their names where the model had one; constants are folded lazily, by handles that
compute on load; every new node records the rules that made it.
"""

from __future__ import annotations

from typing import Any

from eqsat_opt.egraph import EClasses, Lowered
from eqsat_opt.ir.graph import Attrs, Constant, Graph, Node, attributes
from eqsat_opt.ir.kernel import Step
from eqsat_opt.ir.onnx_export import SPLIT
from eqsat_opt.ir.onnx_import import identity_node
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.types import ValueType
from eqsat_opt.select.candidates import Candidate, OperandRef, Selection
from eqsat_opt.select.constants import Constants, reshaped
from eqsat_opt.select.ordering import execution_order

__all__ = ["raise_graph", "rules_used"]


class _Raiser:
    """Builds the graph of one selection."""

    def __init__(self, lowered: Lowered, eclasses: EClasses, selection: Selection) -> None:
        self.lowered = lowered
        self.eclasses = eclasses
        self.selection = selection
        self.graph = lowered.graph
        self.constants = Constants(lowered, eclasses)
        self.used_constants: dict[str, Constant] = {}
        self.constant_names: dict[OperandRef, str] = {}
        self.taken = {*self.graph.types}
        self.types: dict[str, ValueType] = {
            name: self.graph.types[name] for name in self.graph.inputs
        }
        self.nodes: list[Node] = []
        self.name_of: dict[int, str] = {}
        self.kept: set[str] = set()
        self.parts: dict[tuple[int, int], str] = {}
        self.preferred = self._preferred_names()
        self.sources = self._sources()

    # Names ----------------------------------------------------------------------------------------

    def _preferred_names(self) -> dict[int, str]:
        """Class to the name that it should keep: pinned values first, then any of the model's."""
        names: dict[int, str] = {}
        pinned = self.graph.pinned
        ordered = sorted(self.lowered.value, key=lambda n: n not in pinned)
        for name in ordered:
            if name in self.graph.types and name not in self.graph.constants:
                names.setdefault(int(self.eclasses.term_class[self.lowered.value[name]]), name)
        return names

    def _sources(self) -> dict[tuple[str, Attrs, tuple[int, ...]], tuple[str, ...]]:
        """E-nodes of the model to the names of their ONNX nodes."""
        classes = self.eclasses.term_class
        return {
            (term.op, term.attrs, tuple(int(classes[c]) for c in term.children)): term.sources
            for term in reversed(self.lowered.terms)
        }

    def fresh(self, base: str) -> str:
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        return name

    def define(self, cls: int, hint: str) -> str:
        name = self.preferred.get(cls)
        if name is None or name in self.types:
            name = self.fresh(f"eqsat_{hint}_{cls}")
        self.name_of[cls] = name
        if cls < self.eclasses.n_classes:
            self.types[name] = self.eclasses.types[cls]
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
                    own, handle = None, reshaped(handle, ref.shape)
            name = (
                own
                if own in self.graph.constants
                else self.fresh(own or f"eqsat_constant_{ref.cls}")
            )
            assert name is not None
            self.used_constants[name] = handle
            self.types[name] = handle.type
            self.constant_names[ref] = name
        return self.constant_names[ref]

    def _unshaped(self, own: str | None, shape: tuple[int, ...]) -> str | None:
        """The model's constant that lowering only reshaped, so that it leaves as it came."""
        base = self.lowered.view_of.get(own or "", "")
        if base in self.graph.constants and self.graph.constants[base].type.shape == shape:
            return base
        return None

    # Nodes ----------------------------------------------------------------------------------------

    def emit(self, cls: int) -> None:
        item = self.selection[cls].candidate
        match item.kind:
            case "leaf":
                index = int(self.eclasses.attrs[item.nodes[0]][0][1])  # type: ignore[arg-type]
                self.name_of[cls] = self.lowered.leaf_names[index]
            case "const":
                pass
            case "opaque":
                self._opaque(item)
            case "out":
                pass
            case "split":
                self._split(item)
            case "part":
                self.name_of[cls] = self.parts[(item.reads[0], item.index)]
                self.types[self.name_of[cls]] = self.eclasses.types[cls]
            case _:
                steps = self.selection[cls].implementation.steps
                if steps is None:
                    self._kernel(item)
                else:
                    self._implementation(item, steps)

    def _opaque(self, item: Candidate) -> None:
        node = self.lowered.opaque[int(self.eclasses.attrs[item.nodes[0]][0][1])]  # type: ignore[arg-type]
        children = iter(self.eclasses.children(item.nodes[0]))
        inputs = tuple(
            self.operand(OperandRef(next(children))) if name else "" for name in node.inputs
        )
        for name, cls in zip(filter(None, node.captures), children, strict=True):
            self._keep_name(name, cls)
        self.nodes.append(
            Node(
                node.op,
                inputs,
                node.outputs,
                node.attrs,
                node.name,
                node.sources,
                node.rules,
                node.captures,
                node.payload,
            )
        )
        for name in node.outputs:
            if name:
                cls = int(self.eclasses.term_class[self.lowered.value[name]])
                self.types[name] = self.graph.types[name]
                self.name_of[cls] = name

    def _keep_name(self, name: str, cls: int) -> None:
        """Let ``name``, which a subgraph reads, stand for ``cls``, whatever else does."""
        found = self.operand(OperandRef(cls))
        if name == found or name in self.types:
            return
        self.types[name] = self.graph.types[name]
        self.kept.add(name)
        if name in self.graph.constants:
            self.used_constants[name] = self.graph.constants[name]
        else:
            self.nodes.append(identity_node(found, name))

    def _split(self, item: Candidate) -> None:
        parts: list[dict[str, Any]] = [dict(step.attrs) for step in item.steps]
        outputs = []
        for index, node in enumerate(item.nodes):
            cls = int(self.eclasses.class_of[node])
            wanted = self.selection.get(cls)
            is_ours = (
                wanted is not None
                and wanted.candidate.kind == "part"
                and wanted.candidate.reads == (item.cls,)
                and wanted.candidate.index == index
            )
            name = self.define(cls, "part") if is_ours else self.fresh(f"eqsat_part_{cls}")
            self.types[name] = self.eclasses.types[cls]
            self.parts[(item.cls, index)] = name
            outputs.append(name)
        sizes = tuple(p["hi"] - p["lo"] for p in parts)
        attrs = attributes(axis=parts[0]["axis"], sizes=sizes)
        rules = self._rules(item.nodes)
        self.nodes.append(
            Node(SPLIT, (self.operand(item.operands[0]),), tuple(outputs), attrs, rules=rules)
        )

    def _rules(self, nodes: tuple[int, ...]) -> tuple[str, ...]:
        found = (self.eclasses.rule_of(node) for node in nodes)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _kernel(self, item: Candidate) -> None:
        names = [self.operand(ref) for ref in item.operands]
        # Steps may be fewer than nodes where a step absorbs several, such as a bias.
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
                free = own is not None and own not in self.types and cls not in self.selection
                name = own if free and own is not None else self.fresh(f"eqsat_{step.op}_{cls}")
                self.types[name] = self.eclasses.types[cls]
            sources = tuple(dict.fromkeys(s for n in nodes for s in self._source_of(n)))
            own_name = sources[0] if sources and not self._rules(nodes) else ""
            self.nodes.append(
                Node(
                    step.op,
                    tuple(names[j] for j in step.operands),
                    (name,),
                    step.attrs,
                    own_name,
                    sources,
                    self._rules(nodes),
                )
            )
            names.append(name)

    def _implementation(self, item: Candidate, steps: tuple[Step, ...]) -> None:
        """The steps of a backend in place of the kernel's own; nothing in between has a name."""
        names = [self.operand(ref) for ref in item.operands]
        for step in steps:
            operands = tuple(names[j] for j in step.operands)
            if step is steps[-1]:
                name = self.define(item.cls, step.op)
            else:
                name = self.fresh(f"eqsat_{step.op}_{item.cls}")
                types: list[Any] = [self.types[one] for one in operands]
                self.types[name] = get_op(step.op).type_fn(types, dict(step.attrs))
            sources = tuple(dict.fromkeys(s for n in item.nodes for s in self._source_of(n)))
            self.nodes.append(
                Node(
                    op=step.op,
                    inputs=operands,
                    outputs=(name,),
                    attrs=step.attrs,
                    sources=sources,
                    rules=self._rules(item.nodes),
                )
            )
            names.append(name)

    def _source_of(self, node: int) -> tuple[str, ...]:
        eclasses = self.eclasses
        return self.sources.get(
            (eclasses.op[node], eclasses.attrs[node], eclasses.children(node)), ()
        )

    def graph_of(self) -> Graph:
        for cls in execution_order(self.selection):
            self.emit(cls)
        outputs = []
        for name in self.graph.outputs:
            cls = int(self.eclasses.term_class[self.lowered.value[name]])
            outputs.append(name if name in self.kept else self.operand(OperandRef(cls)))
        raised = Graph(
            self.graph.inputs,
            tuple(outputs),
            tuple(self.nodes),
            self.used_constants,
            self.types,
            self.graph.model,
        )
        return raised.with_nodes(tuple(raised.live_nodes()))


def raise_graph(lowered: Lowered, eclasses: EClasses, selection: Selection) -> Graph:
    """The graph of ``selection``; its outputs stand in interface order, whatever their names."""
    return _Raiser(lowered, eclasses, selection).graph_of()


def rules_used(graph: Graph) -> dict[str, int]:
    """Rule name to the number of nodes of ``graph`` that it made."""
    counts: dict[str, int] = {}
    for node in graph.nodes:
        for rule in node.rules:
            counts[rule] = counts.get(rule, 0) + 1
    return dict(sorted(counts.items()))
