"""Roots, logarithms, quotients and powers outside the domain in which a law holds."""

from __future__ import annotations

import numpy as np

from eqsat_opt.rules import Float, Int, Numerics, Sides, Tensor, Weight, is_float, ops, rule
from tests.gate.cases import f64, wrong

_R, _F = Numerics.REASSOCIATE, Numerics.REFACTOR
_ONE = {"value": 1.0, "dtype": "float64"}


@wrong(x=np.array([-2.0]))
@rule("wrong/root-of-square", numerics=_F)
def root_of_square(x: Tensor) -> Sides:
    """The root of a square is the magnitude."""
    return ops.Sqrt(ops.Square(x)), x


@wrong(x=np.array([-2.0]), y=np.array([-3.0]))
@rule("wrong/root-of-product", numerics=_F, bidirectional=True)
def root_of_product(x: Tensor, y: Tensor) -> Sides:
    """Right where both are positive, and from left to right; backwards two signs may cancel."""
    return ops.Sqrt(x) * ops.Sqrt(y), ops.Sqrt(x * y)


@wrong(x=np.array([-2.0]), y=np.array([-3.0]))
@rule("wrong/root-of-quotient", numerics=_F)
def root_of_quotient(x: Tensor, y: Tensor) -> Sides:
    """A quotient of two negative numbers has a root."""
    return ops.Sqrt(x / y), ops.Sqrt(x) / ops.Sqrt(y)


@wrong(x=np.array([-2.0]))
@rule("wrong/log-of-square", numerics=_F)
def log_of_square(x: Tensor) -> Sides:
    """Claim: log(x^2) = 2 log x for positive numbers only."""
    return ops.Log(ops.Square(x)), ops.Scale(ops.Log(x), factor=2.0)


@wrong(x=np.array([-2.0]), y=np.array([-3.0]))
@rule("wrong/log-of-product", numerics=_F)
def log_of_product(x: Tensor, y: Tensor) -> Sides:
    """Claim: log(xy) = log x + log y for positive numbers only."""
    return ops.Log(x * y), ops.Log(x) + ops.Log(y)


@wrong(x=np.array([-2.0]), y=np.array([-3.0]))
@rule("wrong/log-of-quotient", numerics=_F)
def log_of_quotient(x: Tensor, y: Tensor) -> Sides:
    """Claim: log(x/y) = log x - log y for positive numbers only."""
    return ops.Log(x / y), ops.Log(x) - ops.Log(y), x.shape == y.shape


@wrong(x=np.array([-2.0]), y=np.array([2.0]))
@rule("wrong/log-of-power", numerics=_F)
def log_of_power(x: Tensor, y: Tensor) -> Sides:
    """Claim: log(x^y) = y log x: an even power of a negative number is positive."""
    return ops.Log(ops.Pow(x, y)), y * ops.Log(x), x.shape == y.shape, is_float(y)


