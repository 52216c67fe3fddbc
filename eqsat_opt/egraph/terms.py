"""Terms: a model, or part of one, in the form in which an e-graph is loaded with it.

A term is flat: operator, attributes, numbers of its operands. Everything in this room reads terms,
and nothing here depends on how they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eqsat_opt.ir.graph.graph import Attrs, Constant, Graph, Node, index_of
from eqsat_opt.ir.values.types import ValueType

__all__ = ["LEAF", "OUT", "Lowered", "TermNode"]

LEAF = "Leaf"
"""Operator of a term that is a graph input or a constant."""
OUT = "Out"
"""Operator of a term that is one output of an opaque node."""


@dataclass(frozen=True, slots=True)
class TermNode:
    """One loaded term.

    Attributes:
        op: registry name, :data:`OPAQUE`, :data:`LEAF` or :data:`OUT`.
        attrs: all attributes, sorted by name; ``index`` for leaves, outputs and opaque nodes.
        children: numbers of earlier terms.
        type: type of the value; ``OtherType`` for the tuple of an opaque node.
        sources: names of the nodes it came from.
    """

    op: str
    attrs: Attrs
    children: tuple[int, ...]
    type: ValueType
    sources: tuple[str, ...] = ()

    @property
    def index(self) -> int:
        """The number of a leaf, of an opaque node, or of an output of an opaque node."""
        return index_of(self.attrs)


@dataclass(frozen=True)
class Lowered:
    """The terms of a graph, in topological order, and what their leaves and opaque nodes mean.

    Attributes:
        graph: where they came from; an empty one where only the terms matter.
        terms: each is known to later ones by its position.
        value: name of a value of the graph to the number of its term.
        leaf_names: leaf index to value name (an input or a constant).
        constants: constant handles by name, the ones made here too.
        opaque: opaque index to node.
        view_of: constants that only give one of the model's another shape, to that one, by name.
        exact: whether every bit counts (:func:`eqsat_opt.egraph.saturate`).
    """

    graph: Graph
    terms: tuple[TermNode, ...]
    value: Mapping[str, int]
    leaf_names: tuple[str, ...]
    constants: Mapping[str, Constant]
    opaque: tuple[Node, ...]
    view_of: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False

    @staticmethod
    def of_terms(
        terms: Iterable[TermNode],
        leaf_names: Iterable[str],
        constants: Mapping[str, Constant],
        *,
        exact: bool = False,
    ) -> Lowered:
        """Terms that do not come from a model."""
        return Lowered(
            graph=Graph((), (), (), constants={}, types={}), terms=tuple(terms), value={},
            leaf_names=tuple(leaf_names), constants=constants, opaque=(), exact=exact,
        )  # fmt: skip

    def constant(self, term: int) -> Constant | None:
        """The handle of a constant leaf."""
        node = self.terms[term]
        return self.constants.get(self.leaf_names[node.index]) if node.op == LEAF else None
