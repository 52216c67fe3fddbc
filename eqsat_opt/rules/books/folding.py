"""Constant folding: constants merge, and scales and shifts go into adjacent weights.

A chain of constant operators folds into one constant; a factor or addend per channel folds into the
matrix or kernel that it meets.
"""

from __future__ import annotations

from eqsat_opt.rules.parameters import row_of, scalar, vector
from eqsat_opt.rules.rule import Int, Ints, Numerics, Phase, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Condition, Expr, Var, concat, is_float, ops, slice_

__all__: list[str] = []


# Constants meet -----------------------------------------------------------------------------------


@rule("folding/addends", phase=Phase.SIMPLIFY, numerics=Numerics.REASSOCIATE)
def addends(x: Tensor, c: Weight, d: Weight) -> Sides:
    """Two constants that are added one after the other fold into one."""
    return (x + c) + d, x + (c + d)


@rule("folding/factors", phase=Phase.SIMPLIFY, numerics=Numerics.REASSOCIATE)
def factors(x: Tensor, c: Weight, d: Weight) -> Sides:
    """Two constants that are multiplied in one after the other fold into one."""
    return (x * c) * d, x * (c * d)


@rule("folding/addends-of-both", phase=Phase.ALGEBRA, numerics=Numerics.REASSOCIATE)
def addends_of_both(x: Tensor, y: Tensor, c: Weight, d: Weight) -> Sides:
    """The constant addends of both operands of a sum fold into one."""
    return (x + c) + (y + d), (x + y) + (c + d)


@rule("folding/addend-on-the-right", phase=Phase.SIMPLIFY)
def addend_on_the_right(x: Tensor, c: Weight) -> Sides:
    """A constant addend moves to the right, where other rules look for it."""
    return c + x, x + c


@rule("folding/subtrahend", phase=Phase.SIMPLIFY)
def subtrahend(x: Tensor, c: Weight) -> Sides:
    """Subtracting a constant is adding its negative, which can meet other addends."""
    return x - c, x + c * scalar(-1.0, x)


@rule("folding/divisor", phase=Phase.SIMPLIFY, numerics=Numerics.REFACTOR)
def divisor(x: Tensor, c: Weight) -> Sides:
    """Dividing by a constant is multiplying by its reciprocal, which can meet other factors."""
    per_channel = (c.rank >= 1).because("a scalar would wander through all operators of a layer")
    return x / c, x * ops.Reciprocal(c), per_channel


@rule("folding/factor-after-addend", numerics=Numerics.REFACTOR)
def factor_after_addend(x: Tensor, c: Weight, d: Weight) -> Sides:
    """A constant factor moves past a bias, on its way into the weight before it."""
    return (x + c) * d, x * d + c * d


# Matrices -----------------------------------------------------------------------------------------


@rule("folding/factor-before-matmul", numerics=Numerics.REFACTOR)
def factor_before_matmul(x: Tensor, c: Weight, w: Weight) -> Sides:
    """A constant factor per column of the data folds into the rows of the weight after it."""
    per_row = ops.Reshape(c, shape=(w.dim(0), 1))
    return (
        (x * c) @ w,
        x @ (per_row * w),
        w.rank == 2,
        x.dim(x.rank - 1) == w.dim(0),
        *row_of(c, x, w.dim(0)),
    )


@rule("folding/factor-after-matmul", numerics=Numerics.REFACTOR)
def factor_after_matmul(x: Tensor, c: Weight, w: Weight) -> Sides:
    """A constant factor per column of a matrix product folds into the columns of its weight."""
    return (
        (x @ w) * c,
        x @ (w * vector(c, w.dim(1))),
        w.rank == 2,
        *row_of(c, x, w.dim(1)),
    )


# Convolutions -------------------------------------------------------------------------------------

_PLANE = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}


def _per_channel(c: Var, x: Var) -> tuple[Condition, ...]:
    return c.rank == 4, c.dim(0) == 1, c.dim(1) == x.dim(1), c.dim(2) == 1, c.dim(3) == 1


