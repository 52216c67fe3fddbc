"""Attributes that are numbers: exact literals, values solved from conditions, and known signs.

A constant near a target counts as the target: the proof shows that the equation is exact there, and
the rule admits constants within its tolerance.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from eqsat_opt.ir.ops.index.integers import Poly
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Scalar,
    Sign,
    Times,
    Unindexed,
    Whole,
)
from eqsat_opt.proving.numbers.definitions import PI, square_root
from eqsat_opt.proving.numbers.literals import exact_literal
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr

__all__ = ["Definitions", "arithmetic", "definitions", "number", "signs"]

Definitions = list[tuple[str, Expr | Scalar]]


def number(value: Any) -> Scalar:
    """Return a literal, an integer or a term as a number.

    Raises:
        Unindexed: the value is not a number, or not finite.
    """
    if isinstance(value, Poly):
        known = value.constant
        return Whole(value) if known is None else Constant(Fraction(known))
    if not isinstance(value, (int, float)):
        if isinstance(value, (str, tuple)):
            raise Unindexed(f"{value} is not a number")
        return value  # type: ignore[no-any-return]
    exact = exact_literal(float(value))
    if exact is None:
        if value - value != 0:
            raise Unindexed(f"{value} is not a finite number")
        return Constant(Fraction(value))
    if exact.is_rational:
        return Constant(exact.rational)
    powers = Call("Pow", (), (PI, Constant(Fraction(exact.pi_halves, 2))))
    parts = [
        Constant(exact.rational),
        *([square_root(Constant(Fraction(exact.radicand)))] if exact.radicand > 1 else []),
        *([powers] if exact.pi_halves else []),
    ]
    return Times(tuple(parts))


def arithmetic(kind: str, left: Scalar, right: Scalar) -> Scalar:
    """Return the sum, difference, product or quotient of two numbers.

    Raises:
        Unindexed: ``kind`` is any other operation.
    """
    match kind:
        case "+":
            return Plus((left, right))
        case "-":
            return Plus((left, Times((Constant(Fraction(-1)), right))))
        case "*":
            return Times((left, right))
        case "/":
            return Times((left, Inverse(right)))
        case _:
            raise Unindexed(f"the operation {kind} on numbers")


# Conditions --------------------------------------------------------------------------------------


def _floats(rule: Rule) -> set[str]:
    return {name for name, kind in rule.kinds if kind == "Float"}


def _name(expression: Expr, floats: set[str]) -> str | None:
    """Return the float attribute that an expression is; ``None`` if it is none."""
    if expression.kind == "attr" and expression.args[0] in floats:
        return str(expression.args[0])
    return None


def _literal(expression: Expr) -> float | None:
    return expression.args[0] if expression.kind == "literal" else None


def _orders(rule: Rule) -> Iterator[tuple[Expr, Expr, bool]]:
    """Yield the lower and higher side of each order condition, and whether it is strict."""
    for condition in rule.when:
        if condition.kind in ("<", "<="):
            low, high = condition.args
            yield low, high, condition.kind == "<"


def signs(rule: Rule) -> dict[str, Sign]:
    """Return the signs of float attributes that conditions imply."""
    floats = _floats(rule)
    found: dict[str, Sign] = {}
    for low, high, strict in _orders(rule):
        bounds = _literal(low), _literal(high)
        above, below = _name(high, floats), _name(low, floats)
        if above is not None and bounds[0] is not None and bounds[0] >= 0:
            found[above] = "positive" if strict or bounds[0] > 0 else "nonnegative"
        highest = 1.0 if bounds[1] is None else bounds[1]
        if below is not None and (highest < 0 or (highest == 0 and strict)):
            found[below] = "negative"
    return found


def definitions(rule: Rule) -> Definitions:
    """Express float attributes by others, from equations first, then from orders.

    Conditions that give no equation are left out, so a proof assumes less than the rule.
    """
    floats = _floats(rule)
    found: Definitions = []
    told: set[str] = set()
    for condition in rule.when:
        if condition.kind in ("==", "near"):
            for name, value in _solutions(condition, floats):
                if name not in told:
                    found.append((name, value))
                    told |= {name, *_names(value)}
                    break
    known = told | set(signs(rule))
    for low, high, strict in _orders(rule):
        below, above = _name(low, floats), _name(high, floats)
        if below is not None and above is not None and above not in known and below != above:
            gap = Parameter(f"{above} - {below}", "positive" if strict else "nonnegative")
            found.append((above, Expr("+", (low, Expr("literal", (gap,))))))
            known |= {above, below}
    return found


def _names(expression: Expr) -> set[str]:
    return {str(leaf.args[0]) for leaf in expression.leaves() if leaf.kind == "attr"}


def _solutions(condition: Condition, floats: set[str]) -> Iterator[tuple[str, Expr]]:
    left, right = condition.args[:2]
    yield from _solved(left, right, floats)
    yield from _solved(right, left, floats)


def _solved(left: Expr, right: Expr, floats: set[str]) -> Iterator[tuple[str, Expr]]:
    """Yield values of single attributes that make ``left == right``."""
    name = _name(left, floats)
    if name is not None and name not in _names(right):
        yield name, right
    if left.kind not in ("+", "-", "*", "/"):
        return
    a, b = left.args
    match left.kind:
        case "+":
            yield from _solved(a, right - b, floats)
            yield from _solved(b, right - a, floats)
        case "-":
            yield from _solved(a, right + b, floats)
            yield from _solved(b, a - right, floats)
        case "*":
            # A product that is not 0 has no factor that is 0.
            for one, other in ((a, b), (b, a)):
                if _literal(right) or _literal(other):
                    yield from _solved(one, right / other, floats)
        case "/":
            yield from _solved(a, right * b, floats)
