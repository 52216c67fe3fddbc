"""Softmax: what leaves it unchanged, and what it moves past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.blockwise import gathered, inward
from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.forms import SOFTMAX
from eqsat_opt.rules.rule import Int, Ints, Numerics, Phase, Rule, Sides, Tensor, rule
from eqsat_opt.rules.term import Condition, Expr, Term, Var, ops

__all__: list[str] = []

_RANKS = (2, 3, 4)


def _softmax(x: Term, axis: object) -> Term:
    return ops.Softmax(x, axis=axis)


def _constant_along(c: Var, x: Var, axis: Expr, rank: int) -> tuple[Condition, ...]:
    """Return the conditions that ``c`` has the extents of ``x`` or 1, and 1 along ``axis``."""
    fits = ((c.dim(j) - 1) * (c.dim(j) - x.dim(j)) == 0 for j in range(rank))
    return (
        x.rank == rank,
        c.rank == rank,
        (c.dim(axis) == 1).because("what is added must be constant along the axis"),
        *fits,
    )


def _shift(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, i = v["x"], v["c"], v["i"]
        return _softmax(x + c, i), _softmax(x, i), *_constant_along(c, x, i, rank)

    return declared(
        f"softmax/shift-{rank}d",
        "Adding what is constant along its axis does not change a softmax, except where a large "
        "addend, such as a mask of -1e9, would round x away.",
        {"x": "Tensor", "c": "Tensor", "i": "Int"},
        sides,
        numerics=Numerics.RELAXED,
        phase=Phase.SIMPLIFY,
    )


shift_2d, shift_3d, shift_4d = map(_shift, _RANKS)


@rule("softmax/shift-scalar", phase=Phase.SIMPLIFY, numerics=Numerics.RELAXED)
def shift_scalar(x: Tensor, c: Tensor, i: Int) -> Sides:
    """Adding one number to all elements does not change a softmax.

    The exceptions are an infinite number, and a large one that rounds x away.
    """
    return _softmax(x + c, i), _softmax(x, i), c.rank == 0


@rule("softmax/key-bias", phase=Phase.SIMPLIFY, numerics=Numerics.RELAXED)
def key_bias(q: Tensor, k: Tensor, b: Tensor, i: Int) -> Sides:
    """A bias of the keys adds one number per query, which the softmax over the keys removes.

    The exceptions are an infinite number, and a large one that rounds the products away.
    """
    return (
        _softmax(q @ (k + b), i),
        _softmax(q @ k, i),
        q.rank == 4,
        k.rank == 4,
        b.rank == 4,
        i == 3,
        b.dim(3) == 1,
        b.dim(2) == k.dim(2),
        (b.dim(1) - 1) * (b.dim(1) - k.dim(1)) == 0,
        (b.dim(0) - 1) * (b.dim(0) - k.dim(0)) == 0,
    )


@rule("softmax/log-sum-exp", phase=Phase.SIMPLIFY, numerics=Numerics.REASSOCIATE)
def log_sum_exp(x: Tensor, i: Int) -> Sides:
    """A tensor less the logarithm of the sum of its exponentials is its log-softmax."""
    total = ops.ReduceSum(ops.Exp(x), axes=(i,), keepdims=1)
    return x - ops.Log(total), ops.LogSoftmax(x, axis=i)


@rule("softmax/deferred", phase=Phase.DERIVATION, numerics=Numerics.RELAXED)
def deferred(x: Tensor, v: Tensor, i: Int) -> Sides:
    """A softmax can divide after the product with the values, as fused attention kernels do.

    No maximum is subtracted, so the exponentials may overflow: the rule serves proofs only.
    """
    e = ops.Exp(x)
    return (
        _softmax(x, i) @ v,
        (e @ v) / ops.ReduceSum(e, axes=(i,), keepdims=1),
        x.rank >= 2,
        v.rank >= 2,
        i + 1 == x.rank,
    )


stacked = gathered(
    "softmax/stacked",
    "Two softmaxes that are concatenated along another axis are one softmax of the concatenation.",
    SOFTMAX,
)
take = inward(
    "softmax/take",
    "Only the part of a softmax that is read is computed, where the cut is not along its axis.",
    SOFTMAX,
)


@rule("softmax/transpose")
def transpose(x: Tensor, p: Ints, i: Int) -> Sides:
    """A softmax commutes with a transpose if its axis moves along, so transposes can meet."""
    moved = _softmax(ops.Transpose(x, perm=p), i)
    return moved, ops.Transpose(_softmax(x, p[i]), perm=p)
