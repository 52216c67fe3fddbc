"""Common subexpressions."""

from __future__ import annotations

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.simplification.draft import Draft

__all__ = ["computed_before"]


def computed_before(node: Node, draft: Draft) -> str | None:
    """Return the value that an equal node computes.

    Operators of the registry are deterministic, so nodes of one operator with equal operands and
    attributes are equal.
    """
    inputs = tuple(sorted(node.inputs)) if get_op(node.op).commutative else node.inputs
    first = draft.first((node.op, inputs, node.attrs), node.output)
    return None if first == node.output else first
