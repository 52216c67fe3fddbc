"""Sizes, attributes and conditions of a rule as egglog text.

Their semantics are those of :mod:`eqsat_opt.rules.bindings`. Symbolic sizes are encoded as large
integers, on which only sums and products are correct; where a size must not be symbolic, a fact in
the rule's body requires that. A failure in the body (an overflow, a bad index, a division by zero)
is no match.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import reduce

from eqsat_opt.egraph.encoding.extents import congruent, plus, times
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.values.dims import LITERALS as LITERAL
from eqsat_opt.rules.bindings import literal_sizes
from eqsat_opt.rules.term import Condition, Expr, expr

__all__ = ["LITERAL", "Expressions", "float_text", "vector_of"]


def float_text(value: float) -> str:
    """Return a float as the engine reads it."""
    return "NaN" if math.isnan(value) else repr(float(value))


def vector_of(parts: Sequence[str]) -> str:
    """Return an expression for a vector of integers."""
    return f"(vec-of {' '.join(parts)})" if parts else "(vec-empty)"


class Expressions:
    """The expressions of one directed rule.

    Args:
        rule: name of the rule.
        kinds: for each attribute variable the kind of the attribute that binds it.
        literal: attribute variables that are not symbolic, or lists of such.
        body: the facts of the rule; those that an expression needs are appended.
    """

    def __init__(
        self, rule: str, kinds: Mapping[str, str], literal: AbstractSet[str], body: list[str]
    ) -> None:
        self._rule = rule
        self._kinds = kinds
        self._body = body
        self._shapes: set[str] = set()
        self._bound: dict[str, str] = {}
        self._literal = {f"v_{name}" for name in literal}
        self._fresh = 0

    def fresh(self, prefix: str) -> str:
        """Return a new variable."""
        self._fresh += 1
        return f"{prefix}{self._fresh}_"

    def shape(self, name: str) -> str:
        """Return the variable for the shape of a tensor variable."""
        if name not in self._shapes:
            self._shapes.add(name)
            self._body.append(f"(= s_{name} (shape v_{name}))")
        return f"s_{name}"

    def value(self, expression: Expr, kind: str = "int") -> str:
        """Return an expression as text of a kind of attribute; a float may be a whole number.

        A size is a whole number; a symbolic one is a code.

        Raises:
            RuleError: it is of another kind.
        """
        own = self.kind(expression)
        kind = "int" if kind == "size" else kind
        if kind == "float" and own == "int":
            if expression.kind == "literal":
                return float_text(expression.args[0])
            for leaf in _everything(expression):
                self._demand_literal(leaf)
            return f"(to-f64 {self._text(expression)})"
        if own != kind:
            raise RuleError(
                f"{self._rule}: {expression} is of kind {own}, where {kind} is wanted; "
                "real(...) makes a float of an extent, and nothing makes a whole number of a float"
            )
        return self._text(expression)

    def attribute(self, expression: Expr, kind: str) -> str:
        """Return an attribute of the right side, bound in the body so that a failure is no match.

        An attribute that is read back as a number must be literal; only sizes and lists may be
        symbolic.
        """
        for leaf in _everything(expression) if kind == "int" else literal_sizes(expression):
            self._demand_literal(leaf)
        return self._variable(self.value(expression, kind))

    def bind(self, variable: Expr, kind: str) -> str:
        """Return an attribute variable that the left side binds; a float must not be NaN.

        The engine treats NaN as equal to itself and greater than everything else.
        """
        text = self.value(variable, kind)
        fact = f"(<= {text} inf)"
        if kind == "float" and fact not in self._body:
            self._body.append(fact)
        return text

    def vector(self, parts: Sequence[Expr]) -> str:
        """Return a list attribute of the right side, bound in the body like any other."""
        for leaf in (leaf for part in parts for leaf in literal_sizes(part)):
            self._demand_literal(leaf)
        return self._variable(vector_of([self.value(part) for part in parts]))

    def kind(self, expression: Expr) -> str:
        """Return the kind of attribute that an expression computes."""
        match expression.kind:
            case "literal":
                value = expression.args[0]
                return "str" if isinstance(value, str) else _kind_of(value)
            case "attr":
                return self._kinds.get(expression.args[0], "int")
            case "dtype":
                return "str"
            case "dim" | "rank" | "item":
                return "int"
            case "/" | "sqrt" | "real":
                return "float"
            case _:
                kinds = {self.kind(arg) for arg in expression.args}
                return "float" if "float" in kinds else kinds.pop() if len(kinds) == 1 else "int"

    def _variable(self, text: str) -> str:
        if not text.startswith("("):
            return text
        if text not in self._bound:
            self._bound[text] = self.fresh("e")
            self._body.append(f"(= {self._bound[text]} {text})")
        return self._bound[text]

    def _text(self, expression: Expr) -> str:
        match expression.kind:
            case "literal":
                (literal,) = expression.args
                if isinstance(literal, float):
                    return float_text(literal)
                return f'"{literal}"' if isinstance(literal, str) else str(int(literal))
            case "attr":
                return f"v_{expression.args[0]}"
            case "dim":
                name, axis = expression.args
                text = f"(vec-get {self.shape(name)} {self.value(axis)})"
                return self._bound.get(text, text)
            case "rank":
                return f"(vec-length {self.shape(expression.args[0])})"
            case "dtype":
                return self._variable(f"(dtype v_{expression.args[0]})")
            case "item":
                base, index = expression.args
                text = f"(vec-get {self.value(base, 'ints')} {self.value(expr(index))})"
                return self._bound.get(text, text)
            case "sqrt":
                operand = self._variable(self.value(expression.args[0], "float"))
                self._body.append(f"(<= 0.0 {operand})")
                return self._number(f"(^ {operand} 0.5)", (expression.args[0],), (operand,))
            case "real":
                return self.value(expression.args[0], "float")
            case "//":
                return self._floor(*expression.args)
            case operator:
                kind = self.kind(expression)
                texts = tuple(self.value(arg, kind) for arg in expression.args)
                if kind != "float":
                    is_code = operator != "-" and self._may_be_symbolic(expression)
                    return (
                        self._code(operator, *texts)
                        if is_code
                        else f"({operator} {' '.join(texts)})"
                    )
                texts = tuple(map(self._variable, texts))
                return self._number(f"({operator} {' '.join(texts)})", expression.args, texts)

    def _may_be_symbolic(self, expression: Expr) -> bool:
        return not all(map(self._is_literal, _everything(expression)))

    def _code(self, operator: str, left: str, right: str) -> str:
        """Return a sum or product of the codes of sizes, which are symbolic or literal."""
        if operator == "+":
            return plus(left, right)
        key = f"(* {left} {right})"
        if key not in self._bound:
            self._bound[key] = self.fresh("e")
            self._body += times(left, right, self._bound[key])
        return self._bound[key]

    def _floor(self, above: Expr, below: Expr) -> str:
        """Return a floor quotient; truncation is exact once the modulus is subtracted."""
        left, right = (self._variable(self.value(side)) for side in (above, below))
        return f"(/ (- {left} (% (+ (% {left} {right}) {right}) {right})) {right})"

    def _number(self, text: str, args: Sequence[Expr], operands: Sequence[str]) -> str:
        """Bind a computed float and require that it is valid.

        It must not be NaN, and it must be finite unless an operand is infinite.
        """
        name = self._variable(text)
        # The first check is 0 for a finite result and NaN for an infinite one, the others are 0 for
        # an infinite operand; a minimum with NaN is the other number.
        checks = [f"(- {name} {name})"] + [
            f"(/ 1.0 (+ 1.0 (abs {operand})))"
            for arg, operand in zip(args, operands, strict=True)
            if self.kind(arg) == "float" and not _is_number(operand)
        ]
        least = checks[0]
        for check in checks[1:]:
            least = f"(min {least} {check})"
        facts = [f"(<= {name} inf)", f"(= 0.0 {least})"]
        self._body += [fact for fact in facts if fact not in self._body]
        return name

    def _demand_literal(self, leaf: Expr) -> None:
        """Require that an extent, a list element or an attribute is not symbolic."""
        kind = self.kind(leaf)
        if self._is_literal(leaf):
            return
        if kind == "ints":
            raise RuleError(f"{self._rule}: compare the elements of {leaf}, not the whole list")
        if kind != "int":
            return
        size = self._variable(self._text(leaf))
        if size not in self._literal:
            self._literal.add(size)
            self._body.append(f"(= 0 (/ {size} {LITERAL}))")

    def _is_literal(self, leaf: Expr) -> bool:
        """Return whether an extent, a list element or an attribute is known to be literal."""
        base = leaf.args[0] if leaf.kind == "item" else leaf
        if isinstance(base, Expr) and base.kind == "attr" and self._text(base) in self._literal:
            return True
        return self._text(leaf) in self._literal

    # Conditions -----------------------------------------------------------------------------------

    def condition(self, condition: Condition) -> None:
        """Add the facts of a condition.

        Raises:
            RuleError: the e-graph cannot decide it.
        """
        args = condition.args
        match condition.kind:
            case "same-shape":
                self._body.append(f"(= {self.shape(args[0])} {self.shape(args[1])})")
            case "distinct":
                self._body.append(f"(!= v_{args[0]} v_{args[1]})")
            case "is-float":
                self._body.append(f"(is-float (dtype v_{args[0]}))")
            case "follows":
                raise RuleError(
                    f"{self._rule}: merges siblings, which the e-graph does by its own seeds"
                )
            case _:
                self._compare(condition)

    def _compare(self, condition: Condition) -> None:
        left, right = (expr(arg) for arg in condition.args[:2])
        for leaf in literal_sizes(condition):
            self._demand_literal(leaf)
        kinds = {self.kind(left), self.kind(right)}
        is_approximate = condition.kind in ("near", "far")
        kind = "float" if is_approximate or "float" in kinds else self.kind(left)
        is_product = left.kind == "*" and self._may_be_symbolic(left)
        if is_product and condition.kind == "==" and right.kind == "literal" and not right.args[0]:
            # A product is 0 if a factor is, and a difference of codes is 0 if they are equal.
            sizes = [f"(abs {self.value(factor)})" for factor in _factors(left)]
            self._body.append(f"(= 0 {reduce(lambda a, b: f'(min {a} {b})', sizes)})")
            return
        a, b = (self.value(side, kind) for side in (left, right))
        if not is_approximate:
            sign = "=" if condition.kind == "==" else condition.kind
            sides = [s for s in (left, right) if self.kind(s) == "int" and _subtracts(s)]
            if sign == "=" and any(map(self._may_be_symbolic, sides)):
                a, b = congruent(a, b), "0"
            self._body.append(f"({sign} {a} {b})")
            return
        a, b = self._variable(a), self._variable(b)
        self._body += [f"(= 0.0 (- {side} {side}))" for side in (a, b) if not _is_number(side)]
        relation = "<=" if condition.kind == "near" else ">"
        bound = f"(* {float_text(condition.args[2])} (abs {b}))"
        self._body.append(f"({relation} (abs (- {a} {b})) {bound})")


def _factors(expression: Expr) -> Iterator[Expr]:
    if expression.kind == "*":
        for arg in expression.args:
            yield from _factors(arg)
    else:
        yield expression


def _subtracts(expression: Expr) -> bool:
    """Return whether a difference may leave the residues, so that congruence decides equality."""
    below = expression.args if expression.kind in ("+", "-", "*") else ()
    return expression.kind == "-" or any(map(_subtracts, below))


def _kind_of(value: float) -> str:
    return "float" if isinstance(value, float) else "int"


def _is_number(text: str) -> bool:
    return text.lstrip("-")[0].isdigit()


def _everything(expression: Expr) -> tuple[Expr, ...]:
    """Return all sizes in an expression that becomes a float."""
    return literal_sizes(Expr("real", (expression,)))
