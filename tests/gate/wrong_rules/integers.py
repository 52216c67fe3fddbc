"""What holds for real numbers and not where arithmetic wraps, truncates or knows no sign."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import Int, Numerics, Sides, Tensor, ops, rule
from tests.gate.cases import i8, i32, i64, u8, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR
_LARGE = 2**62


@wrong(x=u8(5), y=u8(7))
@rule("wrong/distance-is-symmetric")
def distance_is_symmetric(x: Tensor, y: Tensor) -> Sides:
    """|x - y| = |y - x| where a difference may be negative; unsigned ones wrap."""
    return ops.Abs(x - y), ops.Abs(y - x)


@wrong(x=i8(-128))
@rule("wrong/relu-parts", numerics=_R)
def relu_parts(x: Tensor) -> Sides:
    """Claim: x = relu(x) - relu(-x), not for the least integer."""
    return ops.Relu(x) - ops.Relu(ops.Neg(x)), x


@wrong(x=u8(3), y=u8(5))
@rule("wrong/max-by-relu", numerics=_R)
def max_by_relu(x: Tensor, y: Tensor) -> Sides:
    """Claim: max(x, y) = relu(x - y) + y unless the difference wraps."""
    return ops.Relu(x - y) + y, ops.Max(x, y), x.shape == y.shape


@wrong(x=u8(3), y=u8(5))
@rule("wrong/order-by-difference")
def order_by_difference(x: Tensor, y: Tensor) -> Sides:
    """Claim: x < y where x - y < 0: never, for unsigned numbers."""
    return ops.Less(x - y, y - y), ops.Less(x, y), x.shape == y.shape


@wrong(x=i32(2**31 - 1), y=i32(-5))
@rule("wrong/order-by-opposite")
def order_by_opposite(x: Tensor, y: Tensor) -> Sides:
    """-x < -y where y < x; the lowest integer is its own opposite, and 0 unsigned the least."""
    return ops.Less(ops.Neg(x), ops.Neg(y - x) + y), ops.Less(ops.Neg(y - x) + y, x)


@wrong(x=i8(-128), y=i8(0))
@rule("wrong/opposites-reverse")
def opposites_reverse(x: Tensor, y: Tensor) -> Sides:
    """Claim: max(-x, -y) = -min(x, y): the least integer is its own opposite."""
    return ops.Max(ops.Neg(x), ops.Neg(y)), ops.Neg(ops.Min(x, y))


@wrong(x=u8(200), y=u8(100), z=u8(100))
@rule("wrong/max-of-sums")
def max_of_sums(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Adding one number keeps the order of two, unless one of the sums wraps."""
    return ops.Min(x + z, y + z), ops.Min(x, y) + z, x.shape == y.shape, y.shape == z.shape


@wrong(x=i64(_LARGE), y=i64(3))
@rule("wrong/relu-of-sum", numerics=_R)
def relu_of_sum(x: Tensor, y: Tensor) -> Sides:
    """Claim: relu(x + x) = relu(x) + relu(x), for all but large integers."""
    return ops.Relu(x + x) * y, (ops.Relu(x) + ops.Relu(x)) * y


@wrong(x=i64(-_LARGE * 2), y=i64(2))
@rule("wrong/sign-of-product")
def sign_of_product(x: Tensor, y: Tensor) -> Sides:
    """Claim: sign(xy) = sign(x) sign(y), but a product may wrap."""
    return ops.Sign(x * y), ops.Sign(x) * ops.Sign(y)


@wrong(x=i8(100), y=i8(3))
@rule("wrong/product-divided")
def product_divided(x: Tensor, y: Tensor) -> Sides:
    """Claim: xy / y = x, if the product fits."""
    one = ops.Max(ops.Abs(y), ops.Sign(ops.Abs(y)) + ops.Abs(y))
    return (x * one) / one, x, x.shape == y.shape


