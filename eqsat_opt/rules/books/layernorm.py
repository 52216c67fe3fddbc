"""Layer and root-mean-square normalisation: what leaves them unchanged, and what they absorb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.parameters import row_of, scalar, vector
from eqsat_opt.rules.rule import Float, Int, Numerics, Phase, Rule, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Condition, Expr, Term, Var, is_float, ops

__all__: list[str] = []


def _layer(x: Term, g: Term, b: Term, i: Expr, e: Expr) -> Term:
    return ops.LayerNormalization(x, g, b, axis=i, epsilon=e)


def _rms(x: Term, g: Term, i: Expr, e: Expr) -> Term:
    return ops.RMSNormalization(x, g, axis=i, epsilon=e)


def _last(x: Var, i: Expr, *parameters: Var) -> tuple[Condition, ...]:
    """Return the conditions that the last axis of floats is normalised, with vectors along it."""
    return i + 1 == x.rank, *(p.rank == 1 for p in parameters), is_float(x)


@rule("layernorm/absorb-factor", numerics=Numerics.REFACTOR)
def factor_after_layer(x: Tensor, g: Weight, b: Weight, c: Weight, i: Int, e: Float) -> Sides:
    """A constant factor per channel after a layer normalisation folds into scale and shift."""
    row = vector(c, x.dim(i))
    return (
        _layer(x, g, b, i=i, e=e) * c,
        _layer(x, g * row, b * row, i=i, e=e),
        *_last(x, i, g, b),
        *row_of(c, x, x.dim(i)),
    )


@rule("layernorm/absorb-addend", numerics=Numerics.REFACTOR)
def addend_after_layer(x: Tensor, g: Weight, b: Weight, c: Weight, i: Int, e: Float) -> Sides:
    """A constant addend per channel after a layer normalisation folds into its shift."""
    right = _layer(x, g, b + vector(c, x.dim(i)), i=i, e=e)
    return _layer(x, g, b, i=i, e=e) + c, right, *_last(x, i, g, b), *row_of(c, x, x.dim(i))


@rule("layernorm/absorb-factor-rms", numerics=Numerics.REFACTOR)
def factor_after_rms(x: Tensor, g: Weight, c: Weight, i: Int, e: Float) -> Sides:
    """A constant factor per channel after an RMS normalisation folds into its scale."""
    right = _rms(x, g * vector(c, x.dim(i)), i, e)
    return _rms(x, g, i, e) * c, right, *_last(x, i, g), *row_of(c, x, x.dim(i))


def _constant(value: float, x: Var, i: Expr) -> Term:
    return ops.Expand(scalar(value, x), shape=(x.dim(i),))


@rule("layernorm/into-matmul", phase=Phase.DERIVATION, numerics=Numerics.REFACTOR)
def layer_into_matmul(x: Tensor, g: Weight, b: Weight, w: Weight, i: Int, e: Float) -> Sides:
    """Scale and shift of a layer normalisation fold into a product after it, and a bias."""
    size = x.dim(i)
    plain = _layer(x, _constant(1.0, x, i), _constant(0.0, x, i), i=i, e=e)
    scale, shift = ops.Reshape(g, shape=(size, 1)), ops.Reshape(b, shape=(1, size))
    return (
        _layer(x, g, b, i=i, e=e) @ w,
        plain @ (scale * w) + shift @ w,
        *_last(x, i, g, b),
        x.rank >= 2,
        w.rank == 2,
    )


@rule("layernorm/rms-into-matmul", phase=Phase.DERIVATION, numerics=Numerics.REFACTOR)
def rms_into_matmul(x: Tensor, g: Weight, w: Weight, i: Int, e: Float) -> Sides:
    """The scale of an RMS normalisation folds into the matrix product after it."""
    scale = ops.Reshape(g, shape=(x.dim(i), 1))
    return (
        _rms(x, g, i, e) @ w,
        _rms(x, _constant(1.0, x, i), i, e) @ (scale * w),
        *_last(x, i, g),
        x.rank >= 2,
        w.rank == 2,
    )


@rule("layernorm/ignores-addend", phase=Phase.SIMPLIFY, numerics=Numerics.RELAXED)
def addend_before_layer(x: Tensor, c: Tensor, g: Tensor, b: Tensor, i: Int, e: Float) -> Sides:
    """Adding one number to all elements does not change a layer normalisation.

    The exceptions are an infinite number, and a large one that rounds x away.
    """
    return _layer(x + c, g, b, i=i, e=e), _layer(x, g, b, i=i, e=e), c.rank == 0, *_last(x, i, g, b)


def _shift_before_layer(rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, g, b, i, e = (v[n] for n in "xcgbie")
        fits = ((c.dim(j) - 1) * (c.dim(j) - x.dim(j)) == 0 for j in range(rank - 1))
        return (
            _layer(x + c, g, b, i=i, e=e),
            _layer(x, g, b, i=i, e=e),
            x.rank == rank,
            c.rank == rank,
            c.dim(rank - 1) == 1,
            *fits,
            *_last(x, i, g, b),
        )

    return declared(
        f"layernorm/ignores-rows-{rank}d",
        "Adding one number to each row does not change a layer normalisation of the rows, except "
        "where a large one would round x away, or is infinite.",
        {**dict.fromkeys("xcgb", "Tensor"), "i": "Int", "e": "Float"},
        sides,
        numerics=Numerics.RELAXED,
        phase=Phase.SIMPLIFY,
    )


shift_before_layer_2d, shift_before_layer_3d = _shift_before_layer(2), _shift_before_layer(3)


def _is_normal(epsilon: Expr) -> Condition:
    """Return the condition that an epsilon is above 0 in float32; with 0 a constant row is NaN."""
    return epsilon > 2.0**-126


@rule("layernorm/scaled", numerics=Numerics.REASSOCIATE)
def factor_before_layer(x: Tensor, g: Tensor, b: Tensor, a: Float, i: Int, e: Float) -> Sides:
    """A positive factor before a layer normalisation only rescales its epsilon."""
    left = _layer(x * scalar(a, x), g, b, i=i, e=e)
    right = _layer(x, g, b, i=i, e=e / (a * a))
    return left, right, a > 0.0, _is_normal(e / (a * a)), *_last(x, i, g, b)


@rule("layernorm/scaled-rms", numerics=Numerics.REASSOCIATE)
def factor_before_rms(x: Tensor, g: Tensor, a: Float, i: Int, e: Float) -> Sides:
    """A positive factor before an RMS normalisation only rescales its epsilon."""
    left = _rms(x * scalar(a, x), g, i, e)
    right = _rms(x, g, i, e / (a * a))
    return left, right, a > 0.0, _is_normal(e / (a * a)), *_last(x, i, g)
