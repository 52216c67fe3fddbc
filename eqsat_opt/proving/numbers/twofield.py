"""Two prime fields at once: exponentials, roots and powers as the homomorphisms they are.

A number is carried modulo p and modulo q with p = 2q + 1, both prime. The squares modulo p form a
group of order q, which represents the positive numbers: exp(x) is g to the power of x modulo q, and
a square root, or a power with a rational exponent, is unique in it. A logarithm is known modulo q
only, where it is a homomorphism, too. Mirage introduced the method for exponentials (Wu et al.,
OSDI 2025). An undefined number (the root of a non-square, a second exponential on one path, a
quotient by 0) is carried along as undefined and not compared.

Literals of a rule are rounded. Here they are the numbers that they were rounded from, so that
0.7071067811865476 squared is 1/2 (:mod:`eqsat_opt.proving.numbers.literals`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import OPS, Array, AttrMap
from eqsat_opt.ir.ops.domains import FieldDomain
from eqsat_opt.ir.ops.index.signatures import functions_of
from eqsat_opt.proving.numbers.literals import exact_literal

__all__ = [
    "HOMOMORPHIC",
    "LOGARITHMIC",
    "LOGARITHMIC_ORDER",
    "ORDER",
    "Integers",
    "TwoFieldDomain",
    "quotient",
]

ORDER = 1_073_735_879
"""The larger q, with which false identities are least likely to pass."""
LOGARITHMIC_ORDER = 335_999
"""A q whose discrete logarithms fit into a table."""
_SMOOTH = (2, 3, 5, 7)
"""Primes that are squares in both fields, so that roots of their products and quotients exist."""
_BITS = 31
_UNDEFINED = (1 << _BITS) - 1
_SMALL = 64
"""Bound on the exponents with which any number, not only a square, has a power."""
_FEW = 16
"""Most elements for which Python's own powers are faster than NumPy's."""
_LOGARITHMS = frozenset({"Log", "Softplus"})
_FUNCTIONS = _LOGARITHMS | {
    "Exp", "Sqrt", "Pow", "Sigmoid", "Tanh", "Mish", "Gelu", "Swish", "Erf", "Sin", "Cos",
}  # fmt: skip
LOGARITHMIC = frozenset(name for name in OPS if functions_of(name) & _LOGARITHMS)
"""Operators that take logarithms."""
HOMOMORPHIC = frozenset(name for name in OPS if functions_of(name) & _FUNCTIONS)
"""Operators that are more than random functions here."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Pair:
    """Residues modulo p and q, and where each of the two is undefined."""

    p: Integers
    q: Integers
    no_p: npt.NDArray[np.bool_]
    no_q: npt.NDArray[np.bool_]


def _powers(base: Integers, exponent: Integers, modulus: int) -> Integers:
    """Raise elementwise to a power: one by one where elements are few, else by squaring."""
    if max(base.size, exponent.size) <= _FEW:
        pairs = np.broadcast(base, exponent)
        powers = [pow(int(b), int(e), modulus) for b, e in pairs]
        return np.array(powers, dtype=np.int64).reshape(pairs.shape)
    result = np.ones(np.broadcast_shapes(base.shape, exponent.shape), dtype=np.int64)
    while exponent.any():
        result = np.where(exponent & 1, result * base % modulus, result)
        base = base * base % modulus
        exponent = exponent >> 1
    return result


