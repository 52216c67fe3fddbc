"""The number that a float literal of a rule was rounded from.

A rule contains ``math.sqrt(0.5)`` or 0.044715 and means √(1/2) and 8943/200000. The exact check and
the proof read it as the number that it means, so that an equation between constants holds exactly.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

__all__ = ["ExactLiteral", "exact_literal"]

_DENOMINATORS = (2_000, 200_000)
"""Largest denominators; a small one under a root is likelier meant than a large one without."""
_DECIMALS = 6
_RADICANDS = tuple(n for n in range(1, 31) if all(n % (d * d) for d in range(2, 6)))
_PI_HALVES = (0, -1, 1, -2, 2)
_BITS = 160
_PI = Fraction(314159265358979323846264338327950288419716939937510582097, 10**56)
_ULPS = 4


@dataclass(frozen=True)
class ExactLiteral:
    """A number of the form rational · √radicand · π^(pi_halves / 2).

    Attributes:
        rational: rational factor, with the sign.
        radicand: radicand without square factors.
        pi_halves: twice the exponent of π.
    """

    rational: Fraction
    radicand: int = 1
    pi_halves: int = 0

    @property
    def is_rational(self) -> bool:
        """Whether the number has neither a root nor π in it."""
        return self.radicand == 1 and self.pi_halves == 0


def _root(value: Fraction) -> Fraction:
    """Return the square root to about ``_BITS`` bits."""
    shifted = (value.numerator << (2 * _BITS)) // value.denominator
    return Fraction(math.isqrt(shifted), 1 << _BITS)


_UNITS = [
    (n, k, _root(Fraction(n)) * (_root(_PI) if k % 2 else 1) * _PI ** ((k - k % 2) // 2))
    for k in _PI_HALVES
    for n in _RADICANDS
]


@lru_cache(maxsize=4096)
def exact_literal(value: float) -> ExactLiteral | None:
    """Find the simplest rational · √integer · π^(k/2) within a few units in the last place.

    Rationals have denominators up to 200,000 or at most six decimal digits, radicands are at most
    30 and k is at most 2 in magnitude. Denominators up to 2,000 are tried first, and each time a
    rational before roots and roots before π. About one random double in 200 has a fit.

    Args:
        value: a literal.

    Returns:
        The exact number, or ``None`` where nothing fits or the value is not finite.
    """
    if not math.isfinite(value):
        return None
    if value == 0:
        return ExactLiteral(Fraction(0))
    exact = Fraction(value)
    if _digits(value) <= _DECIMALS:
        return ExactLiteral(Fraction(repr(float(value))))
    tolerance = abs(exact) * _ULPS / 2**52
    for largest, (radicand, pi_halves, unit) in itertools.product(_DENOMINATORS, _UNITS):
        rational = (exact / unit).limit_denominator(largest)
        if rational and abs(rational * unit - exact) <= tolerance:
            return ExactLiteral(rational, radicand, pi_halves)
    return None


def _digits(value: float) -> int:
    """Return the number of significant digits of the shortest decimal that is this float."""
    mantissa = repr(float(value)).split("e")[0]
    return len(mantissa.replace(".", "").replace("-", "").strip("0"))
