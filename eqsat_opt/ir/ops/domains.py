"""Number domains that operators evaluate on: floating point, and a prime field for exact checks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import Array, AttrMap, lowest
from eqsat_opt.ir.ops.functions import FUNCTIONS

__all__ = ["FLOAT", "FieldDomain", "FloatDomain"]


_TRUTHS: dict[str, Callable[[Array], Array]] = {"Not": np.logical_not, "IsNaN": np.isnan}
"""Functions of one element whose values are truth values."""


def _power(a: Array, b: Array) -> Array:
    """Return powers in the element type of the base, whatever the type of the exponent."""
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b.astype(a.dtype)))
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        # NumPy refuses to raise integers to negative powers, whose values truncate towards 0.
        fractions = np.float_power(a, np.minimum(b, 0)).astype(a.dtype)
        return np.where(b < 0, fractions, np.power(a, np.maximum(b, 0))).astype(a.dtype)
    return np.asarray(np.power(a, b).astype(a.dtype))


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Pow": _power,
    "Min": np.minimum,
    "Max": np.maximum,
    "PRelu": lambda a, b: np.where(a < 0, b * a, a),
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
}


def _wide(a: Array) -> Array:
    """Convert half types to float32, in which every CPU runtime computes them."""
    return a.astype(np.float32) if a.dtype.itemsize == 2 and a.dtype.kind not in "iub" else a


def _truncated(a: Array, b: Array) -> Array:
    """Return the quotient of integers, rounded towards 0; 0 for a divisor of 0."""
    floor = np.where(b == 0, a.dtype.type(0), a // np.where(b == 0, b.dtype.type(1), b))
    up = (floor * b != a) & ((a < 0) != (b < 0)) & (b != 0)
    return np.asarray((floor + up).astype(a.dtype))


class FloatDomain:
    """IEEE arithmetic with NumPy; integers use their own wrapping arithmetic."""

    name = "float"

    def add(self, a: Array, b: Array) -> Array:
        """Return the elementwise sum."""
        return np.asarray(a + b)

    def sub(self, a: Array, b: Array) -> Array:
        """Return the elementwise difference."""
        return np.asarray(a - b)

    def mul(self, a: Array, b: Array) -> Array:
        """Return the elementwise product."""
        return np.asarray(a * b)

    def div(self, a: Array, b: Array) -> Array:
        """Return the elementwise quotient; integers truncate towards zero, as in ONNX."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if a.dtype.kind in "iu":
                return _truncated(a, b)
            return np.asarray(a / b)

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product over the last two axes."""
        return np.asarray(np.matmul(_wide(a), _wide(b)).astype(a.dtype, copy=False))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the sum over ``axes``, which are kept with size 1."""
        return np.asarray(
            np.add.reduce(_wide(a), axis=axes, keepdims=True).astype(a.dtype, copy=False)
        )

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the greatest element over ``axes``, which are kept with size 1.

        The maximum over no elements is the least value of the type.
        """
        if a.size == 0:
            return np.asarray(np.max(a, axis=axes, keepdims=True, initial=lowest(a.dtype)))
        return np.asarray(np.maximum.reduce(a, axis=axes, keepdims=True))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return ``a`` where the condition holds, else ``b``."""
        return np.where(condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply a scalar function, given by operator name."""
        first = operands[0]
        with np.errstate(all="ignore"):
            if function == "Mod":  # the sign is the divisor's, or the dividend's for fmod
                return np.asarray((np.fmod if attrs["fmod"] else np.remainder)(*operands))
            if len(operands) == 2:
                return np.asarray(_BINARY[function](*operands))
            if function in _TRUTHS:
                return np.asarray(_TRUTHS[function](first))
            result = FUNCTIONS[function].evaluate(_wide(first), attrs)
        return np.asarray(result.astype(first.dtype))

    def constant(self, value: float, like: Array) -> Array:
        """Return a scalar of the element type of ``like``."""
        return np.asarray(value, dtype=like.dtype)


FLOAT = FloatDomain()


_FEW = 48
"""Number of elements up to which Python inverts faster than NumPy with 60 products of arrays."""


class FieldDomain:
    """Integers modulo a prime below 2^31; a nonlinear function is a random function.

    An identity that holds here at random values holds as an identity of rational functions except
    with a probability of about degree/p (Schwartz-Zippel).
    """

    name = "field"

    def __init__(self, prime: int = 2**31 - 1, seed: int = 0) -> None:
        self.prime = prime
        self.seed = seed

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Return uniform elements, never 0."""
        return rng.integers(1, self.prime, size=shape, dtype=np.int64)

    def add(self, a: Array, b: Array) -> Array:
        """Return the sum modulo p."""
        return (a + b) % self.prime

    def sub(self, a: Array, b: Array) -> Array:
        """Return the difference modulo p."""
        return (a - b) % self.prime

    def mul(self, a: Array, b: Array) -> Array:
        """Return the product modulo p; both operands are below 2^31, so it fits."""
        return (a * b) % self.prime

    def div(self, a: Array, b: Array) -> Array:
        """Return the quotient modulo p."""
        return self.mul(a, self._inverse(b))

    def _inverse(self, b: Array) -> Array:
        """Return the multiplicative inverse, 0 for 0; a few elements are inverted one by one."""
        if b.size > _FEW:
            return self._power(b, self.prime - 2)
        inverses = [pow(x, -1, self.prime) if x % self.prime else 0 for x in b.ravel().tolist()]
        return np.array(inverses, dtype=np.int64).reshape(b.shape)

    def _power(self, base: Array, exponent: int) -> Array:
        result = np.ones_like(base)
        while exponent:
            if exponent & 1:
                result = self.mul(result, base)
            base = self.mul(base, base)
            exponent >>= 1
        return result

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product modulo p, where every product is reduced before the sum."""
        if b.ndim == 1:
            return np.asarray(np.add.reduce(self.mul(a, b), axis=-1) % self.prime)
        left = a[..., :, :, None] if a.ndim > 1 else a[:, None]
        right = b[..., None, :, :] if a.ndim > 1 else b
        return np.asarray(np.add.reduce(self.mul(left, right), axis=-2) % self.prime)

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the sum modulo p over ``axes``, which are kept."""
        return np.asarray(np.add.reduce(a, axis=axes, keepdims=True) % self.prime)

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Return the greatest representative, in place of the maximum in any total order."""
        return np.asarray(np.maximum.reduce(a, axis=axes, keepdims=True))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return ``b`` where the condition is 0, else ``a``."""
        return np.where(condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Return a random function of the operands, keyed by name, attributes and seed."""
        mixed: Any = _key(f"{function}{sorted(attrs.items())}{self.seed}")
        for operand in operands:
            mixed = _mix(np.asarray(mixed ^ operand.astype(np.uint64)))
        return np.asarray(mixed % np.uint64(self.prime)).astype(np.int64)

    def constant(self, value: float, like: Array) -> Array:
        """Return the field element of a rational literal."""
        numerator, denominator = (
            value.as_integer_ratio() if isinstance(value, float) else (int(value), 1)
        )
        return np.asarray(numerator * pow(denominator, -1, self.prime) % self.prime, dtype=np.int64)


@lru_cache(maxsize=1024)
def _key(text: str) -> np.uint64:
    digest = hashlib.blake2b(text.encode(), digest_size=7).digest()
    return np.uint64(int.from_bytes(digest, "little"))


_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


def _mix(x: Array) -> Array:
    """Apply the finaliser of splitmix64 (Steele et al. 2014), in place."""
    shifted = np.empty_like(x)
    for shift, factor in zip(_SHIFTS, _FACTORS, strict=False):
        np.bitwise_xor(x, np.right_shift(x, shift, out=shifted), out=x)
        np.multiply(x, factor, out=x)
    return np.bitwise_xor(x, np.right_shift(x, _SHIFTS[-1], out=shifted), out=x)
