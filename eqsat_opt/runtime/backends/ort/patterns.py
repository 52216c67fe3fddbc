"""Patterns that onnxruntime's CPU provider fuses beyond single operators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

from eqsat_opt.rules.term import Condition, Term, Var, near, ops
from eqsat_opt.runtime.backends.protocol import KernelPattern
from eqsat_opt.runtime.backends.shared.epilogues import (
    along,
    any_attrs,
    attr,
    convolutions,
    products,
)

__all__ = ["ACTIVATIONS", "ort_patterns"]

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
"""Activations that onnxruntime fuses into a convolution on a CPU."""

_AFTER_PRODUCTS = ("Relu", "Sigmoid", "Tanh")

_X = Var("x")


def _literal(name: str, value: float) -> tuple[Term, Condition]:
    """Return a scalar of any element type, and the condition that it is near a value."""
    return ops.Scalar(value=attr(name), dtype=attr("dtype")), near(attr(name), value)


def _gelus() -> Iterator[KernelPattern]:
    (half, is_half), (one, is_one) = _literal("half", 0.5), _literal("one", 1.0)
    (root, is_root), (inverse, is_inverse) = (
        _literal("root", math.sqrt(value)) for value in (2.0, 0.5)
    )
    bias = Var("b", const=True)
    for name, x, when in (("gelu", _X, ()), ("bias-gelu", _X + bias, _is_row(bias))):
        for i, (argument, is_scaled) in enumerate(((x / root, is_root), (x * inverse, is_inverse))):
            gate = ops.Erf(argument) + one
            for j, gelu in enumerate(((x * half) * gate, x * (half * gate), half * (x * gate))):
                yield KernelPattern(f"{name}-{i}{j}", gelu, (is_half, is_one, is_scaled, *when))
    yield KernelPattern("bias-gelu", any_attrs("Gelu", _X + bias), _is_row(bias))


def _is_row(c: Var) -> tuple[Condition, ...]:
    """Return the conditions on a constant of two to six axes, all but the last of extent 1."""
    last = c.rank - 1
    others = 0, last // 3, last // 2, 2 * last // 3, last - 1
    return *along(c, last, _X.dim(_X.rank - 1), *others), c.rank <= 6


def _norms() -> Iterator[KernelPattern]:
    scale, shift = Var("scale", const=True), Var("shift", const=True)
    are_rows = (*_is_row(scale), *_is_row(shift))
    two, is_two = _literal("two", 2.0)
    centred = _X - any_attrs("ReduceMean", _X)
    squares = ((ops.Pow(centred, two), (is_two, *are_rows)), (centred * centred, are_rows))
    for i, (square, when) in enumerate(squares):
        deviation = ops.Sqrt(any_attrs("ReduceMean", square) + Var("epsilon"))
        yield KernelPattern(f"layer-norm-{i}", centred / deviation * scale + shift, when)


def _attentions() -> Iterator[KernelPattern]:
    logits, factor = Var("q") @ Var("k"), Var("s", const=True)
    scaled = (logits * factor, logits / factor)
    for name, spellings in (
        ("plain", (logits,)),
        ("scaled", scaled),
        ("masked", tuple(scores + Var("mask") for scores in scaled)),
    ):
        for scores in spellings:
            yield KernelPattern(f"attention-{name}", any_attrs("Softmax", scores) @ Var("v"))


@cache
def ort_patterns() -> tuple[KernelPattern, ...]:
    """Return the patterns that onnxruntime's CPU provider runs as one kernel.

    Single operators need no pattern. Concatenations of any length, and one Split for adjacent
    Slices, are not fixed patterns; selection makes them itself.
    """
    return (
        *convolutions(ACTIVATIONS),
        *products(_AFTER_PRODUCTS),
        *_gelus(),
        *_norms(),
        *_attentions(),
    )
