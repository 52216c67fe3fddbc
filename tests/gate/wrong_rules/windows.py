"""Convolutions and pools: strides, pads, dilations, groups, what padding counts and holds."""

from __future__ import annotations

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
from eqsat_opt.rules.rule import Func
from tests.gate.cases import f64, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR
_PLAIN = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


@wrong(x=f64(1, 2, 7, 9), w=f64(3, 2, 2, 2), s=(1, 2), p=(0, 0, 0, 0))
@rule("wrong/conv-exchanged-strides")
def conv_exchanged_strides(x: Tensor, w: Weight, s: Ints, p: Ints) -> Sides:
    """Strides of height and width change places; shows where they differ."""
    attrs = {"pads": p, "dilations": (1, 1), "group": 1}
    left = ops.Conv(ops.Relu(x), w, strides=s, **attrs)
    return left, ops.Conv(ops.Relu(x), w, strides=(s[1], s[0]), **attrs), w.rank == 4


@wrong(x=f64(1, 2, 5, 5), w=f64(3, 2, 3, 3), p=(1, 1, 0, 0))
@rule("wrong/conv-pads-order")
def conv_pads_order(x: Tensor, w: Weight, p: Ints) -> Sides:
    """Pads are all begins, then all ends: read as pairs they shift the plane."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    return (
        ops.Conv(x, w, pads=p, **attrs),
        ops.Conv(x, w, pads=(p[0], p[2], p[1], p[3]), **attrs),
        w.rank == 4,
    )


@wrong(x=f64(1, 2, 5, 6), w=f64(3, 2, 2, 2), p=(1, 1, 0, 0))
@rule("wrong/conv-pads-symmetric")
def conv_pads_symmetric(x: Tensor, w: Weight, p: Ints) -> Sides:
    """A pad before is no pad behind."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    moved = ops.Conv(x, w, pads=(p[2], p[3], p[0], p[1]), **attrs)
    return ops.Conv(x, w, pads=p, **attrs), moved, w.rank == 4


@wrong(x=f64(1, 2, 5, 5), w=f64(3, 2, 3, 3), u=f64(2, 2, 1, 1), b=f64(2), p=(1, 1, 1, 1))
@rule("wrong/pads-before-bias")
def pads_before_bias(x: Tensor, w: Weight, u: Weight, b: Weight, p: Ints) -> Sides:
    """The pads of a second convolution are zeros; those of the first become its bias."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}

    def both(first: Ints | tuple[int, ...], second: Ints | tuple[int, ...]) -> Term:
        return ops.Conv(ops.Conv(x, u, b, pads=first, **attrs), w, pads=second, **attrs)

    none = (0, 0, 0, 0)
    return both(none, p), both(p, none), u.dim(2) == 1, u.dim(3) == 1, w.rank == 4


@wrong(x=f64(1, 2, 5, 5), w=f64(3, 2, 3, 3), a=0.5)
@rule("wrong/conv-of-padded", numerics=_R)
def conv_of_padded(x: Tensor, w: Weight, a: Float) -> Sides:
    """Pads go into a convolution only where they are zeros."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    padded = ops.Pad(x, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=a)
    after = ops.Conv(x, w, pads=(1, 1, 1, 1), **attrs)
    return ops.Conv(padded, w, pads=(0, 0, 0, 0), **attrs), after, w.rank == 4


