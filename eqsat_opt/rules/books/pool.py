"""Pools: what commutes with them and what they distribute over."""

from __future__ import annotations

from eqsat_opt.rules.rule import Int, Ints, Numerics, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import concat, ops

__all__: list[str] = []


@rule("pool/max-relu", bidirectional=True)
def max_relu(x: Tensor, k: Ints, s: Ints, p: Ints, c: Int) -> Sides:
    """Relu is monotone, so it commutes with a maximum and runs on fewer elements after it."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": (1, 1), "ceil": c}
    return (
        ops.MaxPool(ops.Relu(x), **attrs),
        ops.Relu(ops.MaxPool(x, **attrs)),
        (p[0] < k[0]).because(
            "a window in the padding has the maximum -inf, which relu would lift"
        ),
        p[1] < k[1],
        p[2] < k[0],
        p[3] < k[1],
    )


@rule("pool/average-linear", bidirectional=True, numerics=Numerics.REASSOCIATE)
def average_linear(
    x: Tensor, y: Tensor, k: Ints, s: Ints, p: Ints, d: Ints, c: Int, i: Int
) -> Sides:
    """The average of a sum is the sum of averages: one pool instead of two."""
    attrs = {
        "kernel": k,
        "strides": s,
        "pads": p,
        "dilations": d,
        "ceil": c,
        "count_include_pad": i,
    }
    pools = ops.AveragePool(x, **attrs) + ops.AveragePool(y, **attrs)
    return pools, ops.AveragePool(x + y, **attrs), x.shape == y.shape


@rule("pool/average-conv", numerics=Numerics.REASSOCIATE)
def average_conv(x: Tensor, w: Weight, k: Ints, s: Ints, p: Ints, d: Ints, c: Int, i: Int) -> Sides:
    """A 1 x 1 convolution acts on channels, the pool on space: they commute, siblings merge."""
    attrs = {
        "kernel": k,
        "strides": s,
        "pads": p,
        "dilations": d,
        "ceil": c,
        "count_include_pad": i,
    }
    conv = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    pooled = ops.Conv(ops.AveragePool(x, **attrs), w, **conv)
    return (
        pooled,
        ops.AveragePool(ops.Conv(x, w, **conv), **attrs),
        w.rank == 4,
        w.dim(2) == 1,
        w.dim(3) == 1,
    )


@rule("pool/max-concat")
def max_concat(x: Tensor, y: Tensor, k: Ints, s: Ints, p: Ints, d: Ints, c: Int) -> Sides:
    """Two equal pools with results stacked along channels are one pool of the stacked inputs."""
    attrs = {"kernel": k, "strides": s, "pads": p, "dilations": d, "ceil": c}
    pools = concat(ops.MaxPool(x, **attrs), ops.MaxPool(y, **attrs), axis=1)
    return pools, ops.MaxPool(concat(x, y, axis=1), **attrs)
