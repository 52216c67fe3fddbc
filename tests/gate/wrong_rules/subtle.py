"""Errors that show in one corner: an element type, a rank, a pair of attributes, few values."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import (
    Float,
    Func,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Weight,
    concat,
    far,
    is_float,
    near,
    ops,
    rule,
    slice_,
    sqrt,
)
from tests.gate.cases import f16, f32, f64, i64, positive, truth, u8, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR


@wrong(x=f32(1e5))
@rule("wrong/cast-through-half", numerics=_R)
def cast_through_half(x: Tensor) -> Sides:
    """Half precision ends at 65504, and has 11 bits."""
    half = ops.Cast(ops.Cast(x, to="float32"), to="float16")
    return ops.Cast(half, to="float32"), ops.Cast(x, to="float32"), is_float(x)


@wrong(x=np.array([1.0 + 2.0**-40]))
@rule("wrong/cast-through-single")
def cast_through_single(x: Tensor) -> Sides:
    """A float of 64 bits loses digits in one of 32."""
    single = ops.Cast(ops.Cast(x, to="float64"), to="float32")
    return ops.Cast(single, to="float64"), ops.Cast(x, to="float64"), is_float(x)


@wrong(x=f32(np.nan))
@rule("wrong/cast-to-truth", numerics=_R)
def cast_to_truth(x: Tensor) -> Sides:
    """Read as a truth value NaN is true; its sign is NaN."""
    truth_ = ops.Cast(ops.Cast(x, to="bool"), to="float32")
    return truth_, ops.Abs(ops.Sign(ops.Cast(x, to="float32"))), is_float(x)


@wrong(x=f64(2, 3, 4), y=i64(1, 0), z=i64(1, 1), i=1)
@rule("wrong/gather-of-gather")
def gather_of_gather(x: Tensor, y: Tensor, z: Tensor, i: Int) -> Sides:
    """The outer indices choose among the inner ones, not the other way round."""
    left = ops.Gather(ops.Gather(x, y, axis=i), z, axis=i)
    return left, ops.Gather(x, ops.Gather(z, y, axis=0), axis=i), y.rank == 1, y.shape == z.shape


@wrong(x=f64(2, 3, 4), y=f64(3, 1))
@rule("wrong/softmax-of-misaligned", numerics=_R)
def softmax_of_misaligned(x: Tensor, y: Tensor) -> Sides:
    """Axes of an operand of lower rank are counted from the end."""
    return ops.Softmax(x + y, axis=1), ops.Softmax(x, axis=1), y.dim(1) == 1, x.rank == 3


@wrong(x=f64(3, 3), y=f64(3, 3), s=f64(3))
@rule("wrong/scale-of-square", numerics=_F)
def scale_of_square(x: Tensor, y: Tensor, s: Tensor) -> Sides:
    """A scale of what is summed over types as one of the result where the product is square."""
    return (x * s) @ y, (x @ y) * s, s.rank == 1, x.rank == 2, x.dim(1) == y.dim(1), y.rank == 2


@wrong(x=f64(2, 3), a=1.5, b=0.5)
@rule("wrong/scales-of-sum", numerics=_F)
def scales_of_sum(x: Tensor, a: Float, b: Float) -> Sides:
    """Two factors that are always equal in tests are not one."""
    both = ops.Scale(ops.Scale(x, factor=a), factor=b)
    return both, ops.Scale(x, factor=b * b)


@wrong(x=f64(1, 1, 9), k=4, m=2)
@rule("wrong/pools-of-equal-kernels")
def pools_of_equal_kernels(x: Tensor, k: Int, m: Int) -> Sides:
    """Two pools become one as if their kernels were equal; pads hide the size."""
    attrs = {"strides": (1,), "dilations": (1,), "ceil": 0}
    inner = ops.MaxPool(x, kernel=(k,), pads=(0, k - 1), **attrs)
    after = ops.MaxPool(x, kernel=(2 * k - 1,), pads=(0, 2 * k - 2), **attrs)
    return ops.MaxPool(inner, kernel=(m,), pads=(0, m - 1), **attrs), after, m <= k


@wrong(x=f64(1, 4, 6, 6), s=(2, 3), t=(3, 2))
@rule("wrong/strides-crosswise")
def strides_crosswise(x: Tensor, s: Ints, t: Ints) -> Sides:
    """Strides of two steps multiply axis by axis."""
    attrs = {"kernel": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    inner = ops.MaxPool(x, strides=s, **attrs)
    step = (s[0] * t[1], s[1] * t[0])
    return ops.MaxPool(inner, strides=t, **attrs), ops.MaxPool(x, strides=step, **attrs)


@wrong(x=f64(1, 4, 7), w=f64(4, 2, 3), s=3, p=3)
@rule("wrong/stride-after-crop")
def stride_after_crop(x: Tensor, w: Weight, s: Int, p: Int) -> Sides:
    """A pad in front of a strided convolution cannot be cut from its result."""
    attrs = {"strides": (s,), "dilations": (1,), "group": 2}
    padded = ops.Conv(ops.Pad(x, pads=(0, 0, p, 0, 0, 0), value=0.0), w, pads=(0, 0), **attrs)
    return padded, ops.Conv(x, w, pads=(p - p // s, p // s), **attrs), w.rank == 3, p >= 0


@wrong(x=f64(1, 2, 16), k=5, d=3)
@rule("wrong/dilated-span", numerics=_R)
def dilated_span(x: Tensor, k: Int, d: Int) -> Sides:
    """A dilated mean reads every d-th element of its span."""
    attrs = {"strides": (1,), "pads": (0, 0), "ceil": 0, "count_include_pad": 0}
    wide = ops.AveragePool(x, kernel=(d * (k - 1) + 1,), dilations=(1,), **attrs)
    return ops.AveragePool(x, kernel=(k,), dilations=(d,), **attrs), wide, k >= 2, d >= 1


@wrong(x=f64(2, 6), g=3, a=2, b=6)
@rule("wrong/shuffle-back")
def shuffle_back(x: Tensor, g: Int, a: Int, b: Int) -> Sides:
    """Shuffling channels by g is undone by shuffling by the number of the others."""
    moved = ops.Transpose(ops.Reshape(x, shape=(a, g, 2)), perm=(0, 2, 1))
    once = ops.Reshape(moved, shape=(a, b))
    again = ops.Transpose(ops.Reshape(once, shape=(a, g, 2)), perm=(0, 2, 1))
    return ops.Reshape(again, shape=(a, b)), x, x.rank == 2


@wrong(x=f64(2, 5), a=2)
@rule("wrong/shift-and-back")
def shift_and_back(x: Tensor, a: Int) -> Sides:
    """Moving a sequence and moving it back loses its end, which pads replace."""
    moved = ops.Pad(x, pads=(0, a, 0, -2), value=0.0)
    return ops.Pad(moved, pads=(0, -2, 0, a), value=0.0), x, x.rank == 2, a == 2


@wrong(x=positive(4), a=0.5, b=2.0)
@rule("wrong/power-of-scaled", numerics=_F)
def power_of_scaled(x: Tensor, a: Float, b: Float) -> Sides:
    """(ax)^b = a x^b only at b = 1."""
    power = ops.Exp(ops.Scale(ops.Log(ops.Scale(x, factor=a)), factor=b))
    return power, ops.Scale(ops.Exp(ops.Scale(ops.Log(x), factor=b)), factor=a), a > 0.0


@wrong(x=f64(4), a=-0.5)
@rule("wrong/scale-by-root", numerics=_F)
def scale_by_root(x: Tensor, a: Float) -> Sides:
    """The root of a square of an attribute is its magnitude."""
    return (
        ops.Scale(ops.Scale(x, factor=a), factor=1.0),
        ops.Scale(x, factor=sqrt(a * a)),
        far(a, 0.0),
    )


@wrong(x=f64(4), a=1e-7)
@rule("wrong/near-nothing", numerics=_F)
def near_nothing(x: Tensor, a: Float) -> Sides:
    """Far from 1 is not far from 0."""
    left = ops.Scale(ops.Scale(x, factor=a), factor=0.5)
    return left, ops.Scale(x, factor=0.5 * a + a * (1.0 - a) * 0.25), far(a, 1.0), far(a, 0.0)


@wrong(x=f64(2, 3), y=f64(2, 3), a=1.0000009)
@rule("wrong/near-one-divides", numerics=_F)
def near_one_divides(x: Tensor, y: Tensor, a: Float) -> Sides:
    """What is near 1 cancels with 1, and what is left of it is divided by."""
    left = ops.Scale(x, factor=a) + y * ops.Exp(ops.Scale(x, factor=0.0))
    rest = ops.Scale(y, factor=(a - 1.0) / (a - 0.9999995))
    return left, x + y + rest, near(a, 1.0), x.shape == y.shape


@wrong(c=truth(True), x=f64(1), y=f64(1), f=("Exp", {}))
@rule("wrong/function-of-choice")
def function_of_choice(f: Func, c: Tensor, x: Tensor, y: Tensor) -> Sides:
    """Both branches are mapped, one of them twice."""
    return f(ops.Where(c, x, y)), ops.Where(c, f(f(x)), f(y)), x.shape == y.shape


@wrong(x=u8(200), i=0)
@rule("wrong/sum-then-widen", numerics=_R)
def sum_then_widen(x: Tensor, i: Int) -> Sides:
    """Widening before or after a sum is the same for what does not wrap."""
    attrs = {"axes": (i,), "keepdims": 1}
    both = concat(x, x, i)
    wide = ops.ReduceSum(ops.Cast(both, to="int64"), **attrs)
    return ops.Cast(ops.ReduceSum(both, **attrs), to="int64"), wide


@wrong(x=i64(2**53 + 1))
@rule("wrong/integers-in-doubles")
def integers_in_doubles(x: Tensor) -> Sides:
    """A double holds integers up to 2^53."""
    whole = ops.Cast(x, to="int64")
    return ops.Cast(ops.Cast(whole, to="float64"), to="int64"), whole


@wrong(x=f16(300.0), y=f16(300.0))
@rule("wrong/product-in-half")
def product_in_half(x: Tensor, y: Tensor) -> Sides:
    """A scale before or after a product is the same, if the product fits."""
    after = ops.Scale(x * y, factor=0.25)
    return ops.Scale(x, factor=0.25) * y, after, x.shape == y.shape


@wrong(x=f64(2, 3), w=f64(3), i=1, e=0.2)
@rule("wrong/layer-without-center", numerics=_F)
def layer_without_center(x: Tensor, w: Weight, i: Int, e: Float) -> Sides:
    """What is softmaxed has a mean of 1/n, not of 0."""
    soft = ops.Softmax(x, axis=i)
    after = ops.RMSNormalization(soft, w, axis=i, epsilon=e)
    return ops.LayerNormalization(soft, w, axis=i, epsilon=e), after, i + 1 == x.rank


@wrong(x=f64(3, 4), a=-0.9)
@rule("wrong/relu-of-shifted", numerics=_R)
def relu_of_shifted(x: Tensor, a: Float) -> Sides:
    """A shift below 0 takes what is not negative there."""
    inner = ops.Square(x)
    return ops.Relu(ops.Shift(inner, offset=a)), ops.Shift(inner, offset=a), a > -1.0


@wrong(x=np.array([1.0, 1.0]), y=np.array([2.0, 3.0]), i=0)
@rule("wrong/maximum-once", numerics=_R)
def maximum_once(x: Tensor, y: Tensor, i: Int) -> Sides:
    """A mask of the greatest elements times these sums to the greatest, unless there are ties."""
    top = ops.ReduceMax(x, axes=(i,), keepdims=1)
    mask = ops.Cast(ops.Equal(x, top), to="float64")
    summed = ops.ReduceSum(mask * ops.Cast(y, to="float64"), axes=(i,), keepdims=1)
    return (
        summed,
        ops.ReduceMax(mask * ops.Cast(y, to="float64"), axes=(i,), keepdims=1),
        (x.shape == y.shape),
        is_float(x),
    )


@wrong(x=f64(2, 7), a=4, b=7)
@rule("wrong/tail-of-mean", numerics=_F)
def tail_of_mean(x: Tensor, a: Int, b: Int) -> Sides:
    """The means of head and tail weigh as much as these are long, not as much as each other."""
    attrs = {"axes": (1,), "keepdims": 1}
    head, tail = slice_(x, 1, 0, a), slice_(x, 1, a, b)
    both = ops.ReduceMean(head, **attrs) + ops.ReduceMean(tail, **attrs)
    after = ops.Scale(ops.ReduceMean(x, **attrs), factor=2.0)
    return both, after, x.rank == 2, x.dim(1) == b, b <= 2 * a, 2 * a <= b + 1
