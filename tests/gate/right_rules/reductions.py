"""Sums, means, products and extrema over axes, and norms made of them."""

from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    concat,
    is_float,
    near,
    ops,
    real,
    rule,
)


@rule("reductions/difference", numerics=Numerics.REASSOCIATE)
def difference(x: Tensor, y: Tensor, k: Ints, f: Int) -> Sides:
    """A sum is linear."""
    return (
        ops.ReduceSum(x, axes=k, keepdims=f) - ops.ReduceSum(y, axes=k, keepdims=f),
        ops.ReduceSum(x - y, axes=k, keepdims=f),
        x.shape == y.shape,
    )


@rule("reductions/maximum-of-concat")
def maximum_of_concat(x: Tensor, y: Tensor, i: Int) -> Sides:
    """The greater of both maxima."""
    return (
        ops.ReduceMax(concat(x, y, i), axes=(i,), keepdims=1),
        ops.Max(ops.ReduceMax(x, axes=(i,), keepdims=1), ops.ReduceMax(y, axes=(i,), keepdims=1)),
        x.dim(i) >= 1,
        y.dim(i) >= 1,
    )


@rule("reductions/minimum-of-negative")
def minimum_of_negative(x: Tensor, k: Ints, f: Int) -> Sides:
    """A reflection exchanges extrema; the least integer has no opposite."""
    return (
        ops.ReduceMin(ops.Neg(x), axes=k, keepdims=f),
        ops.Neg(ops.ReduceMax(x, axes=k, keepdims=f)),
        is_float(x),
    )


@rule("reductions/maximum-of-relu", bidirectional=True)
def maximum_of_relu(x: Tensor, k: Ints, f: Int) -> Sides:
    """A relu is monotone."""
    return (
        ops.ReduceMax(ops.Relu(x), axes=k, keepdims=f),
        ops.Relu(ops.ReduceMax(x, axes=k, keepdims=f)),
    )


@rule("reductions/minimum-of-clip")
def minimum_of_clip(x: Tensor, k: Ints, f: Int, lo: Float, hi: Float) -> Sides:
    """A clip is monotone."""
    return (
        ops.ReduceMin(ops.Clip(x, min=lo, max=hi), axes=k, keepdims=f),
        ops.Clip(ops.ReduceMin(x, axes=k, keepdims=f), min=lo, max=hi),
    )


@rule("reductions/maximum-of-maxima")
def maximum_of_maxima(x: Tensor, y: Tensor, k: Ints, f: Int) -> Sides:
    """Extrema are taken in any order."""
    return (
        ops.ReduceMax(ops.Max(x, y), axes=k, keepdims=f),
        ops.Max(ops.ReduceMax(x, axes=k, keepdims=f), ops.ReduceMax(y, axes=k, keepdims=f)),
        x.shape == y.shape,
    )


@rule("reductions/maximum-in-two-steps")
def maximum_in_two_steps(x: Tensor, i: Int, j: Int) -> Sides:
    """Over one axis, then over another."""
    return (
        ops.ReduceMax(ops.ReduceMax(x, axes=(i,), keepdims=1), axes=(j,), keepdims=1),
        ops.ReduceMax(x, axes=(i, j), keepdims=1),
        i != j,
    )


@rule("reductions/mean-in-two-steps", numerics=Numerics.REASSOCIATE)
def mean_in_two_steps(x: Tensor, i: Int, j: Int) -> Sides:
    """Means of means of equal counts."""
    return (
        ops.ReduceMean(ops.ReduceMean(x, axes=(i,), keepdims=1), axes=(j,), keepdims=1),
        ops.ReduceMean(x, axes=(i, j), keepdims=1),
        i != j,
        is_float(x),
    )


@rule("reductions/sum-of-mean", numerics=Numerics.REASSOCIATE)
def sum_of_mean(x: Tensor, k: Ints) -> Sides:
    """One element is its own sum."""
    once = ops.ReduceMean(x, axes=k, keepdims=1)
    return ops.ReduceSum(once, axes=k, keepdims=1), once


