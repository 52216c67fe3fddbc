"""Operands that are broadcast, dropped or taken for another one."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import (
    Float,
    Int,
    Numerics,
    Sides,
    Tensor,
    Weight,
    concat,
    distinct,
    is_float,
    ops,
    real,
    rule,
    slice_,
)
from tests.gate.cases import f64, positive, truth, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR


@wrong(x=f64(2, 3), y=f64(1, 3), i=0)
@rule("wrong/sum-of-broadcast", numerics=_R)
def sum_of_broadcast(x: Tensor, y: Tensor, i: Int) -> Sides:
    """What is broadcast along the summed axis counts once where it should count for each."""
    attrs = {"axes": (i,), "keepdims": 1}
    after = ops.ReduceSum(x, **attrs) + ops.ReduceSum(y, **attrs)
    return ops.ReduceSum(x + y, **attrs), after, x.rank == y.rank


@wrong(x=f64(2, 3), y=f64(2, 1), i=1)
@rule("wrong/product-of-broadcast", numerics=_R)
def product_of_broadcast(x: Tensor, y: Tensor, i: Int) -> Sides:
    """A factor along the multiplied axis is a power outside."""
    attrs = {"axes": (i,), "keepdims": 1}
    after = ops.ReduceProd(x, **attrs) * y
    return ops.ReduceProd(x * y, **attrs), after, y.dim(i) == 1, x.rank == y.rank


@wrong(x=f64(3, 3), y=f64(3), i=0)
@rule("wrong/factor-out-of-sum", numerics=_F)
def factor_out_of_sum(x: Tensor, y: Tensor, i: Int) -> Sides:
    """A vector is not a factor of the sum along its own axis; a square hides the axes."""
    attrs = {"axes": (i + 1,), "keepdims": 0}
    left = ops.ReduceSum(x * y, axes=(i,), keepdims=0)
    return (
        left,
        ops.ReduceSum(x, axes=(i,), keepdims=0)
        * ops.ReduceSum(ops.Reshape(y, shape=(1, y.dim(0))), **attrs),
        i == 0,
        x.rank == 2,
        y.rank == 1,
        y.dim(0) == x.dim(0),
    )


@wrong(x=f64(2, 3), s=f64(3), y=f64(3, 3))
@rule("wrong/scale-of-rows", numerics=_F)
def scale_of_rows(x: Tensor, s: Weight, y: Weight) -> Sides:
    """A scale of what is summed over is none of the result, unless it has one element."""
    return (x * s) @ y, (x @ y) * s, s.rank == 1, y.rank == 2


@wrong(x=f64(2, 3), s=f64(3), y=f64(3, 3))
@rule("wrong/scale-of-columns", numerics=_F)
def scale_of_columns(x: Tensor, s: Weight, y: Weight) -> Sides:
    """A scale of the result belongs to the columns of the weight, not to its rows."""
    rows = ops.Reshape(s, shape=(s.dim(0), 1))
    return (x @ y) * s, x @ (y * rows), s.rank == 1, y.rank == 2, s.dim(0) == y.dim(1)


@wrong(x=f64(2, 3), y=f64(2, 1), i=0)
@rule("wrong/softmax-of-shifted", numerics=_R)
def softmax_of_shifted(x: Tensor, y: Tensor, i: Int) -> Sides:
    """What is constant along the axis of a softmax drops out; that is another axis."""
    return ops.Softmax(x + y, axis=i), ops.Softmax(x, axis=i), y.dim(1) == 1, y.rank == x.rank


@wrong(x=f64(2, 3), y=f64(1), i=0)
@rule("wrong/softmax-of-scaled", numerics=_R)
def softmax_of_scaled(x: Tensor, y: Tensor, i: Int) -> Sides:
    """A shift drops out of a softmax, a factor does not."""
    return ops.Softmax(x * y, axis=i), ops.Softmax(x, axis=i), y.rank == 1, y.dim(0) == 1


@wrong(x=f64(5, 3), y=f64(5, 3), i=0)
@rule("wrong/max-of-broadcast", numerics=_R)
def max_of_broadcast(x: Tensor, y: Tensor, i: Int) -> Sides:
    """The greatest of sums is no sum of the greatest; it is where one of them is constant."""
    attrs = {"axes": (i,), "keepdims": 1}
    after = ops.ReduceMax(x, **attrs) + ops.ReduceMax(y, **attrs)
    return ops.ReduceMax(x + y, **attrs), after, x.rank == y.rank, x.dim(i) <= y.dim(i)


@wrong(c=truth(True, False), x=f64(1), y=f64(1))
@rule("wrong/choice-of-same")
def choice_of_same(c: Tensor, x: Tensor) -> Sides:
    """A choice between a thing and itself has the shape of the condition."""
    return ops.Where(c, x, x), x


@wrong(x=f64(1), y=f64(2))
@rule("wrong/shape-of-minimum")
def shape_of_minimum(x: Tensor, y: Tensor) -> Sides:
    """What is absorbed leaves its shape behind."""
    return ops.Max(ops.Min(x, y), x), x, x.rank == y.rank


@wrong(x=f64(2, 3), y=f64(2, 3), z=f64(2, 3))
@rule("wrong/absorbed")
def absorbed(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Claim: max(x, min(x, y)) = x; with another operand nothing is absorbed."""
    return ops.Max(x, ops.Min(z, y)), x, x.shape == y.shape, y.shape == z.shape, distinct(x, z)


