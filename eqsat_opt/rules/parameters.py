"""Operands that rules make or demand where scales and shifts meet weights."""

from __future__ import annotations

from eqsat_opt.rules.term import Condition, Expr, Term, Var, ops

__all__ = ["row_of", "scalar", "vector"]


def scalar(value: float) -> Term:
    """A literal."""
    return ops.Scalar(value=value, dtype="float32")  # type: ignore[no-any-return]


def vector(c: Var, size: Expr) -> Term:
    """A row as a vector; whether it is no more than a row, the reshape says."""
    return ops.Reshape(c, shape=(size,))  # type: ignore[no-any-return]


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
