"""Random functions of rational numbers with the shape of a function that leaves the rationals.

A law of all increasing positive functions holds for exponentials. So a rule that needs only the
sign, the monotonicity or the symmetry of a function is decided exactly on rationals, with random
functions that have just these properties.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, TypeAlias

from eqsat_opt.ir.ops import AttrMap

__all__ = ["SHAPED"]

_HALVINGS = 5
"""Halvings of the interval between two integers; on each last part a function is linear."""
_INFINITE = float("inf")
_NO_NUMBER = float("nan")


Shaped: TypeAlias = "Callable[[Any, AttrMap, int], Any]"
"""A function of a number, of attributes, and of a seed that selects one of the functions."""


@lru_cache(maxsize=1 << 14)
def _share(key: str, place: Fraction | int) -> Fraction:
    """Return a random number between 1/8 and 3/8."""
    digest = hashlib.blake2b(f"{key} {place}".encode(), digest_size=2).digest()
    return Fraction(1, 8) + Fraction(int.from_bytes(digest, "little") % 251, 1004)


def _increasing(x: Any, key: str) -> Any:
    """Evaluate a function on numbers from 0 on: 0 at 0, and increasing with slopes below 10."""
    if x == _INFINITE:
        return x
    low = x // 1
    high = low + 1
    ends = [n + _share(key, n) if n else Fraction(0) for n in (low, high)]
    for _ in range(_HALVINGS):
        if x == low:
            break
        middle = Fraction(low + high) / 2
        value = ends[0] + (ends[1] - ends[0]) * 2 * _share(key, middle)
        if x < middle:
            high, ends = middle, [ends[0], value]
        else:
            low, ends = middle, [value, ends[1]]
    return ends[0] + (ends[1] - ends[0]) * Fraction(x - low) / Fraction(high - low)


def _squashed(x: Any, key: str) -> Any:
    """Evaluate an increasing, odd function between -1 and 1."""
    if x < 0:
        return -_squashed(-x, key)
    value = _increasing(x, key)
    return 1 if value == _INFINITE else value / (1 + value)


def _wave(x: Any, key: str) -> Any:
    """Evaluate a random function between -1 and 1."""
    return 4 * (2 * _share(key, Fraction(x)) - Fraction(1, 2)) if abs(x) < _INFINITE else _NO_NUMBER


def _exponential(x: Any, seed: int) -> Any:
    """Evaluate an increasing, positive function that is 1 at 0.

    The value at -x is the inverse of that at x.
    """
    if x < 0:
        return 1 / _exponential(-x, seed)
    return 1 + _increasing(x, f"Exp{seed}")


def _logarithm(x: Any, seed: int) -> Any:
    """Evaluate an increasing function that is minus infinity at 0, and 0 at 1.

    The value at 1/x is the negative of that at x.
    """
    if x <= 0:
        return _NO_NUMBER if x < 0 else -_INFINITE
    return _increasing(x - 1, f"Log{seed}") if x >= 1 else -_logarithm(1 / Fraction(x), seed)


def _root(x: Any, seed: int) -> Any:
    return _NO_NUMBER if x < 0 else _increasing(x, f"Sqrt{seed}")


def _softplus(x: Any, seed: int) -> Any:
    """Evaluate an increasing, positive function with f(x) = f(-x) + x."""
    return max(x, 0) + 1 / (1 + _increasing(abs(x), f"Softplus{seed}") / 10)


def _sigmoid(x: Any, seed: int) -> Any:
    """Evaluate an increasing function between 0 and 1 that is symmetric about 1/2."""
    return (1 + _squashed(x, f"Sigmoid{seed}")) / 2


def _tanh(x: Any, seed: int) -> Any:
    return _squashed(x, f"Tanh{seed}")


def _elu(x: Any, alpha: float, seed: int) -> Any:
    return x if x >= 0 else Fraction(alpha) * (_exponential(x, seed) - 1)


def _celu(x: Any, alpha: float, seed: int) -> Any:
    if not alpha:
        return _NO_NUMBER
    slope = Fraction(alpha)
    return max(x, 0) + min(0, slope * (_exponential(x / slope, seed) - 1))


_FUNCTIONS: dict[str, Shaped] = {
    "Exp": lambda x, _a, seed: _exponential(x, seed),
    "Log": lambda x, _a, seed: _logarithm(x, seed),
    "Sqrt": lambda x, _a, seed: _root(x, seed),
    "Softplus": lambda x, _a, seed: _softplus(x, seed),
    "Sigmoid": lambda x, _a, seed: _sigmoid(x, seed),
    "Tanh": lambda x, _a, seed: _tanh(x, seed),
    "Erf": lambda x, _a, seed: _squashed(x, f"Erf{seed}"),
    "Sin": lambda x, _a, seed: -_wave(-x, f"Sin{seed}") if x < 0 else x and _wave(x, f"Sin{seed}"),
    "Cos": lambda x, _a, seed: _wave(abs(x), f"Cos{seed}") if x else 1,
    "Elu": lambda x, a, seed: _elu(x, a["alpha"], seed),
    "Celu": lambda x, a, seed: _celu(x, a["alpha"], seed),
    "Selu": lambda x, a, seed: Fraction(a["gamma"]) * _elu(x, a["alpha"], seed),
    "Swish": lambda x, a, seed: x * _sigmoid(Fraction(a["alpha"]) * x, seed),
    "Mish": lambda x, _a, seed: x * _tanh(_softplus(x, seed), seed),
    "Gelu": lambda x, a, seed: x * (1 + _squashed(x, f"Gelu{a['approximate']}{seed}")) / 2,
}


def _of_numbers(function: Shaped) -> Shaped:
    """Extend a function to NaN, which it then returns."""
    return lambda x, attrs, seed: function(x, attrs, seed) if x == x else x


SHAPED = {name: _of_numbers(function) for name, function in _FUNCTIONS.items()}
"""Operator to the random functions of its shape."""
