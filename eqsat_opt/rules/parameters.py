"""Terms and conditions that many rules spell: literals, rows, constant factors and addends."""

from __future__ import annotations

from eqsat_opt.rules.term import Condition, Expr, Term, Var, ops

__all__ = ["plus", "row_of", "scalar", "times", "vector"]


def scalar(value: Expr | float, like: Var) -> Term:
    """Return a literal of the element type of a tensor, to which it is rounded."""
    return ops.Scalar(value=value, dtype=like.dtype)


def times(x: Term, factor: Expr | float) -> Term:
    """Return ``x`` times a constant factor, in the form that recognition uses."""
    return ops.Scale(x, factor=factor)


def plus(x: Term, offset: Expr | float) -> Term:
    """Return ``x`` plus a constant addend, in the form that recognition uses."""
    return ops.Shift(x, offset=offset)


def vector(c: Var, size: Expr) -> Term:
    """Return a row as a vector; the reshape demands that it is one row."""
    return ops.Reshape(c, shape=(size,))


def row_of(c: Var, x: Var, size: Expr) -> tuple[Condition, ...]:
    """Return the conditions that ``c`` is one row along the last axis of ``x``.

    An operand is lifted to the rank of ``x`` before.
    """
    return (
        x.rank >= 2,
        x.rank <= 4,
        c.rank == x.rank,
        c.dim(0) == 1,
        c.dim(c.rank - 2) == 1,
        c.dim(c.rank - 1) == size,
    )