def _meets_data(w: Var, p: Expr) -> tuple[Condition, ...]:
    """Return the conditions that no window of a plane lies in the padding alone.

    The zeros of such a window would meet an infinite factor.
    """
    return (
        w.rank == 4,
        (p[0] < w.dim(2)).because("of padding alone there is 0, and 0 times infinity no number"),
        p[1] < w.dim(3),
        p[2] < w.dim(2),
        p[3] < w.dim(3),
    )


@rule("folding/scalar-before-conv", bidirectional=True, numerics=Numerics.FINITE)
def scalar_before_conv(x: Tensor, c: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A scalar factor moves between a convolution and its input."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return ops.Conv(x * c, w, **attrs), ops.Conv(x, w, **attrs) * c, c.rank == 0


@rule("folding/scalar-into-kernel", bidirectional=True, numerics=Numerics.FINITE)
def scalar_into_kernel(x: Tensor, c: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A scalar factor moves between a convolution and its kernel, where a constant folds."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    return ops.Conv(x, w, **attrs) * c, ops.Conv(x, w * c, **attrs), c.rank == 0


@rule("folding/scalar-before-plane", bidirectional=True, numerics=Numerics.REASSOCIATE)
def scalar_before_plane(x: Tensor, c: Tensor, w: Tensor, s: Ints, p: Ints, g: Int) -> Sides:
    """A scalar factor moves between a convolution of planes and its input."""
    attrs = {"strides": s, "pads": p, "dilations": (1, 1), "group": g}
    conditions = (c.rank == 0, *_meets_data(w, p))
    return ops.Conv(x * c, w, **attrs), ops.Conv(x, w, **attrs) * c, *conditions


@rule("folding/scalar-into-plane-kernel", bidirectional=True, numerics=Numerics.REASSOCIATE)
def scalar_into_plane_kernel(x: Tensor, c: Tensor, w: Tensor, s: Ints, p: Ints, g: Int) -> Sides:
    """A scalar factor moves between a convolution of planes and its kernel, where it folds."""
    attrs = {"strides": s, "pads": p, "dilations": (1, 1), "group": g}
    conditions = (c.rank == 0, *_meets_data(w, p))
    return ops.Conv(x, w, **attrs) * c, ops.Conv(x, w * c, **attrs), *conditions


@rule("folding/factor-before-conv", numerics=Numerics.FINITE)
def factor_before_conv(x: Tensor, c: Weight, w: Weight, s: Ints, p: Ints, d: Ints) -> Sides:
    """A constant factor per input channel folds into the kernel; zero pads stay zero."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": 1}
    conditions = (*_per_channel(c, x), w.rank == 4, is_float(x))
    return ops.Conv(x * c, w, **attrs), ops.Conv(x, w * c, **attrs), *conditions


@rule("folding/factor-before-depthwise", numerics=Numerics.FINITE)
def factor_before_depthwise(
    x: Tensor, c: Weight, w: Weight, s: Ints, p: Ints, d: Ints, g: Int
) -> Sides:
    """A constant factor per channel before a depthwise convolution folds into its filters."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    per_filter = ops.Reshape(c, shape=(c.dim(1), 1, 1, 1))
    return (
        ops.Conv(x * c, w, **attrs),
        ops.Conv(x, w * per_filter, **attrs),
        *_per_channel(c, x),
        w.rank == 4,
        w.dim(1) == 1,
        (w.dim(0) == x.dim(1)).because("one filter per channel"),
        is_float(x),
    )


@rule("folding/addend-before-conv", numerics=Numerics.REFACTOR)
def addend_before_conv(x: Tensor, c: Weight, w: Weight, s: Ints, d: Ints, g: Int) -> Sides:
    """A constant addend before a convolution without pads is a bias after it.

    With pads the border would differ, as the zeros there get no addend.
    """
    attrs = {"pads": (0, 0, 0, 0), "dilations": d, "group": g}
    height, width = (w.dim(2) - 1) * d[0] + 1, (w.dim(3) - 1) * d[1] + 1
    patch = ops.Expand(c, shape=(1, c.dim(1), height, width))
    bias = ops.Conv(patch, w, strides=(1, 1), **attrs)
    return (
        ops.Conv(x + c, w, strides=s, **attrs),
        ops.Conv(x, w, strides=s, **attrs) + bias,
        *_per_channel(c, x),
        w.rank == 4,
        is_float(x),
    )


@rule("folding/two-groups", numerics=Numerics.FINITE)
def two_groups(x: Tensor, w: Weight, s: Ints, p: Ints, d: Ints) -> Sides:
    """Two groups of a convolution become one with a block-diagonal kernel; this can be faster.

    The zeros of the kernel meet the channels of the other group, so an infinity spreads to it.
    """
    attrs = {"strides": s, "pads": p, "dilations": d}
    half, depth = w.dim(0) // 2, w.dim(1)
    upper = ops.Pad(slice_(w, 0, 0, half), pads=(0, 0, 0, 0, 0, depth, 0, 0), value=0.0)
    lower = ops.Pad(slice_(w, 0, half, w.dim(0)), pads=(0, depth, 0, 0, 0, 0, 0, 0), value=0.0)
    return (
        ops.Conv(x, w, group=2, **attrs),
        ops.Conv(x, concat(upper, lower, 0), group=1, **attrs),
        w.rank == 4,
        w.dim(0) == 2 * half,
    )


@rule("folding/pairs-of-groups", numerics=Numerics.FINITE)
def pairs_of_groups(x: Tensor, w: Weight, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Every two groups of a convolution become one with a block-diagonal kernel.

    Runtimes whose blocks hold 8 or 16 channels leave their fastest layout where a group has fewer.
    The zeros of the kernel meet the channels of the other group, so an infinity spreads to it.
    """
    attrs = {"strides": s, "pads": p, "dilations": d}
    half, filters, depth = g // 2, w.dim(0) // g, w.dim(1)
    pairs = ops.Reshape(w, shape=(half, 2 * filters, depth, w.dim(2), w.dim(3)))
    after, before = (0, 0, 0, 0, 0, 0, 0, depth, 0, 0), (0, 0, depth, 0, 0, 0, 0, 0, 0, 0)
    first = ops.Pad(slice_(pairs, 1, 0, filters), pads=after, value=0.0)
    second = ops.Pad(slice_(pairs, 1, filters, 2 * filters), pads=before, value=0.0)
    wide = (w.dim(0), 2 * depth, w.dim(2), w.dim(3))
    return (
        ops.Conv(x, w, group=g, **attrs),
        ops.Conv(x, ops.Reshape(concat(first, second, 1), shape=wide), group=half, **attrs),
        w.rank == 4,
        g == 2 * half,
        (half > 1).because("two groups are one by `folding/two-groups`"),
        (depth > 1).because("runtimes have kernels for one channel per group"),
        (depth < 16).because("a group that fills a block gains nothing"),
    )


@rule("folding/average-as-depthwise", phase=Phase.DERIVATION, numerics=Numerics.FINITE)
def average_as_depthwise(x: Tensor, h: Int, v: Int, s: Ints, p: Ints, d: Ints) -> Sides:
    """An average pool that counts its padding is a depthwise convolution with equal weights."""
    windows = {"strides": s, "pads": p, "dilations": d}
    # The mean over a plane with a single 1 is the weight, whatever its size.
    one = ops.Reshape(scalar(1.0, x), shape=(1, 1, 1, 1))
    impulse = ops.Pad(one, pads=(0, 0, 0, 0, 0, 0, h - 1, v - 1), value=0.0)
    weight = ops.ReduceMean(impulse, axes=(2, 3), keepdims=1)
    return (
        ops.AveragePool(x, kernel=(h, v), ceil=0, count_include_pad=1, **windows),
        ops.Conv(x, ops.Expand(weight, shape=(x.dim(1), 1, h, v)), group=x.dim(1), **windows),
        x.rank == 4,
        is_float(x),
    )
