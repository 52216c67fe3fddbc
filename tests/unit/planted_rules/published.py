"""The list of known unsound rules, U1 to U17, and next to some of them what is right instead.

U1 to U11 are rules of other optimisers, U12 to U17 errors that are common or were planted. They are
in the order of that list.
"""

from __future__ import annotations

from typing import Any

from eqsat_opt.rules.rule import Float, Int, Ints, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import concat, ops, slice_

PLAIN: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
SWAP = (1, 0)


@rule("wrong/grouped-merge-of-both")
def grouped_merge_of_both(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int, h: Int) -> Sides:
    """U1, TASO 99 and 100: right only where the outputs per group agree."""
    left = concat(ops.Conv(x, w, **PLAIN, group=g), ops.Conv(y, v, **PLAIN, group=h), 1)
    return left, ops.Conv(concat(x, y, 1), concat(w, v, 0), **PLAIN, group=g + h)


@rule("right/grouped-merge")
def grouped_merge(
    x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int, h: Int, s: Ints, p: Ints, d: Ints
) -> Sides:
    """U1 as it should be: groups of equal size are put side by side."""
    attrs = {"strides": s, "pads": p, "dilations": d}
    left = concat(ops.Conv(x, w, **attrs, group=g), ops.Conv(y, v, **attrs, group=h), 1)
    right = ops.Conv(concat(x, y, 1), concat(w, v, 0), **attrs, group=g + h)
    return left, right, w.rank == 4, w.dim(0) * h == v.dim(0) * g


@rule("wrong/grouped-siblings")
def grouped_siblings(x: Tensor, w: Weight, v: Weight, g: Int) -> Sides:
    """U2, TASO 125 to 129: groups interleave the filters."""
    left = concat(ops.Conv(x, w, **PLAIN, group=g), ops.Conv(x, v, **PLAIN, group=g), 1)
    return left, ops.Conv(x, concat(w, v, 0), **PLAIN, group=g)


@rule("wrong/grouped-block-sum")
def grouped_block_sum(x: Tensor, y: Tensor, w: Weight, v: Weight, g: Int) -> Sides:
    """U3, TASO 98 and 105: groups interleave the channels."""
    left = ops.Conv(x, w, **PLAIN, group=g) + ops.Conv(y, v, **PLAIN, group=g)
    return left, ops.Conv(concat(x, y, 1), concat(w, v, 1), **PLAIN, group=g)


@rule("wrong/drop-factor")
def drop_factor(x: Tensor, w: Weight, y: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """U4, the hand-written conv_mul of TASO: forgets the factor."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)
    return conv * y, conv, y.rank == 0


@rule("wrong/drop-addend")
def drop_addend(x: Tensor, w: Weight, y: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """U5, the hand-written conv_add of OCGGS: forgets the addend."""
    conv = ops.Conv(x, w, strides=s, pads=p, dilations=d, group=g)
    return conv + y, conv, y.rank == 0


def _enlarged_at_stride_two(x: Tensor, w: Weight, pads: tuple[int, ...]) -> Sides:
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    attrs = {"strides": (2, 2), "dilations": (1, 1), "group": 1}
    left = ops.Conv(x, w, **attrs, pads=(0, 0, 0, 0))
    even = (x.dim(2) // 2 * 2 == x.dim(2), x.dim(3) // 2 * 2 == x.dim(3))
    return left, ops.Conv(x, padded, **attrs, pads=pads), w.dim(2) == 1, w.dim(3) == 1, *even


@rule("wrong/enlarge-same-upper")
def enlarge_same_upper(x: Tensor, w: Weight) -> Sides:
    """U6, TASO and TENSAT: what SAME_UPPER pads make of a larger kernel at even extents.

    At odd extents the shapes would differ; at even ones the values alone refute it.
    """
    return _enlarged_at_stride_two(x, w, (0, 0, 1, 1))


@rule("right/enlarge-same-lower")
def enlarge_same_lower(x: Tensor, w: Weight) -> Sides:
    """U6 as it should be: SAME_LOWER keeps the kernel in its place."""
    return _enlarged_at_stride_two(x, w, (1, 1, 0, 0))


@rule("wrong/enlarge-off-centre")
def enlarge_off_centre(x: Tensor, w: Weight, s: Ints) -> Sides:
    """U6 at all strides: a kernel grows off its centre; the shapes agree, the values do not."""
    padded = ops.Pad(w, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    left = ops.Conv(x, w, strides=s, pads=(0, 0, 0, 0), dilations=(1, 1), group=1)
    right = ops.Conv(x, padded, strides=s, pads=(1, 1, 1, 1), dilations=(1, 1), group=1)
    return left, right, w.dim(2) == 1, w.dim(3) == 1


def _average_as_convolution(x: Tensor, include: int) -> Sides:
    window = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    pool = ops.AveragePool(x, **window, kernel=(2, 2), ceil=0, count_include_pad=include)
    kernel = ops.Expand(ops.Scalar(value=0.25, dtype="float32"), shape=(x.dim(1), 1, 2, 2))
    return pool, ops.Conv(x, kernel, **window, group=x.dim(1)), x.rank == 4


@rule("wrong/average-as-convolution")
def average_as_convolution(x: Tensor) -> Sides:
    """U7: an average that does not count the padding is no convolution."""
    return _average_as_convolution(x, 0)


@rule("wrong/average-include-pad")
def average_include_pad(x: Tensor, k: Ints, s: Ints, p: Ints, c: Int) -> Sides:
    """U7 without the convolution: at the border it matters whether the padding counts."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": c}
    left = ops.AveragePool(x, **attrs, count_include_pad=0)
    return left, ops.AveragePool(x, **attrs, count_include_pad=1)


