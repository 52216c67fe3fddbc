"""Derivatives of operators that compute each element separately."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.training.derivatives.table import Derivative, TapeApplication, derives
from eqsat_opt.training.tape import TapeValue, one_of

__all__ = ["SLOPES"]

Slope = Callable[[TapeValue, TapeValue, Mapping[str, Any]], TapeValue]
"""A function of operand, result and attributes: the derivative of one element, or whether the
gradient passes unchanged (truth values).
"""


def _gelu(x: TapeValue, _y: TapeValue, attrs: Mapping[str, Any]) -> TapeValue:
    if attrs["approximate"] == "tanh":
        scale = math.sqrt(2.0 / math.pi)
        square = x * x
        bent = (x * (square * 0.044715 + 1.0) * scale).apply("Tanh")
        slope = (square * (3 * 0.044715) + 1.0) * scale
        return (bent + 1.0) * 0.5 + x * 0.5 * (1.0 - bent * bent) * slope
    below = ((x * math.sqrt(0.5)).apply("Erf") + 1.0) * 0.5
    density = (x * x * -0.5).apply("Exp") * (1.0 / math.sqrt(2.0 * math.pi))
    return below + x * density


def _hard_sigmoid(x: TapeValue, y: TapeValue, attrs: Mapping[str, Any]) -> TapeValue:
    inside = y.apply("Greater", 0.0).apply("And", y.apply("Less", 1.0))
    return one_of(inside, attrs["alpha"], 0.0, x.dtype)


def _hard_swish(x: TapeValue, _y: TapeValue, _attrs: Mapping[str, Any]) -> TapeValue:
    inner = one_of(x.apply("Greater", -3.0), x * (1.0 / 3.0) + 0.5, 0.0, x.dtype)
    return one_of(x.apply("Less", 3.0), inner, 1.0, x.dtype)


def _mish(x: TapeValue, _y: TapeValue, _attrs: Mapping[str, Any]) -> TapeValue:
    bent = x.apply("Softplus").apply("Tanh")
    return bent + x * x.apply("Sigmoid") * (1.0 - bent * bent)


def _softsign(x: TapeValue, _y: TapeValue, _attrs: Mapping[str, Any]) -> TapeValue:
    part = (x.apply("Abs") + 1.0).apply("Reciprocal")
    return part * part


def _swish(x: TapeValue, y: TapeValue, attrs: Mapping[str, Any]) -> TapeValue:
    alpha: float = attrs["alpha"]
    part = (x * alpha).apply("Sigmoid")
    return part + y * (1.0 - part) * alpha


def _elu(x: TapeValue, y: TapeValue, attrs: Mapping[str, Any]) -> TapeValue:
    return one_of(x.apply("Less", 0.0), y + attrs["alpha"], 1.0, x.dtype)


def _celu(x: TapeValue, y: TapeValue, attrs: Mapping[str, Any]) -> TapeValue:
    return one_of(x.apply("Less", 0.0), y * (1.0 / attrs["alpha"]) + 1.0, 1.0, x.dtype)


def _selu(x: TapeValue, y: TapeValue, attrs: Mapping[str, Any]) -> TapeValue:
    tail = y + attrs["gamma"] * attrs["alpha"]
    return one_of(x.apply("Greater", 0.0), attrs["gamma"], tail, x.dtype)


SLOPES: dict[str, Slope] = {
    "Abs": lambda x, _y, _a: x.apply("Sign"),
    "Celu": _celu,
    "Clip": lambda x, y, _a: x.apply("Equal", y),
    "Cos": lambda x, _y, _a: -x.apply("Sin"),
    "Elu": _elu,
    "Erf": lambda x, _y, _a: (-(x * x)).apply("Exp") * (2.0 / math.sqrt(math.pi)),
    "Exp": lambda _x, y, _a: y,
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "HardSwish": _hard_swish,
    "LeakyRelu": lambda x, _y, a: one_of(x.apply("Less", 0.0), a["alpha"], 1.0, x.dtype),
    "Log": lambda x, _y, _a: x.apply("Reciprocal"),
    "Mish": _mish,
    "Reciprocal": lambda _x, y, _a: -(y * y),
    "Relu": lambda _x, y, _a: y.apply("Greater", 0.0),
    "Rsqrt": lambda _x, y, _a: y * y * y * -0.5,
    "Scale": lambda x, _y, a: x.number(a["factor"]),
    "Selu": _selu,
    "Sigmoid": lambda _x, y, _a: y * (1.0 - y),
    "Sin": lambda x, _y, _a: x.apply("Cos"),
    "Softplus": lambda x, _y, _a: x.apply("Sigmoid"),
    "Softsign": _softsign,
    "Sqrt": lambda _x, y, _a: y.apply("Reciprocal") * 0.5,
    "Square": lambda x, _y, _a: x * 2.0,
    "Swish": _swish,
    "Tanh": lambda _x, y, _a: 1.0 - y * y,
    "ThresholdedRelu": lambda x, _y, a: x.apply("Greater", a["alpha"]),
}
"""Functions of one operand to their derivatives; at a kink it is that of one side."""


def _by_slope(slope: Slope) -> Derivative:
    def derivative(one: TapeApplication) -> Sequence[TapeValue | None]:
        factor = slope(one.operand, one.result, one.attrs)
        if factor.dtype == "bool":
            return [one.gradient.masked(factor)]
        return [one.gradient * factor]

    return derivative


for _op, _slope in SLOPES.items():
    derives(_op)(_by_slope(_slope))

derives("Shift")(lambda one: [one.gradient])
derives("Neg")(lambda one: [-one.gradient])
derives("Add")(lambda one: [one.gradient, one.gradient])
derives("Sub")(lambda one: [one.gradient, -one.gradient if 1 in one.wanted else None])


@derives("Mul")
def _mul(one: TapeApplication) -> Sequence[TapeValue | None]:
    left, right = one.operands
    return [
        one.gradient * right if 0 in one.wanted else None,
        one.gradient * left if 1 in one.wanted else None,
    ]


@derives("Div")
def _div(one: TapeApplication) -> Sequence[TapeValue | None]:
    quotient = one.gradient / one.operands[1]
    return [quotient, -(quotient * one.result) if 1 in one.wanted else None]


@derives("Max", "Min")
def _extremum(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return gradients that go to the chosen operand, and in halves to equal ones."""
    left, right = one.operands
    order = "Greater" if one.node.op == "Max" else "Less"
    half = one.gradient * 0.5
    shared = half.where(left.apply("Equal", right))
    return [
        one_of(left.apply(order, right), one.gradient, shared, left.dtype),
        one_of(right.apply(order, left), one.gradient, shared, left.dtype),
    ]


