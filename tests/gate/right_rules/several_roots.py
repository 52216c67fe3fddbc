"""Rules with several roots, which are replaced together."""

from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
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


@rule("several/both-extrema")
def both_extrema(x: Tensor, y: Tensor) -> Sides:
    """The order of operands does not matter to either."""
    return (ops.Max(x, y), ops.Min(x, y)), (ops.Max(y, x), ops.Min(y, x))


@rule("several/sum-and-mean", numerics=Numerics.REASSOCIATE)
def sum_and_mean(x: Tensor, i: Int) -> Sides:
    """A mean is the sum that is there already, over the count."""
    total = ops.ReduceSum(x, axes=(i,), keepdims=1)
    return (
        (total, ops.ReduceMean(x, axes=(i,), keepdims=1)),
        (total, ops.Scale(total, factor=1.0 / real(x.dim(i)))),
        is_float(x),
    )


@rule("several/products-of-batches")
def products_of_batches(x: Tensor, y: Tensor, w: Tensor) -> Sides:
    """Rows of two batches meet one matrix."""
    joined = concat(x, y, 1) @ w
    return (
        (x @ w, y @ w),
        (slice_(joined, 1, 0, x.dim(1)), slice_(joined, 1, x.dim(1), x.dim(1) + y.dim(1))),
        x.rank == 3,
        y.rank == 3,
        w.rank == 2,
        x.dim(0) == y.dim(0),
        distinct(x, y),
    )


@rule("several/means-of-siblings")
def means_of_siblings(x: Tensor, y: Tensor, k: Ints, s: Ints, p: Ints, d: Ints, i: Int) -> Sides:
    """Two pools of one sort are a pool of both."""
    attrs = {
        "kernel": k,
        "strides": s,
        "pads": p,
        "dilations": d,
        "ceil": 0,
        "count_include_pad": i,
    }
    both = ops.AveragePool(concat(x, y, 1), **attrs)
    return (
        (ops.AveragePool(x, **attrs), ops.AveragePool(y, **attrs)),
        (slice_(both, 1, 0, x.dim(1)), slice_(both, 1, x.dim(1), x.dim(1) + y.dim(1))),
        x.dim(0) == y.dim(0),
        x.dim(2) == y.dim(2),
        x.rank == 3,
        y.rank == 3,
        is_float(x),
    )


@rule("several/grouped-siblings")
def grouped_siblings(
    x: Tensor, y: Tensor, w: Weight, v: Weight, s: Ints, p: Ints, d: Ints
) -> Sides:
    """Two convolutions of equal form are one in two groups."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    both = ops.Conv(concat(x, y, 1), concat(w, v, 0), **attrs, group=2)
    return (
        (ops.Conv(x, w, **attrs, group=1), ops.Conv(y, v, **attrs, group=1)),
        (slice_(both, 1, 0, w.dim(0)), slice_(both, 1, w.dim(0), w.dim(0) + v.dim(0))),
        x.shape == y.shape,
        w.shape == v.shape,
    )


@rule("several/scaled-pair", numerics=Numerics.BITEXACT)
def scaled_pair(x: Tensor, y: Tensor, a: Float) -> Sides:
    """A factor of both extrema is one of the operands."""
    one, other = ops.Scale(x, factor=a), ops.Scale(y, factor=a)
    return (
        (ops.Scale(ops.Max(x, y), factor=a), ops.Scale(ops.Min(x, y), factor=a)),
        (ops.Max(one, other), ops.Min(one, other)),
        a > 0.0,
        is_float(x),
    )


@rule("several/sum-and-difference")
def sum_and_difference(x: Tensor, y: Tensor) -> Sides:
    """Both of the opposite second operand."""
    return (x + ops.Neg(y), x - ops.Neg(y)), (x - y, x + y)