@wrong(x=i64(7), y=i64(2), z=i64(4))
@rule("wrong/divide-product", numerics=_R)
def divide_product(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Claim: x (y / z) = (xy) / z, but quotients truncate."""
    return x * (y / z), (x * y) / z, x.shape == y.shape


@wrong(x=i64(3), y=i64(3), z=i64(2))
@rule("wrong/divide-sum", numerics=_F)
def divide_sum(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(x + y) / z = x / z + y / z, but quotients truncate."""
    return (x + y) / z, x / z + y / z, y.shape == x.shape


@wrong(x=i32(2 * 10**9), y=i32(50_000), z=i32(50_000))
@rule("wrong/divide-twice", numerics=_R)
def divide_twice(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Claim: x / y / z = x / (yz) even where quotients truncate, but the product may wrap."""
    return (x / y) / z, x / (y * z), y.shape == z.shape


@wrong(x=i8(-128), y=i8(2))
@rule("wrong/divide-opposite")
def divide_opposite(x: Tensor, y: Tensor) -> Sides:
    """(-x) / y = -(x / y), but the least integer is its own opposite."""
    return ops.Neg(x) / y, ops.Neg(x / y)


@wrong(x=i8(100), y=i8(2))
@rule("wrong/relu-of-magnitudes")
def relu_of_magnitudes(x: Tensor, y: Tensor) -> Sides:
    """A product of magnitudes is not negative, unless it wraps."""
    return ops.Relu(ops.Abs(x) * ops.Abs(y)), ops.Abs(x) * ops.Abs(y)


@wrong(x=i64(3, 4), i=0)
@rule("wrong/mean-times-count", numerics=_F)
def mean_times_count(x: Tensor, i: Int) -> Sides:
    """A mean of integers truncates, so the mean of doubles is not twice the mean."""
    mean = {"axes": (i,), "keepdims": 1}
    both = ops.ReduceMean(x, **mean)
    return ops.ReduceMean(x + x, **mean), both + both


@wrong(x=i64([1, 2], [2, 3]), i=0, j=1)
@rule("wrong/mean-of-means", numerics=_R)
def mean_of_means(x: Tensor, i: Int, j: Int) -> Sides:
    """Integer means are rounded one by one."""
    inner = ops.ReduceMean(x, axes=(i,), keepdims=1)
    return (
        ops.ReduceMean(inner, axes=(j,), keepdims=1),
        ops.ReduceMean(x, axes=(i, j), keepdims=1),
        i != j,
    )


@wrong(x=u8(200, 100), i=0)
@rule("wrong/mean-in-bounds", numerics=_R)
def mean_in_bounds(x: Tensor, i: Int) -> Sides:
    """A mean is not above the maximum, unless its sum has wrapped."""
    attrs = {"axes": (i,), "keepdims": 1}
    mean = ops.ReduceMean(x, **attrs)
    low, high = ops.ReduceMin(x, **attrs), ops.ReduceMax(x, **attrs)
    return ops.Max(ops.Min(mean, high), low), mean, x.dim(i) >= 1


@wrong(x=i64(2**24 + 1))
@rule("wrong/cast-through-float")
def cast_through_float(x: Tensor) -> Sides:
    """A float of 32 bits holds integers up to 2^24."""
    back = ops.Cast(ops.Cast(ops.Cast(x, to="int64"), to="float32"), to="int64")
    return back, ops.Cast(x, to="int64")


@wrong(x=i64(300))
@rule("wrong/cast-through-byte")
def cast_through_byte(x: Tensor) -> Sides:
    """A cast to a narrow type and back loses what is outside."""
    return ops.Cast(ops.Cast(ops.Cast(x, to="int64"), to="int8"), to="int64"), ops.Cast(
        x, to="int64"
    )


@wrong(x=u8(200), y=u8(100))
@rule("wrong/cast-of-sum", numerics=_F)
def cast_of_sum(x: Tensor, y: Tensor) -> Sides:
    """A sum that is widened before does not wrap."""
    wide = ops.Cast(x, to="float64") + ops.Cast(y, to="float64")
    return ops.Cast(x + y, to="float64"), wide


@wrong(x=i8(-1), y=i8(1))
@rule("wrong/cast-keeps-order")
def cast_keeps_order(x: Tensor, y: Tensor) -> Sides:
    """Read as an unsigned number, -1 is the largest."""
    small, other = ops.Cast(x, to="int8"), ops.Cast(y, to="int8")
    return (
        ops.Max(ops.Cast(small, to="uint8"), ops.Cast(other, to="uint8")),
        ops.Cast(ops.Max(small, other), to="uint8"),
    )


@wrong(x=np.array([-1.5]))
@rule("wrong/cast-floors")
def cast_floors(x: Tensor) -> Sides:
    """A cast to integers truncates; negative numbers are floored elsewhere."""
    return ops.Cast(ops.Floor(x), to="int64"), ops.Cast(x, to="int64")


@wrong(x=np.array([300.0]))
@rule("wrong/cast-of-clip")
def cast_of_clip(x: Tensor) -> Sides:
    """A byte saturates nothing."""
    cast = ops.Cast(ops.Cast(ops.Abs(ops.Floor(x)), to="int64"), to="uint8")
    clipped = ops.Clip(ops.Abs(ops.Floor(x)), min=0.0, max=255.0)
    return cast, ops.Cast(ops.Cast(clipped, to="int64"), to="uint8")


@wrong(x=i8(100), y=i8(100))
@rule("wrong/average-by-half", numerics=_F)
def average_by_half(x: Tensor, y: Tensor) -> Sides:
    """(x + y)/2 lies between both, unless the sum wraps."""
    two = ops.Sign(ops.Abs(x - x) + ops.Max(ops.Sign(x) * ops.Sign(x), ops.Sign(y) * ops.Sign(y)))
    half = (x + y) / (two + two)
    return ops.Max(half, ops.Min(x, y)), half, x.shape == y.shape


@wrong(x=i8(-128, 0), i=0)
@rule("wrong/maximum-of-opposites")
def maximum_of_opposites(x: Tensor, i: Int) -> Sides:
    """The greatest of -x is -(the least of x), unless that is its own opposite."""
    attrs = {"axes": (i,), "keepdims": 1}
    return ops.ReduceMax(ops.Neg(x), **attrs), ops.Neg(ops.ReduceMin(x, **attrs))


@wrong(x=i8(100), y=i8(50), z=i8(2))
@rule("wrong/max-of-products", numerics=_F)
def max_of_products(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """A factor that is not negative keeps the order, unless products wrap."""
    factor = ops.Relu(z)
    return ops.Max(x * factor, y * factor), ops.Max(x, y) * factor, x.shape == y.shape


@wrong(x=i64(3), y=i64(-2))
@rule("wrong/power-inverse", numerics=_F)
def power_inverse(x: Tensor, y: Tensor) -> Sides:
    """Claim: x^y x^(-y) = 1: a negative power of an integer truncates to 0."""
    return ops.Pow(x, y) * ops.Pow(x, ops.Neg(y)), ops.Pow(x, y - y), x.shape == y.shape


@wrong(x=i64(7), y=i64(2))
@rule("wrong/quotient-undone", numerics=_F)
def quotient_undone(x: Tensor, y: Tensor) -> Sides:
    """(x / y) y = x leaves the remainder out."""
    return (x / y) * y, x, x.shape == y.shape


@wrong(x=u8(100, 250), y=u8(10), i=0)
@rule("wrong/maximum-of-shifted")
def maximum_of_shifted(x: Tensor, y: Tensor, i: Int) -> Sides:
    """What is added to all elements is added to the greatest, unless one of them wraps."""
    attrs = {"axes": (i,), "keepdims": 1}
    shift = y.rank == 1, y.dim(0) == 1, x.rank >= 1
    return ops.ReduceMax(x + y, **attrs), ops.ReduceMax(x, **attrs) + y, *shift


@wrong(x=u8(3), y=u8(9), z=u8(7))
@rule("wrong/minimum-difference")
def minimum_difference(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """Claim: z - max(x, y) = min(z - x, z - y) for what does not wrap."""
    return z - ops.Max(x, y), ops.Min(z - x, z - y), x.shape == y.shape


@wrong(x=u8(3), y=u8(5))
@rule("wrong/range-of-pair", numerics=_R)
def range_of_pair(x: Tensor, y: Tensor) -> Sides:
    """Claim: max - min = |x - y|, but for unsigned numbers |x - y| is no distance."""
    return ops.Abs(x - y), ops.Max(x, y) - ops.Min(x, y), x.shape == y.shape
