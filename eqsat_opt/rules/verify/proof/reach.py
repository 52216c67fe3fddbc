"""What a proof over the real numbers at a few ranks says nothing about: such rules get none.

Ranks, axes and permutations are tried one by one up to a highest rank. That shows the same of
higher ranks only where a rule does with places what does not change from there on: it compares
them, and counts a few axes from another place or from the end. Whole numbers are real numbers as
long as nothing rounds them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from eqsat_opt.ir.types import FLOATS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Apply, Condition, Expr, Term, Var

__all__ = ["HIGHEST_RANK", "out_of_reach", "pinned_ranks", "uneven_ranks"]

HIGHEST_RANK = 5
"""Ranks are tried up to this one, unless the rule pins them."""
_FARTHEST = 2
"""How many axes from a place a rule may count, and the highest rank that it may compare with + 1:
so few that ranks without any axis between the places and ranks with some are both tried."""

_PLACES = frozenset({"axis", "axes", "perm"})
_MOVES = frozenset({"Concat", "Slice", "Reshape", "Transpose", "Expand", "Repeat"})
_EXACT = _MOVES | {"Add", "Sub", "Mul", "Neg", "Square"}
"""Operators that never round whole numbers and whose results are such."""


def out_of_reach(rule: Rule) -> str | None:
    """Why no proof would show that a rule holds, or ``None`` if one would."""
    try:
        for root in (*rule.lhs, *rule.rhs):
            _made(root)
    except _OutOfReach as reason:
        return str(reason)
    return uneven_ranks(rule)


def uneven_ranks(rule: Rule) -> str | None:
    """Why the ranks that are tried, by a proof or at instances, say nothing of higher ones."""
    try:
        if not _all_pinned(rule):
            _Places(rule).check()
    except _OutOfReach as reason:
        return str(reason)
    return None


class _OutOfReach(Exception):
    """With the reason."""


# Whole numbers -----------------------------------------------------------------------------------


def _made(term: Term) -> str:
    """``bool`` or ``whole`` where a term makes truth values or whole numbers, or else nothing.

    Raises:
        _OutOfReach: if they meet an operator that may round them or take them for real numbers.
    """
    if not isinstance(term, Apply):
        return ""
    operands = [_made(arg) for arg in term.args]
    made = term.attrs.get("to" if term.op == "Cast" else "dtype")
    if isinstance(made, Expr) and made.kind == "literal":
        if made.args[0] in FLOATS:
            return ""
        _check_value(term)
        return "bool" if made.args[0] == "bool" else "whole"
    if term.op == "Where":
        operands[0] = ""  # a condition is true or false in any numbers
    allowed = _MOVES | {"Where"} if "bool" in operands else _EXACT | {"Where"}
    if any(operands) and term.op not in allowed:
        raise _OutOfReach(
            f"{term.op} of whole numbers that the rule makes: proofs are over the real numbers, "
            f"where nothing is rounded, so these may meet {', '.join(sorted(allowed))} only"
        )
    return max(operands, default="")


def _check_value(term: Apply) -> None:
    value = term.attrs.get("value")
    if isinstance(value, Expr):
        known = value.args[0] if value.kind == "literal" else None
        if known is None or not float(known).is_integer():
            raise _OutOfReach(f"{term.op} makes a whole number of {value}, which rounds it")


# Ranks -------------------------------------------------------------------------------------------


def _tensors(rule: Rule) -> set[str]:
    return {name for root in (*rule.lhs, *rule.rhs) for name in root.variables()}


def _applied(rule: Rule) -> Iterator[Apply]:
    for root in (*rule.lhs, *rule.rhs):
        for term in root.walk():
            if isinstance(term, Apply):
                yield term


def _parts(value: Any) -> tuple[Expr, ...]:
    return value if isinstance(value, tuple) else (value,)


def pinned_ranks(rule: Rule) -> set[str]:
    """Tensor variables of which all ranks are tried that they may have."""
    pinned = {
        term.args[0].name
        for term in _applied(rule)
        if isinstance(term.attrs.get("perm"), tuple) and isinstance(term.args[0], Var)
    }
    before = -1
    while before != len(pinned):
        before = len(pinned)
        for condition in rule.when:
            pinned |= set(_pinned_by(condition, pinned))
    return pinned


def _pinned_by(condition: Condition, pinned: Iterable[str]) -> Iterator[str]:
    """Ranks that are equal to what is known, or at most a number that is tried."""
    if condition.kind == "same-shape" and any(name in pinned for name in condition.args):
        yield from condition.args
    if condition.kind not in ("==", "<="):
        return
    low, high = condition.args[:2]
    bounded = condition.kind == "<=" and low.kind == "rank" and high.kind == "literal"
    if bounded and high.args[0] <= HIGHEST_RANK:
        yield low.args[0]
    if condition.kind != "==":
        return
    for one, other in ((low, high), (high, low)):
        if one.kind != "rank":
            continue
        if other.kind == "literal" or (other.kind == "rank" and other.args[0] in pinned):
            yield one.args[0]


def _all_pinned(rule: Rule) -> bool:
    lists = (term.attrs.get("shape") for term in _applied(rule))
    free_shapes = any(isinstance(shape, Expr) and shape.kind == "attr" for shape in lists)
    return not free_shapes and _tensors(rule) <= pinned_ranks(rule)


# Places ------------------------------------------------------------------------------------------


class _Places:
    """What a rule does with ranks, axes and permutations, which are tried one by one."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._names = {
            part.args[0]
            for term in _applied(rule)
            for key, value in term.attrs.items()
            if key in _PLACES
            for part in _parts(value)
            if part.kind == "attr"
        }

    def check(self) -> None:
        """Whether all of it is the same at higher ranks.

        Raises:
            _OutOfReach: if not.
        """
        for term in _applied(self._rule):
            for key, value in term.attrs.items():
                for part in _parts(value):
                    if key in _PLACES:
                        self._place(part)
                    else:
                        self._value(part)
        for condition in self._rule.when:
            self._condition(condition)

    def _condition(self, condition: Condition) -> None:
        sides = [arg for arg in condition.args if isinstance(arg, Expr)]
        if not any(map(self._about_places, sides)):
            for side in sides:
                self._value(side)
            return
        for side in sides:
            self._place(side)
            if side.kind == "literal" and side.args[0] > _FARTHEST and condition.kind != "==":
                raise _OutOfReach(
                    f"{condition}: ranks are tried up to {HIGHEST_RANK}, so a rule may compare "
                    f"ranks and axes with numbers up to {_FARTHEST} only"
                )

    def _about_places(self, expression: Expr) -> bool:
        return any(
            leaf.kind == "rank" or (leaf.kind == "attr" and leaf.args[0] in self._names)
            for leaf in expression.leaves()
        )

    def _value(self, expression: Expr) -> None:
        """A number that is no place: it may hold extents at places."""
        if expression.kind == "dim":
            self._place(expression.args[1])
        elif expression.kind in ("rank", "attr") and self._about_places(expression):
            raise _OutOfReach(
                f"{expression} as a number: ranks are tried up to {HIGHEST_RANK}, so a rule "
                "may only compare ranks and axes or add small numbers to them"
            )
        else:
            for arg in expression.args:
                if isinstance(arg, Expr):
                    self._value(arg)

    def _place(self, expression: Expr) -> None:
        """A place, counted from the start, the end or another place."""
        offset, base = 0, expression
        while base.kind in ("+", "-") and base.args[1].kind == "literal":
            offset += base.args[1].args[0] * (1 if base.kind == "+" else -1)
            base = base.args[0]
        if base.kind == "+" and base.args[0].kind == "literal":
            offset, base = offset + base.args[0].args[0], base.args[1]
        if base.kind == "item":
            if isinstance(base.args[1], Expr):
                self._place(base.args[1])
            base = base.args[0]
        known = base.kind in ("literal", "rank") or (
            base.kind == "attr" and base.args[0] in self._names
        )
        if not known or abs(offset) > _FARTHEST:
            raise _OutOfReach(
                f"{expression} as a place: ranks are tried up to {HIGHEST_RANK}, so a rule may "
                f"only compare ranks and axes or add numbers up to {_FARTHEST} to them"
            )
