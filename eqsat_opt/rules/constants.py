"""Constants of activation functions as people write them: √(1/2) for 0.7071067811865476."""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = ["closed_form"]

_DIGITS = 6
"""A decimal of at most so many digits is read as it is."""
_ROUNDING = 4e-16


def _decimal(value: float) -> str | None:
    """The value, if a short decimal is equal to it up to rounding."""
    text = f"{value:.{_DIGITS}g}"
    return text if math.isclose(float(text), value, rel_tol=_ROUNDING) else None


def closed_form(value: float) -> str | None:
    """A constant as people write it; ``None`` for a short decimal and for what is not known.

    Tried are reciprocals of short decimals, square roots of fractions and multiples of √(2/π).
    """
    if _decimal(value) or value == 0:
        return None
    if inverse := _decimal(1 / value):
        return f"1/{inverse}"
    square = Fraction(value * value).limit_denominator(99)
    if value > 0 and math.isclose(math.sqrt(square), value, rel_tol=_ROUNDING):
        return f"√({square})"
    multiple = _decimal(value / math.sqrt(2 / math.pi))
    return f"{multiple}·√(2/π)" if multiple else None
