"""Coverage: operators of a graph that equations can rewrite, and operators that pass through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.passes.passing import is_explained, reasons

__all__ = ["Coverage", "coverage_of"]


@dataclass(frozen=True)
class Coverage:
    """The part of a graph that an e-graph holds.

    Attributes:
        inside: number of operators that equations can rewrite.
        passing: operators that pass through unchanged, with their numbers.
        known: operators among `passing` that the importer reads in other places, except those that
            pass for what they are: in a form that no equation is about, of sizes that data decide,
            or whole because the runtime has an integer kernel for them with their neighbours.
        names: names of the nodes that pass through, as they are in the model.
    """

    inside: int
    passing: Mapping[str, int]
    known: Mapping[str, int]
    names: frozenset[str]

    @property
    def n_passing(self) -> int:
        """Number of operators that pass through."""
        return sum(self.passing.values())


def coverage_of(graph: Graph) -> Coverage:
    """Count the operators of a graph that pass through.

    Constants stored unchanged, and second names of values, are no operators.
    """
    passing = list(reasons(graph))
    counted = Counter(node.payload.op_type for node, _ in passing)
    known = Counter(
        node.payload.op_type
        for node, why in passing
        if node.payload.domain == "" and node.payload.op_type in READERS and not is_explained(why)
    )
    return Coverage(
        inside=sum(node.op != OPAQUE for node in graph.nodes),
        passing=dict(counted.most_common()),
        known=dict(known.most_common()),
        names=frozenset(name for node, _ in passing for name in node.sources),
    )
