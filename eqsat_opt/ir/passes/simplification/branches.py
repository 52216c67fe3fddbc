"""Selections by a condition that is the same for all elements."""

from __future__ import annotations

from typing import Any

from eqsat_opt.ir.graph.graph import Constant, Node
from eqsat_opt.ir.graph.handles import splat_constant, splat_value
from eqsat_opt.ir.passes.simplification.draft import Draft
from eqsat_opt.ir.values.types import StaticType

__all__ = ["chosen_branch", "expanded_branch"]

_CONDITION_ELEMENTS = 1 << 16
"""Elements up to which a condition is examined."""


def chosen_branch(node: Node, draft: Draft) -> str | None:
    """Return the branch that a Where always takes, if it has the type of the result."""
    branch = _branch(node, draft)
    is_whole = branch is not None and draft.types.get(branch) == draft.types[node.output]
    return branch if is_whole else None


def expanded_branch(node: Node, draft: Draft) -> tuple[Constant] | None:
    """Return the expansion of a branch that a Where always takes, if its elements are equal."""
    type_ = draft.types[node.output]
    branch = _branch(node, draft)
    constant = draft.constants.get(branch) if branch is not None else None
    if constant is None or not isinstance(type_, StaticType) or type_.dtype == "string":
        return None
    value = splat_value(constant)
    return None if value is None else (splat_constant(value, type_.shape),)


def _branch(node: Node, draft: Draft) -> str | None:
    constant = draft.constants.get(node.inputs[0])
    value: Any = None if constant is None else splat_value(constant, _CONDITION_ELEMENTS)
    if value is None:
        return None
    return node.inputs[1 if value else 2]
