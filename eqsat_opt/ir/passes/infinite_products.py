"""The pass that keeps products in place which a known constant makes infinite."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.graph.handles import is_expensive, splat_value
from eqsat_opt.ir.values.types import FLOATS

__all__ = ["with_fixed_infinities"]

_LARGEST_BYTES = 4 << 20
"""Largest factor that is examined; factors are vectors, and larger constants are data."""


def with_fixed_infinities(graph: Graph) -> Graph:
    """Make each product or quotient opaque that a known constant makes infinite.

    1. A Mul or Div with a constant operand that is infinite or NaN somewhere.
    2. A Div by a constant that is 0 somewhere.

    Inside a sum of products each term would become infinite, and infinities of two signs add up to
    NaN; after the sum, the result is infinite. So rules must not move such a factor.
    """
    nodes = tuple(_fixed(n) if _makes_infinite(graph, n) else n for n in graph.nodes)
    return graph if nodes == graph.nodes else graph.with_nodes(nodes)


def _makes_infinite(graph: Graph, node: Node) -> bool:
    if node.op not in ("Mul", "Div"):
        return False
    for place, name in enumerate(node.inputs):
        constant = graph.constants.get(name)
        if constant is None or constant.type.dtype not in FLOATS:
            continue
        if is_expensive(constant) or constant.type.bytes > _LARGEST_BYTES:
            continue
        known = splat_value(constant)
        values = np.asarray(constant.load() if known is None else known).astype(np.float64)
        if not np.isfinite(values).all() or (node.op == "Div" and place == 1 and not values.all()):
            return True
    return False


def _fixed(node: Node) -> Node:
    payload = onnx_ir.Node(
        "",
        node.op,
        [onnx_ir.Value(name=name) for name in node.inputs],
        outputs=[onnx_ir.Value(name=name) for name in node.outputs],
    )
    return replace(node, op=OPAQUE, attrs=(), payload=payload)