@rule("reductions/maximum-twice")
def maximum_twice(x: Tensor, k: Ints) -> Sides:
    """One element is its own maximum."""
    once = ops.ReduceMax(x, axes=k, keepdims=1)
    return ops.ReduceMax(once, axes=k, keepdims=1), once


@rule("reductions/product-of-one")
def product_of_one(x: Tensor, i: Int) -> Sides:
    """A product of one factor."""
    return ops.ReduceProd(x, axes=(i,), keepdims=1), x, x.dim(i) == 1


@rule("reductions/product-of-products", numerics=Numerics.RELAXED)
def product_of_products(x: Tensor, y: Tensor, k: Ints, f: Int) -> Sides:
    """Factors in another order; an intermediate product may leave the range."""
    return (
        ops.ReduceProd(x * y, axes=k, keepdims=f),
        ops.ReduceProd(x, axes=k, keepdims=f) * ops.ReduceProd(y, axes=k, keepdims=f),
        x.shape == y.shape,
    )


@rule("reductions/product-of-concat", numerics=Numerics.RELAXED)
def product_of_concat(x: Tensor, y: Tensor, i: Int) -> Sides:
    """Both parts are multiplied."""
    return (
        ops.ReduceProd(concat(x, y, i), axes=(i,), keepdims=1),
        ops.ReduceProd(x, axes=(i,), keepdims=1) * ops.ReduceProd(y, axes=(i,), keepdims=1),
    )


@rule("reductions/product-of-magnitudes")
def product_of_magnitudes(x: Tensor, k: Ints, f: Int) -> Sides:
    """|xy| = |x| |y|, factor by factor."""
    return (
        ops.ReduceProd(ops.Abs(x), axes=k, keepdims=f),
        ops.Abs(ops.ReduceProd(x, axes=k, keepdims=f)),
        is_float(x),
    )


@rule("reductions/product-in-two-steps", numerics=Numerics.RELAXED)
def product_in_two_steps(x: Tensor, i: Int, j: Int) -> Sides:
    """Over one axis, then over another."""
    return (
        ops.ReduceProd(ops.ReduceProd(x, axes=(i,), keepdims=1), axes=(j,), keepdims=1),
        ops.ReduceProd(x, axes=(i, j), keepdims=1),
        i != j,
    )


@rule("reductions/dropped-axis")
def dropped_axis(x: Tensor, a: Int, b: Int) -> Sides:
    """A reshape that drops the axis that was summed."""
    return (
        ops.Reshape(ops.ReduceSum(x, axes=(1,), keepdims=1), shape=(a, b)),
        ops.ReduceSum(x, axes=(1,), keepdims=0),
        x.rank == 3,
        a == x.dim(0),
        b == x.dim(2),
    )


@rule("reductions/of-padding", numerics=Numerics.REASSOCIATE)
def of_padding(x: Tensor, a: Int, b: Int, f: Int) -> Sides:
    """Zeros add nothing to a sum."""
    return (
        ops.ReduceSum(ops.Pad(x, pads=(a, b), value=0.0), axes=(0,), keepdims=f),
        ops.ReduceSum(x, axes=(0,), keepdims=f),
        a >= 0,
        b >= 0,
    )


@rule("reductions/mean-of-repeat", numerics=Numerics.REASSOCIATE)
def mean_of_repeat(x: Tensor, i: Int, n: Int) -> Sides:
    """Every element counts n times."""
    return (
        ops.ReduceMean(ops.Repeat(x, axis=i, repeats=n), axes=(i,), keepdims=1),
        ops.ReduceMean(x, axes=(i,), keepdims=1),
        is_float(x),
    )


@rule("reductions/maximum-of-repeat")
def maximum_of_repeat(x: Tensor, i: Int, n: Int) -> Sides:
    """Copies are no greater."""
    return (
        ops.ReduceMax(ops.Repeat(x, axis=i, repeats=n), axes=(i,), keepdims=1),
        ops.ReduceMax(x, axes=(i,), keepdims=1),
    )


