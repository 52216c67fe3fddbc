"""Convolutions of every sort: dilated, grouped, depthwise, transposed, with a bias."""

from typing import Any

from eqsat_opt.rules import (
    Float,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Term,
    Weight,
    concat,
    is_float,
    ops,
    rule,
    slice_,
)


def conv(x: Term, w: Term, s: Any, p: Any, d: Any, g: Any = 1) -> Term:
    return ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)


def conv_transpose(x: Term, w: Term, s: Any, p: Any, d: Any, o: Any, g: Any = 1) -> Term:
    return ops.ConvTranspose(x, w, strides=s, pads=p, dilations=d, group=g, output_padding=o)


@rule("convolutions/negated-data", bidirectional=True)
def negated_data(x: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A sign passes through every product of the sum."""
    return conv(ops.Neg(x), w, s, p, d, g), ops.Neg(conv(x, w, s, p, d, g))


@rule("convolutions/difference-of-weights", numerics=Numerics.REFACTOR)
def difference_of_weights(
    x: Tensor, w: Weight, v: Weight, s: Ints, p: Ints, d: Ints, g: Int
) -> Sides:
    """Linear in the weight."""
    return (
        conv(x, w, s, p, d, g) - conv(x, v, s, p, d, g),
        conv(x, w - v, s, p, d, g),
        w.shape == v.shape,
    )


@rule("convolutions/scaled-data", numerics=Numerics.REASSOCIATE, bidirectional=True)
def scaled_data(x: Tensor, w: Weight, s: Ints, p: Ints, d: Ints, g: Int, a: Float) -> Sides:
    """A factor of all data is a factor of the weight."""
    return (
        conv(ops.Scale(x, factor=a), w, s, p, d, g),
        conv(x, ops.Scale(w, factor=a), s, p, d, g),
        is_float(x),
    )


@rule("convolutions/bias-apart", numerics=Numerics.REASSOCIATE, bidirectional=True)
def bias_apart(x: Tensor, w: Weight, b: Weight, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """The bias is added to every position of its channel."""
    return (
        ops.Conv(x, w, b, strides=s, pads=p, dilations=d, group=g),
        conv(x, w, s, p, d, g) + ops.Reshape(b, shape=(1, w.dim(0), 1, 1)),
        w.rank == 4,
    )


@rule("convolutions/idle-dilation")
def idle_dilation(x: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """A kernel of one element has nothing to dilate."""
    return (
        conv(x, w, s, p, d, g),
        conv(x, w, s, p, (1, 1), g),
        w.rank == 4,
        w.dim(2) == 1,
        w.dim(3) == 1,
    )


@rule("convolutions/pad-inside", numerics=Numerics.REASSOCIATE)
def pad_inside(
    x: Tensor, w: Tensor, s: Ints, d: Ints, g: Int, a: Int, b: Int, e: Int, f: Int
) -> Sides:
    """Zeros around the data are the pads of the convolution."""
    return (
        conv(ops.Pad(x, pads=(0, 0, a, 0, 0, b), value=0.0), w, s, (e, f), d, g),
        conv(x, w, s, (a + e, b + f), d, g),
        a >= 0,
        b >= 0,
        x.rank == 3,
    )


@rule("convolutions/turned", numerics=Numerics.REASSOCIATE)
def turned(x: Tensor, w: Tensor, a: Int, b: Int, c: Int, d: Int, e: Int, f: Int, g: Int) -> Sides:
    """Height and width change places in data and kernel alike."""
    return (
        conv(
            ops.Transpose(x, perm=(0, 1, 3, 2)),
            ops.Transpose(w, perm=(0, 1, 3, 2)),
            (a, b), (c, d, c, d), (e, f), g,
        ),
        ops.Transpose(conv(x, w, (b, a), (d, c, d, c), (f, e), g), perm=(0, 1, 3, 2)),
    )  # fmt: skip


@rule("convolutions/pointwise-as-product", numerics=Numerics.REASSOCIATE)
def pointwise_as_product(x: Tensor, w: Tensor, d: Ints) -> Sides:
    """A kernel of one element mixes channels: a product of matrices per sample."""
    return (
        conv(x, w, (1, 1), (0, 0, 0, 0), d),
        ops.Reshape(
            ops.Reshape(w, shape=(w.dim(0), w.dim(1)))
            @ ops.Reshape(x, shape=(x.dim(0), x.dim(1), x.dim(2) * x.dim(3))),
            shape=(x.dim(0), w.dim(0), x.dim(2), x.dim(3)),
        ),
        w.dim(2) == 1,
        w.dim(3) == 1,
    )


@rule("convolutions/pointwise-first", numerics=Numerics.REFACTOR)
def pointwise_first(x: Tensor, w: Weight, v: Weight, s: Ints, p: Ints, d: Ints) -> Sides:
    """A mixture of channels is folded into the kernel that follows."""
    return (
        conv(conv(x, w, (1, 1), (0, 0, 0, 0), (1, 1)), v, s, p, d),
        conv(
            x, conv(v, ops.Transpose(w, perm=(1, 0, 2, 3)), (1, 1), (0, 0, 0, 0), (1, 1)), s, p, d
        ),
        w.dim(2) == 1,
        w.dim(3) == 1,
    )


@rule("convolutions/depthwise-scale", numerics=Numerics.REFACTOR)
def depthwise_scale(x: Tensor, c: Tensor, w: Weight, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Where every channel has a kernel of its own, a factor per channel is one per kernel."""
    return (
        conv(x * c, w, s, p, d, g),
        conv(x, w * ops.Reshape(c, shape=(g, 1, 1, 1)), s, p, d, g),
        x.rank == 4,
        c.rank == 4,
        w.dim(0) == g,
        w.dim(1) == 1,
        c.dim(0) == 1,
        c.dim(1) == g,
        c.dim(2) == 1,
        c.dim(3) == 1,
    )


@rule("convolutions/depthwise-halves", numerics=Numerics.REASSOCIATE)
def depthwise_halves(
    x: Tensor, y: Tensor, w: Weight, v: Weight, s: Ints, p: Ints, d: Ints, g: Int, h: Int
) -> Sides:
    """Channels that do not meet may be convolved side by side."""
    return (
        concat(conv(x, w, s, p, d, g), conv(y, v, s, p, d, h), 1),
        conv(concat(x, y, 1), concat(w, v, 0), s, p, d, g + h),
        w.dim(0) == g,
        w.dim(1) == 1,
        v.dim(0) == h,
        v.dim(1) == 1,
    )


@rule("convolutions/two-groups")
def two_groups(x: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints) -> Sides:
    """Two groups are two convolutions."""
    half, kernels = x.dim(1) // 2, w.dim(0) // 2
    return (
        conv(x, w, s, p, d, 2),
        concat(
            conv(slice_(x, 1, 0, half), slice_(w, 0, 0, kernels), s, p, d),
            conv(slice_(x, 1, half, x.dim(1)), slice_(w, 0, kernels, w.dim(0)), s, p, d),
            1,
        ),
    )


@rule("convolutions/one-axis-more", numerics=Numerics.REASSOCIATE)
def one_axis_more(x: Tensor, w: Tensor, a: Int, b: Int, c: Int, d: Int, g: Int) -> Sides:
    """A signal is an image of height 1."""
    return (
        conv(x, w, (a,), (b, c), (d,), g),
        ops.ReduceSum(
            conv(
                ops.Reshape(x, shape=(x.dim(0), x.dim(1), 1, x.dim(2))),
                ops.Reshape(w, shape=(w.dim(0), w.dim(1), 1, w.dim(2))),
                (1, a), (0, b, 0, c), (1, d), g,
            ),
            axes=(2,), keepdims=0,
        ),
    )  # fmt: skip


@rule("convolutions/whole-window", numerics=Numerics.REASSOCIATE)
def whole_window(x: Tensor, w: Tensor, s: Ints) -> Sides:
    """A kernel as large as the data is a sum over all of it."""
    return (
        conv(x, w, s, (0, 0), (1,)),
        ops.Reshape(
            ops.Reshape(x, shape=(x.dim(0), x.dim(1) * x.dim(2)))
            @ ops.Transpose(ops.Reshape(w, shape=(w.dim(0), w.dim(1) * w.dim(2))), perm=(1, 0)),
            shape=(x.dim(0), w.dim(0), 1),
        ),
        x.dim(2) == w.dim(2),
    )


@rule("convolutions/transposed-sum", numerics=Numerics.REASSOCIATE)
def transposed_sum(
    x: Tensor, y: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, o: Ints, g: Int
) -> Sides:
    """A transposed convolution is linear in the data."""
    return (
        conv_transpose(x, w, s, p, d, o, g) + conv_transpose(y, w, s, p, d, o, g),
        conv_transpose(x + y, w, s, p, d, o, g),
        x.shape == y.shape,
    )


@rule("convolutions/transposed-scale", numerics=Numerics.REASSOCIATE)
def transposed_scale(
    x: Tensor, w: Weight, s: Ints, p: Ints, d: Ints, o: Ints, g: Int, a: Float
) -> Sides:
    """A factor of all data is a factor of the weight."""
    return (
        conv_transpose(ops.Scale(x, factor=a), w, s, p, d, o, g),
        conv_transpose(x, ops.Scale(w, factor=a), s, p, d, o, g),
        is_float(x),
    )


@rule("convolutions/transposed-samples", bidirectional=True)
def transposed_samples(
    x: Tensor, y: Tensor, w: Tensor, s: Ints, p: Ints, d: Ints, o: Ints, g: Int
) -> Sides:
    """Samples do not see each other."""
    return (
        concat(conv_transpose(x, w, s, p, d, o, g), conv_transpose(y, w, s, p, d, o, g), 0),
        conv_transpose(concat(x, y, 0), w, s, p, d, o, g),
    )


@rule("convolutions/transposed-filters", bidirectional=True)
def transposed_filters(
    x: Tensor, w: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, o: Ints
) -> Sides:
    """Filters stand side by side along the second axis of the weight."""
    return (
        concat(conv_transpose(x, w, s, p, d, o), conv_transpose(x, v, s, p, d, o), 1),
        conv_transpose(x, concat(w, v, 1), s, p, d, o),
    )


@rule("convolutions/transposed-pointwise", numerics=Numerics.REASSOCIATE)
def transposed_pointwise(x: Tensor, w: Tensor) -> Sides:
    """A kernel of one element mixes channels in either direction."""
    return (
        conv_transpose(x, w, (1, 1), (0, 0, 0, 0), (1, 1), (0, 0)),
        conv(x, ops.Transpose(w, perm=(1, 0, 2, 3)), (1, 1), (0, 0, 0, 0), (1, 1)),
        w.dim(2) == 1,
        w.dim(3) == 1,
    )


@rule("convolutions/transposed-bias", numerics=Numerics.REASSOCIATE)
def transposed_bias(
    x: Tensor, w: Weight, b: Weight, s: Ints, p: Ints, d: Ints, o: Ints, g: Int
) -> Sides:
    """The bias is added to every position of its channel."""
    return (
        ops.ConvTranspose(x, w, b, strides=s, pads=p, dilations=d, group=g, output_padding=o),
        conv_transpose(x, w, s, p, d, o, g) + ops.Reshape(b, shape=(1, b.dim(0), 1, 1)),
        w.rank == 4,
    )
