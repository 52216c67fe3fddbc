"""Multiplication of a sum by one of its denominators.

Away from poles the sum is zero if the product is.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TypeGuard

from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.merging import Same
from eqsat_opt.proving.proof.sums.normal import (
    Factor,
    Normal,
    Power,
    Summand,
    multiply,
    renamed,
)
from eqsat_opt.proving.proof.sums.powers import power

__all__ = ["without_denominator"]


def _is_denominator(factor: Factor) -> TypeGuard[Power]:
    """Return whether a factor is an inverse of several terms."""
    if not isinstance(factor, Power) or len(factor.base) < 2:
        return False
    return factor.exponent.denominator == 1 and factor.exponent < 0


def _denominator(part: Summand) -> Normal | None:
    """Return the first denominator of a summand; ``None`` if it has none.

    A sum that may be empty has no pole, so its denominators do not count.
    """
    if part.bound or part.where:
        return None
    return next((factor.base for factor in part.factors if _is_denominator(factor)), None)


def _times(part: Summand, base: Normal, context: Context, same: Same) -> Normal:
    for i, factor in enumerate(part.factors):
        if _is_denominator(factor) and same(factor.base, base, context):
            rest = (*part.factors[:i], *part.factors[i + 1 :])
            left = power(factor.base, factor.exponent + 1)
            return multiply((replace(part, factors=rest),), left)
    return multiply((part,), renamed(base))


def without_denominator(sum_: Normal, context: Context, same: Same) -> Normal | None:
    """Multiply ``sum_`` by its first denominator of several terms; return ``None`` without one."""
    found = (base for base in map(_denominator, sum_) if base is not None)
    base = next(found, None)
    if base is None:
        return None
    products = (_times(part, base, context, same) for part in sum_)
    empty: Normal = ()
    return reduce(lambda a, b: a + b, products, empty)