@wrong(x=f64(1, 2, 7, 7), w=f64(3, 2, 2, 2), s=(2, 3), t=(3, 2), p=(1, 1, 1, 1))
@rule("wrong/stride-of-strided")
def stride_of_strided(x: Tensor, w: Weight, s: Ints, t: Ints, p: Ints) -> Sides:
    """Strides multiply; where the second step reads every other result they do not add."""
    attrs = {"pads": p, "dilations": (1, 1), "group": 1}
    one = {"kernel": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    return (
        ops.MaxPool(ops.Conv(x, w, strides=s, **attrs), strides=t, **one),
        ops.Conv(x, w, strides=(s[0] + t[0], s[1] + t[1]), **attrs),
        s[0] >= 2,
        t[0] >= 2,
        s[1] >= 2,
        t[1] >= 2,
    )


@wrong(x=f64(1, 2, 8, 8), s=(3, 3), k=(2, 2))
@rule("wrong/pool-stride-over-kernel")
def pool_stride_over_kernel(x: Tensor, k: Ints, s: Ints) -> Sides:
    """Pools whose stride exceeds the kernel leave rows out, so the maximum is not that of all."""
    attrs = {"pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    pooled = ops.MaxPool(x, kernel=k, strides=s, **attrs)
    wide = ops.MaxPool(x, kernel=(s[0], s[1]), strides=s, **attrs)
    return pooled, wide, k[0] <= s[0], k[1] <= s[1]


@wrong(x=f64(1, 2, 7, 7), k=(3, 3), s=(1, 1), p=(1, 1, 1, 1), d=(2, 2))
@rule("wrong/pool-dilation-dropped")
def pool_dilation_dropped(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints) -> Sides:
    """A dilated window with pads to match is no plain one."""
    left = ops.MaxPool(x, kernel=k, strides=s, pads=p, dilations=d, ceil=0)
    inner = tuple(p[i] - (d[i % 2] - 1) * (k[i % 2] - 1) // 2 for i in range(4))
    return left, ops.MaxPool(x, kernel=k, strides=s, pads=inner, dilations=(1, 1), ceil=0)


@wrong(x=f64(1, 2, 7, 7), k=(2, 3), s=(1, 1), d=(2, 3))
@rule("wrong/pool-exchanged-dilations")
def pool_exchanged_dilations(x: Tensor, k: Ints, s: Ints, d: Ints) -> Sides:
    """Kernel and dilation of height and width change places, each span stays a span."""
    attrs = {"strides": s, "pads": (0, 0, 0, 0), "ceil": 0}
    left = ops.MaxPool(x, kernel=k, dilations=d, **attrs)
    after = ops.MaxPool(x, kernel=(k[1], k[0]), dilations=(d[1], d[0]), **attrs)
    return left, after, x.dim(2) == x.dim(3)


@wrong(x=f64(1, 2, 5, 5), k=(3, 3), s=(1, 1), p=(1, 1, 1, 1), i=0)
@rule("wrong/average-counts-padding", numerics=_R)
def average_counts_padding(x: Tensor, k: Ints, s: Ints, p: Ints, i: Int) -> Sides:
    """Whether padding is counted matters where there is any."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": 0}
    return (
        ops.AveragePool(x, count_include_pad=i, **attrs),
        ops.AveragePool(x, count_include_pad=1, **attrs),
        p[0] < k[0],
    )


@wrong(x=f64(1, 2, 5, 5), k=(3, 3), s=(1, 1), p=(0, 1, 0, 0))
@rule("wrong/average-padded-before", numerics=_R)
def average_padded_before(x: Tensor, k: Ints, s: Ints, p: Ints) -> Sides:
    """A pad in front of a pool that does not count pads becomes one that is counted."""
    attrs = {"kernel": k, "strides": s, "dilations": (1, 1), "ceil": 0, "count_include_pad": 0}
    padded = ops.Pad(x, pads=(0, 0, p[0], p[1], 0, 0, p[2], p[3]), value=0.0)
    after = ops.AveragePool(padded, pads=(0, 0, 0, 0), **attrs)
    return ops.AveragePool(x, pads=p, **attrs), after, is_float(x)


@wrong(x=f64(1, 2, 6, 5), k=(3, 2), s=(2, 2), i=1)
@rule("wrong/average-ceil", numerics=_R)
def average_ceil(x: Tensor, k: Ints, s: Ints, i: Int) -> Sides:
    """Rounding the number of windows up makes one more where a remainder is left."""
    attrs = {
        "kernel": k, "strides": s, "pads": (0, 0, 0, 0), "dilations": (1, 1),
        "count_include_pad": i,
    }  # fmt: skip
    return ops.AveragePool(x, ceil=1, **attrs), ops.AveragePool(x, ceil=0, **attrs)


@wrong(x=f64(1, 2, 6), k=3, s=2)
@rule("wrong/average-ceil-padded", numerics=_R)
def average_ceil_padded(x: Tensor, k: Int, s: Int) -> Sides:
    """What ceil mode adds behind the data is not counted, a pad there is."""
    attrs = {"kernel": (k,), "strides": (s,), "dilations": (1,), "count_include_pad": 1}
    left = ops.AveragePool(x, pads=(0, 0), ceil=1, **attrs)
    return left, ops.AveragePool(x, pads=(0, s - 1), ceil=0, **attrs), s <= k


@wrong(x=f64(1, 2, 4, 4), k=(2, 2), p=(1, 1, 1, 1))
@rule("wrong/max-padded-with-zero")
def max_padded_with_zero(x: Tensor, k: Ints, p: Ints) -> Sides:
    """The padding of a max pool is less than everything, not 0."""
    attrs = {"kernel": k, "strides": (2, 2), "dilations": (1, 1), "ceil": 0}
    padded = ops.Pad(x, pads=(0, 0, p[0], p[1], 0, 0, p[2], p[3]), value=0.0)
    after = ops.MaxPool(padded, pads=(0, 0, 0, 0), **attrs)
    return (
        ops.MaxPool(x, pads=p, **attrs),
        after,
        p[0] < k[0],
        p[1] < k[1],
        p[2] < k[0],
        p[3] < k[1],
    )


@wrong(x=f64(1, 2, 4, 4), k=(2, 2), s=(1, 1), p=(2, 0, 0, 0))
@rule("wrong/relu-of-padded-pool")
def relu_of_padded_pool(x: Tensor, k: Ints, s: Ints, p: Ints) -> Sides:
    """A window that lies in the padding has no maximum, which relu would lift to 0."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": 0}
    relu = ops.Relu(ops.MaxPool(x, **attrs))
    return ops.MaxPool(ops.Relu(x), **attrs), relu, p[0] <= k[0], p[1] < k[1], is_float(x)


@wrong(x=f64(1, 1, 5, 5), k=(2, 2), m=(2, 2), s=(2, 2))
@rule("wrong/pool-of-strided-pool")
def pool_of_strided_pool(x: Tensor, k: Ints, m: Ints, s: Ints) -> Sides:
    """The second window spans more of the input where the first pool has a stride."""
    attrs = {"pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    inner = ops.MaxPool(x, kernel=k, strides=s, **attrs)
    size = (k[0] + m[0] - 1, k[1] + m[1] - 1)
    left = ops.MaxPool(inner, kernel=m, strides=(1, 1), **attrs)
    return left, ops.MaxPool(x, kernel=size, strides=s, **attrs), s[0] <= k[0], s[1] <= k[1]


@wrong(x=f64(1, 2, 6, 6), k=(2, 2), s=(2, 2), a=-0.5)
@rule("wrong/max-of-scaled", numerics=_R)
def max_of_scaled(x: Tensor, k: Ints, s: Ints, a: Float) -> Sides:
    """A negative factor makes the maximum a minimum."""
    attrs = {"kernel": k, "strides": s, "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    after = ops.Scale(ops.MaxPool(x, **attrs), factor=a)
    return ops.MaxPool(ops.Scale(x, factor=a), **attrs), after, a != 0.0


@wrong(x=f64(1, 2, 5, 5), k=(2, 3), i=0, s=(1, 1), p=(0, 1, 0, 1), b=0.5)
@rule("wrong/average-of-shifted", numerics=_F)
def average_of_shifted(x: Tensor, k: Ints, s: Ints, p: Ints, b: Float) -> Sides:
    """A shift commutes with a mean whose padding does not count; here it does."""
    attrs = {
        "kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": 0,
        "count_include_pad": 1,
    }  # fmt: skip
    after = ops.Shift(ops.AveragePool(x, **attrs), offset=b)
    return ops.AveragePool(ops.Shift(x, offset=b), **attrs), after


@wrong(x=f64(1, 4, 3, 3), w=f64(4, 2, 1, 1), g=2)
@rule("wrong/group-dropped", numerics=_F)
def group_dropped(x: Tensor, w: Weight, g: Int) -> Sides:
    """A grouped convolution of a sum over groups is not that of the first group."""
    grouped = ops.Conv(x, w, group=g, **_PLAIN)
    return grouped, ops.Conv(slice_(x, 1, 0, w.dim(1)), w, group=1, **_PLAIN), w.rank == 4


@wrong(x=f64(1, 4, 3, 3), w=f64(4, 2, 1, 1), u=f64(4, 4, 1, 1))
@rule("wrong/grouped-then-full", numerics=_F)
def grouped_then_full(x: Tensor, w: Weight, u: Weight) -> Sides:
    """The product of a grouped and a full kernel takes each group's rows, not all rows."""
    inner = ops.Conv(x, w, group=2, **_PLAIN)
    flat = {"shape": (4, 4)}
    stacked = ops.Reshape(concat(w, w, 1), **flat)
    merged = ops.Reshape(ops.Reshape(u, **flat) @ stacked, shape=(4, 4, 1, 1))
    left = ops.Conv(inner, u, group=1, **_PLAIN)
    return left, ops.Conv(x, merged, group=1, **_PLAIN), w.dim(0) == 4, w.dim(1) == 2, u.dim(1) == 4


@wrong(x=f64(1, 4, 3, 3), w=f64(4, 2, 1, 1), b=f64(4), g=2)
@rule("wrong/groups-exchanged", numerics=_R)
def groups_exchanged(x: Tensor, w: Weight, b: Weight, g: Int) -> Sides:
    """Two groups are computed apart and concatenated in the wrong order."""
    attrs = {**_PLAIN, "group": 1}
    half = w.dim(0) // 2
    first = ops.Conv(slice_(x, 1, 0, w.dim(1)), slice_(w, 0, 0, half), **attrs)
    second = ops.Conv(slice_(x, 1, w.dim(1), 2 * w.dim(1)), slice_(w, 0, half, w.dim(0)), **attrs)
    return ops.Conv(x, w, group=g, **_PLAIN), concat(second, first, 1), g == 2


@wrong(x=f64(1, 4, 3, 4), w=f64(4, 1, 1, 1), g=4)
@rule("wrong/depthwise-as-full", numerics=_F)
def depthwise_as_full(x: Tensor, w: Weight, g: Int) -> Sides:
    """A depthwise kernel scales each channel, broadcast along the wrong axis it scales each row."""
    scaled = x * ops.Reshape(w, shape=(1, 1, g))
    return ops.Conv(x, w, group=g, **_PLAIN), scaled, w.rank == 4, x.dim(1) == g, x.dim(3) == g


@wrong(x=f64(1, 4, 3, 4), w=f64(4, 1, 1, 1))
@rule("wrong/depthwise-row", numerics=_F)
def depthwise_row(x: Tensor, w: Weight) -> Sides:
    """The same for four channels: only planes as wide as there are channels type at all."""
    scaled = x * ops.Reshape(w, shape=(1, 1, 1, 4))
    return ops.Conv(x, w, group=4, **_PLAIN), scaled, w.rank == 4, x.dim(3) == 4, w.dim(0) == 4


@wrong(x=f64(1, 2, 4, 4), w=f64(2, 3, 3, 3))
@rule("wrong/transposed-conv-unflipped", numerics=_R)
def transposed_conv_unflipped(x: Tensor, w: Weight) -> Sides:
    """A transposed convolution with stride 1 is a convolution with the kernel turned around."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    left = ops.ConvTranspose(x, w, pads=(1, 1, 1, 1), output_padding=(0, 0), **attrs)
    exchanged = ops.Transpose(w, perm=(1, 0, 2, 3))
    after = ops.Conv(x, exchanged, pads=(1, 1, 1, 1), **attrs)
    return left, after, w.dim(2) == 3, w.dim(3) == 3


@wrong(x=f64(1, 2, 4, 4), w=f64(2, 3, 2, 2), s=(2, 2))
@rule("wrong/transposed-conv-padding", numerics=_R)
def transposed_conv_padding(x: Tensor, w: Weight, s: Ints) -> Sides:
    """Output padding adds a row behind; pads in front of it are another row."""
    attrs = {"strides": s, "dilations": (1, 1), "group": 1}
    left = ops.ConvTranspose(x, w, pads=(0, 0, 0, 0), output_padding=(1, 1), **attrs)
    inner = ops.ConvTranspose(x, w, pads=(0, 0, 0, 0), output_padding=(0, 0), **attrs)
    after = ops.Pad(inner, pads=(0, 0, 1, 1, 0, 0, 0, 0), value=0.0)
    return left, after, w.rank == 4


@wrong(x=f64(1, 2, 5, 5), w=f64(3, 2, 3, 3), v=f64(3, 2, 1, 1), p=(1, 1, 1, 1))
@rule("wrong/kernel-padded-corner", numerics=_F)
def kernel_padded_corner(x: Tensor, w: Weight, v: Weight, p: Ints) -> Sides:
    """A 1 x 1 kernel is enlarged at its corner where its centre is meant."""
    attrs = {"strides": (1, 1), "dilations": (1, 1), "group": 1}
    large = ops.Pad(v, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    left = ops.Conv(x, w, pads=(1, 1, 1, 1), **attrs) + ops.Conv(x, v, pads=(0, 0, 0, 0), **attrs)
    after = ops.Conv(x, w + large, pads=(1, 1, 1, 1), **attrs)
    return left, after, w.dim(2) == 3, w.dim(3) == 3, v.dim(2) == 1, v.dim(3) == 1


@wrong(x=f64(1, 2, 5, 5), w=f64(3, 2, 3, 3), v=f64(3, 2, 3, 3), s=(1, 2), t=(2, 1), p=(1, 1, 1, 1))
@rule("wrong/sibling-strides", numerics=_R)
def sibling_strides(x: Tensor, w: Weight, v: Weight, s: Ints, t: Ints, p: Ints) -> Sides:
    """Two convolutions of one input merge only where all of their attributes agree."""
    attrs = {"pads": p, "dilations": (1, 1), "group": 1}
    both = ops.Conv(x, concat(w, v, 0), strides=s, **attrs)
    left = ops.Conv(x, w, strides=s, **attrs), ops.Conv(x, v, strides=t, **attrs)
    channels = w.dim(0)
    after = (
        slice_(both, 1, 0, channels), slice_(both, 1, channels, channels + v.dim(0)),
    )  # fmt: skip
    return left, after, s[0] * s[1] == t[0] * t[1]


@wrong(x=f64(1, 2, 3, 3), w=f64(3, 2, 1, 1), s=(2, 2), p=(1, 1, 1, 1))
@rule("wrong/strided-pointwise")
def strided_pointwise(x: Tensor, w: Weight, s: Ints, p: Ints) -> Sides:
    """A strided 1 x 1 convolution with pads starts in the padding, a strided pool does not."""
    pool = {"kernel": (1, 1), "dilations": (1, 1), "ceil": 0, "pads": (0, 0, 0, 0)}
    after = ops.Conv(ops.MaxPool(x, strides=s, **pool), w, group=1, **_PLAIN)
    left = ops.Conv(x, w, strides=s, pads=p, dilations=(1, 1), group=1)
    return left, after, w.dim(2) == 1, w.dim(3) == 1


@wrong(x=f64(1, 2, 5, 5), w=f64(2, 2, 3, 3), f=("Sigmoid", {}))
@rule("wrong/function-before-padding")
def function_before_padding(f: Func, x: Tensor, w: Weight) -> Sides:
    """What does not keep 0 does not commute with zeros that are added."""
    pads = (0, 0, 1, 1, 0, 0, 1, 1)
    return f(ops.Pad(x, pads=pads, value=0.0)), ops.Pad(f(x), pads=pads, value=0.0)


@wrong(x=f64(1, 2, 6, 6), k=(2, 2), s=(2, 2), f=("Abs", {}))
@rule("wrong/function-of-pool")
def function_of_pool(f: Func, x: Tensor, k: Ints, s: Ints) -> Sides:
    """Only monotone functions commute with a maximum."""
    attrs = {"kernel": k, "strides": s, "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    return ops.MaxPool(f(x), **attrs), f(ops.MaxPool(x, **attrs))


@wrong(x=f64(2, 3, 5))
@rule("wrong/global-mean-of-padded", numerics=_R)
def global_mean_of_padded(x: Tensor) -> Sides:
    """Zeros around a plane leave its sum, not its mean."""
    padded = ops.Pad(x, pads=(0, 0, 1, 0, 0, 1), value=0.0)
    return ops.GlobalAveragePool(padded), ops.GlobalAveragePool(x), x.rank == 3


@wrong(x=f64(2, 3, 5), w=f64(4, 3, 3))
@rule("wrong/global-mean-of-conv", numerics=_F)
def global_mean_of_conv(x: Tensor, w: Weight) -> Sides:
    """The mean goes through a 1 x 1 convolution, not through a wider one."""
    attrs = {"strides": (1,), "pads": (1, 1), "dilations": (1,), "group": 1}
    kernel = ops.ReduceSum(w, axes=(2,), keepdims=1)
    after = ops.Conv(ops.GlobalAveragePool(x), kernel, **{**attrs, "pads": (0, 0)})
    return ops.GlobalAveragePool(ops.Conv(x, w, **attrs)), after, w.dim(2) == 3


@wrong(x=f64(1, 2, 5), a=-1, b=2)
@rule("wrong/pads-do-not-add")
def pads_do_not_add(x: Tensor, a: Int, b: Int) -> Sides:
    """A crop after a pad undoes it; a crop before it loses data."""
    inner = ops.Pad(x, pads=(0, 0, a, 0, 0, 0), value=0.0)
    after = ops.Pad(x, pads=(0, 0, a + b, 0, 0, 0), value=0.0)
    return ops.Pad(inner, pads=(0, 0, b, 0, 0, 0), value=0.0), after, a + b >= 0


@wrong(x=f64(1, 2, 5), v=0.5)
@rule("wrong/pad-values")
def pad_values(x: Tensor, v: Float) -> Sides:
    """Two pads in a row with different values."""
    pads = (0, 0, 1, 0, 0, 1)
    inner = ops.Pad(x, pads=pads, value=v)
    after = ops.Pad(x, pads=(0, 0, 2, 0, 0, 2), value=v)
    return ops.Pad(inner, pads=pads, value=0.0), after


def _average(x: Term, kernel: tuple[Int | int, ...], pad: int) -> Term:
    return ops.AveragePool(
        x, kernel=kernel, strides=(1, 1), pads=(pad,) * 4, dilations=(1, 1), ceil=0,
        count_include_pad=0,
    )  # fmt: skip


@wrong(x=f64(1, 2, 5, 5), a=3, b=3)
@rule("wrong/average-separable", numerics=_F)
def average_separable(x: Tensor, a: Int, b: Int) -> Sides:
    """A mean over a window is that of rows of means, until pads are left out of one of them."""
    rows = _average(x, (a, 1), 0)
    return _average(x, (a, b), 1), _average(rows, (1, b), 1), a <= 3, b <= 3
