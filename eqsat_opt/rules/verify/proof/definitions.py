"""Scalar functions that are made of others: sigmoids and gates by exponentials, clips by extrema.

Everything holds over the real numbers; no real number is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from eqsat_opt.ir.ops.scalars import (
    MINUS_ONE,
    ONE,
    ZERO,
    Call,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Scalar,
    Times,
)

__all__ = ["PI", "defined", "square_root"]

PI = Parameter("the constant π", "positive")
"""No variable of a rule has blanks in its name."""

Definition = Callable[[Scalar, Mapping[str, Any]], Scalar]

_HALF = Constant(Fraction(1, 2))
_TWO = Constant(Fraction(2))


def square_root(value: Scalar) -> Scalar:
    """The square root."""
    return Call("Sqrt", (), (value,))


def _sigmoid(x: Scalar) -> Scalar:
    return Inverse(Plus((ONE, Call("Exp", (), (Times((MINUS_ONE, x)),)))))


def _tanh(x: Scalar) -> Scalar:
    return Plus((Times((_TWO, _sigmoid(Times((_TWO, x))))), MINUS_ONE))


def _clip(x: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return Call("Min", (), (Call("Max", (), (x, low)), high))


def _hard_sigmoid(x: Scalar, slope: Scalar, offset: Scalar) -> Scalar:
    return _clip(Plus((Times((slope, x)), offset)), ZERO, ONE)


def _hard_swish(x: Scalar) -> Scalar:
    return Times((x, _hard_sigmoid(x, Constant(Fraction(1, 6)), _HALF)))


def _gelu(x: Scalar, attrs: Mapping[str, Any]) -> Scalar:
    """Hendrycks and Gimpel 2016, §2."""
    if attrs["approximate"] == "tanh":
        cube = Times((Constant(Fraction(44715, 1_000_000)), x, x, x))
        gate = _tanh(Times((square_root(Times((_TWO, Inverse(PI)))), Plus((x, cube)))))
    else:
        gate = Call("Erf", (), (Times((x, square_root(_HALF))),))
    return Times((_HALF, x, Plus((ONE, gate))))


_DEFINITIONS: dict[str, Definition] = {
    "Sigmoid": lambda x, _a: _sigmoid(x),
    "Tanh": lambda x, _a: _tanh(x),
    "Swish": lambda x, a: Times((x, _sigmoid(Times((a["alpha"], x))))),
    "Clip": lambda x, a: _clip(x, a["min"], a["max"]),
    "HardSigmoid": lambda x, a: _hard_sigmoid(x, a["alpha"], a["beta"]),
    "HardSwish": lambda x, _a: _hard_swish(x),
    "Gelu": _gelu,
    "Abs": lambda x, _a: Call("Max", (), (x, Times((MINUS_ONE, x)))),
    "IsNaN": lambda _x, _a: ZERO,
}


def defined(call: Call) -> Scalar | None:
    """What a function of one number means, or ``None`` where it is taken as unknown."""
    definition = _DEFINITIONS.get(call.function)
    return definition(call.args[0], dict(call.attrs)) if definition else None
