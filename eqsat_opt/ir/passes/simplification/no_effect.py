"""Operators without effect: their result is one of their operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.graph.handles import splat_value
from eqsat_opt.ir.onnx.equal_graphs import is_identity
from eqsat_opt.ir.ops import OPS, get_op
from eqsat_opt.ir.passes.simplification.draft import Draft

__all__ = [
    "WITHOUT_EFFECT",
    "WITH_NEUTRAL_ELEMENT",
    "beside_neutral",
    "beside_neutral_or_zero",
    "identical",
    "unchanged",
]

_CONDITIONS: Mapping[str, Callable[[Node], bool]] = {
    "Cast": lambda _node: True,
    "Clip": lambda node: node.attr("min") == -np.inf and node.attr("max") == np.inf,
    "Concat": lambda node: len(node.inputs) == 1,
    "Expand": lambda _node: True,
    "Pad": lambda node: not any(node.attr("pads")),
    "Reshape": lambda _node: True,
    "Slice": lambda _node: True,
    "Transpose": lambda node: node.attr("perm") == tuple(range(len(node.attr("perm")))),
}
"""Conditions under which a node whose result has the type of its first operand equals it."""

WITHOUT_EFFECT = frozenset(_CONDITIONS)
"""Operators that may be without effect."""

WITH_NEUTRAL_ELEMENT = frozenset(name for name, op in OPS.items() if op.neutral)
"""Operators that have a neutral element on one side at least."""


def identical(node: Node, draft: Draft) -> str | None:
    """Return the operand of an Identity."""
    return node.inputs[0] if node.payload is not None and is_identity(node) else None


def unchanged(node: Node, draft: Draft) -> str | None:
    """Return the first operand of a node that does not change it."""
    first = node.inputs[0]
    has_type = draft.types.get(first) == draft.types[node.output]
    return first if has_type and _CONDITIONS[node.op](node) else None


def beside_neutral(node: Node, draft: Draft) -> str | None:
    """Return the operand beside a neutral element; for sums the sign of a zero must be right."""
    return _beside_neutral(node, draft, any_zero=False)


def beside_neutral_or_zero(node: Node, draft: Draft) -> str | None:
    """Return the operand beside a neutral element or a zero of the other sign."""
    return _beside_neutral(node, draft, any_zero=True)


def _beside_neutral(node: Node, draft: Draft, *, any_zero: bool) -> str | None:
    type_ = draft.types[node.output]
    for position, neutral in get_op(node.op).neutral.items():
        other = node.inputs[1 - position]
        constant = draft.constants.get(node.inputs[position])
        if constant is None or draft.types.get(other) != type_:
            continue
        value = splat_value(constant)
        if value is None or not bool(value == neutral):
            continue
        has_sign = not neutral and value.dtype.kind not in "iub"
        if any_zero or not has_sign or np.signbit(float(value)) == np.signbit(neutral):
            return other
    return None
