"""Definitions of scalar functions by others: sigmoids and gates by exponentials, clips by extrema.

Truth values are the numbers 0 and 1, and their operators are polynomials; a comparison asks whether
a difference is positive. Everything holds over the real numbers; no real number is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from eqsat_opt.ir.ops.index.scalars import (
    MINUS_ONE,
    NAMED,
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

__all__ = ["PI", "TRUTH", "as_truth", "defined", "square_root"]

PI = Parameter("the constant π", "positive")
"""The number π; it cannot be confused with a variable of a rule, as no such name has blanks."""

TRUTH = "Truth"
"""The function that is 0 for false and 1 for true."""

Definition = Callable[[Scalar, Mapping[str, Any]], Scalar]
Relation = Callable[[Sequence[Scalar]], Scalar]

_HALF = Constant(Fraction(1, 2))
_TWO = Constant(Fraction(2))


def square_root(value: Scalar) -> Scalar:
    """Return the square root of a scalar."""
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
    """Define GELU (Hendrycks and Gimpel 2016, §2)."""
    if attrs["approximate"] == "tanh":
        cube = Times((Constant(Fraction(44715, 1_000_000)), x, x, x))
        gate = _tanh(Times((square_root(Times((_TWO, Inverse(PI)))), Plus((x, cube)))))
    else:
        gate = Call("Erf", (), (Times((x, square_root(_HALF))),))
    return Times((_HALF, x, Plus((ONE, gate))))


def _negative(x: Scalar) -> Scalar:
    return Times((MINUS_ONE, x))


def _relu(x: Scalar) -> Scalar:
    return Call("Relu", (), (x,))


def _leaky(x: Scalar, slope: Scalar) -> Scalar:
    """Return the slope times x, plus the rest of x where x is positive."""
    return Plus((Times((slope, x)), Times((Plus((ONE, _negative(slope))), _relu(x)))))


def _elu(x: Scalar, alpha: Scalar) -> Scalar:
    below = Plus((x, _negative(_relu(x))))  # the lesser of x and 0
    return Plus((_relu(x), Times((alpha, Plus((Call("Exp", (), (below,)), MINUS_ONE))))))


def _softplus(x: Scalar) -> Scalar:
    return Call("Log", (), (Plus((ONE, Call("Exp", (), (x,)))),))


# Truth values --------------------------------------------------------------------------------


def _is_truth(term: Scalar) -> bool:
    if not isinstance(term, Call):
        return False
    made = dict(term.attrs).get("to") == "bool"
    return made or term.function in (TRUTH, NAMED, "Not", "IsNaN", *_RELATIONS)


def as_truth(term: Scalar) -> Scalar:
    """Return a condition as a number that is 0 or 1."""
    return term if _is_truth(term) else Call(TRUTH, (), (term,))


def _positive(x: Scalar) -> Scalar:
    """Return 1 where a number is greater than 0, and 0 elsewhere."""
    return Call(TRUTH, (), (Call("Positive", (), (x,)),))


def _greater(x: Scalar, y: Scalar) -> Scalar:
    return _positive(Plus((x, _negative(y))))


def _not(a: Scalar) -> Scalar:
    return Plus((ONE, _negative(as_truth(a))))


def _product(*args: Scalar) -> Scalar:
    return Times(tuple(map(as_truth, args)))


def _sum(*args: Scalar) -> Scalar:
    return Plus(tuple(map(as_truth, args)))


_RELATIONS: dict[str, Relation] = {
    "Greater": lambda x: _greater(x[0], x[1]),
    "Less": lambda x: _greater(x[1], x[0]),
    "GreaterOrEqual": lambda x: _not(_greater(x[1], x[0])),
    "LessOrEqual": lambda x: _not(_greater(x[0], x[1])),
    "Equal": lambda x: Plus(
        (ONE, _negative(_greater(x[0], x[1])), _negative(_greater(x[1], x[0])))
    ),
    "And": lambda x: _product(*x),
    "Or": lambda x: Plus((_sum(*x), _negative(_product(*x)))),
    "Xor": lambda x: Plus((_sum(*x), Times((Constant(Fraction(-2)), _product(*x))))),
}
"""Truth functions of two operands."""
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
    "Not": lambda x, _a: _not(x),
    "Sign": lambda x, _a: Plus((_positive(x), _negative(_positive(_negative(x))))),
    "LeakyRelu": lambda x, a: _leaky(x, a["alpha"]),
    "Elu": lambda x, a: _elu(x, a["alpha"]),
    "Selu": lambda x, a: Times((a["gamma"], _elu(x, a["alpha"]))),
    "Softplus": lambda x, _a: _softplus(x),
    "Mish": lambda x, _a: Times((x, _tanh(_softplus(x)))),
    "Softsign": lambda x, _a: Times((x, Inverse(Plus((ONE, Call("Abs", (), (x,))))))),
    "ThresholdedRelu": lambda x, a: Times((x, _greater(x, a["alpha"]))),
}


def defined(call: Call) -> Scalar | None:
    """Return the definition of a function; ``None`` where it is taken as unknown."""
    if call.function in _RELATIONS:
        return _RELATIONS[call.function](call.args)
    if call.function == "PRelu":
        return _leaky(*call.args)
    if call.function == "Cast":  # 0 and 1 are themselves in every type
        return call.args[0] if _is_truth(call.args[0]) else None
    definition = _DEFINITIONS.get(call.function)
    return definition(call.args[0], dict(call.attrs)) if definition else None
