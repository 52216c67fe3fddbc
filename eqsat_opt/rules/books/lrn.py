"""Local response normalisation as a pool or a convolution, and pointwise operators.

Runtimes run both far faster than the operator; which of the two is faster depends on the planes.
"""

from __future__ import annotations

from eqsat_opt.rules.parameters import scalar
from eqsat_opt.rules.rule import Float, Int, Numerics, Sides, Tensor, rule
from eqsat_opt.rules.term import Condition, Expr, Term, Var, is_float, ops

__all__: list[str] = []


def _planes(x: Var) -> tuple[Condition, ...]:
    """Return the conditions on the operand: images of floats, which have elements.

    Runtimes normalise planes without elements, but do not pool them.
    """
    sizes = ((x.dim(i) >= 1).because("runtimes refuse to pool nothing") for i in range(1, 4))
    return x.rank == 4, is_float(x), *sizes


def _base(x: Var, n: Expr, a: Expr, k: Expr) -> Term:
    """Return k + a * mean(x²) over n channels, by a pool along axis 2 of [N, 1, C, H*W]."""
    plane = ops.Reshape(x * x, shape=(x.dim(0), 1, x.dim(1), x.dim(2) * x.dim(3)))
    mean = ops.AveragePool(
        plane, kernel=(n, 1), strides=(1, 1), pads=((n - 1) // 2, 0, n // 2, 0), dilations=(1, 1),
        ceil=0, count_include_pad=1,
    )  # fmt: skip
    flat = scalar(k, x) + mean * scalar(a, x)
    return ops.Reshape(flat, shape=(x.dim(0), x.dim(1), x.dim(2), x.dim(3)))


def _banded(x: Var, n: Expr, a: Expr, k: Expr) -> Term:
    """Return k + a * mean(x²) over n channels, by a 1 x 1 convolution.

    Its weight is the pool of an identity matrix, which is a band matrix.
    """
    c = x.dim(1)
    identity = ops.IdentityKernel(channels=c, height=1, width=1, dtype=x.dtype)
    band = ops.AveragePool(
        ops.Reshape(identity, shape=(1, 1, c, c)), kernel=(n, 1), strides=(1, 1),
        pads=((n - 1) // 2, 0, n // 2, 0), dilations=(1, 1), ceil=0, count_include_pad=1,
    )  # fmt: skip
    weight = ops.Reshape(band * scalar(a, x), shape=(c, c, 1, 1))
    bias = ops.Expand(scalar(k, x), shape=(1, c, 1, 1))
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    return ops.Conv(x * x, weight, **attrs) + bias


@rule("lrn/three-quarters-banded", numerics=Numerics.REFACTOR)
def three_quarters_banded(x: Tensor, n: Int, a: Float, k: Float) -> Sides:
    """LRN with exponent 3/4 becomes a 1 x 1 convolution and two roots, fast on large planes.

    The zeros of its weight meet all channels, so an infinity spreads to those.
    """
    root = ops.Sqrt(_banded(x, n, a, k))
    return (
        ops.LRN(x, size=n, alpha=a, beta=0.75, bias=k),
        x / (root * ops.Sqrt(root)),
        *_planes(x),
    )


@rule("lrn/three-quarters", numerics=Numerics.REASSOCIATE)
def three_quarters(x: Tensor, n: Int, a: Float, k: Float) -> Sides:
    """LRN with the usual exponent 3/4 becomes an average pool over channels and two roots."""
    root = ops.Sqrt(_base(x, n, a, k))
    return (
        ops.LRN(x, size=n, alpha=a, beta=0.75, bias=k),
        x / (root * ops.Sqrt(root)),
        *_planes(x),
    )


@rule("lrn/power", numerics=Numerics.REASSOCIATE)
def power(x: Tensor, n: Int, a: Float, e: Float, k: Float) -> Sides:
    """LRN with any exponent becomes an average pool over channels and a power."""
    return (
        ops.LRN(x, size=n, alpha=a, beta=e, bias=k),
        x / ops.Pow(_base(x, n, a, k), scalar(e, x)),
        *_planes(x),
    )


@rule("lrn/power-banded", numerics=Numerics.REFACTOR)
def power_banded(x: Tensor, n: Int, a: Float, e: Float, k: Float) -> Sides:
    """LRN with any exponent becomes a 1 x 1 convolution and a power, fast on large planes.

    The zeros of its weight meet all channels, so an infinity spreads to those.
    """
    return (
        ops.LRN(x, size=n, alpha=a, beta=e, bias=k),
        x / ops.Pow(_banded(x, n, a, k), scalar(e, x)),
        *_planes(x),
    )
