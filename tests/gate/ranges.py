"""Rules that leave the range of the element type where their left side does not.

Each identity holds over the real numbers, and its right side overflows, or loses what underflows,
at operands at which the left side is an ordinary number. Such a rule has to be relaxed and promises
more. An identity is tried on several operands, made from the variables; where it shows is looked
for among a few magnitudes. Beside them stand tolerances inside functions that magnify them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from eqsat_opt.rules import Numerics, Sides, Term, Var, declared, near, ops
from tests.gate.cases import Case, difference

__all__ = ["of_ranges", "of_tolerances"]

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR
_Identity = Callable[..., tuple[Term, Term]]


def _number(value: float, like: Term) -> Term:
    """A constant of the element type of the first variable in a term."""
    name = min(like.variables())
    return ops.Scalar(value=value, dtype=Var(name).dtype)


def _power(x: Term, exponent: float) -> Term:
    return ops.Pow(x, _number(exponent, x))


def _soft(x: Term) -> Term:
    return ops.Exp(x) / ops.ReduceSum(ops.Exp(x), axes=(0,), keepdims=1)


def _one_more(x: Term) -> Term:
    return ops.Shift(x, offset=1.0)


def _one_less(x: Term) -> Term:
    return ops.Shift(x, offset=-1.0)


def _both_ways(x: Term) -> tuple[Term, Term]:
    return ops.Exp(x), ops.Exp(ops.Neg(x))


def _tanh(x: Term) -> Term:
    up, down = _both_ways(x)
    return (up - down) / (up + down)


def _tanh_of_double(x: Term) -> Term:
    square = ops.Exp(ops.Scale(x, factor=2.0))
    return _one_less(square) / _one_more(square)


def _mish(x: Term) -> Term:
    square = ops.Square(_one_more(ops.Exp(x)))
    return x * (_one_less(square) / _one_more(square))


_OF_ONE: Mapping[str, _Identity] = {
    "tanh-spelled-out": lambda x: (ops.Tanh(x), _tanh(x)),
    "tanh-of-double": lambda x: (ops.Tanh(x), _tanh_of_double(x)),
    "sigmoid-by-growth": lambda x: (ops.Sigmoid(x), ops.Exp(x) / _one_more(ops.Exp(x))),
    "swish-by-growth": lambda x: (
        ops.Swish(x, alpha=1.0), x * (ops.Exp(x) / _one_more(ops.Exp(x)))),
    "softplus-spelled-out": lambda x: (ops.Softplus(x), ops.Log(_one_more(ops.Exp(x)))),
    "softplus-from-below": lambda x: (
        ops.Softplus(x), x + ops.Log(_one_more(ops.Exp(ops.Neg(x))))),
    "softplus-by-sigmoid": lambda x: (
        ops.Softplus(x), ops.Neg(ops.Log(ops.Sigmoid(ops.Neg(x))))),
    "mish-spelled-out": lambda x: (ops.Mish(x), _mish(x)),
    "magnitude-by-root": lambda x: (ops.Abs(x), ops.Sqrt(ops.Square(x))),
    "magnitude-by-product": lambda x: (ops.Abs(x), ops.Sqrt(x * x)),
    "magnitude-by-cube": lambda x: (
        ops.Abs(x), _power(ops.Abs(x) * ops.Square(x), 1.0 / 3.0)),
    "magnitude-by-fourth": lambda x: (ops.Abs(x), ops.Sqrt(ops.Sqrt(ops.Square(ops.Square(x))))),
    "inverse-magnitude": lambda x: (ops.Reciprocal(ops.Abs(x)), ops.Rsqrt(ops.Square(x))),
    "inverse-by-square": lambda x: (ops.Reciprocal(x), x / ops.Square(x)),
    "softsign-by-square": lambda x: (
        ops.Softsign(x), x * _one_more(ops.Abs(x)) / ops.Square(_one_more(ops.Abs(x)))),
    "double-logarithm": lambda x: (
        ops.Scale(ops.Log(ops.Abs(x)), factor=2.0), ops.Log(ops.Square(x))),
    "triple-logarithm": lambda x: (
        ops.Scale(ops.Log(ops.Abs(x)), factor=3.0), ops.Log(ops.Abs(x * x * x))),
    "softmax-without-maximum": lambda x: (ops.Softmax(x, axis=0), _soft(x)),
    "logarithm-of-softmax": lambda x: (
        ops.LogSoftmax(x, axis=0), ops.Log(ops.Softmax(x, axis=0))),
    "logarithm-of-sum": lambda x: (
        ops.LogSoftmax(x, axis=0),
        x - ops.Log(ops.ReduceSum(ops.Exp(x), axes=(0,), keepdims=1))),
    "logarithm-of-sigmoid": lambda x: (
        ops.Neg(ops.Softplus(ops.Neg(x))), ops.Log(ops.Sigmoid(x))),
    "slope-of-sigmoid": lambda x: (
        ops.Sigmoid(x) * ops.Sigmoid(ops.Neg(x)),
        ops.Exp(x) / ops.Square(_one_more(ops.Exp(x)))),
    "scaled-up-and-down": lambda x: (
        ops.Abs(x), ops.Scale(ops.Scale(ops.Abs(x), factor=1e30), factor=1e-30)),
    "exponential-of-sum": lambda x: (
        ops.Exp(ops.ReduceSum(x, axes=(0,), keepdims=1)),
        ops.ReduceProd(ops.Exp(x), axes=(0,), keepdims=1)),
    "even-exponential": lambda x: (
        ops.Sigmoid(ops.Abs(x)), ops.Exp(ops.Abs(x)) / _one_more(ops.Exp(ops.Abs(x)))),
}  # fmt: skip
_OF_TWO: Mapping[str, _Identity] = {
    "logarithm-of-product": lambda x, y: (
        ops.Log(ops.Abs(x)) + ops.Log(ops.Abs(y)), ops.Log(ops.Abs(x * y))),
    "logarithm-of-quotient": lambda x, y: (
        ops.Log(ops.Abs(x)) - ops.Log(ops.Abs(y)), ops.Log(ops.Abs(x / y))),
    "root-of-product": lambda x, y: (
        ops.Sqrt(ops.Abs(x)) * ops.Sqrt(ops.Abs(y)), ops.Sqrt(ops.Abs(x * y))),
    "root-of-quotient": lambda x, y: (
        ops.Sqrt(ops.Abs(x)) / ops.Sqrt(ops.Abs(y)), ops.Sqrt(ops.Abs(x / y))),
    "product-of-exponentials": lambda x, y: (ops.Exp(x + y), ops.Exp(x) * ops.Exp(y)),
    "quotient-of-exponentials": lambda x, y: (ops.Exp(x - y), ops.Exp(x) / ops.Exp(y)),
    "quotient-by-square": lambda x, y: (x / y, (x * y) / ops.Square(y)),
    "product-under-root": lambda x, y: (
        ops.Abs(x * y), ops.Sqrt(ops.Square(x) * ops.Square(y))),
    "sigmoid-of-difference": lambda x, y: (
        ops.Sigmoid(x - y), ops.Exp(x) / (ops.Exp(x) + ops.Exp(y))),
}  # fmt: skip

_OPERANDS: Mapping[str, Callable[[Term], Term]] = {
    "": lambda x: x,
    "-negated": ops.Neg,
    "-halved": lambda x: ops.Scale(x, factor=0.5),
    "-moved": lambda x: ops.Shift(x, offset=0.5),
}
_TRIED = (60.0, 89.5, 100.0, -100.0, 88.6, 150.0, 1e-25, 1e20, -1e20, 1e13, 1e25, 1e-30, 3e9, 200.0)
_VALUES = [(a, b) for a, b in product(_TRIED, (0.0, *_TRIED))]


def _case(
    name: str, doc: str, kinds: Mapping[str, str], sides: Callable[..., Sides], numerics: Numerics
) -> Iterator[Case]:
    """The rule, where operands of a few magnitudes show that it is wrong."""
    rule = declared(name, doc, kinds, sides, numerics=numerics)
    names = [one for one, kind in kinds.items() if kind == "Tensor"]
    for first, second in _VALUES:
        pair = np.asarray([first, second], np.float32)
        given = {one: pair if place == 0 else pair[::-1].copy() for place, one in enumerate(names)}
        # A class that lets infinities spread only counts results that were finite before.
        if difference(Case(replace(rule, numerics=_F), given)) is not None:
            yield Case(rule, given)
            return


def of_ranges() -> Iterator[Case]:
    """The identities on their operands."""
    for number, (name, identity) in enumerate(_OF_ONE.items()):
        for place, (word, operand) in enumerate(_OPERANDS.items()):
            yield from _case(
                f"range/{name}{word}", "An intermediate result leaves the range.", {"x": "Tensor"},
                lambda v, of=identity, x=operand: of(x(v["x"])),
                _F if (number + place) % 3 == 0 else _R,
            )  # fmt: skip
    for number, (name, both) in enumerate(_OF_TWO.items()):
        for place, (word, operand) in enumerate(_OPERANDS.items()):
            yield from _case(
                f"range/{name}{word}", "An intermediate result leaves the range.",
                {"x": "Tensor", "y": "Tensor"},
                lambda v, of=both, x=operand: of(x(v["x"]), v["y"]),
                _F if (number + place) % 3 == 0 else _R,
            )  # fmt: skip


# Tolerances ------------------------------------------------------------------------------------


def _clear(x: Term) -> Term:
    """Whether an element is above one half, as a number."""
    half = ops.Scalar(value=0.5, dtype="float32")
    return ops.Cast(ops.Greater(x, half), to="float32")


def _soft_row(x: Term) -> Term:
    return ops.Softmax(x, axis=0)


_AT_ONE: Mapping[str, tuple[Callable[[Term], Term], Any]] = {
    "sine": (ops.Sin, [1e4]),
    "cosine": (ops.Cos, [1e4]),
    "floor": (ops.Floor, [1.0]),
    "ceiling": (ops.Ceil, [1.0]),
    "rounding": (ops.Round, [0.5]),
    "product": (lambda x: ops.ReduceProd(x, axes=(0,), keepdims=1), [1.0] * 4096),
    "exponential-of-exponential": (lambda x: ops.Exp(ops.Exp(x)), [4.4]),
    "sigmoid-of-sine": (lambda x: ops.Sigmoid(ops.Sin(x)), [1e4]),
    "above-a-half": (_clear, [0.5]),
    "whole-part-of-exponential": (lambda x: ops.Exp(ops.Floor(x)), [1.0]),
}
"""Functions of a product with a factor near its target, and operands at which they show it."""
_BESIDE: Mapping[str, Callable[[Term], Term]] = {
    "softmax": _soft_row,
    "softmax-of-softmax": lambda x: _soft_row(ops.Scale(_soft_row(x), factor=30.0)),
    "sigmoid": ops.Sigmoid,
    "tanh": ops.Tanh,
    "erf": ops.Erf,
    "softsign": ops.Softsign,
    "negated-sigmoid": lambda x: ops.Sigmoid(ops.Neg(x)),
}
"""Functions of such a product that another operand cancels."""


def of_tolerances() -> Iterator[Case]:
    """A factor that is near 1 or 2, before what magnifies a small change."""
    for target in (1.0, 2.0):
        for name, (function, values) in _AT_ONE.items():
            x = np.asarray([value / target for value in values])
            x = x.astype(np.float32) if name == "above-a-half" else x
            yield from _magnified(name, target, lambda of, v, a: of(a(v["x"])), function, x=x)
        for name, function in _BESIDE.items():
            x = np.asarray([1e4, 1.0]) / target
            yield from _magnified(
                f"{name}-beside", target, lambda of, v, a: of(a(v["x"]) - v["y"]), function,
                x=x, y=np.asarray([1e4, 1.0]),
            )  # fmt: skip


def _magnified(
    name: str,
    target: float,
    of: Callable[..., Term],
    function: Callable[[Term], Term],
    **given: Any,
) -> Iterator[Case]:
    def to(x: Term) -> Term:
        return x if target == 1.0 else ops.Scale(x, factor=target)

    rule = declared(
        f"magnified/{name}-of-{target:.0f}",
        "A change within the tolerance becomes a large one.",
        {**dict.fromkeys(given, "Tensor"), "a": "Float"},
        lambda v: (
            of(function, v, lambda x: ops.Scale(x, factor=v["a"])),
            of(function, v, to),
            near(v["a"], target, 1e-5),
        ),
        numerics=_R,
    )
    cases = (Case(rule, {**given, "a": target * (1.0 + off)}) for off in (9e-6, -9e-6))
    yield from [case for case in cases if difference(case) is not None][:1]
