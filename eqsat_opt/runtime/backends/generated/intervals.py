"""Interval analysis of indices and conditions; loop variables run from 0 to below their extents."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.ir.ops.index.integers import (
    AllOf,
    AnyOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    Poly,
    all_of,
    any_of,
)

__all__ = ["bounds", "remaining"]

Extents = Mapping[Atom, int]

_FAR = 2**62
"""Bound, beyond all indices, of numbers that are read from memory."""


def bounds(value: Poly, extents: Extents) -> tuple[int, int]:
    """Return bounds of a polynomial; they are tight if each variable occurs once."""
    low = high = 0
    for monomial, coefficient in value.terms:
        ends = (1, 1)
        for factor in monomial:
            a, b = _atom(factor, extents)
            products = [x * y for x in ends for y in (a, b)]
            ends = (min(products), max(products))
        scaled = (ends[0] * coefficient, ends[1] * coefficient)
        low, high = low + min(scaled), high + max(scaled)
    return low, high


def _atom(part: Atom, extents: Extents) -> tuple[int, int]:
    if part.kind == "symbol":
        extent = extents.get(part)
        return (-_FAR, _FAR) if extent is None else (0, max(0, extent - 1))
    if part.kind == "quotient":
        (low, high), below = bounds(part.args[0], extents), part.args[1].constant
        assert below is not None
        return low // below, high // below
    if part.kind == "choose":
        (a, b), (c, d) = bounds(part.args[1], extents), bounds(part.args[2], extents)
        return min(a, c), max(b, d)
    return -_FAR, _FAR


def remaining(formula: Formula, extents: Extents) -> Formula:
    """Return the condition without the parts that hold always or never."""
    match formula:
        case AllOf(parts):
            return all_of(*(remaining(part, extents) for part in parts))
        case AnyOf(parts):
            return any_of(*(remaining(part, extents) for part in parts))
        case NonNegative(p):
            low, high = bounds(p, extents)
            return AllOf(()) if low >= 0 else AnyOf(()) if high < 0 else formula
        case IsZero(p):
            low, high = bounds(p, extents)
            if low > 0 or high < 0:
                return AnyOf(())
            return AllOf(()) if low == high == 0 else formula
