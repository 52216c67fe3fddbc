"""The real numbers that constants were rounded from.

A floating point number represents every real of its rounding interval. The simplest of these keeps
laws such as sqrt(2) * sqrt(1/2) = 1 exact, which rounded constants break.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from eqsat_opt.ir.values.types import numpy_dtype

__all__ = ["lift"]

_GATE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715
_NAMED = (
    math.sqrt(2.0), math.sqrt(0.5), _GATE, 2.0 * _GATE, _GATE * _CUBIC, 2.0 * _GATE * _CUBIC,
    math.pi, math.sqrt(math.pi), 2.0**0.25, 0.5**0.25, _CUBIC,
)  # fmt: skip
_KNOWN = (*_NAMED, *(1.0 / value for value in _NAMED))
_GREATEST = 1 << 16
_DIGITS = 17
"""Number of decimal digits that distinguish every double precision number from all others."""


def lift(value: float, dtype: str) -> float:
    """Return the simplest real that rounds to ``value`` in a floating point element type.

    The simplest is a named constant of a formula or its inverse; else n or 1/n or a root of either
    for a whole n, as far as the type distinguishes these from those of n + 1; else the shortest
    decimal.
    """
    to = numpy_dtype(dtype).type
    size = abs(value)
    if size == 0.0 or not math.isfinite(value) or float(to(value)) != value:
        return value
    if size == int(size) and size <= _GREATEST:
        return value
    wanted = to(size)
    for known in _KNOWN:
        if to(known) == wanted:
            return math.copysign(known, value)
    info: Any = ml_dtypes.finfo(to)  # type: ignore[no-untyped-call]
    exponents = (-1.0, 0.5, -0.5, 0.25, -0.25) if 0.5 / _GREATEST < size <= _GREATEST else ()
    for exponent in exponents:
        base = size ** (1.0 / exponent)
        if 0.5 < base <= min(_GREATEST, abs(exponent) / float(info.eps)):
            candidate = round(base) ** exponent
            if to(candidate) == wanted:
                return math.copysign(candidate, value)
    decimals = (float(f"{size:.{digits}g}") for digits in range(1, _DIGITS))
    with np.errstate(over="ignore"):
        return math.copysign(next((one for one in decimals if to(one) == wanted), size), value)