@wrong(x=f64(4, 5), y=f64(4, 5))
@rule("wrong/second-ignored")
def second_ignored(x: Tensor, y: Tensor) -> Sides:
    """The clipped operand and the unclipped one are mixed up."""
    return ops.Relu(ops.Max(x, y)), ops.Max(ops.Relu(x), x), x.shape == y.shape


@wrong(x=f64(2, 3), y=f64(2, 3), z=f64(2, 3))
@rule("wrong/where-nested")
def where_nested(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """The order of comparisons matters where both hold."""
    first, second = ops.Less(x, y), ops.Less(x, z)
    return (
        ops.Where(first, y, ops.Where(second, z, x)),
        ops.Where(second, z, ops.Where(first, y, x)),
        x.shape == y.shape,
        y.shape == z.shape,
    )


@wrong(c=truth(True), d=truth(False), x=f64(1), y=f64(1))
@rule("wrong/where-merged")
def where_merged(c: Tensor, d: Tensor, x: Tensor, y: Tensor) -> Sides:
    """Two choices of one value in a row: either condition is enough, not both needed."""
    both = ops.And(c, d)
    return ops.Where(c, x, ops.Where(d, x, y)), ops.Where(both, x, y), c.shape == d.shape


@wrong(c=truth(True), d=truth(False))
@rule("wrong/de-morgan")
def de_morgan(c: Tensor, d: Tensor) -> Sides:
    """Negation turns and into or."""
    return ops.Not(ops.And(c, d)), ops.And(ops.Not(c), ops.Not(d))


@wrong(c=truth(True), d=truth(True))
@rule("wrong/xor-as-or")
def xor_as_or(c: Tensor, d: Tensor) -> Sides:
    """They differ where both hold."""
    return ops.Xor(c, d), ops.And(ops.Or(c, d), ops.Or(d, c))


@wrong(x=f64(2, 3), y=f64(3, 4), z=f64(3, 4))
@rule("wrong/roots-exchanged")
def roots_exchanged(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Two products of one operand are computed at once and handed out the wrong way round."""
    both = x @ concat(y, z, 1)
    columns = y.dim(1)
    after = slice_(both, 1, columns, columns + z.dim(1)), slice_(both, 1, 0, columns)
    return (x @ y, x @ z), after, x.rank == 2, y.rank == 2, z.rank == 2


@wrong(x=f64(2, 3), y=f64(3, 4), z=f64(3, 3))
@rule("wrong/roots-cut")
def roots_cut(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """The second product starts where the first ends, cut at its own width."""
    both = x @ concat(y, z, 1)
    after = slice_(both, 1, 0, y.dim(1)), slice_(both, 1, z.dim(1), z.dim(1) + z.dim(1))
    return (x @ y, x @ z), after, x.rank == 2, y.rank == 2, z.rank == 2, z.dim(1) <= y.dim(1) + 1


@wrong(x=f64(2, 3), y=f64(2, 3))
@rule("wrong/roots-of-difference")
def roots_of_difference(x: Tensor, y: Tensor) -> Sides:
    """Claim: x - y and y - x share one subtraction, and one of them needs its sign."""
    one = x - y
    return (one, y - x), (one, ops.Abs(one)), x.shape == y.shape, is_float(x)


@wrong(x=f64(2, 3), y=f64(2, 3), z=f64(2, 3))
@rule("wrong/subtraction-regrouped", numerics=_R)
def subtraction_regrouped(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Claim: x - (y - z) = (x - y) + z."""
    return x - (y - z), (x - y) - z, x.shape == y.shape, y.shape == z.shape


@wrong(x=positive(2, 3), y=positive(2, 3), z=positive(2, 3))
@rule("wrong/quotient-regrouped", numerics=_F)
def quotient_regrouped(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Claim: x / (y / z) = xz / y."""
    return x / (y / z), (x / y) / z, is_float(x), x.shape == y.shape


@wrong(x=f64(2, 3), a=0.7, i=1)
@rule("wrong/sum-of-shifted", numerics=_R)
def sum_of_shifted(x: Tensor, a: Float, i: Int) -> Sides:
    """A shift of every element shifts the sum by as many."""
    attrs = {"axes": (i,), "keepdims": 1}
    after = ops.Shift(ops.ReduceSum(x, **attrs), offset=a * real(x.dim(i) - x.dim(i) // 2))
    return ops.ReduceSum(ops.Shift(x, offset=a), **attrs), after, x.dim(i) >= 1


@wrong(x=f64(2, 3), i=1)
@rule("wrong/mean-by-last", numerics=_R)
def mean_by_last(x: Tensor, i: Int) -> Sides:
    """The number of elements of another axis."""
    attrs = {"axes": (i,), "keepdims": 1}
    after = ops.Scale(ops.ReduceSum(x, **attrs), factor=1.0 / real(x.dim(0)))
    return ops.ReduceMean(x, **attrs), after, is_float(x), x.dim(0) >= 1


@wrong(x=f64(2, 3), s=f64(2, 3), i=1)
@rule("wrong/variance-unbiased", numerics=_F)
def variance_unbiased(x: Tensor, i: Int) -> Sides:
    """The variance divides by n, the unbiased one by n - 1."""
    attrs = {"axes": (i,), "keepdims": 1}
    square = ops.Square(ops.Center(x, axes=(i,)))
    after = ops.Scale(ops.ReduceSum(square, **attrs), factor=1.0 / real(x.dim(i) - 1))
    return ops.ReduceMean(square, **attrs), after, x.dim(i) >= 2


@wrong(x=f64(2, 3), w=f64(3), b=f64(3), i=1, e=1e-3)
@rule("wrong/shift-before-scale", numerics=_F)
def shift_before_scale(x: Tensor, w: Weight, b: Weight, i: Int, e: Float) -> Sides:
    """The shift comes after the scale."""
    inner = ops.LayerNormalization(x, ops.Exp(w - w), axis=i, epsilon=e)
    left = ops.LayerNormalization(x, w, b, axis=i, epsilon=e)
    return left, (inner + b) * w, w.rank == 1, w.shape == b.shape, is_float(w)


@wrong(x=f64(2, 3), y=np.array([1, 1]), i=1)
@rule("wrong/gather-axis", numerics=_R)
def gather_axis(x: Tensor, y: Tensor, i: Int) -> Sides:
    """What is gathered is normalised as before, if it is gathered along another axis."""
    attrs = {"axis": i}
    return (
        ops.Softmax(ops.Gather(x, y, axis=i), **attrs),
        ops.Gather(ops.Softmax(x, **attrs), y, axis=i),
        y.rank == 1,
    )


@wrong(x=f64(2, 3), y=np.array([0]), i=0)
@rule("wrong/gather-as-slice")
def gather_as_slice(x: Tensor, y: Tensor, i: Int) -> Sides:
    """A gather at one index is a slice at that index, not at the first."""
    return (
        ops.Gather(ops.Relu(x), y, axis=i),
        ops.Relu(slice_(x, i, 1, 2)),
        y.rank == 1,
        (y.dim(0) == 1),
        x.dim(i) >= 2,
    )
