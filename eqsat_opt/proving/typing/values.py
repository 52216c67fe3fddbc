"""The values of sizes, attributes and conditions of a rule at symbolic sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat_opt.ir.ops.index.integers import (
    Atom,
    Formula,
    Poly,
    all_of,
    at_least,
    equal,
    less,
    negate,
    poly,
    quotient,
)
from eqsat_opt.ir.ops.index.scalars import Parameter, Sign, Unindexed, Whole
from eqsat_opt.proving.numbers.definitions import square_root
from eqsat_opt.proving.typing.element_types import demanded
from eqsat_opt.proving.typing.parameters import arithmetic, number, signs
from eqsat_opt.proving.typing.unify import Unifier, is_positive
from eqsat_opt.rules.bindings import Undefined
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr

__all__ = ["Values"]


@dataclass
class Values:
    """Values of expressions, as far as ranks and attributes are bound.

    Attributes:
        rule: rule that the variables belong to.
        unifier: solver with the known values of the symbols.
        ranks: tensor variable to rank.
        attrs: attribute variable to value.
        parameters: numbers met so far, and their signs.
    """

    rule: Rule
    unifier: Unifier = field(default_factory=lambda: Unifier({}, set()))
    ranks: dict[str, int] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Sign] = field(default_factory=dict)

    @cached_property
    def _demanded(self) -> dict[str, str]:
        return demanded((*self.rule.lhs, *self.rule.rhs))

    def symbol(self, name: str, *, positive: bool) -> Poly:
        """Return an integer symbol, in terms of symbols that are not solved."""
        symbol = Atom(name)
        if positive:
            self.unifier.positive.add(symbol)
        return self.unifier.value(symbol)

    def extent(self, name: str, axis: int) -> Poly:
        """Return one extent of a tensor variable."""
        return self.symbol(f"{name}.{axis}", positive=True)

    def shape(self, name: str) -> tuple[Poly, ...]:
        """Return all extents of a tensor variable."""
        return tuple(self.extent(name, axis) for axis in range(self.ranks[name]))

    def parameter(self, name: str) -> Parameter:
        """Return a float attribute of which only the sign may be known."""
        sign = signs(self.rule).get(name, "unknown")
        self.parameters[name] = sign
        return Parameter(name, sign)

    def bind(self, name: str, value: Any) -> None:
        """Give an attribute variable its value, unless it has one."""
        self.attrs.setdefault(name, value)

    def value(self, expression: Any) -> Any:
        """Return the value of an expression: a polynomial, tuple of them, number or string."""
        if not isinstance(expression, Expr):
            return expression
        args = expression.args
        match expression.kind:
            case "literal":
                return self._literal_value(args[0])
            case "attr":
                if args[0] not in self.attrs:
                    self.bind(args[0], self._free_inside(args[0]))
                return self.attrs[args[0]]
            case "dtype":
                return self._demanded.get(args[0], "float32")
            case "rank":
                return poly(self.ranks[args[0]])
            case "dim":
                axis = self._literal(args[1])
                if not 0 <= axis < self.ranks[args[0]]:
                    raise Undefined("no such axis")
                return self.extent(args[0], axis)
            case "item":
                sequence, place = self.value(args[0]), self._literal(args[1])
                if not isinstance(sequence, tuple):
                    raise Unindexed("an element of what is not a list here")
                if not 0 <= place < len(sequence):
                    raise Undefined("no such element")
                return sequence[place]
            case "sqrt":
                return square_root(number(self.value(args[0])))
            case "real":
                return Whole(poly(self.value(args[0])))
        left, right = (self.value(arg) for arg in args)
        if expression.kind == "/" or not (isinstance(left, Poly) and isinstance(right, Poly)):
            return arithmetic(expression.kind, number(left), number(right))
        match expression.kind:
            case "+":
                return left + right
            case "-":
                return left - right
            case "*":
                return left * right
            case _:
                if not is_positive(right, self.unifier.positive):
                    raise Unindexed("a division by what is not known to be positive")
                return quotient(left, right)

    def _literal_value(self, value: Any) -> Any:
        if isinstance(value, int):
            return poly(value)
        if isinstance(value, Parameter):
            self.parameters[value.name] = value.sign
        return number(value) if isinstance(value, float) else value

    def _free_inside(self, name: str) -> Any:
        """Return an unrestricted number for a variable that is first met inside an expression."""
        if "Float" in (kind for other, kind in self.rule.kinds if other == name):
            return self.parameter(name)
        return self.symbol(name, positive=False)

    def _literal(self, expression: Any) -> int:
        value = self.value(expression)
        if not isinstance(value, (Poly, int)):
            raise Unindexed("an axis that is not an integer")
        known = poly(value).constant
        if known is None:
            raise Unindexed("an axis that is not an integer here")
        return known

    def condition(self, condition: Condition) -> Formula:
        """Return the formula about integers that a condition implies.

        Raises:
            Undefined: the condition is about an axis or element that does not exist.
        """
        args = condition.args
        match condition.kind:
            case "same-shape":
                pairs = zip(*(self.shape(name) for name in args), strict=True)
                return all_of(*(equal(a, b) for a, b in pairs))
            case "distinct" | "follows" | "is-float" | "near" | "far":
                return all_of()
        left, right = (self.value(arg) for arg in args)
        if not (isinstance(left, Poly) and isinstance(right, Poly)):
            return all_of()  # its facts about numbers were solved before
        match condition.kind:
            case "==":
                return equal(left, right)
            case "!=":
                return negate(equal(left, right))
            case "<":
                return less(left, right)
            case _:
                return at_least(right, left)
