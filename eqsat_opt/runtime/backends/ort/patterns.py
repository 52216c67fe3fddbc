"""What onnxruntime's CPU provider fuses beyond single operators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, reduce

from eqsat_opt.ir.ops import get_op
from eqsat_opt.rules.term import Condition, Expr, Size, Term, Var, near, ops
from eqsat_opt.runtime.backends.protocol import KernelPattern

__all__ = ["ACTIVATIONS", "ort_patterns"]

ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
"""What onnxruntime appends to a convolution on CPU."""

_X, _Z = Var("x"), Var("z")
_W, _B = Var("w", const=True), Var("b", const=True)


def _attr(name: str) -> Expr:
    """An attribute variable."""
    return Expr("attr", (name,))


def _any(op: str, *operands: Term) -> Term:
    """An operator whatever its attributes are."""
    return getattr(ops, op)(*operands, **{name: _attr(name) for name in get_op(op).attrs})  # type: ignore[no-any-return]


def _literal(name: str, value: float) -> tuple[Term, Condition]:
    """A number up to rounding, of any element type."""
    return ops.Scalar(value=_attr(name), dtype=_attr("dtype")), near(_attr(name), value)


def _along(c: Var, axis: Size, size: Expr, *others: Size) -> tuple[Condition, ...]:
    """A constant that varies along one axis; the other axes, of which some may be the same."""
    return c.dim(axis) == size, reduce(Expr.__mul__, map(c.dim, others)) == 1


def _convolutions() -> Iterator[KernelPattern]:
    conv = _any("Conv", _X, _W)
    biased = conv + _B
    # Of three to five axes, and all but the second have an extent of 1.
    others = 0, 2, (_B.rank + 2) // 2, _B.rank - 1
    per_channel = (*_along(_B, 1, _W.dim(0), *others), _B.rank == _X.rank, _B.rank <= 5)
    yield KernelPattern("conv-bias", biased, per_channel)
    yield KernelPattern("conv-residual", conv + _Z)
    yield KernelPattern("conv-bias-residual", biased + _Z, per_channel)
    for op in ACTIVATIONS:
        yield KernelPattern("conv-activation", _any(op, conv))
        yield KernelPattern("conv-bias-activation", _any(op, biased), per_channel)
        yield KernelPattern("conv-residual-activation", _any(op, conv + _Z))
        yield KernelPattern("conv-bias-residual-activation", _any(op, biased + _Z), per_channel)


def _products() -> Iterator[KernelPattern]:
    biased = _X @ _W + _B
    is_row = (_X.rank == 2, _W.rank == 2, _B.rank == 2, *_along(_B, 1, _W.dim(1), 0))
    yield KernelPattern("matmul-bias", biased, is_row)
    for op in ("Relu", "Sigmoid", "Tanh"):
        yield KernelPattern("matmul-bias-activation", _any(op, biased), is_row)


def _gelus() -> Iterator[KernelPattern]:
    (half, is_half), (one, is_one) = _literal("half", 0.5), _literal("one", 1.0)
    (root, is_root), (inverse, is_inverse) = (
        _literal("root", math.sqrt(value)) for value in (2.0, 0.5)
    )
    for i, (argument, is_scaled) in enumerate(((_X / root, is_root), (_X * inverse, is_inverse))):
        gate = ops.Erf(argument) + one
        for j, gelu in enumerate(((_X * half) * gate, _X * (half * gate), half * (_X * gate))):
            yield KernelPattern(f"gelu-{i}{j}", gelu, (is_half, is_one, is_scaled))


def _is_row(c: Var) -> tuple[Condition, ...]:
    """A constant of two to six axes, of which all but the last have an extent of 1."""
    last = c.rank - 1
    others = 0, last // 3, last // 2, 2 * last // 3, last - 1
    return *_along(c, last, _X.dim(_X.rank - 1), *others), c.rank <= 6


def _norms() -> Iterator[KernelPattern]:
    scale, shift = Var("scale", const=True), Var("shift", const=True)
    are_rows = (*_is_row(scale), *_is_row(shift))
    two, is_two = _literal("two", 2.0)
    centred = _X - _any("ReduceMean", _X)
    squares = ((ops.Pow(centred, two), (is_two, *are_rows)), (centred * centred, are_rows))
    for i, (square, when) in enumerate(squares):
        deviation = ops.Sqrt(_any("ReduceMean", square) + Var("epsilon"))
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
            yield KernelPattern(f"attention-{name}", _any("Softmax", scores) @ Var("v"))


@cache
def ort_patterns() -> tuple[KernelPattern, ...]:
    """What onnxruntime's CPU provider runs as one kernel beyond single operators.

    Concatenations of any length and one Split for adjacent Slices have no fixed shape; selection
    makes them itself.
    """
    return (*_convolutions(), *_products(), *_gelus(), *_norms(), *_attentions())
