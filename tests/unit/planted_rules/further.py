"""Wrong and right rules beyond the list of known unsound ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eqsat_opt.rules.rule import (
    Float,
    Func,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Weight,
    rule,
)
from eqsat_opt.rules.term import concat, is_float, ops, slice_

# Wrong -------------------------------------------------------------------------------------------


@rule("wrong/any-function-of-sum")
def any_function_of_sum(f: Func, x: Tensor, y: Tensor) -> Sides:
    """As relu, no other function is linear."""
    return f(x + y), f(x) + f(y)


@rule("wrong/matmul-commute")
def matmul_commute(x: Tensor, y: Tensor) -> Sides:
    """Square matrices type."""
    return x @ y, y @ x


@rule("wrong/max-of-padding")
def max_of_padding(x: Tensor, k: Ints, s: Ints, p: Ints) -> Sides:
    """A window that lies in the padding has no element that relu could lift."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": 0}
    return ops.MaxPool(ops.Relu(x), **attrs), ops.Relu(ops.MaxPool(x, **attrs))


@rule("wrong/max-of-sum")
def max_of_sum(x: Tensor, y: Tensor) -> Sides:
    """The greatest sum is not the sum of the greatest."""
    axes = {"axes": (0,), "keepdims": 1}
    right = ops.ReduceMax(x, **axes) + ops.ReduceMax(y, **axes)
    return ops.ReduceMax(x + y, **axes), right, x.shape == y.shape


@rule("wrong/drop-gate")
def drop_gate(f: Tensor, c: Tensor, x: Tensor) -> Sides:
    """A gated mixture without its gate."""
    one = ops.Scalar(value=1.0, dtype="float32")
    return f * c + (one - f) * x, f * c + x, f.shape == c.shape, f.shape == x.shape


@rule("wrong/softmax-ignores-factor")
def softmax_ignores_factor(x: Tensor, s: Tensor, axis: Int) -> Sides:
    """A softmax does not ignore a factor."""
    return ops.Softmax(x * s, axis=axis), ops.Softmax(x, axis=axis), s.rank == 0


@rule("wrong/root-undoes-square")
def root_undoes_square(x: Tensor) -> Sides:
    """The root of a square forgets the sign."""
    return ops.Sqrt(x * x), x, is_float(x)


@rule("wrong/root-of-square")
def root_of_square(x: Tensor) -> Sides:
    """The root of a square is no product of roots, which negative numbers do not have."""
    return ops.Sqrt(x * x), ops.Sqrt(x) * ops.Sqrt(x), is_float(x)


@rule("wrong/root-squared")
def root_squared(x: Tensor) -> Sides:
    """A square of a root exists for what is not negative only."""
    return ops.Sqrt(x) * ops.Sqrt(x), ops.Relu(x), is_float(x)


@rule("wrong/exponential-of-product")
def exponential_of_product(x: Tensor, y: Tensor) -> Sides:
    """An exponential makes a product of a sum, not of a product."""
    return ops.Exp(x * y), ops.Exp(x) * ops.Exp(y), is_float(x)


def _gelu_by_product(x: Tensor, root_of_half: float) -> Sides:
    values = (0.5, 1.0, root_of_half)
    half, one, root = (ops.Scalar(value=v, dtype="float32") for v in values)
    return half * x * (one + ops.Erf(x * root)), ops.Gelu(x, approximate="none"), is_float(x)


@rule("wrong/gelu-by-rough-product")
def gelu_by_rough_product(x: Tensor) -> Sides:
    """The reciprocal of the root of 2 to four digits only."""
    return _gelu_by_product(x, 0.7071)


# Right: convolutions and pools -------------------------------------------------------------------


