"""Recognition: Gelu in its three forms, Swish and HardSwish from any spelling.

The rules build on the normal form of the affine family: a gate is a shifted or plain function of a
scaled operand, and the operand itself is the other factor of the product.
"""

from __future__ import annotations

import math

from eqsat_opt.rules.declare import recognition
from eqsat_opt.rules.parameters import plus, scalar, times
from eqsat_opt.rules.rule import Float, Numerics, Sides, Tensor
from eqsat_opt.rules.term import far, near, ops

__all__: list[str] = []

_ROUNDING = 1e-12
_GATE = math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


_law = recognition("activation")


# Sigmoid and its relatives ------------------------------------------------------------------------


@_law("sigmoid-of-exponential")
def sigmoid_of_exponential(u: Tensor, s: Float) -> Sides:
    """1/(1 + exp(u)) is the sigmoid of -u."""
    return ops.Reciprocal(plus(ops.Exp(u), s)), ops.Sigmoid(times(u, -1.0)), near(s, 1.0)


@_law("sigmoid-of-two-exponentials")
def sigmoid_of_two_exponentials(u: Tensor, s: Float) -> Sides:
    """exp(u)/(1 + exp(u)) is the sigmoid of u."""
    e = ops.Exp(u)
    return e * ops.Reciprocal(plus(e, s)), ops.Sigmoid(u), near(s, 1.0)


@_law("exponential-meets-reciprocal")
def exponential_meets_reciprocal(u: Tensor, y: Tensor, s: Float) -> Sides:
    """In a product, exp(u) meets 1/(exp(u) + s) first, where a sigmoid can be recognised."""
    e = ops.Exp(u)
    h = ops.Reciprocal(plus(e, s))
    return h * (e * y), (h * e) * y


@_law("tanh-gate")
def tanh_gate(u: Tensor, s: Float) -> Sides:
    """1 + tanh(u) = 2 sigmoid(2u), so that one form covers both gates."""
    return plus(ops.Tanh(u), s), times(ops.Sigmoid(times(u, 2.0)), 2.0), near(s, 1.0)


@_law("tanh-of-negative")
def tanh_of_negative(x: Tensor, c: Float) -> Sides:
    """tanh(-x) = -tanh(x), so that a factor inside a tanh is positive."""
    return ops.Tanh(times(x, c)), times(ops.Tanh(times(x, c * -1.0)), -1.0), c < 0.0


@_law("tanh-is-sigmoid", numerics=Numerics.REFACTOR)
def tanh_is_sigmoid(u: Tensor) -> Sides:
    """tanh(u) = 2 sigmoid(2u) - 1; for a small u the difference keeps few digits."""
    return ops.Tanh(u), times(plus(ops.Sigmoid(times(u, 2.0)), -0.5), 2.0)


@_law("sigmoid-gate")
def sigmoid_gate(x: Tensor, c: Float, s: Float) -> Sides:
    """sigmoid(-x) - 1 = -sigmoid(x), so that a factor inside a sigmoid is positive."""
    positive = ops.Sigmoid(times(x, c * -1.0))
    return plus(ops.Sigmoid(times(x, c)), s), times(positive, -1.0), near(s, -1.0), c < 0.0


@_law("sigmoid-of-negative", numerics=Numerics.REFACTOR)
def sigmoid_of_negative(x: Tensor, c: Float) -> Sides:
    """sigmoid(-x) = 1 - sigmoid(x); where the sigmoid is small the difference keeps few digits."""
    positive = ops.Sigmoid(times(x, c * -1.0))
    return ops.Sigmoid(times(x, c)), times(plus(positive, -1.0), -1.0), c < 0.0


@_law("erf-of-negative")
def erf_of_negative(x: Tensor, c: Float) -> Sides:
    """erf(-x) = -erf(x), so that a factor inside an error function is positive."""
    return ops.Erf(times(x, c)), times(ops.Erf(times(x, c * -1.0)), -1.0), c < 0.0


# Sums with a common factor ------------------------------------------------------------------------


@_law("factor-plain")
def factor_plain(x: Tensor, e: Tensor) -> Sides:
    """The sum x + x * e becomes one product x * (e + 1), the form of a gate."""
    return x + x * e, x * plus(e, 1.0), x.shape == e.shape


@_law("factor-left")
def factor_left(x: Tensor, e: Tensor, a: Float) -> Sides:
    """With a constant a, a * x + x * e becomes one product x * (e + a), the form of a gate."""
    return times(x, a) + x * e, x * plus(e, a), x.shape == e.shape


@_law("factor-right")
def factor_right(x: Tensor, e: Tensor, b: Float) -> Sides:
    """With a constant b, x + b * (x * e) becomes b * (x * (e + 1/b)), the form of a gate."""
    right = times(x * plus(e, 1.0 / b), b)
    return x + times(x * e, b), right, b != 0.0, x.shape == e.shape


@_law("factor-both")
def factor_both(x: Tensor, e: Tensor, a: Float, b: Float) -> Sides:
    """With constants a and b, a * x + b * (x * e) becomes a gate b * (x * (e + a/b))."""
    right = times(x * plus(e, a / b), b)
    return times(x, a) + times(x * e, b), right, b != 0.0, x.shape == e.shape


# A gate meets its operand -------------------------------------------------------------------------


@_law("sigmoid-meets-operand")
def sigmoid_meets_operand(x: Tensor, y: Tensor) -> Sides:
    """In sigmoid(x) * (x * y), the sigmoid meets x before y, so that Swish is recognised."""
    h = ops.Sigmoid(x)
    return h * (x * y), (h * x) * y


