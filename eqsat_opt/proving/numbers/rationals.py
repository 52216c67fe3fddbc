"""Exact rational numbers, on which piecewise functions keep their properties.

A relu is idempotent and a maximum is monotone here, because both are the real ones. Functions that
leave the rationals are random ones, as in the prime field, but of the shape that they have: an
exponential is positive and increasing, a hyperbolic tangent odd, increasing and less than 1
(:mod:`eqsat_opt.proving.numbers.shapes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import Array, AttrMap, with_trait
from eqsat_opt.ir.types import FLOATS
from eqsat_opt.proving.numbers.literals import exact_literal
from eqsat_opt.proving.numbers.shapes import SHAPED

__all__ = ["EXACT", "RationalDomain"]

_INFINITE = float("inf")
_EXACT_IN_ALL = 256
"""Integers up to this are numbers of bfloat16."""


def _round(x: Any) -> Any:
    return round(x) if abs(x) < _INFINITE else x


def _whole(x: Fraction) -> int | Fraction:
    """The same, as an integer where it is one: they are faster."""
    return x.numerator if x.denominator == 1 else x


def _rational(value: float) -> Fraction:
    """The number that an attribute is, or a quotient that it was rounded from."""
    exact = exact_literal(value) if isinstance(value, float) else None
    return exact.rational if exact is not None and exact.is_rational else Fraction(value)


def _between(x: Any, low: float, high: float) -> Any:
    if low > -_INFINITE:
        x = max(x, _rational(low))
    return min(x, _rational(high)) if high < _INFINITE else x


def _cast(x: Any, attrs: AttrMap) -> Any:
    return bool(x) if attrs["to"] == "bool" else int(x)


def _is_small(x: Any) -> bool:
    """Whether every type of floating point holds a number."""
    return isinstance(x, np.bool_) or (isinstance(x, int) and abs(x) <= _EXACT_IN_ALL)


def _is_exact(function: str, attrs: AttrMap, operand: Array) -> bool:
    """Whether a function is computed as it is; a cast to floating point rounds, or may do so."""
    if function not in _ONE:
        return False
    return attrs.get("to") not in FLOATS or all(_is_small(x) for x in operand.flat)


_ONE: dict[str, Callable[[Any, AttrMap], Any]] = {
    "Relu": lambda x, _a: max(x, 0),
    "Abs": lambda x, _a: abs(x),
    "Sign": lambda x, _a: (x > 0) - (x < 0) if x == x else x,
    "Floor": lambda x, _a: x // 1,
    "Ceil": lambda x, _a: -(-x // 1),
    "Round": lambda x, _a: _round(x),
    "LeakyRelu": lambda x, a: x if x >= 0 else _rational(a["alpha"]) * x,
    "ThresholdedRelu": lambda x, a: x if x > _rational(a["alpha"]) else 0,
    "Clip": lambda x, a: _between(x, a["min"], a["max"]),
    "HardSigmoid": lambda x, a: _between(_rational(a["alpha"]) * x + _rational(a["beta"]), 0, 1),
    "HardSwish": lambda x, _a: x * _between(Fraction(x) / 6 + Fraction(1, 2), 0, 1),
    "Softsign": lambda x, _a: Fraction(x) / (1 + abs(x)),
    "Not": lambda x, _a: not x,
    "IsNaN": lambda x, _a: bool(x != x),
    "Cast": _cast,
}
_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "Min": min,
    "Max": max,
    "PRelu": lambda x, slope: x if x >= 0 else slope * x,
    "Equal": lambda x, y: x == y,
    "Greater": lambda x, y: x > y,
    "Less": lambda x, y: x < y,
    "GreaterOrEqual": lambda x, y: x >= y,
    "LessOrEqual": lambda x, y: x <= y,
    "And": lambda x, y: bool(x) and bool(y),
    "Or": lambda x, y: bool(x) or bool(y),
    "Xor": lambda x, y: bool(x) != bool(y),
}
EXACT = frozenset({*_ONE, *_TWO}) | with_trait("order")
"""Operators whose own definition, with its order and its signs, is what is evaluated here."""


class RationalDomain:
    """Python integers and fractions in object arrays."""

    name = "rationals"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Numbers of both signs; ties and zeros, fractions, or large ones, as the seed says."""
        most, parts = ((3, 1), (40, 6), (2000, 1))[self.seed % 3]
        drawn: Array = rng.integers(-most, most + 1, size=shape).astype(object)
        return drawn if parts == 1 else _map(lambda n: _whole(Fraction(n, parts)), drawn)

    def add(self, a: Array, b: Array) -> Array:
        """Elementwise sum."""
        return np.asarray(a + b, dtype=object)

    def sub(self, a: Array, b: Array) -> Array:
        """Elementwise difference."""
        return np.asarray(a - b, dtype=object)

    def mul(self, a: Array, b: Array) -> Array:
        """Elementwise product."""
        return np.asarray(a * b, dtype=object)

    def div(self, a: Array, b: Array) -> Array:
        """Elementwise quotient.

        Raises:
            ZeroDivisionError: a divisor is 0; draw other values.
        """
        return np.asarray(a * _map(_inverse, b), dtype=object)

    def matmul(self, a: Array, b: Array) -> Array:
        """Matrix product over the last two axes."""
        return np.asarray(np.matmul(a, b), dtype=object)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept."""
        return np.asarray(np.sum(a, axis=axes, keepdims=True), dtype=object)

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Greatest element over ``axes``, which are kept."""
        return np.asarray(np.max(a, axis=axes, keepdims=True), dtype=object)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """The function itself where it is exact, else a random one of its arguments.

        A cast to floating point rounds, which is a random function, too.
        """
        if _is_exact(function, attrs, operands[0]):
            one = _ONE[function]
            return _map(lambda x: one(x, attrs), operands[0])
        if function in _TWO:
            return _map(_TWO[function], *operands)
        if function in SHAPED:
            shaped = SHAPED[function]
            return _map(lambda x: shaped(x, attrs, self.seed), operands[0])
        text = f"{function}{sorted(attrs.items())}{self.seed}"
        return _map(lambda *values: _hashed(text, values), *operands)

    def constant(self, value: float, like: Array) -> Array:
        """The rational that the literal is."""
        return np.asarray(_whole(_rational(value)), dtype=object)


def _map(function: Callable[..., Any], *operands: Array) -> Array:
    """Elementwise."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), dtype=object)


def _inverse(y: Any) -> Any:
    return 1 / Fraction(y) if abs(y) < _INFINITE else 1 / y


def _hashed(text: str, values: tuple[Any, ...]) -> int | Fraction:
    key = f"{text}{[str(Fraction(v)) if abs(v) < _INFINITE else str(v) for v in values]}"
    digest = hashlib.blake2b(key.encode(), digest_size=4).digest()
    return _whole(Fraction(int.from_bytes(digest, "little") % 16001 - 8000, 8))