@derives("Pow")
def _pow(one: TapeApplication) -> Sequence[TapeValue | None]:
    base, power = one.operands
    power = power.cast(base.dtype)
    grown = one.gradient * power * base.apply("Pow", power - 1.0)
    if 1 not in one.wanted:
        return [grown, None]
    # The logarithm of a base that is not positive would spoil a product with 0.
    known = base.apply("Greater", 0.0)
    growth = base.where(known, 1.0).apply("Log").where(known)
    return [grown, (one.gradient * one.result * growth).cast(one.operands[1].dtype)]


@derives("Mod")
def _mod(one: TapeApplication) -> Sequence[TapeValue | None]:
    left, right = one.operands
    if 1 not in one.wanted:
        return [one.gradient, None]
    quotient = left / right
    whole = quotient.apply("Floor")
    if one.attrs["fmod"]:
        whole = quotient.apply("Abs").apply("Floor") * quotient.apply("Sign")
    return [one.gradient, -(one.gradient * whole)]


@derives("PRelu")
def _prelu(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, slope = one.operands
    below = x.apply("Less", 0.0)
    return [
        one_of(below, one.gradient * slope, one.gradient, x.dtype),
        (one.gradient * x).where(below),
    ]


@derives("Where")
def _where(one: TapeApplication) -> Sequence[TapeValue | None]:
    condition = one.operand
    return [
        None,
        one.gradient.where(condition),
        one_of(condition, 0.0, one.gradient, one.gradient.dtype),
    ]


@derives("Clamp")
def _clamp(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, *bounds = one.operands
    low, high = (bound.reshape() for bound in bounds)
    above = high.apply("Less", one_of(x.apply("Less", low), low, x, x.dtype))
    below = x.apply("Less", low)
    to_low = one_of(above, 0.0, one.gradient.where(below), x.dtype)
    inside = one_of(above.apply("Or", below), 0.0, one.gradient, x.dtype)
    to_bounds = (to_low, one.gradient.where(above))
    sums = (gradient.summed_to(()) for gradient in to_bounds)
    return [inside, *(total.reshape(*b.shape) for total, b in zip(sums, bounds, strict=True))]


@derives("Cast")
def _cast(one: TapeApplication) -> Sequence[TapeValue | None]:
    if one.operand.dtype not in FLOATS or one.result.dtype not in FLOATS:
        return [None]
    return [one.gradient.cast(one.operand.dtype)]
