"""Merging two factors of a product: laws of powers, exponentials and maxima."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeGuard

from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.normal import (
    Extremum,
    Factor,
    Normal,
    Opaque,
    Power,
    Summand,
    multiply,
    negative,
    number,
    single,
)
from eqsat_opt.proving.proof.sums.powers import power
from eqsat_opt.proving.proof.sums.signs import is_positive

__all__ = ["Same", "merged"]

Same = Callable[[Normal, Normal, Context], bool]
"""A function that decides whether two sums are equal under assumptions."""


def merged(part: Summand, context: Context, same: Same) -> Normal | None:
    """Merge two factors of a summand: powers of one base, or max(e, 0)² = max(e, 0) e.

    Factors that cancel, or exclude each other, are merged as well.

    Returns:
        ``None`` if no two factors can be merged.
    """
    for i, a in enumerate(part.factors):
        for j, b in enumerate(part.factors):
            rest = part.factors[:i] + part.factors[i + 1 :]
            if i < j and _rectified(b) is not None and (positive := _rectified(a)) is not None:
                if same(single(a), single(b), context):
                    return multiply((replace(part, factors=rest),), positive)
                continue
            if i < j and _is_truth(a) and _is_truth(b) and same(a.args[0], b.args[0], context):
                return (replace(part, factors=rest),)
            if i < j and (u := _positive(a)) is not None and (v := _positive(b)) is not None:
                if same(u, negative(v), context):
                    return ()  # no number and its opposite are both greater than 0
                continue
            if i < j and _is_exponential(a) and _is_exponential(b):
                if same(a.args[0], negative(b.args[0]), context):
                    rest = tuple(f for k, f in enumerate(part.factors) if k not in (i, j))
                    return (replace(part, factors=rest),)
                continue
            if i == j or not isinstance(b, Power) or (isinstance(a, Power) and i > j):
                continue
            base, exponent = (
                (a.base, a.exponent) if isinstance(a, Power) else (single(a), number(1))
            )
            total = exponent + b.exponent
            roots = exponent.denominator != 1 and b.exponent.denominator != 1
            if roots and total.denominator == 1 and not is_positive(base):
                continue  # two roots whose product is an integer power lose the sign of the base
            if same(base, b.base, context):
                rest = tuple(f for k, f in enumerate(part.factors) if k not in (i, j))
                return multiply((replace(part, factors=rest),), power(base, total))
    return None


def _is_exponential(factor: Factor) -> TypeGuard[Opaque]:
    return isinstance(factor, Opaque) and factor.function == "Exp"


def _is_truth(factor: Factor) -> TypeGuard[Opaque]:
    return isinstance(factor, Opaque) and factor.function == "Truth"


def _positive(factor: Factor) -> Normal | None:
    """Return the e of a factor that is the truth of e > 0; ``None`` for any other factor."""
    if not _is_truth(factor) or len(factor.args[0]) != 1:
        return None
    inner = factor.args[0][0].factors
    alone = factor.args[0] == single(inner[0]) if len(inner) == 1 else False
    if not alone or not isinstance(inner[0], Opaque) or inner[0].function != "Positive":
        return None
    return inner[0].args[0]


def _rectified(factor: Factor) -> Normal | None:
    """Return the e of a factor max(e, 0); ``None`` for any other factor."""
    if not isinstance(factor, Extremum) or factor.kind != "max" or len(factor.cases) != 2:
        return None
    if any(case.bound or case.where for case in factor.cases):
        return None
    elements = [case.element for case in factor.cases if case.element]
    return elements[0] if len(elements) == 1 else None
