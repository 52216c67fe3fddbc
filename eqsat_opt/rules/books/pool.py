"""Pools: what commutes with them and what they distribute over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.blockwise import gathered, inward
from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.forms import AVERAGE_POOL, MAX_POOL
from eqsat_opt.rules.rule import Int, Ints, Numerics, Phase, Rule, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Expr, Term, is_float, ops

__all__: list[str] = []


@rule("pool/max-relu", bidirectional=True)
def max_relu(x: Tensor, k: Ints, s: Ints, p: Ints, c: Int) -> Sides:
    """Relu is monotone, so it commutes with a max pool; after a strided pool it is cheaper."""
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


@rule(
    "pool/average-linear", bidirectional=True, numerics=Numerics.REASSOCIATE,
    backward=Numerics.REFACTOR,
)  # fmt: skip
def average_linear(
    x: Tensor, y: Tensor, k: Ints, s: Ints, p: Ints, d: Ints, c: Int, i: Int
) -> Sides:
    """Average pooling is linear: two pools whose results are added are one pool of the sum."""
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
def average_conv(x: Tensor, w: Weight, k: Ints, s: Ints, p: Ints, c: Int, i: Int) -> Sides:
    """A 1 x 1 convolution commutes with an average pool, and can then merge with siblings."""
    attrs = {
        "kernel": k,
        "strides": s,
        "pads": p,
        "dilations": (1, 1),
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
        (p[0] < k[0]).because("the mean of padding alone is 0, and 0 times infinity no number"),
        p[1] < k[1],
        p[2] < k[0],
        p[3] < k[1],
    )


max_concat = gathered(
    "pool/max-concat",
    "Two equal max pools that are concatenated along channels or samples are one of the "
    "concatenated inputs.",
    MAX_POOL,
)
average_concat = gathered(
    "pool/average-concat",
    "Two equal average pools that are concatenated along channels or samples are one of the "
    "concatenated inputs.",
    AVERAGE_POOL,
)
take_max = inward(
    "pool/take-max",
    "Only the channels or samples of a max pool that are read are computed.",
    MAX_POOL,
)
take_average = inward(
    "pool/take-average",
    "Only the channels or samples of an average pool that are read are computed.",
    AVERAGE_POOL,
)


def _whole_plane(rank: int, pool: str, reduction: str, numerics: Numerics, doc: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x = v["x"]
        return (
            getattr(ops, pool)(x),
            getattr(ops, reduction)(x, axes=tuple(range(2, rank)), keepdims=1),
            x.rank == rank,
            *((x.dim(i) >= 1).because("runtimes refuse to pool nothing") for i in range(1, rank)),
            is_float(x),
        )

    word = {"ReduceMean": "average", "ReduceMax": "maximum"}[reduction]
    name = f"pool/global-{word}-{rank - 2}d"
    return declared(name, doc, {"x": "Tensor"}, sides, numerics=numerics, bidirectional=True)


global_average_1d, global_average_2d, global_average_3d = (
    _whole_plane(
        rank,
        "GlobalAveragePool",
        "ReduceMean",
        Numerics.REASSOCIATE,
        doc="A global average pool is a mean over the plane, which others may use; the pool keeps "
        "the layout of its neighbours.",
    )
    for rank in (3, 4, 5)
)
global_maximum_1d, global_maximum_2d, global_maximum_3d = (
    _whole_plane(
        rank,
        "GlobalMaxPool",
        "ReduceMax",
        Numerics.REFACTOR,
        doc="A global max pool is a maximum over the plane, but for -inf and NaN: runtimes start a "
        "pool from the least finite number.",
    )
    for rank in (3, 4, 5)
)


@rule("pool/max-of-max", phase=Phase.SIMPLIFY)
def max_of_max(x: Tensor, k: Ints, m: Ints, s: Ints, p: Ints, q: Ints) -> Sides:
    """Two max pools in a row, the first with stride 1, are one with a larger window."""
    inner = ops.MaxPool(x, kernel=k, strides=(1, 1), pads=p, dilations=(1, 1), ceil=0)
    size = tuple(k[i] + m[i] - 1 for i in range(2))
    pads = tuple(p[i] + q[i] for i in range(4))
    return (
        ops.MaxPool(inner, kernel=m, strides=s, pads=q, dilations=(1, 1), ceil=0),
        ops.MaxPool(x, kernel=size, strides=s, pads=pads, dilations=(1, 1), ceil=0),
        *((p[i] < k[i % 2]).because("a window in the padding has no maximum") for i in range(4)),
        *(q[i] < m[i % 2] for i in range(4)),
    )


@rule("pool/max-in-steps")
def max_in_steps(x: Tensor, a: Int, b: Int, c: Int, d: Int) -> Sides:
    """A max pool starts from a smaller one of the same input, as in pyramid pooling."""

    def pool(of: Term, size: Expr, pad: Expr) -> Term:
        return ops.MaxPool(
            of, kernel=(size, size), strides=(1, 1), pads=(pad,) * 4, dilations=(1, 1), ceil=0
        )

    small, large = pool(x, a, b), pool(x, c, d)
    return (
        (small, large),
        (small, pool(small, c - a + 1, d - b)),
        a < c,
        (a == 2 * b + 1).because("both keep the plane's extents"),
        c == 2 * d + 1,
    )


@rule("pool/average-of-average", phase=Phase.SIMPLIFY, numerics=Numerics.REASSOCIATE)
def average_of_average(x: Tensor, a: Int, b: Int, m: Int, n: Int, s: Ints, i: Int, j: Int) -> Sides:
    """An average pool of averages over adjacent tiles is one with a larger window."""
    plain = {"pads": (0, 0, 0, 0), "dilations": (1, 1), "ceil": 0}
    inner = ops.AveragePool(x, kernel=(a, b), strides=(a, b), count_include_pad=i, **plain)
    strides = (a * s[0], b * s[1])
    return (
        ops.AveragePool(inner, kernel=(m, n), strides=s, count_include_pad=j, **plain),
        ops.AveragePool(x, kernel=(a * m, b * n), strides=strides, count_include_pad=i, **plain),
        *((size >= 1).because("there is a window") for size in (a, b, m, n)),
        a * m <= x.dim(2),
        b * n <= x.dim(3),
        is_float(x),
    )
