"""Patterns that backends fuse after a convolution or a product: bias, residual, activation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

from eqsat_opt.ir.ops import get_op
from eqsat_opt.rules.term import Condition, Expr, Size, Term, Var, ops
from eqsat_opt.runtime.backends.protocol import KernelPattern

__all__ = ["along", "any_attrs", "attr", "convolutions", "products"]

_X, _Z = Var("x"), Var("z")
_W, _B = Var("w", const=True), Var("b", const=True)


def attr(name: str) -> Expr:
    """Return a variable that binds an attribute."""
    return Expr("attr", (name,))


def any_attrs(op: str, *operands: Term) -> Term:
    """Return the term of an operator with any attributes."""
    return getattr(ops, op)(*operands, **{name: attr(name) for name in get_op(op).attrs})  # type: ignore[no-any-return]


def along(c: Var, axis: Size, size: Expr, *others: Size) -> tuple[Condition, ...]:
    """Return the conditions on a constant that varies along one axis only.

    Args:
        c: the constant.
        axis: the axis along which it varies.
        size: its extent along that axis.
        others: the other axes, which have an extent of 1; an axis may occur twice.
    """
    return c.dim(axis) == size, reduce(Expr.__mul__, map(c.dim, others)) == 1


def convolutions(activations: Sequence[str]) -> Iterator[KernelPattern]:
    """Yield ``activation(conv(x, w) [+ bias] [+ z])`` with a constant bias for each channel."""
    conv = any_attrs("Conv", _X, _W)
    biased = conv + _B
    # A bias has three to five axes, and all but the second have an extent of 1.
    others = 0, 2, (_B.rank + 2) // 2, _B.rank - 1
    per_channel = (*along(_B, 1, _W.dim(0), *others), _B.rank == _X.rank, _B.rank <= 5)
    yield KernelPattern("conv-bias", biased, per_channel)
    yield KernelPattern("conv-residual", conv + _Z)
    yield KernelPattern("conv-bias-residual", biased + _Z, per_channel)
    for op in activations:
        yield KernelPattern("conv-activation", any_attrs(op, conv))
        yield KernelPattern("conv-bias-activation", any_attrs(op, biased), per_channel)
        yield KernelPattern("conv-residual-activation", any_attrs(op, conv + _Z))
        yield KernelPattern(
            "conv-bias-residual-activation", any_attrs(op, biased + _Z), per_channel
        )


def products(activations: Sequence[str]) -> Iterator[KernelPattern]:
    """Yield ``activation(x @ w + bias)`` of matrices with a constant bias for each column."""
    biased = _X @ _W + _B
    is_row = (_X.rank == 2, _W.rank == 2, _B.rank == 2, *along(_B, 1, _W.dim(1), 0))
    yield KernelPattern("matmul-bias", biased, is_row)
    for op in activations:
        yield KernelPattern("matmul-bias-activation", any_attrs(op, biased), is_row)
