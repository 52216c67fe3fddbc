"""Pools, global pools and local response normalisation."""

from typing import Any

from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Term,
    concat,
    is_float,
    near,
    ops,
    rule,
)


def maxima(x: Term, k: Any, s: Any, p: Any, d: Any, c: Any) -> Term:
    return ops.MaxPool(x, kernel=k, strides=s, pads=p, dilations=d, ceil=c)


def means(x: Term, k: Any, s: Any, p: Any, d: Any, c: Any, i: Any) -> Term:
    return ops.AveragePool(x, kernel=k, strides=s, pads=p, dilations=d, ceil=c, count_include_pad=i)


@rule("pools/maximum-of-one")
def maximum_of_one(x: Tensor, d: Ints, c: Int) -> Sides:
    """Windows of one element."""
    return maxima(x, (1, 1), (1, 1), (0, 0, 0, 0), d, c), x


@rule("pools/mean-of-one")
def mean_of_one(x: Tensor, d: Ints, i: Int) -> Sides:
    """Windows of one element."""
    return means(x, (1, 1), (1, 1), (0, 0, 0, 0), d, 0, i), x, is_float(x)


@rule("pools/maxima-of-maxima")
def maxima_of_maxima(x: Tensor, y: Tensor, k: Ints, s: Ints, p: Ints, d: Ints, c: Int) -> Sides:
    """Extrema are taken in any order."""
    return (
        ops.Max(maxima(x, k, s, p, d, c), maxima(y, k, s, p, d, c)),
        maxima(ops.Max(x, y), k, s, p, d, c),
        x.shape == y.shape,
    )


@rule("pools/maxima-scaled", bidirectional=True)
def maxima_scaled(x: Tensor, k: Ints, s: Ints, d: Ints, a: Float) -> Sides:
    """A positive factor keeps the order."""
    return (
        maxima(ops.Scale(x, factor=a), k, s, (0, 0, 0, 0), d, 0),
        ops.Scale(maxima(x, k, s, (0, 0, 0, 0), d, 0), factor=a),
        a > 0.0,
        is_float(x),
    )


@rule("pools/maxima-of-clip")
def maxima_of_clip(x: Tensor, k: Ints, s: Ints, d: Ints, lo: Float, hi: Float) -> Sides:
    """A clip is monotone; without pads every window has an element."""
    return (
        maxima(ops.Clip(x, min=lo, max=hi), k, s, (0, 0), d, 0),
        ops.Clip(maxima(x, k, s, (0, 0), d, 0), min=lo, max=hi),
    )


@rule("pools/maxima-turned")
def maxima_turned(x: Tensor, a: Int, b: Int, c: Int, d: Int, s: Int, t: Int) -> Sides:
    """Height and width change places."""
    return (
        maxima(ops.Transpose(x, perm=(0, 1, 3, 2)), (a, b), (c, d), (s, t, s, t), (1, 1), 0),
        ops.Transpose(maxima(x, (b, a), (d, c), (t, s, t, s), (1, 1), 0), perm=(0, 1, 3, 2)),
    )


@rule("pools/means-scaled", numerics=Numerics.REASSOCIATE, bidirectional=True)
def means_scaled(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints, c: Int, i: Int, a: Float) -> Sides:
    """A mean is linear, with zeros as pads or without them."""
    return (
        means(ops.Scale(x, factor=a), k, s, p, d, c, i),
        ops.Scale(means(x, k, s, p, d, c, i), factor=a),
        is_float(x),
    )


@rule("pools/means-shifted", numerics=Numerics.RELAXED)
def means_shifted(x: Tensor, k: Ints, s: Ints, d: Ints, a: Float) -> Sides:
    """A mean of equal weights keeps a constant; pads of zero would not."""
    return (
        means(ops.Shift(x, offset=a), k, s, (0, 0, 0, 0), d, 0, 1),
        ops.Shift(means(x, k, s, (0, 0, 0, 0), d, 0, 1), offset=a),
        is_float(x),
    )


@rule("pools/idle-count")
def idle_count(x: Tensor, k: Ints, s: Ints, d: Ints, i: Int) -> Sides:
    """Without pads there are none to count."""
    return (
        means(x, k, s, (0, 0, 0, 0), d, 0, i),
        means(x, k, s, (0, 0, 0, 0), d, 0, 0),
        is_float(x),
    )


