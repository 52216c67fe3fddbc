"""Names of the model for the numbers in a frozen e-graph, and the e-classes as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eqsat_opt.common.text_columns import aligned
from eqsat_opt.egraph.frozen import EClasses
from eqsat_opt.egraph.terms import LEAF, OUT, Lowered
from eqsat_opt.ir.graph.graph import OPAQUE, ValueKind, index_of
from eqsat_opt.ir.graph.values_json import attrs_text
from eqsat_opt.ir.values.types import ValueType

__all__ = ["Leaf", "Legend", "NamedEClasses", "OpaqueNode", "legend_of"]

_DIGEST = 8
"""Number of characters of a digest that distinguish the constants of one model."""

_FEW = 3
"""Greatest number of e-nodes of a class in a short text."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """An input or parameter of the model, or a handle on a constant: never the constant's bytes.

    Attributes:
        name: name of the value.
        type: type of the value.
        digest: digest of a constant: equal digests mean equal contents; ``None`` for an input.
        kind: whether its bytes are known when the model is compiled.
    """

    name: str
    type: ValueType
    digest: str | None = None
    kind: ValueKind = ValueKind.ACTIVATION

    def __str__(self) -> str:
        word = "input" if self.kind is ValueKind.ACTIVATION else self.kind
        return f"{word} {self.name}" + ("" if self.digest is None else f" {self.digest[:_DIGEST]}")


@dataclass(frozen=True, slots=True)
class OpaqueNode:
    """A node that the registry does not know.

    Attributes:
        op: the operator as the model calls it, with its domain where that is not ONNX's own.
        name: name of the node.
        outputs: names of its outputs; ``""`` for one that is not used.
    """

    op: str
    name: str
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Legend:
    """The names of leaves, opaque nodes and classes.

    Attributes:
        leaves: the leaves, by the index of the e-nodes ``Leaf``.
        opaque: the opaque nodes, by the index of the e-nodes ``Opaque``.
        names: name in the model of each class whose value has one.
        outputs: name and class of each output of the model, in their order.
    """

    leaves: tuple[Leaf, ...] = ()
    opaque: tuple[OpaqueNode, ...] = ()
    names: Mapping[int, str] = field(default_factory=dict)
    outputs: tuple[tuple[str, int], ...] = ()


def legend_of(lowered: Lowered, eclasses: EClasses) -> Legend:
    """Return the names that the loaded model gives to the leaves, nodes and classes."""
    graph, classes = lowered.graph, eclasses.term_class.tolist()
    types = {term.attrs[0][1]: term.type for term in lowered.terms if term.op == LEAF}
    leaves = []
    for index, name in enumerate(lowered.leaf_names):
        handle = lowered.constants.get(name)
        if handle is None:
            leaves.append(Leaf(name, types[index], kind=graph.kind(name)))
        else:
            leaves.append(Leaf(name, types[index], handle.digest, ValueKind.CONSTANT))
    opaque = []
    for node in lowered.opaque:
        domain = getattr(node.payload, "domain", "")
        op = str(getattr(node.payload, "op_type", node.op))
        opaque.append(OpaqueNode(f"{domain}.{op}" if domain else op, node.name, node.outputs))
    names: dict[int, str] = {}
    for name in sorted(lowered.value, key=lambda name: name not in graph.pinned):
        names.setdefault(classes[lowered.value[name]], name)
    outputs = tuple((name, classes[lowered.value[name]]) for name in graph.outputs)
    return Legend(tuple(leaves), tuple(opaque), dict(sorted(names.items())), outputs)


@dataclass(frozen=True)
class NamedEClasses:
    """The frozen e-graph with the meaning of its numbers: everything but the contents of constants.

    Attributes:
        eclasses: all e-classes and e-nodes.
        legend: names of the model.
    """

    eclasses: EClasses
    legend: Legend

    def value_name(self, cls: int) -> str:
        """Return the name of a class in the model, or of a leaf made by lowering; else ``""``."""
        eclasses = self.eclasses
        leaves = (
            self.legend.leaves[index_of(eclasses.attrs[node])].name
            for node in (eclasses.nodes_of[cls] if cls < eclasses.n_classes else ())
            if eclasses.op[node] == LEAF
        )
        return self.legend.names.get(cls) or next(leaves, "")

    def node_text(self, node: int) -> str:
        """Return an e-node and the rule that made it as a line: ``Relu(#3) by relu/idempotent``."""
        eclasses = self.eclasses
        text = self._application(node)
        rule = eclasses.rule_of(node)
        return text if rule is None else f"{text} by {rule}"

    def _application(self, node: int) -> str:
        eclasses, op = self.eclasses, self.eclasses.op[node]
        operands = ", ".join(f"#{child}" for child in eclasses.children(node))
        if op not in (LEAF, OPAQUE, OUT):
            attrs = attrs_text(eclasses.attrs[node])
            return f"{op}({operands}{'; ' if operands and attrs else ''}{attrs})"
        index = index_of(eclasses.attrs[node])
        if op == LEAF:
            return str(self.legend.leaves[index])
        if op == OUT:
            return f"output {index} of {operands}"
        return f"{self.legend.opaque[index].op}({operands})"

    def _class_text(self, nodes: range, most: int) -> str:
        texts = [self.node_text(node) for node in nodes[:most]]
        more = len(nodes) - len(texts)
        return " = ".join([*texts, f"… {more} more"] if more else texts)

    def lines(self, *, short: bool = False) -> Iterator[str]:
        """Yield a line of counts, a header, and one line per e-class.

        Args:
            short: whether to print only the first e-nodes of a class, and to leave out classes that
                consist of one input or constant of the model.
        """
        eclasses, legend = self.eclasses, self.legend
        own = sum(origin == 0 for origin in eclasses.origin.tolist())
        yield (
            f"e-classes {eclasses.n_classes} ({int(eclasses.is_const.sum())} constant), "
            f"e-nodes {eclasses.n_nodes} ({own} the model's), outputs "
            + (", ".join(f"{name} #{cls}" for name, cls in legend.outputs) or "none")
            + ("; without classes of one input or constant" if short else "")
        )
        rows = [
            (
                f"#{cls}",
                str(eclasses.types[cls]),
                "const" if eclasses.is_const[cls] else "",
                self.value_name(cls),
                self._class_text(nodes, _FEW if short else len(nodes)),
            )
            for cls, nodes in enumerate(eclasses.nodes_of)
            if not short or [eclasses.op[node] for node in nodes] != [LEAF]
        ]
        yield from aligned(("class", "type", "", "name", "e-nodes"), rows)

    def __str__(self) -> str:
        return "\n".join(self.lines())
