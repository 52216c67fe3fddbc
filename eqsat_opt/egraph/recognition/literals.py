"""The real number that a single precision constant was rounded from.

A float32 stands for every real of its rounding interval. Taking the simplest of them keeps laws
such as sqrt(2) * sqrt(1/2) = 1 exact, which rounded constants break.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["lift"]

_GATE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715
_KNOWN = (
    math.sqrt(2.0), math.sqrt(0.5), _GATE, 2.0 * _GATE, _GATE * _CUBIC, 2.0 * _GATE * _CUBIC,
    math.pi, math.sqrt(math.pi), 2.0**0.25, 0.5**0.25,
)  # fmt: skip
_GREATEST = 1 << 16


def lift(value: float) -> float:
    """The simplest real that rounds to the float32 ``value``.

    That is a named constant of a formula, n or 1/n or a root of either for a whole n, else the
    shortest decimal.
    """
    single = np.float32(value)
    size = abs(value)
    if size == 0.0 or not math.isfinite(value) or float(single) != value:
        return value
    if size == int(size) and size <= _GREATEST:
        return value
    wanted = abs(single)
    for known in _KNOWN:
        if np.float32(known) == wanted:
            return math.copysign(known, value)
    for exponent in (-1.0, 0.5, -0.5, 0.25, -0.25):
        base = size ** (1.0 / exponent)
        if 0.5 < base <= _GREATEST:
            candidate = round(base) ** exponent
            if np.float32(candidate) == wanted:
                return math.copysign(candidate, value)
    return float(str(single))
