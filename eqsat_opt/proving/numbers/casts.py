"""Casts between types of floating point: which ones change nothing, and which ones round.

Exact numbers have no types. There a cast to a type that has all numbers of its operand is left out,
and any other is an unknown function of its own for each type, because it rounds.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.rules.bindings import Bindings, operator, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Term, Var, applied

__all__ = ["casts_of"]

_CAST = "Cast"
_HAS: Mapping[str, frozenset[str]] = {
    "float16": frozenset({"float16", "bool", "int8", "uint8"}),
    "bfloat16": frozenset({"bfloat16", "bool", "int8", "uint8"}),
    "float32": frozenset(
        {"float32", "float16", "bfloat16", "bool", "int8", "uint8", "int16", "uint16"}
    ),
    "float64": FLOATS | {"bool", "int8", "uint8", "int16", "uint16", "int32", "uint32"},
}
"""A type to those whose numbers it has."""


def casts_of(rule: Rule, bindings: Bindings) -> dict[int, str | None]:
    """Return what the casts to floating point in a rule do, by the identity of their terms.

    It is ``None`` for a cast of numbers that does nothing, and the type that is rounded to for one
    that rounds. Others, of whole numbers or truth values that the type has, are left out.
    """
    found: dict[int, str | None] = {}

    def narrowest(term: Term) -> str:
        """Return the narrowest type that is known to have all elements."""
        if isinstance(term, Var):
            return bindings.types[term.name].dtype
        assert isinstance(term, Apply)
        operands = [narrowest(arg) for arg in term.args]
        op, attrs = operator(term, bindings)
        if op == _CAST:
            to: str = attrs["to"]
            is_number = type_of(term.args[0], bindings).dtype in FLOATS
            if operands[0] in _HAS.get(to, ()):
                if is_number:
                    found[id(term)] = None
                return operands[0]
            if to in FLOATS:
                found[id(term)] = to
            return to
        if op in OPS and OPS[op].keeps_elements and len(set(operands)) == 1:
            return operands[0]
        return type_of(term, bindings).dtype

    if any(term.op == _CAST for term in applied(rule.roots)):
        for root in (*rule.lhs, *rule.rhs):
            narrowest(root)
    return found