@rule("pools/idle-ceil")
def idle_ceil(x: Tensor, k: Ints, p: Ints, d: Ints, c: Int) -> Sides:
    """A step of one leaves no rest."""
    return maxima(x, k, (1, 1), p, d, c), maxima(x, k, (1, 1), p, d, 0)


@rule("pools/global-mean-scaled", numerics=Numerics.REASSOCIATE)
def global_mean_scaled(x: Tensor, a: Float) -> Sides:
    """A mean is linear."""
    return (
        ops.GlobalAveragePool(ops.Scale(x, factor=a)),
        ops.Scale(ops.GlobalAveragePool(x), factor=a),
        is_float(x),
    )


@rule("pools/global-mean-of-sum", numerics=Numerics.REASSOCIATE)
def global_mean_of_sum(x: Tensor, y: Tensor) -> Sides:
    """A mean is linear."""
    return (
        ops.GlobalAveragePool(x) + ops.GlobalAveragePool(y),
        ops.GlobalAveragePool(x + y),
        x.shape == y.shape,
        is_float(x),
    )


@rule("pools/global-mean-of-concat", bidirectional=True)
def global_mean_of_concat(x: Tensor, y: Tensor) -> Sides:
    """Channels do not meet."""
    return (
        ops.GlobalAveragePool(concat(x, y, 1)),
        concat(ops.GlobalAveragePool(x), ops.GlobalAveragePool(y), 1),
    )


@rule("pools/global-mean-of-pointwise", numerics=Numerics.REFACTOR)
def global_mean_of_pointwise(x: Tensor, w: Tensor) -> Sides:
    """The mean of mixed channels is the mixture of their means."""
    one = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    return (
        ops.GlobalAveragePool(ops.Conv(x, w, **one)),
        ops.Conv(ops.GlobalAveragePool(x), w, **one),
        w.dim(2) == 1,
        w.dim(3) == 1,
    )


@rule("pools/global-maximum-of-relu", bidirectional=True)
def global_maximum_of_relu(x: Tensor) -> Sides:
    """A relu is monotone."""
    return ops.GlobalMaxPool(ops.Relu(x)), ops.Relu(ops.GlobalMaxPool(x))


@rule("pools/global-maximum-of-maxima")
def global_maximum_of_maxima(x: Tensor, a: Int, b: Int) -> Sides:
    """Windows in steps of one cover everything."""
    return (
        ops.GlobalMaxPool(maxima(x, (a, b), (1, 1), (0, 0, 0, 0), (1, 1), 0)),
        ops.GlobalMaxPool(x),
    )


@rule("pools/response-of-negative")
def response_of_negative(x: Tensor, n: Int, a: Float, b: Float, k: Float) -> Sides:
    """What divides an element depends on squares."""
    return (
        ops.LRN(ops.Neg(x), size=n, alpha=a, beta=b, bias=k),
        ops.Neg(ops.LRN(x, size=n, alpha=a, beta=b, bias=k)),
    )


@rule("pools/response-turned", bidirectional=True)
def response_turned(x: Tensor, n: Int, a: Float, b: Float, k: Float) -> Sides:
    """Only channels see each other."""
    return (
        ops.LRN(ops.Transpose(x, perm=(0, 1, 3, 2)), size=n, alpha=a, beta=b, bias=k),
        ops.Transpose(ops.LRN(x, size=n, alpha=a, beta=b, bias=k), perm=(0, 1, 3, 2)),
    )


@rule("pools/response-of-batch", bidirectional=True)
def response_of_batch(x: Tensor, y: Tensor, n: Int, a: Float, b: Float, k: Float) -> Sides:
    """Samples do not see each other."""
    return (
        ops.LRN(concat(x, y, 0), size=n, alpha=a, beta=b, bias=k),
        concat(
            ops.LRN(x, size=n, alpha=a, beta=b, bias=k),
            ops.LRN(y, size=n, alpha=a, beta=b, bias=k),
            0,
        ),
    )


@rule("pools/idle-response", numerics=Numerics.RELAXED)
def idle_response(x: Tensor, n: Int, b: Float, k: Float) -> Sides:
    """Squares that do not count, and a divisor of 1."""
    return ops.LRN(x, size=n, alpha=0.0, beta=b, bias=k), x, near(k, 1.0)
