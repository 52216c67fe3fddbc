"""Infinities and NaN that come or go, and classes of numerics that promise more than is kept."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Term,
    Weight,
    is_float,
    ops,
    rule,
)
from tests.gate.cases import f16, f32, f64, truth, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR
_INF, _NAN = np.inf, np.nan
_ROW = f32(np.linspace(0.1, 3.0, 32))


def _zero() -> Term:
    return ops.Scalar(value=0.0, dtype="float32")


# Special values --------------------------------------------------------------------------------


@wrong(x=f32(_NAN, 1.0))
@rule("wrong/guard-by-equality")
def guard_by_equality(x: Tensor) -> Sides:
    """Claim: x = x asks for NaN: what guards by it is no identity."""
    return ops.Where(ops.Equal(x, x), x, _zero()), x


@wrong(x=f32(_NAN, 1.0))
@rule("wrong/guard-by-order")
def guard_by_order(x: Tensor) -> Sides:
    """Of a number, one of x <= 0 and x > 0 holds; of NaN none."""
    zero = _zero()
    either = ops.Or(ops.LessOrEqual(x, zero), ops.Greater(x, zero))
    return ops.Where(either, x, zero), x


@wrong(x=f32(_NAN, 1.0))
@rule("wrong/relu-by-choice")
def relu_by_choice(x: Tensor) -> Sides:
    """A choice by x > 0 makes 0 of NaN, relu keeps it."""
    zero = _zero()
    return ops.Where(ops.Greater(x, zero), x, zero), ops.Relu(x)


@wrong(x=f32(_NAN), y=f32(1.0))
@rule("wrong/min-by-choice")
def min_by_choice(x: Tensor, y: Tensor) -> Sides:
    """A choice by x < y takes either side of NaN, a minimum is NaN."""
    return ops.Where(ops.Less(x, y), x, y), ops.Min(x, y), x.shape == y.shape


@wrong(x=f32(1.0), y=f32(_NAN))
@rule("wrong/not-less")
def not_less(x: Tensor, y: Tensor) -> Sides:
    """Not x < y is x >= y for numbers only."""
    return ops.Not(ops.Less(x, y)), ops.GreaterOrEqual(x, y)


@wrong(x=f32(_NAN), y=f32(1.0))
@rule("wrong/not-greater-nor-less")
def not_greater_nor_less(x: Tensor, y: Tensor) -> Sides:
    """What is neither less nor greater is equal, or no number."""
    neither = ops.Not(ops.Or(ops.Less(x, y), ops.Greater(x, y)))
    return neither, ops.Equal(x, y)


@wrong(x=f32(_NAN))
@rule("wrong/equals-itself")
def equals_itself(x: Tensor) -> Sides:
    """Everything equals itself, but NaN."""
    return ops.Equal(x, x), ops.Or(ops.Less(x, x), ops.Not(ops.Less(x, x)))


@wrong(x=f32(_INF))
@rule("wrong/difference-is-zero")
def difference_is_zero(x: Tensor) -> Sides:
    """Claim: x - x = 0, but infinity less infinity is not a number."""
    return x - x, ops.Clip(x, min=0.0, max=0.0), is_float(x)


@wrong(x=f32(_INF, 1.0))
@rule("wrong/zero-absorbs", numerics=_R)
def zero_absorbs(x: Tensor) -> Sides:
    """0 x = 0 for all but infinities and NaN."""
    return ops.Scale(x, factor=0.0), ops.Clip(x, min=0.0, max=0.0)


@wrong(c=truth(False), x=f32(_INF))
@rule("wrong/mask-by-product", numerics=_R)
def mask_by_product(c: Tensor, x: Tensor) -> Sides:
    """A choice hides an infinity, a product with 0 makes NaN of it."""
    return ops.Where(c, x, _zero()), x * ops.Cast(c, to="float32"), c.shape == x.shape, is_float(x)


@wrong(x=f32(_NAN, 1.0), i=0)
@rule("wrong/masked-row", numerics=_R)
def masked_row(x: Tensor, i: Int) -> Sides:
    """Rows in which everything is masked are NaN after a softmax, and made 0 on purpose."""
    soft = ops.Softmax(x, axis=i)
    return ops.Where(ops.IsNaN(soft), _zero(), soft), soft


@wrong(x=f32(_INF))
@rule("wrong/clip-hides")
def clip_hides(x: Tensor) -> Sides:
    """Bounds of 3e38 let every finite number pass, but no infinity."""
    return ops.Clip(x, min=-3e38, max=3e38), x, is_float(x)


@wrong(x=f32(_NAN))
@rule("wrong/min-with-infinity", numerics=_R)
def min_with_infinity(x: Tensor) -> Sides:
    """A minimum with infinity keeps everything; what starts from a comparison does not."""
    return ops.Min(x, ops.Scalar(value=_INF, dtype="float32")), ops.Where(
        ops.LessOrEqual(x, ops.Scalar(value=_INF, dtype="float32")), x, _zero()
    )


@wrong(x=f32(-_INF))
@rule("wrong/softsign-bounded", numerics=_R)
def softsign_bounded(x: Tensor) -> Sides:
    """Claim: x / (1 + |x|) is not a number at infinity, 1 - 1 / (1 + x) is."""
    one = ops.Scalar(value=1.0, dtype="float32")
    size = ops.Abs(x)
    return ops.Softsign(x), ops.Sign(x) * (one - one / (one + size))


@wrong(x=f32(_INF), y=f32(0.0))
@rule("wrong/product-with-zero", numerics=_R)
def product_with_zero(x: Tensor, y: Tensor) -> Sides:
    """0 times infinity is not a number, whatever the order of the factors says."""
    return (
        ops.Max(x, x) * y,
        ops.Where(ops.Equal(y, y - y), y, x * y),
        is_float(x),
        x.shape == y.shape,
    )


@wrong(x=f64(0, 3), i=0)
@rule("wrong/mean-of-nothing", numerics=_R)
def mean_of_nothing(x: Tensor, i: Int) -> Sides:
    """The mean over an empty axis is not a number, the mean of sums over it is."""
    attrs = {"axes": (i,), "keepdims": 1}
    total = ops.ReduceSum(x, **attrs)
    size = ops.Max(ops.ReduceSum(ops.Exp(x - x), **attrs), ops.Exp(total - total))
    return ops.ReduceMean(x, **attrs), total / size


@wrong(x=f64(0, 3), i=0)
@rule("wrong/softmax-sums-to-one", numerics=_R)
def softmax_sums_to_one(x: Tensor, i: Int) -> Sides:
    """The sum over a softmax is 1, over an empty one 0."""
    attrs = {"axes": (i,), "keepdims": 1}
    total = ops.ReduceSum(ops.Softmax(x, axis=i), **attrs)
    return (
        total,
        ops.Sigmoid(ops.Scale(ops.ReduceSum(x, **attrs), factor=0.0))
        + ops.Sigmoid(ops.Scale(ops.ReduceSum(x, **attrs), factor=0.0)),
        is_float(x),
    )


@wrong(x=f64(2, 0), i=1)
@rule("wrong/mean-of-expanded", numerics=_R)
def mean_of_expanded(x: Tensor, i: Int) -> Sides:
    """The mean of ones is 1, unless there are none."""
    attrs = {"axes": (i,), "keepdims": 1}
    return (
        ops.ReduceMean(ops.Sigmoid(ops.Scale(x, factor=0.0)), **attrs),
        ops.Sigmoid(ops.Scale(ops.ReduceSum(x, **attrs), factor=0.0)),
        is_float(x),
    )


# Misdeclared classes ---------------------------------------------------------------------------


@wrong(x=f32(1e8), y=f32(-1e8), z=f32(1.0))
@rule("wrong/sum-regrouped")
def sum_regrouped(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Sums in another order round otherwise."""
    return (x + y) + z, x + (y + z), is_float(x)


