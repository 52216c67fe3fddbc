"""Recognition: LayerNormalization and RMSNormalization from any spelling.

A layer normalisation is the root-mean-square normalisation of the centred tensor, so one equation
finds the core of both.
"""

from __future__ import annotations

from eqsat_opt.rules.declare import recognition
from eqsat_opt.rules.parameters import plus, times
from eqsat_opt.rules.rule import (
    Float,
    Int,
    Ints,
    Numerics,
    Sides,
    Tensor,
    Weight,
)
from eqsat_opt.rules.term import Condition, Expr, Term, Var, near, ops

__all__: list[str] = []


_law = recognition("normalisation")


def _mean(x: Term, axes: object) -> Term:
    return ops.ReduceMean(x, axes=axes, keepdims=1)


def _center(x: Term, axes: object) -> Term:
    return ops.Center(x, axes=axes)


# Centring -----------------------------------------------------------------------------------------


@_law("center")
def center(x: Tensor, k: Ints, c: Float) -> Sides:
    """A tensor less its mean is the centred tensor."""
    return x + times(_mean(x, k), c), _center(x, k), near(c, -1.0)


@_law("center-negative")
def center_negative(x: Tensor, k: Ints, c: Float) -> Sides:
    """A mean less its tensor is the negated centred tensor."""
    return _mean(x, k) + times(x, c), times(_center(x, k), -1.0), near(c, -1.0)


@_law("center-twice")
def center_twice(x: Tensor, k: Ints) -> Sides:
    """Centring a centred tensor once more changes nothing."""
    return _center(_center(x, k), k), _center(x, k)


@_law("center-of-shift", numerics=Numerics.RELAXED)
def center_of_shift(x: Tensor, k: Ints, s: Float) -> Sides:
    """Centring removes a constant addend, except where a large one would round x away."""
    return _center(plus(x, s), k), _center(x, k)


@_law("center-of-scale")
def center_of_scale(x: Tensor, k: Ints, a: Float) -> Sides:
    """A constant factor moves out of centring."""
    return _center(times(x, a), k), times(_center(x, k), a)


@_law("variance-of-squares")
def variance_of_squares(x: Tensor, k: Ints, c: Float) -> Sides:
    """A variance mean(x²) - mean(x)² becomes mean((x - mean(x))²), which cancels less."""
    left = _mean(ops.Square(x), k) + times(ops.Square(_mean(x, k)), c)
    return left, _mean(ops.Square(_center(x, k)), k), near(c, -1.0)


@_law("variance-of-squares-negative")
def variance_of_squares_negative(x: Tensor, k: Ints, c: Float) -> Sides:
    """The negated variance mean(x)² - mean(x²) becomes -mean((x - mean(x))²)."""
    left = ops.Square(_mean(x, k)) + times(_mean(ops.Square(x), k), c)
    return left, times(_mean(ops.Square(_center(x, k)), k), -1.0), near(c, -1.0)


@_law("variance-half-centred")
def variance_half_centred(x: Tensor, k: Ints) -> Sides:
    """The mean of x * (x - mean(x)) is the variance: one centred factor is enough."""
    d = _center(x, k)
    return _mean(x * d, k), _mean(ops.Square(d), k)


@_law("affine-with-mean")
def affine_with_mean(x: Tensor, i: Tensor, b: Tensor, k: Ints, c: Float) -> Sides:
    """The sum x * i + (b - mean(x) * i), as in batch normalisation, is (x - mean(x)) * i + b."""
    left = x * i + (b + times(_mean(x, k) * i, c))
    return left, _center(x, k) * i + b, near(c, -1.0)


@_law("affine-with-mean-and-constant")
def affine_with_mean_and_constant(x: Tensor, i: Tensor, k: Ints, s: Float, c: Float) -> Sides:
    """With a constant s, x * i - (mean(x) * i + s) becomes (x - mean(x)) * i - s."""
    left = x * i + times(plus(_mean(x, k) * i, s), c)
    return left, plus(_center(x, k) * i, s * -1.0), near(c, -1.0)


@_law("difference-with-mean")
def difference_with_mean(x: Tensor, i: Tensor, k: Ints, c: Float) -> Sides:
    """The difference x * i - mean(x) * i becomes a product with the centred tensor."""
    return x * i + times(_mean(x, k) * i, c), _center(x, k) * i, near(c, -1.0)


# The inverse deviation meets what it normalises ---------------------------------------------------


def _inverse(d: Term, k: object, e: Expr) -> Term:
    return ops.Rsqrt(plus(_mean(ops.Square(d), k), e))


@_law("deviation-meets-operand")
def deviation_meets_operand(d: Tensor, y: Tensor, k: Ints, e: Float) -> Sides:
    """With h = 1/sqrt(mean(d²) + e), h * (d * y) becomes (h * d) * y, which RmsN needs."""
    h = _inverse(d, k, e)
    return h * (d * y), (h * d) * y


@_law("deviation-waits-for-operand")
def deviation_waits_for_operand(d: Tensor, y: Tensor, k: Ints, e: Float) -> Sides:
    """With h = 1/sqrt(mean(d²) + e), (h * y) * d becomes (h * d) * y, which RmsN needs."""
    h = _inverse(d, k, e)
    return (h * y) * d, (h * d) * y


