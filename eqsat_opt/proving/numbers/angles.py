"""Two prime fields in which sines and cosines are those of sums as well.

With p = 4q + 1 there is an i modulo p whose square is -1. So an angle x, known modulo q, has the
numbers e = h^x, cos x = (e + 1/e) / 2 and sin x = (e - 1/e) / 2i, of which all addition theorems
follow, and cos² + sin² = 1. The fourth powers modulo p form the group of order q and represent the
positive numbers; most numbers are neither positive nor negative here. Nothing is known of pi: it is
any number.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from eqsat_opt.ir.ops import OPS, Array, AttrMap
from eqsat_opt.ir.ops.index.signatures import functions_of
from eqsat_opt.proving.numbers.twofield import Integers, TwoFieldDomain, quotient

__all__ = ["ANGULAR", "AngleDomain"]

_ORDER = 496_870_807
"""A prime q for which 4q + 1 is a prime, too, below 2^31."""
_COFACTOR = 4
_CIRCULAR = frozenset({"Sin", "Cos"})
ANGULAR = frozenset(name for name in OPS if functions_of(name) & _CIRCULAR)
"""Operators that take sines or cosines."""


class AngleDomain(TwoFieldDomain):
    """Pairs of residues with a square root of -1."""

    def __init__(self, seed: int = 0) -> None:
        """Choose the base of angles by the seed, unrelated to that of the exponential."""
        super().__init__(seed, _ORDER, _COFACTOR)
        modulus = self._p.prime
        rng = np.random.default_rng((seed, _COFACTOR))
        root = next(r for r in map(int, rng.integers(2, modulus, 256)) if not _has_root(r, modulus))
        self._i = np.asarray(pow(root, modulus // 4, modulus), dtype=np.int64)
        base = pow(int(rng.integers(2, modulus)), _COFACTOR, modulus)
        self._turn = np.asarray(base, dtype=np.int64)

    def _positive(self, root: Integers) -> Integers:
        square = self._p.mul(root, root)
        return np.asarray(self._p.mul(square, square))

    def _is_first(self, p: Integers) -> Array:
        """Choose one of a number and its negative: the positive one, else any."""
        opposite = (self._p.prime - p) % self._p.prime
        neither = ~self._is_square(opposite) & (p <= opposite)
        return np.asarray(self._is_square(p) | neither)

    def apply(self, function: str, attrs: AttrMap, *operands: Array) -> Array:
        """Apply sine and cosine to angles, and anything else as in two other fields."""
        usual = super().apply(function, attrs, *operands)
        if function not in _CIRCULAR:
            return usual
        angles = self._unpack(operands[0])
        p, field = self._raised(self._turn, angles.q), self._p
        inverse = field.div(np.ones_like(p), p)
        if function == "Cos":
            value = field.div(field.add(p, inverse), np.full_like(p, 2))
        else:
            value = field.div(field.sub(p, inverse), np.asarray(field.add(self._i, self._i)))
        known = self._modulo_p(np.asarray(value))
        # An angle that is only known modulo p has a sine that is odd and a cosine that is even.
        return np.where(angles.no_q, usual, known)

    def _residue(self, value: float, modulus: int) -> int:
        return quotient(Fraction(value), modulus)


def _has_root(number: int, modulus: int) -> bool:
    return pow(number, modulus // 2, modulus) == 1
