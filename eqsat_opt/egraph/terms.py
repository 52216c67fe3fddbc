"""Terms: a model, or part of one, in the form that is loaded into an e-graph.

A term is flat: an operator, attributes, and the numbers of its operands. All modules of this
package read terms, and none depends on how they were made.
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
        sources: names of the model's nodes that it was made from.
    """

    op: str
    attrs: Attrs
    children: tuple[int, ...]
    type: ValueType
    sources: tuple[str, ...] = ()

    @property
    def index(self) -> int:
        """The index of a leaf, of an opaque node, or of an output of an opaque node."""
        return index_of(self.attrs)


@dataclass(frozen=True)
class Lowered:
    """The terms of a graph in topological order, with the meaning of their leaves and opaque nodes.

    Attributes:
        graph: the graph that they were made from; an empty one where only the terms matter.
        terms: the terms; each has its position as its number.
        value: number of the term of each value of the graph, by name.
        leaf_names: value name (an input or a constant) of each leaf index.
        constants: constant handles by name, including those made by lowering.
        opaque: node of each opaque index.
        view_of: name of the model's constant for each constant that only gives it another shape.
        exact: whether results must be equal bit for bit (:func:`eqsat_opt.egraph.saturate`).
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
        """Build an object from terms that do not come from a model."""
        return Lowered(
            graph=Graph((), (), (), constants={}, types={}), terms=tuple(terms), value={},
            leaf_names=tuple(leaf_names), constants=constants, opaque=(), exact=exact,
        )  # fmt: skip

    def constant(self, term: int) -> Constant | None:
        """Return the handle of a constant leaf; ``None`` for any other term."""
        node = self.terms[term]
        return self.constants.get(self.leaf_names[node.index]) if node.op == LEAF else None