@rule("right/average-counts-pads")
def average_counts_pads(x: Tensor) -> Sides:
    """U7 as it should be."""
    return _average_as_convolution(x, 1)


@rule("wrong/merge-by-greatest-pads")
def merge_by_greatest_pads(x: Tensor, w: Weight, v: Weight, s: Ints) -> Sides:
    """U8, MetaFlow: the small kernel has the pads of the large one already, and keeps them.

    Up to stride 2 the shapes never agree; from 3 on they can, and the values do not.
    """
    attrs = {"strides": s, "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    both = ops.Conv(x, concat(ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0), v, 0), **attrs)
    first = slice_(both, 1, 0, w.dim(0))
    second = slice_(both, 1, w.dim(0), w.dim(0) + v.dim(0))
    sizes = (w.dim(2) == 1, w.dim(3) == 1, v.dim(2) == 3, v.dim(3) == 3)
    return (ops.Conv(x, w, **attrs), ops.Conv(x, v, **attrs)), (first, second), *sizes


@rule("wrong/split-without-bounds")
def split_without_bounds(x: Tensor, y: Tensor, z: Tensor, axis: Int) -> Sides:
    """U9, TASO and TENSAT: a split that remembers the parts of another concatenation."""
    whole = concat(x, concat(y, z, axis), axis)
    return slice_(whole, axis, 0, y.dim(axis)), y, x.rank == y.rank


@rule("wrong/distribute-broadcast")
def distribute_broadcast(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """U10: with a vector among the addends the product means something else."""
    return x @ (y + z), x @ y + x @ z, x.rank == 2


@rule("wrong/concat-shuffle")
def concat_shuffle(a: Tensor, b: Tensor, c: Tensor, d: Tensor, axis: Int) -> Sides:
    """U11, TASO 110, with the parts exchanged on one side only."""
    return concat(a, b, axis) + concat(c, d, axis), concat(a, c, axis) + concat(b, d, axis)


@rule("right/concat-shuffle")
def typed_concat_shuffle(a: Tensor, b: Tensor, c: Tensor, d: Tensor, axis: Int) -> Sides:
    """U11 as it should be: where the parts have other sizes the right side does not type."""
    return concat(a, b, axis) + concat(c, d, axis), concat(a, d, axis) + concat(c, b, axis)


@rule("wrong/fold-without-factor")
def fold_without_factor(x: Tensor, g: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """U12: a batch normalisation whose shift forgets the factor."""
    one = (1, g.dim(0), 1, 1)
    deviation = ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    scale, shift = ops.Reshape(g / deviation, shape=one), ops.Reshape(b - m / deviation, shape=one)
    return ops.BatchNormalization(x, g, b, m, v, epsilon=e), x * scale + shift, x.rank == 4


@rule("right/fold-with-factor")
def fold_with_factor(x: Tensor, g: Weight, b: Weight, m: Weight, v: Weight, e: Float) -> Sides:
    """U12 as it should be."""
    one = (1, g.dim(0), 1, 1)
    scale = g / ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    moved = x * ops.Reshape(scale, shape=one) + ops.Reshape(b - m * scale, shape=one)
    return ops.BatchNormalization(x, g, b, m, v, epsilon=e), moved, x.rank == 4


def _shifted(x: Tensor, b: Weight, w: Weight, pad: int) -> Sides:
    attrs = {"strides": (1, 1), "pads": (pad,) * 4, "dilations": (1, 1), "group": 1}
    per_filter = ops.ReduceSum(w * b, axes=(1, 2, 3), keepdims=1)
    bias = ops.Reshape(per_filter, shape=(1, w.dim(0), 1, 1))
    ones = [b.dim(0) == 1, b.dim(1) == w.dim(1), b.dim(2) == 1, b.dim(3) == 1]
    left, right = ops.Conv(x + b, w, **attrs), ops.Conv(x, w, **attrs) + bias
    return left, right, x.rank == 4, b.rank == 4, *ones


@rule("wrong/input-shift")
def input_shift(x: Tensor, b: Weight, w: Weight) -> Sides:
    """U13: a shift of the data becomes a bias, but not in the zero padding."""
    return _shifted(x, b, w, 1)


@rule("right/input-shift")
def input_shift_without_pads(x: Tensor, b: Weight, w: Weight) -> Sides:
    """U13 as it should be: there is no padding."""
    return _shifted(x, b, w, 0)


@rule("wrong/slice-grouped")
def slice_grouped(x: Tensor, w: Weight, g: Int, lo: Int, hi: Int) -> Sides:
    """U14: some outputs of a grouped convolution need other inputs."""
    left = slice_(ops.Conv(x, w, **PLAIN, group=g), 1, lo, hi)
    return left, ops.Conv(x, slice_(w, 0, lo, hi), **PLAIN, group=g)


@rule("wrong/tiny-addend")
def tiny_addend(x: Tensor) -> Sides:
    """U15: within the tolerance of single precision, and wrong."""
    return x + ops.Scalar(value=1e-5, dtype="float32"), x


@rule("right/drop-zero")
def drop_zero(x: Tensor) -> Sides:
    """U15 as it should be."""
    return x + ops.Scalar(value=0.0, dtype="float32"), x


@rule("wrong/cayley-hamilton")
def cayley_hamilton(a: Tensor) -> Sides:
    """U16: true for every matrix up to 2 x 2."""
    square = a @ a
    return square * ops.Transpose(a, perm=SWAP), ops.Transpose(square, perm=SWAP) * a


@rule("wrong/transpose-product")
def transpose_product(x: Tensor, y: Tensor) -> Sides:
    """U17: forgets to exchange the factors; square matrices type."""
    product = ops.Transpose(x, perm=SWAP) @ ops.Transpose(y, perm=SWAP)
    return ops.Transpose(x @ y, perm=SWAP), product


@rule("wrong/relu-of-sum")
def relu_of_sum(x: Tensor, y: Tensor) -> Sides:
    """U17: relu is not linear."""
    return ops.Relu(x + y), ops.Relu(x) + ops.Relu(y)


@rule("wrong/relu-average")
def relu_average(x: Tensor, k: Ints, s: Ints, p: Ints, d: Ints) -> Sides:
    """U17: relu does not commute with an average."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": d, "ceil": 0}
    left = ops.AveragePool(ops.Relu(x), **attrs, count_include_pad=1)
    return left, ops.Relu(ops.AveragePool(x, **attrs, count_include_pad=1))


@rule("wrong/concat-commute")
def concat_commute(x: Tensor, y: Tensor, axis: Int) -> Sides:
    """U17: the shape is the same, the order is not."""
    return concat(x, y, axis), concat(y, x, axis)


@rule("wrong/identity-off-centre")
def identity_off_centre(x: Tensor, w: Weight) -> Sides:
    """U17: the one belongs into the centre of the kernel."""
    identity = ops.IdentityKernel(channels=w.dim(0), height=1, width=1, dtype="float32")
    corner = ops.Pad(identity, pads=(0, 0, 0, 0, 0, 0, 2, 2), value=0.0)
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    sizes = (w.dim(0) == w.dim(1), w.dim(2) == 3, w.dim(3) == 3)
    return ops.Conv(x, w, **attrs) + x, ops.Conv(x, w + corner, **attrs), *sizes


@rule("wrong/pad-kernel-only")
def pad_kernel_only(x: Tensor, w: Weight, s: Ints) -> Sides:
    """U17: a larger kernel of any size under the old pads; at stride 3 the shapes can agree."""
    padded = ops.Pad(w, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    attrs = {"strides": s, "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
    return ops.Conv(x, w, **attrs), ops.Conv(x, padded, **attrs), w.rank == 4
