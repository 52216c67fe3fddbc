"""Conditions that are a little too wide, attributes that are a little too large, and infinities."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import Float, Int, Numerics, Sides, Tensor, Weight, concat, ops, rule
from tests.gate.cases import f32, f64, wrong

_INF = np.inf


@wrong(x=f64(21), i=0, a=0, b=7, c=8, d=10)
@rule("wrong/nearly-adjacent-slices")
def nearly_adjacent_slices(x: Tensor, i: Int, a: Int, b: Int, c: Int, d: Int) -> Sides:
    """Two slices are one where they are adjacent; from the bound 7 on there may be a gap."""
    both = ops.Slice(x, axis=i, lo=a, hi=b), ops.Slice(x, axis=i, lo=c, hi=d)
    one = ops.Slice(x, axis=i, lo=a, hi=b + d - c)
    return concat(*both, i), one, c >= b, c <= b + b * b // 40


@wrong(x=f64(1, 1, 30), w=f64(1, 1, 3), d=6)
@rule("wrong/dilation-of-fifth-degree")
def dilation_of_fifth_degree(x: Tensor, w: Weight, d: Int) -> Sides:
    """Five dilations are left alone, and large ones make pads that fit no memory."""
    attrs = {"strides": (1,), "group": 1}
    more = d + (d - 1) * (d - 2) * (d - 3) * (d - 4) * (d - 5) // 60
    return (
        ops.Conv(x, w, pads=(d, d), dilations=(d,), **attrs),
        ops.Conv(x, w, pads=(more, more), dilations=(more,), **attrs),
        w.rank == 3,
        w.dim(2) == 3,
    )


@wrong(x=f64(4), a=1.005)
@rule("wrong/leaky-as-maximum")
def leaky_as_maximum(x: Tensor, a: Float) -> Sides:
    """A slope is at most 1, and not 1.0098."""
    return ops.LeakyRelu(x, alpha=a), ops.Max(x, ops.Scale(x, factor=a)), a * (1 - a) >= -0.01


@wrong(x=f32(_INF), y=f32(_INF))
@rule("wrong/equal-by-difference")
def equal_by_difference(x: Tensor, y: Tensor) -> Sides:
    """Equal infinities have no difference."""
    return ops.Equal(x, y), ops.Equal(x - y, y - y)


@wrong(x=f32(_INF), y=f32(-_INF))
@rule("wrong/nan-of-sum")
def nan_of_sum(x: Tensor, y: Tensor) -> Sides:
    """A sum of opposite infinities is NaN, and no operand is."""
    return ops.IsNaN(x + y), ops.Or(ops.IsNaN(x), ops.IsNaN(y))


@wrong(x=f32(1.0, 3e-8, 3e-8, 3e-8))
@rule("wrong/total-of-backward-sums", numerics=Numerics.BITEXACT)
def total_of_backward_sums(x: Tensor) -> Sides:
    """The last sum and the last of the sums from behind are added in other orders."""
    n = x.dim(0)
    return (
        ops.Slice(ops.CumSum(x, axis=0, exclusive=0, reverse=0), axis=0, lo=n - 1, hi=n),
        ops.Slice(ops.CumSum(x, axis=0, exclusive=0, reverse=1), axis=0, lo=0, hi=1),
        x.rank == 1,
    )
