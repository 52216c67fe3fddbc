"""Rewrite rules: declared once as equations, read by e-graph, searches, checker and docs.

A rulebook of a user imports from this package only.
"""

from __future__ import annotations

if not __name__.startswith("eqsat_opt."):
    raise ImportError("import eqsat_opt.rules; the top-level link is for readers")

from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.library import families
from eqsat_opt.rules.rule import (
    Float,
    Func,
    Int,
    Ints,
    Numerics,
    Phase,
    Rule,
    Sides,
    Tensor,
    Weight,
    rule,
)
from eqsat_opt.rules.term import (
    Condition,
    Expr,
    Term,
    Var,
    concat,
    distinct,
    far,
    follows,
    is_float,
    near,
    ops,
    real,
    slice_,
    sqrt,
)

__all__ = [
    "Condition",
    "Expr",
    "Float",
    "Func",
    "Int",
    "Ints",
    "Numerics",
    "Phase",
    "Rule",
    "Sides",
    "Tensor",
    "Term",
    "Var",
    "Weight",
    "concat",
    "declared",
    "distinct",
    "families",
    "far",
    "follows",
    "is_float",
    "near",
    "ops",
    "real",
    "rule",
    "slice_",
    "sqrt",
]