@wrong(x=_ROW, y=f32(np.linspace(0.7, 2.0, 32)), z=f32(0.3))
@rule("wrong/product-regrouped")
def product_regrouped(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """So do products."""
    return (x * y) * z, x * (y * z), is_float(x)


@wrong(x=_ROW, a=3.0)
@rule("wrong/quotient-as-product")
def quotient_as_product(x: Tensor, a: Float) -> Sides:
    """A quotient rounds once, a product with a rounded reciprocal twice."""
    return ops.Scale(x, factor=a), x / ops.Shift(x - x, offset=1.0 / a), a > 0.0


@wrong(x=f32(1e38))
@rule("wrong/scaled-back")
def scaled_back(x: Tensor) -> Sides:
    """Powers of two round nothing, but they overflow."""
    return ops.Scale(ops.Scale(x, factor=4.0), factor=0.25), x


@wrong(x=np.array([1e-45], np.float32))
@rule("wrong/scaled-forth")
def scaled_forth(x: Tensor) -> Sides:
    """And they underflow."""
    return ops.Scale(ops.Scale(x, factor=0.5), factor=2.0), x


@wrong(x=f32(3e38), y=f32(3e38))
@rule("wrong/half-sum")
def half_sum(x: Tensor, y: Tensor) -> Sides:
    """Halves are exact, the sum of wholes overflows."""
    after = ops.Scale(x, factor=0.5) + ops.Scale(y, factor=0.5)
    return ops.Scale(x + y, factor=0.5), after


@wrong(x=f16(300.0))
@rule("wrong/square-of-scaled")
def square_of_scaled(x: Tensor) -> Sides:
    """A square of a half is a quarter of the square, where that fits into half precision."""
    return ops.Square(ops.Scale(x, factor=0.5)), ops.Scale(ops.Square(x), factor=0.25)


@wrong(x=_ROW)
@rule("wrong/log-of-exp")
def log_of_exp(x: Tensor) -> Sides:
    """Claim: log(exp x) = x up to rounding."""
    return ops.Log(ops.Exp(x)), x


@wrong(x=f32(1.0, 3.0), m=f32(1.0, 0.0), y=f32(1e9, 1e9))
@rule("wrong/lerp", numerics=_R)
def lerp(x: Tensor, y: Tensor, m: Tensor) -> Sides:
    """At a gate of 1 the difference of a blend has lost the digits of x."""
    one = ops.Scalar(value=1.0, dtype="float32")
    left = m * x + (one - m) * y
    return left, y + m * (x - y), x.shape == y.shape, m.shape == x.shape, is_float(x)


@wrong(x=f32(1000001.0), y=f32(1000000.0))
@rule("wrong/squares-expanded", numerics=_R)
def squares_expanded(x: Tensor, y: Tensor) -> Sides:
    """(x - y)(x + y) is exact near x = y, x^2 - y^2 is not."""
    left = (x - y) * (x + y)
    return left, ops.Square(x) - ops.Square(y), x.shape == y.shape, is_float(x)


@wrong(x=f32(10001.0, 10002.0, 10003.0), i=0)
@rule("wrong/variance-in-one-pass", numerics=_R)
def variance_in_one_pass(x: Tensor, i: Int) -> Sides:
    """The mean square less the squared mean cancels."""
    attrs = {"axes": (i,), "keepdims": 1}
    mean = ops.ReduceMean(x, **attrs)
    left = ops.ReduceMean(ops.Square(ops.Center(x, axes=(i,))), **attrs)
    return left, ops.ReduceMean(ops.Square(x), **attrs) - ops.Square(mean)


@wrong(x=f32(1e8 + 8), m=f32(1e8), s=f32(3.0))
@rule("wrong/centred-folded", numerics=_R)
def centred_folded(x: Tensor, m: Weight, s: Weight) -> Sides:
    """(x - m) s is exact beside m; xs - ms is not."""
    return (x - m) * s, x * s - m * s, is_float(x)


@wrong(x=f32(1e-3))
@rule("wrong/shifted-back", numerics=_R)
def shifted_back(x: Tensor) -> Sides:
    """Small numbers do not survive a large one."""
    large = ops.Shift(ops.Square(x), offset=1e6)
    return ops.Square(x), ops.Shift(large, offset=-1e6)


@wrong(x=f32(1e-6))
@rule("wrong/softplus-naive", numerics=_R)
def softplus_naive(x: Tensor) -> Sides:
    """Claim: log(1 + exp x) for very negative x: the 1 absorbs the rest."""
    minus = ops.Scale(ops.Reciprocal(x), factor=-5e-5)
    return ops.Softplus(minus), ops.Log(ops.Shift(ops.Exp(minus), offset=1.0))


@wrong(x=f32(1e-4))
@rule("wrong/sine-by-cosine", numerics=_R)
def sine_by_cosine(x: Tensor) -> Sides:
    """Claim: sin^2 = 1 - cos^2 cancels near 0."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return ops.Square(ops.Sin(x)), one - ops.Square(ops.Cos(x))


@wrong(x=f32(1e-6))
@rule("wrong/tanh-by-sigmoid", numerics=_R)
def tanh_by_sigmoid(x: Tensor) -> Sides:
    """2 s(2x) - 1 has no digits near 0."""
    after = ops.Shift(ops.Scale(ops.Sigmoid(ops.Scale(x, factor=2.0)), factor=2.0), offset=-1.0)
    return ops.Tanh(x), after


@wrong(x=f32([3.0]), w=f32([1.0]), v=f32([2.0**-24]))
@rule("wrong/weights-distributed")
def weights_distributed(x: Tensor, w: Weight, v: Weight) -> Sides:
    """Sums of products are taken apart and summed again."""
    return x @ (w + v), x @ w + x @ v, w.shape == v.shape, is_float(x)


@wrong(x=f32([3e38, 3e38], [-3e38, -3e38]), k=(0, 1))
@rule("wrong/sum-by-axes")
def sum_by_axes(x: Tensor, k: Ints) -> Sides:
    """The order of a sum over two axes is none of the orders of two sums."""
    inner = ops.ReduceSum(x, axes=(k[0],), keepdims=1)
    return (
        ops.ReduceSum(x, axes=k, keepdims=1),
        ops.ReduceSum(inner, axes=(k[1],), keepdims=1),
        (k[0] < k[1]),
        is_float(x),
        x.rank == 2,
        k[1] == 1,
    )


@wrong(x=_ROW)
@rule("wrong/three-times")
def three_times(x: Tensor) -> Sides:
    """Twice is exact, three times is not: 0.1 x 10 is no sum of ten."""
    thrice = ops.Scale(x, factor=7.0)
    return ((x + x) + (x + x)) + ((x + x) + x), thrice, is_float(x)
