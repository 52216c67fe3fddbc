"""The test that terms are positive for all elements, needed to split roots and logarithms."""

from __future__ import annotations

from collections.abc import Callable

from eqsat_opt.ir.ops.index.integers import Atom
from eqsat_opt.ir.ops.index.scalars import Parameter
from eqsat_opt.proving.proof.sums.normal import Factor, Letter, Normal, Opaque, Power, Summand

__all__ = ["is_positive", "is_positive_factor"]

Known = Callable[[Atom], bool]
"""A function that decides whether an integer is known to be positive."""


def _nothing(_: Atom) -> bool:
    return False


def is_positive_factor(factor: Factor, known: Known = _nothing) -> bool:
    """Return whether a factor is a positive number wherever it is defined."""
    match factor:
        case Parameter(_, sign):
            return sign == "positive"
        case Letter(integer):
            return known(integer)
        case Opaque("Exp", _, _):
            return True
        case Power(base, exponent):
            # An even root is not negative, and 0 only where its inverse has a pole.
            even = exponent.denominator % 2 == 0 and exponent < 0
            return even or is_positive(base, known)
        case _:
            return False


def is_positive(sum_: Normal, known: Known = _nothing) -> bool:
    """Return whether a sum is positive: it has terms, and all of them are positive.

    Extents are at least 1.
    """
    return bool(sum_) and all(_is_positive_summand(part, known) for part in sum_)


def _is_positive_summand(part: Summand, known: Known) -> bool:
    factors = all(is_positive_factor(factor, known) for factor in part.factors)
    return part.coefficient > 0 and not part.where and factors
