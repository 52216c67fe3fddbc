"""The exact number domains that may judge a rule, and the limits of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from eqsat_opt.ir.ops import OPS, with_trait
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.proving.numbers.angles import ANGULAR
from eqsat_opt.proving.numbers.evaluation import (
    FieldNumbers,
    Numbers,
    OrderedNumbers,
    RationalNumbers,
    TwoFieldNumbers,
)
from eqsat_opt.proving.numbers.rationals import EXACT
from eqsat_opt.proving.numbers.reals import literals
from eqsat_opt.proving.numbers.shapes import SHAPED
from eqsat_opt.proving.numbers.twofield import (
    HOMOMORPHIC,
    LOGARITHMIC,
    LOGARITHMIC_ORDER,
    ORDER,
)
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Expr, applied

__all__ = ["exact_methods", "has_properties"]

_EXTREMES = frozenset({"MaxPool", "ReduceMin"}) | with_trait("sorting")
"""Operators that compare elements themselves; elements of the two fields have no order."""
_ORDERED = frozenset(n for n in with_trait("order") if OPS[n].kind != "pointwise")
"""Operators that need an order, which a field does not have."""
_TRUTHS = with_trait("truth") | {"Cast"}
"""Operators whose truth values are neither true nor false in a field."""
_QUOTIENTS = frozenset({"Div", "ReduceMean", "GlobalAveragePool"})
"""Operators that truncate on integers."""


def _operators(rule: Rule) -> set[str]:
    return {term.op for term in applied(rule.roots)}


def exact_methods(rule: Rule) -> list[Callable[[int], Numbers]]:
    """Return the kinds of exact numbers to try, those without assumptions first."""
    operators = _operators(rule)
    if operators & _QUOTIENTS and _casts_to_integers(rule):
        return []
    chosen = "Where" in operators and operators & _TRUTHS
    methods: list[Callable[[int], Numbers]] = []
    if not chosen and not operators & _ORDERED:
        methods.append(FieldNumbers)
    rationals = OrderedNumbers if all(map(_orders_or_moves, operators)) else RationalNumbers
    rational = partial(rationals, literals=literals(rule))
    if operators & EXACT or _computes_numbers(rule):
        methods.append(rational)
    if operators & HOMOMORPHIC and not chosen and not operators & _EXTREMES:
        order = LOGARITHMIC_ORDER if operators & LOGARITHMIC else ORDER
        angles = bool(operators & ANGULAR) and order == ORDER
        methods.append(partial(TwoFieldNumbers, order=order, angles=angles))
    if operators & set(SHAPED) and rational not in methods:
        methods.append(rational)
    return methods


def _orders_or_moves(name: str) -> bool:
    """Return whether results are 0 or elements of operands, chosen by order or place."""
    op = OPS.get(name)
    if op is None or "float" in op.attrs.values() or "sorting" in op.traits:
        return False
    return "order" in op.traits or op.keeps_elements


def _computes_numbers(rule: Rule) -> bool:
    """Return whether some attribute is a quotient or a root, which was rounded."""
    return any(_divides(value) for term in applied(rule.roots) for value in term.attrs.values())


def _divides(value: object) -> bool:
    if not isinstance(value, Expr):
        return False
    return value.kind in ("/", "sqrt") or any(map(_divides, value.args))


def _casts_to_integers(rule: Rule) -> bool:
    """Return whether some cast has, or may have, an integer type."""
    casts = [term.attrs["to"] for term in applied(rule.roots) if term.op == "Cast"]
    return any(not (isinstance(to, Expr) and to.args[0] in (*FLOATS, "bool")) for to in casts)


def has_properties(rule: Rule) -> bool:
    """Return whether an operator has a property that a random function has not."""
    return bool(_operators(rule) & (EXACT | HOMOMORPHIC | set(FUNCTIONS)))