@_law("root-mean-square")
def root_mean_square(d: Tensor, k: Ints, e: Float) -> Sides:
    """A tensor over its root mean square is RmsN, the core of layer and RMS normalisation."""
    return d * _inverse(d, k, e), ops.RmsN(d, axes=k, epsilon=e), e > 0.0


# With scale and shift -----------------------------------------------------------------------------


def _vector(x: Var, value: float | Expr) -> Term:
    last = x.rank - 1
    return ops.Fill(shape=(x.dim(last),), value=value, dtype=x.dtype)


def _parameter(p: Var, x: Var) -> tuple[Term, tuple[Condition, Condition]]:
    """Return a parameter as a vector along the last axis, and the conditions on it.

    The reshape has a type only if the parameter has no more elements than the vector.
    """
    last = x.rank - 1
    vector = ops.Reshape(p, shape=(x.dim(last),))
    return vector, (p.dim(p.rank - 1) == x.dim(last), p.rank <= x.rank)


def _layer(x: Term, g: Term, b: Term, i: Expr, e: Expr) -> Term:
    return ops.LayerNormalization(x, g, b, axis=i, epsilon=e)


def _core(x: Term, i: Expr, e: Expr) -> Term:
    return ops.RmsN(_center(x, (i,)), axes=(i,), epsilon=e)


@_law("layer")
def layer(x: Tensor, i: Int, e: Float) -> Sides:
    """RmsN of centred x is a layer normalisation with scale 1 and shift 0."""
    right = _layer(x, _vector(x, 1.0), _vector(x, 0.0), i=i, e=e)
    return _core(x, i, e), right, x.rank == i + 1


@_law("layer-uniform")
def layer_uniform(x: Tensor, i: Int, e: Float, s: Float) -> Sides:
    """RmsN of centred x, shifted by one number, is a layer normalisation with scale 1."""
    right = _layer(x, _vector(x, 1.0), _vector(x, s), i=i, e=e)
    return plus(_core(x, i, e), s), right, x.rank == i + 1


@_law("layer-scale")
def layer_scale(x: Tensor, g: Weight, i: Int, e: Float) -> Sides:
    """RmsN of centred x, scaled per channel, is a layer normalisation with shift 0."""
    scale, fits = _parameter(g, x)
    right = _layer(x, scale, _vector(x, 0.0), i=i, e=e)
    return _core(x, i, e) * g, right, x.rank == i + 1, *fits


@_law("layer-scale-uniform")
def layer_scale_uniform(x: Tensor, g: Weight, i: Int, e: Float, s: Float) -> Sides:
    """RmsN of centred x, scaled per channel and shifted by one number, is a layer normalisation."""
    scale, fits = _parameter(g, x)
    right = _layer(x, scale, _vector(x, s), i=i, e=e)
    return plus(_core(x, i, e) * g, s), right, x.rank == i + 1, *fits


@_law("layer-scale-shift")
def layer_scale_shift(x: Tensor, g: Weight, b: Weight, i: Int, e: Float) -> Sides:
    """RmsN of centred x, scaled and shifted per channel, is a layer normalisation."""
    (scale, fits), (shift, also) = _parameter(g, x), _parameter(b, x)
    right = _layer(x, scale, shift, i=i, e=e)
    return _core(x, i, e) * g + b, right, x.rank == i + 1, *fits, *also


@_law("layer-shift")
def layer_shift(x: Tensor, b: Weight, i: Int, e: Float) -> Sides:
    """RmsN of centred x, shifted per channel, is a layer normalisation with scale 1."""
    shift, fits = _parameter(b, x)
    right = _layer(x, _vector(x, 1.0), shift, i=i, e=e)
    return _core(x, i, e) + b, right, x.rank == i + 1, *fits


@_law("layer-uniform-shift")
def layer_uniform_shift(x: Tensor, b: Weight, i: Int, e: Float, a: Float) -> Sides:
    """RmsN of centred x, scaled by one number and shifted per channel, is a layer normalisation."""
    shift, fits = _parameter(b, x)
    right = _layer(x, _vector(x, a), shift, i=i, e=e)
    return times(_core(x, i, e), a) + b, right, x.rank == i + 1, *fits


def _rms(x: Term, g: Term, i: Expr, e: Expr) -> Term:
    return ops.RMSNormalization(x, g, axis=i, epsilon=e)


@_law("root-mean-square-plain")
def root_mean_square_plain(x: Tensor, i: Int, e: Float) -> Sides:
    """RmsN over the last axis is an RMS normalisation with scale 1."""
    left = ops.RmsN(x, axes=(i,), epsilon=e)
    return left, _rms(x, _vector(x, 1.0), i, e), x.rank == i + 1


@_law("root-mean-square-scale")
def root_mean_square_scale(x: Tensor, g: Weight, i: Int, e: Float) -> Sides:
    """RmsN over the last axis, scaled per channel, is an RMS normalisation."""
    scale, fits = _parameter(g, x)
    left = ops.RmsN(x, axes=(i,), epsilon=e) * g
    return left, _rms(x, scale, i, e), x.rank == i + 1, *fits