@_law("sigmoid-waits-for-operand")
def sigmoid_waits_for_operand(x: Tensor, y: Tensor) -> Sides:
    """In (sigmoid(x) * y) * x, the sigmoid meets x before y, so that Swish is recognised."""
    h = ops.Sigmoid(x)
    return (h * y) * x, (h * x) * y


@_law("scaled-sigmoid-meets-operand")
def scaled_sigmoid_meets_operand(x: Tensor, y: Tensor, c: Float) -> Sides:
    """In sigmoid(c * x) * (x * y), the sigmoid meets x before y, so that Swish is recognised."""
    h = ops.Sigmoid(times(x, c))
    return h * (x * y), (h * x) * y


@_law("scaled-sigmoid-waits-for-operand")
def scaled_sigmoid_waits_for_operand(x: Tensor, y: Tensor, c: Float) -> Sides:
    """In (sigmoid(c * x) * y) * x, the sigmoid meets x before y, so that Swish is recognised."""
    h = ops.Sigmoid(times(x, c))
    return (h * y) * x, (h * x) * y


# One equation per operator ------------------------------------------------------------------------


@_law("gelu")
def gelu(x: Tensor, c: Float, s: Float) -> Sides:
    """The product x * (1 + erf(x/√2)) is twice the Gelu of x, in its exact form."""
    return (
        x * plus(ops.Erf(times(x, c)), s),
        times(ops.Gelu(x, approximate="none"), 2.0),
        near(c, math.sqrt(0.5)),
        near(s, 1.0),
    )


@_law("gelu-tanh")
def gelu_tanh(x: Tensor, c: Float, s: Float) -> Sides:
    """The product x * sigmoid(c * (x³ + s * x)) is the tanh approximation of Gelu."""
    inner = x * plus(ops.Square(x), s)
    return (
        x * ops.Sigmoid(times(inner, c)),
        ops.Gelu(x, approximate="tanh"),
        near(c, 2.0 * _GATE * _CUBIC),
        near(s, 1.0 / _CUBIC),
    )


@_law("swish")
def swish(x: Tensor) -> Sides:
    """A tensor times its own sigmoid is Swish, also called SiLU."""
    return x * ops.Sigmoid(x), ops.Swish(x, alpha=1.0)


@_law("swish-scaled")
def swish_scaled(x: Tensor, k: Float) -> Sides:
    """A tensor times the sigmoid of its multiple is Swish; a factor of 1.702 approximates Gelu."""
    return x * ops.Sigmoid(times(x, k)), ops.Swish(x, alpha=k), far(k, 1.0, _ROUNDING), k > 0.0


# Clips --------------------------------------------------------------------------------------------


@_law("clip-min-max")
def clip_min_max(x: Tensor, lo: Float, hi: Float) -> Sides:
    """A minimum with an upper bound, then a maximum with a lower bound, is a clip."""
    high = ops.Min(x, scalar(hi, x))
    left = ops.Max(high, scalar(lo, x))
    return left, ops.Clip(x, min=lo, max=hi), lo <= hi


@_law("clip-max-min")
def clip_max_min(x: Tensor, lo: Float, hi: Float) -> Sides:
    """A maximum with a lower bound, then a minimum with an upper bound, is a clip."""
    low = ops.Max(x, scalar(lo, x))
    left = ops.Min(low, scalar(hi, x))
    return left, ops.Clip(x, min=lo, max=hi), lo <= hi


@_law("clip-relu")
def clip_relu(x: Tensor, hi: Float) -> Sides:
    """A relu with an upper bound, such as Relu6, is a clip from 0."""
    left = ops.Min(ops.Relu(x), scalar(hi, x))
    return left, ops.Clip(x, min=0.0, max=hi), hi > 0.0


@_law("hard-sigmoid-is-clip")
def hard_sigmoid_is_clip(x: Tensor, a: Float, b: Float) -> Sides:
    """A hard sigmoid is a clip of the line a * x + b to [0, 1]."""
    line = times(plus(x, b / a), a)
    return ops.HardSigmoid(x, alpha=a, beta=b), ops.Clip(line, min=0.0, max=1.0), a > 0.0


@_law("clip-of-scale")
def clip_of_scale(x: Tensor, a: Float, lo: Float, hi: Float) -> Sides:
    """A positive constant factor moves out of a clip, whose bounds are divided by it."""
    inner = ops.Clip(x, min=lo / a, max=hi / a)
    return ops.Clip(times(x, a), min=lo, max=hi), times(inner, a), a > 0.0


@_law("clip-of-negative-scale")
def clip_of_negative_scale(x: Tensor, a: Float, lo: Float, hi: Float) -> Sides:
    """A negative constant factor moves out of a clip, dividing and exchanging its bounds."""
    inner = ops.Clip(x, min=hi / a, max=lo / a)
    return ops.Clip(times(x, a), min=lo, max=hi), times(inner, a), a < 0.0, lo <= hi


@_law("clip-of-shift")
def clip_of_shift(x: Tensor, s: Float, lo: Float, hi: Float) -> Sides:
    """A constant addend moves out of a clip, whose bounds are lowered by it."""
    inner = ops.Clip(x, min=lo - s, max=hi - s)
    return ops.Clip(plus(x, s), min=lo, max=hi), plus(inner, s)


@_law("hard-swish")
def hard_swish(x: Tensor, s: Float, lo: Float, hi: Float) -> Sides:
    """The product x * (clip(x, -3, 3) + 3) is six times the hard swish of x."""
    return (
        x * plus(ops.Clip(x, min=lo, max=hi), s),
        times(ops.HardSwish(x), 6.0),
        near(s, 3.0),
        near(lo, -3.0),
        near(hi, 3.0),
    )
