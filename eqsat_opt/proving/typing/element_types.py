"""Element types that the operators of a left side demand of its operands.

Truth values and indices are not numbers: an operand that must be one of these is one in every
instance. Numbers that meet a literal of a left side have the element type of the literal.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat_opt.ir.ops import Op, get_op, with_trait
from eqsat_opt.rules.term import MAP, Apply, Expr, Term, Var, applied

__all__ = ["demanded", "literal_types"]

_TRUTHS = with_trait("truth")


def _alike(op: Op, operands: Sequence[Term]) -> list[Term]:
    """Return the operands of one element type, which is the result's too except in comparisons."""
    if not op.is_moving and "truth" not in op.traits:
        return []
    return [one for number, one in enumerate(operands) if number not in op.element_types]


def demanded(roots: Sequence[Term]) -> dict[str, str]:
    """Return the variables that are truth values (``bool``) or indices, with element types."""
    found: dict[str, str] = {}
    before = -1
    while before != len(found):
        before = len(found)
        for term in applied(roots):
            _demand(term, found)
    return found


def _demand(term: Apply, found: dict[str, str]) -> None:
    if term.op == MAP:
        return
    op = get_op(term.op)
    for number, dtype in op.element_types.items():
        if dtype:
            _require(term.args[number], dtype, found)
    alike = _alike(op, term.args)
    for made in filter(None, [_made(arg, found) for arg in alike]):
        for arg in alike:
            _require(arg, made, found)


def _require(term: Term, dtype: str, found: dict[str, str]) -> None:
    """Record the variables that must have this type for a term to have it."""
    if isinstance(term, Var):
        found.setdefault(term.name, dtype)
    elif isinstance(term, Apply) and term.op != MAP and term.op not in _TRUTHS:
        for arg in _alike(get_op(term.op), term.args):
            _require(arg, dtype, found)


def _made(term: Term, found: dict[str, str]) -> str | None:
    """Return the element type of a term of truth values or indices; ``None`` for others."""
    if isinstance(term, Var):
        return found.get(term.name)
    if not isinstance(term, Apply) or term.op == MAP:
        return None
    if term.op in _TRUTHS:
        return "bool"
    alike = _alike(get_op(term.op), term.args)
    return next(filter(None, (_made(arg, found) for arg in alike)), None)


def literal_types(roots: Sequence[Term]) -> tuple[str, ...]:
    """Return the element types of the literals of a left side."""
    patterns = (term.attrs.get("dtype") for term in applied(roots))
    literals = (p.args[0] for p in patterns if isinstance(p, Expr) and p.kind == "literal")
    return tuple(dict.fromkeys(literals))
