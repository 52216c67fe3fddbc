"""Floating point operations inside bodies, which no kernel of the surrounding graph counts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.bodies.importer import is_if
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.new_bodies import bodies_in
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.ir.values.dims import evaluate_dim
from eqsat_opt.ir.values.types import TensorType

__all__ = ["body_flops"]

_ONCE = 1


def body_flops(graph: Graph, sizes: Mapping[str, int]) -> float:
    """Count the operations in the bodies of a graph: an If's larger branch, all loop iterations.

    A loop with an unknown number of iterations counts once.

    Args:
        graph: the graph; bodies at any depth are counted.
        sizes: sizes of symbolic dimensions; those that occur only in a body are assumed.
    """
    total = 0.0
    branches: dict[int, float] = {}
    for (number, _), body in bodies_in(graph).items():
        node, inner = graph.nodes[number], normalise(body)
        known = Sizes.of(inner, sizes).all
        flops = _own_flops(inner, known) + body_flops(inner, known)
        if is_if(node.payload):
            branches[number] = max(flops, branches.get(number, 0.0))
        else:
            total += _iterations(node, graph, sizes) * flops
    return total + sum(branches.values())


def _own_flops(graph: Graph, sizes: Mapping[str, int]) -> float:
    """Count the operations of the known operators of a graph, without its bodies."""
    total = 0.0
    for node in graph.nodes:
        types = [graph.tensor_type(name) for name in (*node.inputs, *node.outputs)]
        if node.op == OPAQUE:
            continue
        sized = [
            TensorType(one.dtype, tuple(evaluate_dim(dim, sizes) for dim in one.shape))
            for one in types
            if one is not None
        ]
        if len(sized) == len(types):
            flops = get_op(node.op).flops(sized[:-1], sized[-1], dict(node.attrs))
            total += evaluate_dim(flops, sizes)
    return total


def _iterations(node: Node, graph: Graph, sizes: Mapping[str, int]) -> int:
    """Return the number of iterations of a Loop or a Scan, 1 if it is unknown."""
    if node.payload.op_type == "Loop":
        trips = graph.constants.get(node.inputs[0])
        if trips is None or trips.type.size != 1:
            return _ONCE
        # A maximal trip count is written for a loop that ends by its condition.
        count = int(np.asarray(trips.load()).reshape(-1)[0])
        return max(0, count) if count < np.iinfo(np.int32).max else _ONCE
    scanned = graph.tensor_type(node.inputs[-1])
    attributes = node.payload.attributes
    axes = attributes["scan_input_axes"].as_ints() if "scan_input_axes" in attributes else (0,)
    if scanned is None:
        return _ONCE
    return evaluate_dim(scanned.shape[axes[-1]], {**Sizes.of(graph, sizes).all, **sizes})