class TwoFieldDomain:
    """Pairs of residues, packed into one integer; functions that are not modelled are random."""

    name = "two fields"

    def __init__(self, seed: int = 0, order: int = ORDER, cofactor: int = 2) -> None:
        """Choose the base of the exponential by the seed.

        Args:
            seed: seed of the base and of random functions.
            order: the prime q; :data:`LOGARITHMIC_ORDER` for terms with logarithms.
            cofactor: the quotient of p - 1 and q.
        """
        self.seed = seed
        self.prime = order
        self._p, self._q = FieldDomain(cofactor * order + 1, seed), FieldDomain(order, seed)
        self._constants: dict[float, Array] = {}
        drawn = int(np.random.default_rng(seed).integers(2, cofactor * order))
        self._base = np.asarray(pow(drawn, cofactor, self._p.prime), dtype=np.int64)

    def random(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Draw independent residues in both fields; modulo p they are squares or negated squares.

        Squares represent positive numbers. Half of the elements are negated, so that nothing holds
        for positive numbers only.
        """
        root = self._p.random(rng, shape)
        square = self._positive(root)
        p = np.where(rng.random(shape) < 0.5, square, self._p.prime - square)
        q = self._q.random(rng, shape)
        return self._defined(p, q)

    def _positive(self, root: Integers) -> Integers:
        """Return a number of the group of order q."""
        return np.asarray(self._p.mul(root, root))

    def _unpack(self, packed: Array) -> _Pair:
        """Unpack pairs of residues.

        The high bits hold the difference of the residues modulo q and p, so that a plain small
        integer is itself in both fields.
        """
        packed = packed.astype(np.int64)
        low, high = packed & _UNDEFINED, packed >> _BITS
        no_p, no_q = low == _UNDEFINED, high == _UNDEFINED
        p = np.where(no_p, 0, low)
        q = np.where(no_q, 0, (high + p) % self._q.prime)
        return _Pair(p, q, no_p, no_q)

    def _pack(self, pair: _Pair) -> Array:
        p, q, no_p, no_q = np.broadcast_arrays(pair.p, pair.q, pair.no_p, pair.no_q)
        p = np.where(no_p, 0, p)
        high = np.where(no_q, _UNDEFINED, (q - p) % self._q.prime)
        return np.asarray((high << _BITS) | np.where(no_p, _UNDEFINED, p), dtype=np.int64)

    def _defined(self, p: Integers, q: Integers) -> Array:
        no = np.zeros(np.shape(p), dtype=bool)
        return self._pack(_Pair(p, q, no, no))

    def comparable(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return where both operands are known modulo the same prime."""
        a, b = self._unpack(left), self._unpack(right)
        return np.asarray(~(a.no_p | b.no_p) | ~(a.no_q | b.no_q))

    def same(self, left: Array, right: Array) -> npt.NDArray[np.bool_]:
        """Return where both operands are equal, as far as both are defined."""
        a, b = self._unpack(left), self._unpack(right)
        equal_p = (a.p == b.p) | a.no_p | b.no_p
        return np.asarray(equal_p & ((a.q == b.q) | a.no_q | b.no_q))

    def _both(self, name: str, a: Array, b: Array) -> Array:
        x, y = self._unpack(a), self._unpack(b)
        p, q = getattr(self._p, name)(x.p, y.p), getattr(self._q, name)(x.q, y.q)
        return self._pack(_Pair(p, q, x.no_p | y.no_p, x.no_q | y.no_q))

    def add(self, a: Array, b: Array) -> Array:
        """Return the elementwise sum."""
        return self._both("add", a, b)

    def sub(self, a: Array, b: Array) -> Array:
        """Return the elementwise difference."""
        return self._both("sub", a, b)

    def mul(self, a: Array, b: Array) -> Array:
        """Return the elementwise product."""
        return self._both("mul", a, b)

    def div(self, a: Array, b: Array) -> Array:
        """Return the elementwise quotient, which is undefined for a divisor of 0."""
        x, y = self._unpack(a), self._unpack(b)
        nothing = (y.p == 0) & ~y.no_p
        no_p, no_q = y.no_p | nothing, y.no_q | (y.q == 0) | nothing
        p, q = self._p.div(x.p, y.p), self._q.div(x.q, y.q)
        return self._pack(_Pair(p, q, x.no_p | no_p, x.no_q | no_q))

    def matmul(self, a: Array, b: Array) -> Array:
        """Return the matrix product over the last two axes; one undefined addend spoils a sum."""
        x, y = self._unpack(a), self._unpack(b)
        p, q = self._p.matmul(x.p, y.p), self._q.matmul(x.q, y.q)

        def spoilt(left: Any, right: Any) -> Any:
            ones = np.ones_like(x.p), np.ones_like(y.p)
            return (np.matmul(left * 1, ones[1]) + np.matmul(ones[0], right * 1)) > 0

        return self._pack(_Pair(p, q, spoilt(x.no_p, y.no_p), spoilt(x.no_q, y.no_q)))

    def sum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Sum over ``axes``, which are kept."""
        x = self._unpack(a)
        no_p, no_q = (np.any(no, axis=axes, keepdims=True) for no in (x.no_p, x.no_q))
        return self._pack(_Pair(self._p.sum(x.p, axes), self._q.sum(x.q, axes), no_p, no_q))

    def maximum(self, a: Array, axes: tuple[int, ...]) -> Array:
        """Apply a random function to the set of elements along ``axes``, whatever their order."""
        x = self._unpack(a)
        members = self._p.sum(self._p.apply("Member", {}, x.p), axes)
        spoilt = np.any(x.no_p, axis=axes, keepdims=True)
        p = self._p.apply("Maximum", {}, members)
        q = self._q.apply("Maximum modulo q", {}, members)
        return self._pack(_Pair(p, q, spoilt, spoilt))

    def where(self, condition: Array, a: Array, b: Array) -> Array:
        """Return ``b`` where the condition is 0, else ``a``."""
        return np.where(condition, a, b)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply a homomorphism, a function that is made of one, or a random function."""
        x = operands[0]
        match function:
            case "Exp":
                return self._exp(x)
            case "Sqrt":
                return self._power(x, self.constant(0.5, x))
            case "Pow":
                return self._power(*operands)
            case "Sigmoid":
                one = self.constant(1, x)
                return self.div(one, self.add(one, self._exp(self.sub(np.zeros_like(x), x))))
            case "Tanh":
                grown = self._exp(self.add(x, x))
                one = self.constant(1, x)
                return self.div(self.sub(grown, one), self.add(grown, one))
            case "Mish":  # tanh(log(1 + e)) = ((1 + e)^2 - 1) / ((1 + e)^2 + 1)
                one = self.constant(1, x)
                grown = self.add(one, self._exp(x))
                square = self.mul(grown, grown)
                return self.mul(x, self.div(self.sub(square, one), self.add(square, one)))
            case "Gelu":
                return self._gelu(x, attrs["approximate"])
            case "Swish":
                inner = self.mul(self.constant(attrs["alpha"], x), x)
                return self.mul(x, self.apply("Sigmoid", {}, inner))
            case "Erf" | "Sin":
                return self._odd(function, x)
            case "Cos":
                return self._random(function, attrs, self._magnitude(x))
            case "Abs":
                return self._magnitude(x)
            case "Log":
                return self._log(x)
            case "Softplus":
                return self._log(self.add(self.constant(1, x), self._exp(x)))
        return self._random(function, attrs, *operands)

    def _random(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply a random function; operands undefined modulo p are read modulo q."""
        parts = [self._unpack(operand) for operand in operands]
        no = np.broadcast_arrays(*(part.no_p & part.no_q for part in parts))
        spoilt = np.logical_or.reduce(no)
        known = [np.where(part.no_p, part.q + self._p.prime, part.p) for part in parts]
        p = self._p.apply(function, attrs, *known)
        q = self._q.apply(f"{function} modulo q", attrs, *known)
        return self._pack(_Pair(p, q, spoilt, spoilt))

    def _magnitude(self, x: Array) -> Array:
        """Return the number or its negative, whichever is a square modulo p."""
        a = self._unpack(x)
        positive = self._is_first(a.p)
        p = np.where(positive, a.p, (self._p.prime - a.p) % self._p.prime)
        q = np.where(positive, a.q, (self._q.prime - a.q) % self._q.prime)
        return self._pack(_Pair(p, q, a.no_p, a.no_q | a.no_p))

    def _is_first(self, p: Integers) -> npt.NDArray[np.bool_]:
        return self._is_square(p)

    def _odd(self, function: str, x: Array) -> Array:
        """Apply a random function with f(-x) = -f(x)."""
        a = self._unpack(x)
        negative = a.p > self._p.prime // 2
        value = self._p.apply(function, {}, np.where(negative, self._p.prime - a.p, a.p))
        p = np.where(negative, self._p.prime - value, value)
        return self._modulo_p(p, a.no_p)

    def _modulo_p(self, p: Integers, no_p: Any = False) -> Array:
        """Return numbers that are not known modulo q."""
        return self._pack(_Pair(p, np.zeros_like(p), np.asarray(no_p), np.asarray(True)))

    def _gelu(self, x: Array, approximate: str) -> Array:
        half, one = self.constant(0.5, x), self.constant(1, x)
        if approximate == "tanh":
            cubic = self.mul(self.constant(0.044715, x), self.mul(x, self.mul(x, x)))
            inner = self.mul(self.constant(math.sqrt(2 / math.pi), x), self.add(x, cubic))
            gate = self.apply("Tanh", {}, inner)
        else:
            gate = self.apply("Erf", {}, self.mul(self.constant(math.sqrt(0.5), x), x))
        return self.mul(half, self.mul(x, self.add(one, gate)))

    def _exp(self, x: Array) -> Array:
        a = self._unpack(x)
        return self._modulo_p(self._raised(self._base, a.q), a.no_q)

    def _raised(self, base: Integers, exponent: Integers) -> Integers:
        return _powers(base, exponent, self._p.prime)

    def _is_square(self, p: Integers) -> npt.NDArray[np.bool_]:
        return np.asarray(_powers(p, np.asarray(self._q.prime), self._p.prime) == 1)

    @cached_property
    def _logarithms(self) -> Integers:
        """Table from a square modulo p to its discrete logarithm; other entries are 0."""
        powers = np.ones(1, dtype=np.int64)
        while powers.size < self.prime:
            factor = pow(int(self._base), powers.size, self._p.prime)
            powers = np.concatenate([powers, powers * factor % self._p.prime])
        table = np.zeros(self._p.prime, dtype=np.int64)
        table[powers[: self.prime]] = np.arange(self.prime)
        return table

    def _log(self, x: Array) -> Array:
        """Return the logarithm, which is defined modulo q for squares and unknown modulo p."""
        a = self._unpack(x)
        if self.prime > LOGARITHMIC_ORDER:
            raise ValueError("this order is too large for logarithms")
        undefined = a.no_p | ~self._is_square(a.p)
        unknown = np.ones_like(undefined)
        return self._pack(_Pair(np.zeros_like(a.p), self._logarithms[a.p], unknown, undefined))

    def _power(self, base: Array, exponent: Array) -> Array:
        """Raise to a power: squares to any exponent, every other number to small integers."""
        x, e = (self._unpack(np.asarray(o)) for o in np.broadcast_arrays(base, exponent))
        whole = (e.p == e.q) & (e.p < _SMALL) & ~e.no_p & ~e.no_q
        square = whole if whole.all() else self._is_square(x.p)
        p = _powers(x.p, np.where(whole, e.p, e.q), self._p.prime)
        q = _powers(x.q, np.where(whole, e.p, 0), self._q.prime)
        no_p = x.no_p | e.no_q | ~(whole | square)
        return self._pack(_Pair(p, q, no_p, x.no_q | ~whole))

    def constant(self, value: float, like: Array) -> Array:
        """Return the residues of the number that a literal was rounded from."""
        if value not in self._constants:
            p, q = (self._residue(value, modulus) for modulus in (self._p.prime, self._q.prime))
            residues = np.asarray(p, dtype=np.int64), np.asarray(q, dtype=np.int64)
            self._constants[value] = self._defined(*residues)
        return self._constants[value]

    def _residue(self, value: float, modulus: int) -> int:
        exact = exact_literal(value) if isinstance(value, float) else None
        if exact is None or not _is_smooth(exact.radicand):
            return quotient(Fraction(value), modulus)
        # A transcendental number may be any residue; it is a square, because it is positive.
        root_of_pi = int(np.random.default_rng((self.seed, 314)).integers(2, self._q.prime))
        irrational = _root(exact.radicand, modulus) * pow(root_of_pi, exact.pi_halves, modulus)
        return quotient(exact.rational, modulus) * irrational % modulus


def quotient(number: Fraction, modulus: int) -> int:
    """Return the residue of a rational number."""
    return number.numerator * pow(number.denominator, -1, modulus) % modulus


def _is_smooth(number: int) -> bool:
    for prime in _SMOOTH:
        while number % prime == 0:
            number //= prime
    return number == 1


def _root(square: int, modulus: int) -> int:
    """Return the root that is itself a square, which represents the positive root.

    Moduli are 3 modulo 4.
    """
    return pow(square, (modulus + 1) // 4, modulus)
