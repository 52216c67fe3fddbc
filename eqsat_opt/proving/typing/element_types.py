"""Element types that the operators of a left side demand of its operands, whatever else they are.

Truth values and indices are no numbers: an operand that must be one of these is one in every
instance. What the literals of a left side are tells the type of the numbers that they meet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eqsat_opt.ir.ops.pointwise import COMPARISONS
from eqsat_opt.rules.term import Apply, Expr, Term, Var

__all__ = ["demanded", "literal_types"]

_LOGIC = frozenset({"And", "Or", "Xor", "Not"})
_INDEX = "int64"
_DATA = {
    **dict.fromkeys(("Concat", "Equal"), slice(None)),
    **dict.fromkeys(
        ("Slice", "Transpose", "Reshape", "Expand", "Pad", "Repeat", "Gather"), slice(1)
    ),
    "Where": slice(1, None),
}
"""Operands of one element type, by operator; but for comparisons it is that of the result."""


def demanded(roots: Sequence[Term]) -> dict[str, str]:
    """Variables that are truth values (``bool``) or indices, with their element types."""
    found: dict[str, str] = {}
    before = -1
    while before != len(found):
        before = len(found)
        for root in roots:
            for term in root.walk():
                if isinstance(term, Apply):
                    _demand(term, found)
    return found


def _demand(term: Apply, found: dict[str, str]) -> None:
    if term.op in _LOGIC:
        for arg in term.args:
            _require(arg, "bool", found)
    if term.op == "Where":
        _require(term.args[0], "bool", found)
    if term.op == "Gather":
        _require(term.args[1], _INDEX, found)
    alike = term.args[_DATA[term.op]] if term.op in _DATA else ()
    for made in filter(None, [_made(arg, found) for arg in alike]):
        for arg in alike:
            _require(arg, made, found)


def _require(term: Term, dtype: str, found: dict[str, str]) -> None:
    """Note what must have this type for a term to have it."""
    if isinstance(term, Var):
        found.setdefault(term.name, dtype)
    elif isinstance(term, Apply) and term.op in _DATA and term.op not in COMPARISONS:
        for arg in term.args[_DATA[term.op]]:
            _require(arg, dtype, found)


def _made(term: Term, found: dict[str, str]) -> str | None:
    """The type of a term, where it is one of these."""
    if isinstance(term, Var):
        return found.get(term.name)
    if not isinstance(term, Apply):
        return None
    if term.op in _LOGIC or term.op in COMPARISONS or term.op == "IsNaN":
        return "bool"
    if term.op not in _DATA:
        return None
    return next(filter(None, (_made(a, found) for a in term.args[_DATA[term.op]])), None)


def literal_types(roots: Sequence[Term]) -> tuple[str, ...]:
    """Element types of the numbers that stand in a left side."""
    return tuple(dict.fromkeys(dtype for root in roots for dtype in _literals(root)))


def _literals(root: Term) -> Iterator[str]:
    for term in root.walk():
        pattern = term.attrs.get("dtype") if isinstance(term, Apply) else None
        if isinstance(pattern, Expr) and pattern.kind == "literal":
            yield pattern.args[0]
