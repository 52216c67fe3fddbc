"""Terms and conditions that many rules spell: literals, rows, constant factors and addends."""

from __future__ import annotations

from eqsat_opt.rules.term import Condition, Expr, Term, Var, ops

__all__ = ["plus", "row_of", "scalar", "times", "vector"]


def scalar(value: Expr | float, like: Var) -> Term:
    """A literal of the element type of a tensor, to which it is rounded."""
    return ops.Scalar(value=value, dtype=like.dtype)


def times(x: Term, factor: Expr | float) -> Term:
    """A constant factor, as recognition holds it."""
    return ops.Scale(x, factor=factor)


def plus(x: Term, offset: Expr | float) -> Term:
    """A constant addend, as recognition holds it."""
    return ops.Shift(x, offset=offset)


def vector(c: Var, size: Expr) -> Term:
    """A row as a vector; the reshape demands that it is one row."""
    return ops.Reshape(c, shape=(size,))


def row_of(c: Var, x: Var, size: Expr) -> tuple[Condition, ...]:
    """``c`` is one row along the last axis of ``x``; an operand is lifted to the rank of ``x``."""
    return (
        x.rank >= 2,
        x.rank <= 4,
        c.rank == x.rank,
        c.dim(0) == 1,
        c.dim(c.rank - 2) == 1,
        c.dim(c.rank - 1) == size,
    )