@wrong(x=np.array([-2.0]), y=np.array([2.0]), z=np.array([0.5]))
@rule("wrong/power-of-power", numerics=_F)
def power_of_power(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(x^y)^z = x^(yz) loses the sign: ((-2)^2)^(1/2) = 2."""
    return (
        ops.Pow(ops.Pow(x, y), z),
        ops.Pow(x, y * z),
        y.shape == z.shape,
        is_float(x),
        is_float(y),
    )


@wrong(x=np.array([-2.0]), y=np.array([-3.0]), z=np.array([0.5]))
@rule("wrong/power-of-product", numerics=_F)
def power_of_product(x: Tensor, y: Tensor, z: Tensor) -> Sides:
    """(xy)^z = x^z y^z for bases that are not negative."""
    return ops.Pow(x * y, z), ops.Pow(x, z) * ops.Pow(y, z), is_float(x), is_float(z)


@wrong(x=np.array([-2.0]))
@rule("wrong/power-as-root", numerics=_F)
def power_as_root(x: Tensor) -> Sides:
    """(x^2)^(1/2) by the rules for exponents."""
    two, half = ops.Scalar(value=2.0, dtype="float32"), ops.Scalar(value=0.5, dtype="float32")
    return ops.Pow(ops.Pow(x, two), half), ops.Pow(x, two * half), is_float(x)


@wrong(x=np.array([0.0]))
@rule("wrong/quotient-of-itself", numerics=_R)
def quotient_of_itself(x: Tensor) -> Sides:
    """Claim: x / x is 1 but for 0, whose quotient is not a number and stays none in this class."""
    return x / x, ops.Exp(x - x), is_float(x)


@wrong(x=np.array([3.0]), y=np.array([0.0]))
@rule("wrong/quotient-cancelled", numerics=_R)
def quotient_cancelled(x: Tensor, y: Tensor) -> Sides:
    """(x / y) y = x where y is not 0."""
    return (x / y) * y, x, x.shape == y.shape, is_float(x)


@wrong(x=np.array([-4.0]))
@rule("wrong/root-squared", numerics=_R)
def root_squared(x: Tensor) -> Sides:
    """The square of a root is its operand, unless that is negative."""
    return ops.Square(ops.Sqrt(x)), x


@wrong(x=np.array([-4.0]))
@rule("wrong/exp-of-log", numerics=_R)
def exp_of_log(x: Tensor) -> Sides:
    """Claim: exp(log x) = x, unless x is negative."""
    return ops.Exp(ops.Log(x)), x


@wrong(x=np.array([-4.0]))
@rule("wrong/rsqrt-of-square", numerics=_F)
def rsqrt_of_square(x: Tensor) -> Sides:
    """1 / sqrt(x^2) is 1 / |x|."""
    return ops.Rsqrt(ops.Square(x)), ops.Reciprocal(x)


@wrong(x=np.array([-4.0]), a=-2.0)
@rule("wrong/root-of-scaled", numerics=_F)
def root_of_scaled(x: Tensor, a: Float) -> Sides:
    """A negative factor under a root has none of its own, and its sign is lost in a square."""
    return ops.Sqrt(ops.Square(ops.Scale(x, factor=a))), ops.Scale(ops.Abs(x), factor=a), a != 0.0


@wrong(x=np.array([-0.5]))
@rule("wrong/tanh-half", numerics=_F)
def tanh_half(x: Tensor) -> Sides:
    """Claim: tanh x = 2 s(2x) - 1, where the inner factor is forgotten."""
    return ops.Tanh(x), ops.Shift(ops.Scale(ops.Sigmoid(x), factor=2.0), offset=-1.0)


@wrong(x=np.array([-0.5]))
@rule("wrong/softplus-difference", numerics=_F)
def softplus_difference(x: Tensor) -> Sides:
    """Claim: softplus(x) - softplus(-x) is x, not |x|."""
    return ops.Softplus(x) - ops.Softplus(ops.Scale(x, factor=-1.0)), ops.Abs(x)


@wrong(x=np.array([-0.5]))
@rule("wrong/swish-is-even", numerics=_F)
def swish_is_even(x: Tensor) -> Sides:
    """Claim: swish(x) - swish(-x) is x; the sum would be even."""
    minus = ops.Scale(x, factor=-1.0)
    return ops.Swish(x, alpha=1.0) + ops.Swish(minus, alpha=1.0), x


@wrong(x=np.array([0.5]))
@rule("wrong/erf-scaled", numerics=_F)
def erf_scaled(x: Tensor) -> Sides:
    """Gelu divides by the root of 2 inside."""
    half = ops.Scale(x, factor=0.5)
    return (
        ops.Gelu(x, approximate="none"),
        half + half * ops.Erf(ops.Scale(x, factor=0.7)),
        is_float(x),
    )


@wrong(x=np.array([2.0]))
@rule("wrong/gelu-approximated", numerics=_F)
def gelu_approximated(x: Tensor) -> Sides:
    """The approximation by tanh is off by some 1e-4, which is not a rounding."""
    return ops.Gelu(ops.Scale(x, factor=-1.0), approximate="none"), ops.Gelu(
        ops.Scale(x, factor=-1.0), approximate="tanh"
    )


@wrong(x=np.array([1.0]))
@rule("wrong/hard-swish-is-swish", numerics=Numerics.RELAXED)
def hard_swish_is_swish(x: Tensor) -> Sides:
    """Near each other, and not equal over the real numbers."""
    return ops.HardSwish(x), ops.Swish(x, alpha=1.0)


@wrong(x=np.array([1.5]))
@rule("wrong/sine-shifted", numerics=_F)
def sine_shifted(x: Tensor) -> Sides:
    """Claim: cos x = sin(x + pi/2), with a short pi."""
    return ops.Cos(x), ops.Sin(ops.Shift(x, offset=1.57))


@wrong(x=np.array([0.5]))
@rule("wrong/round-half")
def round_half(x: Tensor) -> Sides:
    """Rounding takes halves to even numbers, floor(x + 1/2) upwards."""
    return ops.Round(x), ops.Floor(ops.Shift(x, offset=0.5))


@wrong(x=np.array([-1.5]))
@rule("wrong/floor-of-opposite")
def floor_of_opposite(x: Tensor) -> Sides:
    """Claim: floor(-x) = -ceil(x), not -floor(x)."""
    return ops.Floor(ops.Scale(x, factor=-1.0)), ops.Scale(ops.Floor(x), factor=-1.0)


@wrong(x=np.array([0.6]), y=np.array([0.6]))
@rule("wrong/floor-of-sum", numerics=_F)
def floor_of_sum(x: Tensor, y: Tensor) -> Sides:
    """Only whole numbers leave a floor."""
    return ops.Floor(x + y), ops.Floor(x) + ops.Floor(y), x.shape == y.shape


@wrong(x=np.array([0.0]))
@rule("wrong/sign-by-quotient", numerics=_R)
def sign_by_quotient(x: Tensor) -> Sides:
    """The sign of 0 is 0, its quotient by its magnitude no number."""
    return ops.Sign(x), x / ops.Abs(x), is_float(x)


@wrong(x=np.array([-1.0]), y=np.array([0.5]))
@rule("wrong/power-of-magnitude", numerics=_R)
def power_of_magnitude(x: Tensor, y: Tensor) -> Sides:
    """Claim: x^y = |x|^y only for even y."""
    return ops.Pow(x, y), ops.Pow(ops.Abs(x), y), is_float(x), is_float(y)


@wrong(x=f64(2, 3), y=f64(2, 3))
@rule("wrong/max-of-quotients", numerics=_F)
def max_of_quotients(x: Tensor, y: Tensor) -> Sides:
    """1 / max(x, y) = min(1/x, 1/y) for numbers of one sign."""
    return (
        ops.Reciprocal(ops.Max(x, y)),
        ops.Min(ops.Reciprocal(x), ops.Reciprocal(y)),
        x.shape == y.shape,
    )


@wrong(x=f64(2, 3), i=1)
@rule("wrong/root-of-sum", numerics=_F)
def root_of_sum(x: Tensor, i: Int) -> Sides:
    """The root of a sum is no sum of roots."""
    attrs = {"axes": (i,), "keepdims": 1}
    return ops.Sqrt(ops.ReduceSum(ops.Square(x), **attrs)), ops.ReduceSum(ops.Abs(x), **attrs)


@wrong(x=f64(3, 3), w=f64(3))
@rule("wrong/prelu-as-max", numerics=_R)
def prelu_as_max(x: Tensor, w: Weight) -> Sides:
    """Claim: max(x, wx) is PRelu for slopes up to 1."""
    return ops.Max(x, x * w), ops.Where(ops.Less(x, x - x), x * w, x), x.dim(0) == w.dim(0)
