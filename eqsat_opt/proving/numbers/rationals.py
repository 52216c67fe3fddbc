"""Exact rational numbers, on which piecewise functions keep their properties.

A relu is idempotent and a maximum is monotone here, because both are the real ones. Functions that
leave the rationals are replaced by random ones, as in the prime field, but of the same shape: an
exponential is positive and increasing, a hyperbolic tangent odd, increasing and less than 1
(:mod:`eqsat_opt.proving.numbers.shapes`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import OPS, Array, AttrMap, ExactFn, with_trait
from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.proving.numbers.literals import exact_literal
from eqsat_opt.proving.numbers.shapes import SHAPED

__all__ = ["EXACT", "RationalDomain"]

_INFINITE = float("inf")
_CAST = "Cast"
_EXACT_IN_ALL = 256
"""Greatest integer up to which all integers are exact in bfloat16."""


def _whole(x: Fraction) -> int | Fraction:
    """Return the same number, as an ``int`` where it is whole, because that is faster."""
    return x.numerator if x.denominator == 1 else x


_MOST_SIXTHS = 40
_SIXTHS = np.array(
    [_whole(Fraction(n, 6)) for n in range(-_MOST_SIXTHS, _MOST_SIXTHS + 1)], dtype=object
)
"""Fractions to draw from, because making a fraction takes longer than finding it."""


def _rational(value: float) -> Fraction:
    """Return the rational that an attribute is, or that it was rounded from."""
    exact = exact_literal(value) if isinstance(value, float) else None
    return exact.rational if exact is not None and exact.is_rational else Fraction(value)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < _INFINITE


def _cast(x: Any, attrs: AttrMap) -> Any:
    return bool(x) if attrs["to"] == "bool" else int(x)


def _is_small(x: Any) -> bool:
    """Return whether a number is exact in every floating-point type."""
    return isinstance(x, np.bool_) or (isinstance(x, int) and abs(x) <= _EXACT_IN_ALL)


def _exactly(function: str, attrs: AttrMap, operand: Array) -> ExactFn | None:
    """Return the true function, if it is exact on rationals; a cast to floating point may round."""
    if function == _CAST:
        return _cast if attrs["to"] not in FLOATS or all(map(_is_small, operand.flat)) else None
    return OPS[function].exact if function in OPS else None


EXACT = frozenset(n for n, op in OPS.items() if op.exact) | with_trait("order") | {_CAST}
"""Operators whose own definition, with its order and its signs, is evaluated here."""


class RationalDomain:
    """The domain of Python integers and fractions in object arrays."""

    name = "rationals"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draw numbers of both signs: ties and zeros, fractions, or large ones, by the seed."""
        most = (3, _MOST_SIXTHS, 2000)[self.seed % 3]
        drawn = rng.integers(-most, most + 1, size=shape)
        return np.asarray(_SIXTHS[drawn + most] if most == _MOST_SIXTHS else drawn, dtype=object)

    def add(self, a: Array, b: Array) -> Array:
        """Return the elementwise sum."""
        return np.asarray(a + b, dtype=object)

    def sub(self, a: Array, b: Array) -> Array:
        """Return the elementwise difference."""
        return np.asarray(a - b, dtype=object)

    def mul(self, a: Array, b: Array) -> Array:
        """Return the elementwise product."""
        return np.asarray(a * b, dtype=object)

    def div(self, a: Array, b: Array) -> Array:
        """Return the elementwise quotient.

        Raises:
            ZeroDivisionError: a divisor is 0; draw other values.
        """
        return np.asarray(a * _map(_inverse, b), dtype=object)

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product over the last two axes."""
        return np.asarray(np.matmul(a, b), dtype=object)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept."""
        return np.asarray(np.sum(a, axis=axes, keepdims=True), dtype=object)

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the greatest element over ``axes``, which are kept."""
        return np.asarray(np.max(a, axis=axes, keepdims=True), dtype=object)

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return ``a`` where the condition holds, else ``b``."""
        return np.where(condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply the function itself where it is exact, else a random function of its arguments.

        A cast to floating point rounds, so it is a random function, too.
        """
        exact = _exactly(function, attrs, operands[0])
        if exact is not None:
            values = {key: _rational(v) if _is_finite(v) else v for key, v in attrs.items()}
            return _map(lambda *numbers: exact(*numbers, values), *operands)
        if function in SHAPED:
            shaped = SHAPED[function]
            return _map(lambda x: shaped(x, attrs, self.seed), operands[0])
        text = f"{function}{sorted(attrs.items())}{self.seed}"
        return _map(lambda *values: _hashed(text, values), *operands)

    def constant(self, value: float, like: Array) -> Array:
        """Return the rational that a literal is."""
        return np.asarray(_whole(_rational(value)), dtype=object)


def _map(function: Callable[..., Any], *operands: Array) -> Array:
    """Apply a function elementwise."""
    return np.asarray(np.frompyfunc(function, len(operands), 1)(*operands), dtype=object)


def _inverse(y: Any) -> Any:
    return 1 / Fraction(y) if abs(y) < _INFINITE else 1 / y


def _hashed(text: str, values: tuple[Any, ...]) -> int | Fraction:
    key = f"{text}{[str(Fraction(v)) if abs(v) < _INFINITE else str(v) for v in values]}"
    digest = hashlib.blake2b(key.encode(), digest_size=4).digest()
    return _whole(Fraction(int.from_bytes(digest, "little") % 16001 - 8000, 8))
