"""Coverage: operators of a graph that equations can rewrite, and operators that pass through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.onnx.quantised import quantised_units

__all__ = ["Coverage", "coverage_of"]


@dataclass(frozen=True)
class Coverage:
    """The part of a graph that an e-graph holds.

    Attributes:
        inside: number of operators that equations can rewrite.
        passing: operators that pass through unchanged, with their numbers.
        known: operators among `passing` that the importer reads in other places, except those kept
            whole because the runtime has an integer kernel for them with their neighbours.
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
    opaque = [
        node
        for node in graph.nodes
        if node.op == OPAQUE and node.payload is not None and not _computes_nothing(node.payload)
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


def _computes_nothing(node: onnx_ir.Node) -> bool:
    return node.domain == "" and node.op_type in ("Constant", "Identity")