@rule("reductions/mean-as-sum", numerics=Numerics.REASSOCIATE)
def mean_as_sum(x: Tensor, i: Int) -> Sides:
    """A mean is a sum over the count."""
    return (
        ops.ReduceMean(x, axes=(i,), keepdims=1),
        ops.Scale(ops.ReduceSum(x, axes=(i,), keepdims=1), factor=1.0 / real(x.dim(i))),
        is_float(x),
        x.dim(i) >= 1,
    )


@rule("reductions/centred-sum", numerics=Numerics.REASSOCIATE)
def centred_difference(x: Tensor, y: Tensor, k: Ints) -> Sides:
    """Taking a mean away is linear."""
    return (
        ops.Center(x, axes=k) + ops.Center(y, axes=k),
        ops.Center(x + y, axes=k),
        x.shape == y.shape,
        is_float(x),
    )


@rule("reductions/absolute-sum-scaled", numerics=Numerics.REASSOCIATE)
def absolute_sum_scaled(x: Tensor, k: Ints, f: Int, a: Float) -> Sides:
    """The L1 norm is homogeneous."""
    return (
        ops.ReduceSum(ops.Abs(ops.Scale(x, factor=a)), axes=k, keepdims=f),
        ops.Scale(ops.ReduceSum(ops.Abs(x), axes=k, keepdims=f), factor=a),
        a > 0.0,
        is_float(x),
    )


@rule("reductions/square-sum-scaled", numerics=Numerics.RELAXED)
def square_sum_scaled(x: Tensor, k: Ints, f: Int, a: Float) -> Sides:
    """The sum of squares grows by the square of a factor."""
    return (
        ops.ReduceSum(ops.Square(ops.Scale(x, factor=a)), axes=k, keepdims=f),
        ops.Scale(ops.ReduceSum(ops.Square(x), axes=k, keepdims=f), factor=a * a),
        is_float(x),
    )


@rule("reductions/euclidean-norm-scaled", numerics=Numerics.RELAXED)
def euclidean_norm_scaled(x: Tensor, k: Ints, a: Float) -> Sides:
    """The L2 norm is homogeneous; squares may leave the range."""
    return (
        ops.Sqrt(ops.ReduceSum(ops.Square(ops.Scale(x, factor=a)), axes=k, keepdims=1)),
        ops.Scale(ops.Sqrt(ops.ReduceSum(ops.Square(x), axes=k, keepdims=1)), factor=a),
        a > 0.0,
    )


@rule("reductions/log-sum-exp-shifted", numerics=Numerics.RELAXED)
def log_sum_exp_shifted(x: Tensor, k: Ints, s: Float) -> Sides:
    """A shift passes through the logarithm of a sum of exponentials."""
    return (
        ops.Log(ops.ReduceSum(ops.Exp(ops.Shift(x, offset=s)), axes=k, keepdims=1)),
        ops.Shift(ops.Log(ops.ReduceSum(ops.Exp(x), axes=k, keepdims=1)), offset=s),
    )


@rule("reductions/log-sum-exp-less-maximum", numerics=Numerics.RELAXED)
def log_sum_exp_less_maximum(x: Tensor, m: Tensor, i: Int) -> Sides:
    """The usual guard against overflow, with any m of one element along the axis."""
    return (
        m + ops.Log(ops.ReduceSum(ops.Exp(x - m), axes=(i,), keepdims=1)),
        ops.Log(ops.ReduceSum(ops.Exp(x), axes=(i,), keepdims=1)),
        m.rank == x.rank,
        m.dim(i) == 1,
        x.rank == 2,
        m.dim(1 - i) == x.dim(1 - i),
    )


@rule("reductions/scaled-mean-is-sum", numerics=Numerics.REASSOCIATE)
def scaled_mean_is_sum(x: Tensor, a: Float) -> Sides:
    """A mean of four, times four."""
    return (
        ops.Scale(ops.ReduceMean(x, axes=(0,), keepdims=1), factor=a),
        ops.ReduceSum(x, axes=(0,), keepdims=1),
        near(a, 4.0),
        x.dim(0) == 4,
        is_float(x),
    )
