"""Which operators of a graph equations speak of, and which pass through as they came."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.onnx.quantised import quantised_units

__all__ = ["Coverage", "coverage_of"]


@dataclass(frozen=True)
class Coverage:
    """How much of a graph an e-graph holds.

    Attributes:
        inside: operators that equations speak of.
        passing: operator to how many pass through.
        known: those among `passing` that are read elsewhere, and are not kept whole because the
            runtime has an integer kernel for them with their neighbours.
        names: names of the nodes that pass through, as they are in the model.
    """

    inside: int
    passing: Mapping[str, int]
    known: Mapping[str, int]
    names: frozenset[str]

    @property
    def n_passing(self) -> int:
        """How many operators pass through."""
        return sum(self.passing.values())


def coverage_of(graph: Graph) -> Coverage:
    """Count what of a graph passes through; constants that are stored as they came do not count."""
    opaque = [
        node
        for node in graph.nodes
        if node.op == OPAQUE and node.payload is not None and node.payload.op_type != "Constant"
    ]
    units = quantised_units([node.payload for node in opaque])
    passing = Counter(node.payload.op_type for node in opaque)
    known = Counter(
        node.payload.op_type
        for node in opaque
        if node.payload.domain == ""
        and node.payload.op_type in READERS
        and node.payload not in units
    )
    return Coverage(
        inside=sum(node.op != OPAQUE for node in graph.nodes),
        passing=dict(passing.most_common()),
        known=dict(known.most_common()),
        names=frozenset(name for node in opaque for name in node.sources),
    )