@rule("right/fold-normalisation")
def fold_normalisation(
    x: Tensor, w: Weight, g: Weight, b: Weight, m: Weight, v: Weight, e: Float, s: Ints, p: Ints,
    d: Ints, n: Int,
) -> Sides:  # fmt: skip
    """Batch normalisation goes into the weight, with any groups."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": n}
    factor = g / ops.Sqrt(v + ops.Scalar(value=e, dtype="float32"))
    scaled = w * ops.Reshape(factor, shape=(g.dim(0), 1, 1, 1))
    shift = ops.Reshape(b - m * factor, shape=(1, g.dim(0), 1, 1))
    left = ops.BatchNormalization(ops.Conv(x, w, **attrs), g, b, m, v, epsilon=e)
    return left, ops.Conv(x, scaled, **attrs) + shift, w.rank == 4


@rule("right/input-scale")
def input_scale(x: Tensor, w: Weight, s: Weight, p: Ints) -> Sides:
    """A factor per input channel moves into the weight; padding stays 0."""
    attrs = {"strides": (1, 1), "pads": p, "dilations": (1, 1), "group": 1}
    ones = (s.rank == 4, s.dim(0) == 1, s.dim(1) == w.dim(1), s.dim(2) == 1, s.dim(3) == 1)
    return ops.Conv(x * s, w, **attrs), ops.Conv(x, w * s, **attrs), x.rank == 4, *ones


@rule("right/pad-into-convolution")
def pad_into_convolution(
    x: Tensor, w: Weight, a: Int, b: Int, p: Int, q: Int, s: Ints, d: Ints, g: Int
) -> Sides:
    """A frame of zeros is the padding of the convolution."""
    framed = ops.Pad(x, pads=(0, 0, a, b, 0, 0, p, q), value=0.0)
    attrs = {"strides": s, "dilations": d, "group": g}
    left = ops.Conv(framed, w, pads=(0, 0, 0, 0), **attrs)
    positive = [one >= 0 for one in (a, b, p, q)]
    return left, ops.Conv(x, w, pads=(a, b, p, q), **attrs), w.rank == 4, *positive


@rule("right/pointwise-convolution")
def pointwise_convolution(x: Tensor, w: Weight) -> Sides:
    """A 1 x 1 convolution is a matrix product of reshaped operands."""
    conv = ops.Conv(x, w, strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1)
    flat = ops.Reshape(x, shape=(x.dim(0), x.dim(1), x.dim(2) * x.dim(3)))
    product = ops.Reshape(w, shape=(w.dim(0), w.dim(1))) @ flat
    shaped = ops.Reshape(product, shape=(x.dim(0), w.dim(0), x.dim(2), x.dim(3)))
    return conv, shaped, w.rank == 4, w.dim(2) == 1, w.dim(3) == 1


@rule("right/average-as-convolution")
def average_as_convolution(x: Tensor, w: Weight) -> Sides:
    """The mean of three places, where the padding counts."""
    third = ops.AveragePool(
        x, kernel=(3,), strides=(2,), pads=(1, 1), dilations=(1,), ceil=0, count_include_pad=1
    )
    kernel = w - w + ops.Reciprocal(ops.Scalar(value=3.0, dtype="float32"))
    conv = {"strides": (2,), "pads": (1, 1), "dilations": (1,), "group": x.dim(1)}
    left = third + x * ops.ReduceSum(w - w, axes=(0, 1, 2), keepdims=0)
    sizes = (w.dim(0) == x.dim(1), w.dim(1) == 1, w.dim(2) == 3, x.dim(2) == 1)
    return left, ops.Conv(x, kernel, **conv), *sizes


@rule("right/pools-compose")
def pools_compose(x: Tensor) -> Sides:
    """A pool over both axes is one over each in turn."""
    both = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    rows = ops.MaxPool(x, kernel=(3, 1), **both)
    return ops.MaxPool(rows, kernel=(1, 3), **both), ops.MaxPool(x, kernel=(3, 3), **both)


# Right: products, sums, maxima and shapes --------------------------------------------------------


@rule("right/split-inner")
def split_inner(x: Tensor, w: Tensor, n: Int, k: Int) -> Sides:
    """A product over an inner axis that was cut at a seam."""
    left = slice_(x, 1, 0, n) @ slice_(w, 0, 0, n) + slice_(x, 1, n, k) @ slice_(w, 0, n, k)
    return left, x @ w, x.rank == 2, w.rank == 2, x.dim(1) == k


@rule("right/max-of-rectified")
def max_of_rectified(x: Tensor) -> Sides:
    """The greatest rectified element is the rectified greatest."""
    greatest = ops.ReduceMax(x, axes=(0, 1), keepdims=1)
    return ops.ReduceMax(ops.Relu(x), axes=(0, 1), keepdims=1), ops.Relu(greatest), x.rank == 2


@rule("right/reshape-twice")
def reshape_twice(x: Tensor, s: Ints, t: Ints) -> Sides:
    """Only the last shape counts."""
    return ops.Reshape(ops.Reshape(x, shape=s), shape=t), ops.Reshape(x, shape=t), x.rank == 3


@rule("right/sum-of-flattened")
def sum_of_flattened(x: Tensor) -> Sides:
    """A sum over a flattened axis is one over both axes."""
    flat = ops.Reshape(x, shape=(x.dim(0), x.dim(1) * x.dim(2)))
    right = ops.ReduceSum(x, axes=(1, 2), keepdims=0)
    return ops.ReduceSum(flat, axes=(1,), keepdims=0), right, x.rank == 3


@rule("right/where-of-equals")
def where_of_equals(c: Tensor, x: Tensor) -> Sides:
    """A choice between equals is none."""
    return ops.Where(c, x, x), x, c.shape == x.shape


# Right: softmax, normalisation and functions of one argument -------------------------------------


@rule("right/softmax-of-slice")
def softmax_of_slice(x: Tensor, lo: Int, hi: Int) -> Sides:
    """A softmax along another axis does not mind a slice."""
    left = ops.Softmax(slice_(x, 0, lo, hi), axis=1)
    return left, slice_(ops.Softmax(x, axis=1), 0, lo, hi), x.rank == 2


@rule("right/softmax-shift")
def softmax_shift(x: Tensor, s: Tensor, axis: Int) -> Sides:
    """A softmax ignores what is added to all of its elements."""
    return ops.Softmax(x + s, axis=axis), ops.Softmax(x, axis=axis), s.rank == 0, is_float(x)


@rule("right/softmax-shift-of-rows")
def softmax_shift_of_rows(x: Tensor, c: Tensor) -> Sides:
    """What is added to a whole row cancels."""
    sizes = (x.rank == 2, c.rank == 2, c.dim(1) == 1, c.dim(0) == x.dim(0))
    return ops.Softmax(x + c, axis=1), ops.Softmax(x, axis=1), *sizes


@rule("right/softmax-spelled-out")
def softmax_spelled_out(x: Tensor) -> Sides:
    """The definition with the greatest element taken off."""
    raised = ops.Exp(x - ops.ReduceMax(x, axes=(1,), keepdims=1))
    total = ops.ReduceSum(raised, axes=(1,), keepdims=1)
    return raised / total, ops.Softmax(x, axis=1), x.rank == 2


@rule("right/normalise-after-product")
def normalise_after_product(x: Tensor, v: Tensor) -> Sides:
    """Attention may divide by the sum of exponentials last."""
    raised = ops.Exp(x)
    after = (raised @ v) / ops.ReduceSum(raised, axes=(1,), keepdims=1)
    return ops.Softmax(x, axis=1) @ v, after, x.rank == 2, v.rank == 2


@rule("right/layer-norm-spelled-out")
def layer_norm_spelled_out(x: Tensor, g: Weight, b: Weight, e: Float) -> Sides:
    """The definition of layer normalisation over the last axis."""
    mean = ops.ReduceMean(x, axes=(1,), keepdims=1)
    centred = x - mean
    variance = ops.ReduceMean(centred * centred, axes=(1,), keepdims=1)
    deviation = ops.Sqrt(variance + ops.Scalar(value=e, dtype="float32"))
    fused = ops.LayerNormalization(x, g, b, axis=1, epsilon=e)
    return centred / deviation * g + b, fused, x.rank == 2, g.rank == 1, b.rank == 1


@rule("right/exponential-of-sum")
def exponential_of_sum(x: Tensor, y: Tensor) -> Sides:
    """An exponential makes a product of a sum."""
    return ops.Exp(x + y), ops.Exp(x) * ops.Exp(y), is_float(x)


@rule("right/relu-scale")
def relu_scale(x: Tensor, s: Tensor) -> Sides:
    """A relu lets factors through that are not negative."""
    return ops.Relu(x * ops.Abs(s)), ops.Relu(x) * ops.Abs(s), is_float(x)


@rule("right/sigmoid-of-tanh")
def sigmoid_of_tanh(x: Tensor) -> Sides:
    """Tanh is a sigmoid at twice the argument."""
    two, one = (ops.Scalar(value=v, dtype="float32") for v in (2.0, 1.0))
    return ops.Tanh(x), two * ops.Sigmoid(two * x) - one


@rule("right/gelu-by-product")
def gelu_by_product(x: Tensor) -> Sides:
    """The exact gelu, with the reciprocal of the root of 2."""
    return _gelu_by_product(x, math.sqrt(0.5))


@rule("right/gelu-by-quotient")
def gelu_by_quotient(x: Tensor) -> Sides:
    """The exact gelu, divided by the root of 2."""
    two, one, root = (ops.Scalar(value=v, dtype="float32") for v in (2.0, 1.0, math.sqrt(2.0)))
    return x * (one + ops.Erf(x / root)) / two, ops.Gelu(x, approximate="none"), is_float(x)


@rule("right/gelu-by-tanh")
def gelu_by_tanh(x: Tensor) -> Sides:
    """The approximate gelu, as a sigmoid."""
    values = (math.sqrt(2 / math.pi), 0.044715, 2.0)
    root, cubic, two = (ops.Scalar(value=v, dtype="float32") for v in values)
    inner = two * root * (x + cubic * x * x * x)
    return x * ops.Sigmoid(inner), ops.Gelu(x, approximate="tanh"), is_float(x)


def _joined_groups(x: Tensor, w: Weight, g: Int, n: int, depths: Sequence[int]) -> Sides:
    """Every `n` groups as one, where filters of the k-th meet the channels of group `depths[k]`."""
    filters, depth = w.dim(0) // g, w.dim(1)
    blocks = ops.Reshape(w, shape=(g // n, n * filters, depth, w.dim(2), w.dim(3)))
    wide = None
    for k, place in enumerate(depths):
        part = slice_(blocks, 1, k * filters, (k + 1) * filters)
        before, after = place * depth, (n - 1 - place) * depth
        pads = (0, 0, before, 0, 0, 0, 0, after, 0, 0)
        padded = ops.Pad(part, pads=pads, value=0.0)
        wide = padded if wide is None else concat(wide, padded, 1)
    kernel = ops.Reshape(wide, shape=(w.dim(0), n * depth, w.dim(2), w.dim(3)))
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    left, right = ops.Conv(x, w, group=g, **attrs), ops.Conv(x, kernel, group=g // n, **attrs)
    return left, right, w.rank == 4, g == n * (g // n)


@rule("right/pairs-of-groups", numerics=Numerics.REFACTOR)
def pairs_of_groups(x: Tensor, w: Weight, g: Int) -> Sides:
    """Two groups side by side: o // r is 2 (o // 2r) or one more."""
    return _joined_groups(x, w, g, 2, (0, 1))


@rule("right/threes-of-groups", numerics=Numerics.REFACTOR)
def threes_of_groups(x: Tensor, w: Weight, g: Int) -> Sides:
    """Three groups side by side."""
    return _joined_groups(x, w, g, 3, (0, 1, 2))


@rule("wrong/exchanged-pairs-of-groups", numerics=Numerics.REFACTOR)
def exchanged_pairs_of_groups(x: Tensor, w: Weight, g: Int) -> Sides:
    """The filters of either group meet the channels of the other."""
    return _joined_groups(x, w, g, 2, (1, 0))


@rule("wrong/first-of-pairs-of-groups", numerics=Numerics.REFACTOR)
def first_of_pairs_of_groups(x: Tensor, w: Weight, g: Int) -> Sides:
    """All filters meet the channels of the first group."""
    return _joined_groups(x, w, g, 2, (0, 0))


@rule("wrong/rotated-threes-of-groups", numerics=Numerics.REFACTOR)
def rotated_threes_of_groups(x: Tensor, w: Weight, g: Int) -> Sides:
    """The last two of three groups change places."""
    return _joined_groups(x, w, g, 3, (0, 2, 1))
