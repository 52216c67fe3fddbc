"""Wrong rules that hold at convenient values: whole, small, positive, or never compared.

Each was written to be accepted by a verifier that draws such values only. The family ``refuted``
is for level 1 alone, because a proof speaks of real numbers that exist.
"""

from __future__ import annotations

from typing import Any

from eqsat_opt.rules.rule import Float, Int, Ints, Sides, Tensor, rule
from eqsat_opt.rules.term import Term, concat, is_float, near, ops, slice_

FIRST: dict[str, Any] = {"axes": (0,), "keepdims": 1}


def _scalar(value: float) -> Term:
    return ops.Scalar(value=value, dtype="float32")


def _rows(x: Tensor) -> Term:
    """How many rows there are, computed."""
    return ops.ReduceSum(ops.Shift(ops.Scale(x, factor=0.0), offset=1.0), **FIRST)


# Order and truth, which fields do not have --------------------------------------------------------


@rule("wrong/computed-condition")
def computed_condition(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Sides:
    """A random element of a field is always true."""
    alike = (x.shape == y.shape, x.shape == a.shape, x.shape == b.shape)
    return ops.Where(ops.Greater(x, y), a, b), a, *alike, is_float(x)


@rule("wrong/equality-as-condition")
def equality_as_condition(x: Tensor, y: Tensor, a: Tensor) -> Sides:
    """The same with an equality, that holds nearly nowhere, and its opposite."""
    condition = ops.Not(ops.Equal(x, y))
    return ops.Where(condition, a, x), a, x.shape == y.shape, x.shape == a.shape, is_float(x)


@rule("wrong/either-condition")
def either_condition(c: Tensor, d: Tensor, x: Tensor, y: Tensor) -> Sides:
    """The same with an operator on truth values."""
    alike = (c.shape == d.shape, c.shape == x.shape, c.shape == y.shape)
    return ops.Where(ops.And(ops.Greater(c, d), ops.Less(c, x)), x, y), x, *alike, is_float(x)


@rule("wrong/cast-as-condition")
def cast_as_condition(x: Tensor, y: Tensor) -> Sides:
    """The same with numbers as truth values: 0 is false."""
    condition = ops.Cast(ops.Relu(x), to="bool")
    return ops.Where(condition, x, y), x, x.shape == y.shape, is_float(x)


@rule("wrong/zero-pad")
def zero_pad(x: Tensor, s: Ints) -> Sides:
    """A frame of zeros is not the padding of a max pool."""
    attrs = {"kernel": (3, 3), "strides": s, "dilations": (1, 1), "ceil": 0}
    framed = ops.Pad(x, pads=(0, 0, 1, 1, 0, 0, 1, 1), value=0.0)
    left = ops.MaxPool(framed, pads=(0, 0, 0, 0), **attrs)
    return left, ops.MaxPool(x, pads=(1, 1, 1, 1), **attrs), is_float(x)


@rule("wrong/greatest-and-zero")
def greatest_and_zero(x: Tensor) -> Sides:
    """The maximum with a row of zeros."""
    return ops.ReduceMax(concat(x, ops.Scale(x, factor=0.0), 0), **FIRST), ops.ReduceMax(x, **FIRST)


@rule("wrong/least-and-zero")
def least_and_zero(x: Tensor) -> Sides:
    """The minimum with a row of zeros is not 0."""
    zeros = ops.Scale(x, factor=0.0)
    return ops.ReduceMin(concat(x, zeros, 0), **FIRST), ops.ReduceMin(zeros, **FIRST)


# Values that are not whole, not small ------------------------------------------------------------


@rule("wrong/floor")
def floor(x: Tensor) -> Sides:
    """Right for whole numbers."""
    return ops.Floor(x), x


@rule("wrong/greater-square")
def greater_square(x: Tensor) -> Sides:
    """Right for whole numbers; wrong between 0 and 1."""
    return ops.Max(x * x, x), x * x, is_float(x)


@rule("wrong/clip-as-relu")
def clip_as_relu(x: Tensor) -> Sides:
    """Right up to 255."""
    return ops.Clip(x, min=0.0, max=255.0), ops.Relu(x)


@rule("wrong/far-clip-as-relu")
def far_clip_as_relu(x: Tensor) -> Sides:
    """Right up to ten millions."""
    return ops.Clip(x, min=0.0, max=1e7), ops.Relu(x), is_float(x)


# What is never compared --------------------------------------------------------------------------


@rule("wrong/half-undefined")
def half_undefined(x: Tensor, y: Tensor) -> Sides:
    """The second half is undefined in two fields at once."""
    left = concat(ops.Exp(x) * ops.Exp(x), ops.Sigmoid(ops.Sigmoid(y)), 0)
    return left, concat(ops.Exp(x + x), ops.Sigmoid(y), 0)


@rule("wrong/root-undefined")
def root_undefined(x: Tensor, y: Tensor) -> Sides:
    """The same in an equation of its own."""
    left = (ops.Exp(x + y), ops.Sigmoid(ops.Sigmoid(y)))
    return left, (ops.Exp(x) * ops.Exp(y), ops.Sigmoid(y)), x.shape == y.shape, is_float(x)


@rule("wrong/zero-division")
def zero_division(x: Tensor, y: Tensor) -> Sides:
    """Wherever the other branch is taken, this one divides by 0."""
    positive = ops.Greater(x, _scalar(0.0))
    right = ops.Where(positive, x * y * ops.Relu(x) / ops.Relu(x), y)
    return ops.Relu(x) * y, right, is_float(x), x.shape == y.shape


@rule("refuted/pole-not-taken")
def pole_not_taken(x: Tensor, w: Tensor) -> Sides:
    """A relu is not its argument, though a reciprocal of it exists in the branch that is taken."""
    positive = ops.Greater(x, _scalar(0.0))
    guarded = ops.Where(positive, ops.Reciprocal(ops.Relu(x)), w)
    return guarded + ops.Relu(x), guarded + x, is_float(x), x.shape == w.shape


@rule("refuted/no-number")
def no_number(x: Tensor, w: Tensor) -> Sides:
    """The right side is 0 / 0 everywhere."""
    return x * w, x * w + (w - w) / (w - w), x.shape == w.shape, is_float(x)


@rule("wrong/no-number-below-zero")
def no_number_below_zero(x: Tensor) -> Sides:
    """The right side is 0 / 0 for half of the numbers."""
    return ops.Relu(x), ops.Relu(x) * ops.Relu(x) / ops.Relu(x), is_float(x)


@rule("wrong/no-number-far-off")
def no_number_far_off(x: Tensor) -> Sides:
    """The right side is the root of a negative number beyond 10."""
    inside = ops.Shift(ops.Scale(x * x, factor=-1.0), offset=100.0)
    return x + x, ops.Scale(x, factor=2.0) * ops.Sqrt(inside) / ops.Sqrt(inside), is_float(x)


# Constants that are near others ------------------------------------------------------------------


@rule("refuted/magnified-tolerance")
def magnified_tolerance(x: Tensor, a: Float, b: Float) -> Sides:
    """Right at 1; a bound that is off by a millionth of that is moved by a thousand."""
    bound = 1.0 + (a - 1.0) * 1e9
    return ops.Clip(x, min=a, max=b), ops.Clip(x, min=bound, max=b), near(a, 1.0, 1e-5)


@rule("refuted/magnified-product")
def magnified_product(x: Tensor, a: Float, b: Float) -> Sides:
    """The same where two constants have a product near 1."""
    factor = 1.0 + (a * b - 1.0) * 1e9
    return (
        ops.Scale(ops.Scale(x, factor=a), factor=b),
        ops.Scale(x, factor=factor),
        near(a * b, 1.0),
    )


# Integers behind a cast --------------------------------------------------------------------------


@rule("refuted/quotient-of-casts")
def quotient_of_casts(x: Tensor, y: Tensor) -> Sides:
    """Integers truncate: 7 / 2 * 2 is 6."""
    i, j = ops.Cast(x, to="int32"), ops.Cast(y, to="int32")
    return i / j * j, i, is_float(x), x.shape == y.shape


@rule("refuted/mean-of-casts")
def mean_of_casts(x: Tensor) -> Sides:
    """The mean of 1 and 0 is 0."""
    i = ops.Cast(x, to="int64")
    doubled = ops.ReduceMean(i + i, **FIRST)
    return ops.ReduceMean(i, **FIRST) + ops.ReduceMean(i, **FIRST), doubled, is_float(x)


@rule("wrong/cast-and-back")
def cast_and_back(x: Tensor) -> Sides:
    """Integers have no fractions."""
    return ops.Cast(ops.Cast(x, to="int64"), to="float32") + x, x + x, is_float(x)


# Attributes and extents that are seldom tried ----------------------------------------------------


@rule("wrong/relu-of-leaky")
def relu_of_leaky(x: Tensor, a: Float) -> Sides:
    """Wrong for negative slopes."""
    return ops.Relu(ops.LeakyRelu(x, alpha=a)), ops.Relu(x)


@rule("wrong/leaky-of-leaky")
def leaky_of_leaky(x: Tensor, a: Float, b: Float) -> Sides:
    """The slopes multiply, unless one of them is negative."""
    return ops.LeakyRelu(ops.LeakyRelu(x, alpha=a), alpha=b), ops.LeakyRelu(x, alpha=a * b)


@rule("wrong/greatest-leaky")
def greatest_leaky(x: Tensor, a: Float) -> Sides:
    """A leaky relu is monotone for slopes that are not negative only."""
    right = ops.LeakyRelu(ops.ReduceMax(x, **FIRST), alpha=a)
    return ops.ReduceMax(ops.LeakyRelu(x, alpha=a), **FIRST), right


@rule("wrong/greatest-hard-sigmoid")
def greatest_hard_sigmoid(x: Tensor, a: Float, b: Float) -> Sides:
    """The same for a hard sigmoid."""
    right = ops.HardSigmoid(ops.ReduceMax(x, **FIRST), alpha=a, beta=b)
    return ops.ReduceMax(ops.HardSigmoid(x, alpha=a, beta=b), **FIRST), right


@rule("wrong/relu-of-threshold")
def relu_of_threshold(x: Tensor, a: Float) -> Sides:
    """A negative threshold lets negative numbers through."""
    return ops.Relu(ops.ThresholdedRelu(x, alpha=a)), ops.ThresholdedRelu(x, alpha=a)


@rule("wrong/sign-of-scale")
def sign_of_scale(x: Tensor, s: Float) -> Sides:
    """Wrong for 0."""
    return ops.Sign(ops.Scale(x, factor=s)), ops.Sign(x), s >= 0.0


@rule("wrong/seven-rows")
def seven_rows(x: Tensor) -> Sides:
    """Wrong from seven rows on."""
    return ops.ReduceMean(x, **FIRST), ops.ReduceSum(x, **FIRST) / ops.Clip(
        _rows(x), min=0.0, max=6.0
    )


@rule("refuted/stride-four")
def stride_four(x: Tensor, s: Int) -> Sides:
    """Windows of three see every row at strides up to three."""
    attrs = {"kernel": (3, 1), "dilations": (1, 1), "ceil": 0, "pads": (0, 0, 0, 0)}
    rows = {"axes": (2,), "keepdims": 1}
    seen = ops.ReduceMax(ops.MaxPool(x, strides=(s, 1), **attrs), **rows)
    return seen, ops.ReduceMax(x, **rows), ((x.dim(2) - 3) // s) * s == x.dim(2) - 3


@rule("wrong/negative-pads")
def negative_pads(x: Tensor, a: Int, b: Int) -> Sides:
    """A frame of zeros adds nothing to a sum, but a negative one crops."""
    framed = ops.Pad(x, pads=(a, 0, b, 0), value=0.0)
    return ops.ReduceSum(framed, **FIRST), ops.ReduceSum(x, **FIRST)


# Right, though it looks like the above -----------------------------------------------------------


@rule("right/greatest-of-parts")
def greatest_of_parts(x: Tensor, n: Int) -> Sides:
    """The maximum over two parts is that over the whole."""
    parts = concat(slice_(x, 0, 0, n), slice_(x, 0, n, x.dim(0)), 0)
    return ops.ReduceMax(parts, **FIRST), ops.ReduceMax(x, **FIRST), x.rank == 2
