"""Integers, formulas and numbers of a trace, evaluated: in a prime field, or in double precision.

A trace has one table of nodes; a node is a list with its kind first, and names others by position,
always earlier ones. In the field an unknown function is a random one of its operands' values.
Numbers with an order, a root or an exponential are evaluated in double precision, where unknown
functions are smooth.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

__all__ = ["PRIME", "Malformed", "Numbers", "TooLarge", "Undefined", "needs_order", "numbers_in"]

PRIME = (1 << 61) - 1
_MAX_ELEMENTS = 600
"""Most elements that are read or made at one point, so that no sum is too large to check."""


class Malformed(Exception):
    """The error raised where a trace is not in the format that it claims to have."""


class Undefined(Exception):
    """The error raised at a pole, or outside of the domain of a root or logarithm."""


class TooLarge(Exception):
    """The error raised at a point that would take too many evaluations."""


Environment = dict[str, int]


class Numbers:
    """An evaluator of the nodes of one trace at one drawing of all tensors.

    Args:
        nodes: the table of nodes.
        seed: seed of the elements, parameters and unknown functions.
        exact: whether values are elements of the prime field, or floats.
    """

    def __init__(self, nodes: Sequence[Any], seed: str, *, exact: bool) -> None:
        self.nodes = nodes
        self.seed = seed
        self.exact = exact
        self.positive = False
        self.left = _MAX_ELEMENTS

    def _draw(self, *key: object) -> int:
        text = repr((self.seed, *key)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")

    def _drawn(self, sign: str, *key: object) -> Any:
        number = self._draw(*key)
        if self.exact:
            return number % PRIME
        size = 0.125 + (number >> 1) / 2**63
        if sign == "negative" or (number & 1 and sign == "unknown" and not self.positive):
            return -size
        return size

    # Integers and formulas ------------------------------------------------------------------------

    def integer(self, node: int, at: Environment) -> int:
        """Return the value of a polynomial or atom; an unknown symbol is an error."""
        match self.nodes[node]:
            case ["symbol", name]:
                if name not in at:
                    raise Malformed(f"the symbol {name} is not bound")
                return at[name]
            case ["poly", *terms]:
                total = 0
                for coefficient, *factors in terms:
                    for factor in factors:
                        coefficient *= self.integer(factor, at)
                    total += coefficient
                return total
            case ["quotient", over, under]:
                divisor = self.integer(under, at)
                if divisor < 1:
                    raise Undefined("a quotient by what is not positive")
                return self.integer(over, at) // divisor
            case ["pick", index, extent]:
                return 0 if self.integer(extent, at) == 1 else self.integer(index, at)
            case ["broadcast", *extents]:
                found = [self.integer(extent, at) for extent in extents]
                return next((extent for extent in found if extent != 1), 1)
            case ["choose", condition, then, otherwise]:
                return self.integer(then if self.holds(condition, at) else otherwise, at)
            case other:
                raise Malformed(f"{other!r} is no integer")

    def holds(self, node: int, at: Environment) -> bool:
        """Return whether a formula holds."""
        match self.nodes[node]:
            case [">=0", value]:
                return self.integer(value, at) >= 0
            case ["=0", value]:
                return self.integer(value, at) == 0
            case ["and", *parts]:
                return all(self.holds(part, at) for part in parts)
            case ["or", *parts]:
                return any(self.holds(part, at) for part in parts)
            case other:
                raise Malformed(f"{other!r} is no formula")

    def met(self, node: int, at: Environment) -> bool:
        """Return whether a formula has a value and holds."""
        try:
            return self.holds(node, at)
        except Undefined:
            return False

    # Numbers --------------------------------------------------------------------------------------

    def value(self, node: int, at: Environment) -> Any:
        """Return the value of a number: a residue, or a float.

        Raises:
            Undefined: it has none.
            TooLarge: it has too many elements.
        """
        self.left -= 1
        if self.left < 0:
            raise TooLarge
        match self.nodes[node]:
            case ["constant", over, under]:
                return over * pow(under, -1, PRIME) % PRIME if self.exact else over / under
            case ["whole", value]:
                return self._reduced(self.integer(value, at))
            case ["read", tensor, *index]:
                return self._drawn("unknown", "read", tensor, *(self.integer(i, at) for i in index))
            case ["parameter", name, sign]:
                return self._drawn(sign, "parameter", name)
            case ["plus", *parts]:
                total = self._reduced(0)
                for part in parts:
                    total += self.value(part, at)
                return self._reduced(total)
            case ["times", *parts]:
                result = self._reduced(1)
                for part in parts:
                    if not result and self.exact:
                        break
                    result = self._reduced(result * self.value(part, at))
                return result
            case ["power", base, over, under]:
                return self._power(self.value(base, at), Fraction(over, under))
            case ["call", function, attributes, *arguments]:
                return self._call(function, attributes, [self.value(a, at) for a in arguments])
            case ["if", condition, then, otherwise]:
                return self.value(then if self.holds(condition, at) else otherwise, at)
            case ["sum", bound, where, body]:
                total = self._reduced(0)
                for inner in self._points(bound, where, at):
                    total += self.value(body, inner)
                return self._reduced(total)
            case ["max" | "min" as kind, *cases]:
                found = [
                    self.value(body, inner)
                    for bound, where, body in cases
                    for inner in self._points(bound, where, at)
                ]
                if not found:
                    raise Undefined("an extremum of nothing")
                return max(found) if kind == "max" else min(found)
            case other:
                raise Malformed(f"{other!r} is no number")

    def size(self, node: int, at: Environment) -> float:
        """Return the sum of the sizes of the parts of a sum, which its rounding is measured by."""
        parts = self.nodes[node][1:] if self.nodes[node][0] == "plus" else [node]
        return 1.0 + sum(abs(float(self.value(part, at))) for part in parts)

    def _points(self, bound: Sequence[Any], where: int, at: Environment) -> Any:
        names = [name for name, _ in bound]
        extents = [self.integer(extent, at) for _, extent in bound]
        self.left -= math.prod(max(extent, 0) for extent in extents)
        if self.left < 0:
            raise TooLarge
        for point in itertools.product(*map(range, extents)):
            inner = at | dict(zip(names, point, strict=True))
            if self.holds(where, inner):
                yield inner

    def _reduced(self, value: Any) -> Any:
        return value % PRIME if self.exact else float(value)

    def _power(self, base: Any, exponent: Fraction) -> Any:
        if base == 0 and exponent < 0:
            raise Undefined("a pole")
        if self.exact:
            return pow(base, int(exponent), PRIME)
        if base < 0 and exponent.denominator != 1:
            raise Undefined("a root of a negative number")
        return _finite(
            lambda: base ** (int(exponent) if exponent.denominator == 1 else float(exponent))
        )

    def _call(self, function: str, attributes: str, arguments: Sequence[Any]) -> Any:
        if function == "Truth":
            if self.exact:
                return self._draw("truth", *arguments) & 1
            return float(arguments[0] != 0)
        if self.exact:
            return self._draw(function, attributes, *arguments) % PRIME
        known = _KNOWN.get(function)
        if known is not None:
            return _finite(lambda: known(*arguments))
        parts = (
            (0.5 + self._draw(function, attributes, i) / 2**64) * one
            for i, one in enumerate((1.0, *arguments))
        )
        return math.sin(sum(parts))


def _finite(compute: Callable[[], float]) -> float:
    try:
        value = compute()
    except (ArithmeticError, ValueError) as error:
        raise Undefined(str(error)) from error
    if isinstance(value, complex) or not math.isfinite(value):
        raise Undefined("no finite number")
    return value


_KNOWN: Mapping[str, Callable[..., float]] = {
    "Exp": math.exp,
    "Log": math.log,
    "Erf": math.erf,
    "Positive": lambda x: float(x > 0),
    "Where": lambda condition, then, otherwise: then if condition else otherwise,
    "Pow": lambda base, exponent: base**exponent,
}
"""Functions of which more is used than that they are functions."""


def needs_order(nodes: Sequence[Any], node: int, known: dict[int, bool]) -> bool:
    """Return whether a number needs an order, roots or exponentials, and so double precision."""
    if node not in known:
        match nodes[node]:
            case ["max" | "min", *_]:
                known[node] = True
            case ["call", function, *_] if function in _KNOWN:
                known[node] = True
            case ["power", _, _, under] if under != 1:
                known[node] = True
            case _:
                known[node] = any(needs_order(nodes, one, known) for one in numbers_in(nodes[node]))
    return known[node]


def numbers_in(node: Any) -> Sequence[int]:
    """Return the numbers that a number is made of, but for the cases of an extremum."""
    match node:
        case ["plus" | "times", *parts]:
            return parts
        case ["power", base, _, _]:
            return [base]
        case ["call", _, _, *arguments]:
            return arguments
        case ["if", _, then, otherwise]:
            return [then, otherwise]
        case ["sum", _, _, body]:
            return [body]
        case _:
            return []
