"""Reductions: sums, means and maxima over axes, and operators that they move past.

The earlier a reduction comes, the less is left to compute: a pooled head projects one row per
sample instead of one per position.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.blockwise import gathered, inward
from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.forms import reduced
from eqsat_opt.rules.parameters import scalar
from eqsat_opt.rules.rule import Int, Ints, Numerics, Phase, Rule, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Apply, Condition, Term, Var, is_float, ops

__all__: list[str] = []

_OPS = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}
_WORD = {"sum": "sum", "mean": "mean", "max": "maximum"}
_CLASS = {
    "sum": Numerics.REASSOCIATE, "mean": Numerics.REASSOCIATE, "max": Numerics.BITEXACT,
}  # fmt: skip


def _divides(kind: str, x: Var) -> tuple[Condition, ...]:
    """Return the condition that a mean is of floats, as a mean of integers is rounded."""
    return (is_float(x),) if kind == "mean" else ()


def _reduce(kind: str, x: Term, axes: object) -> Term:
    return getattr(ops, _OPS[kind])(x, axes=axes, keepdims=1)  # type: ignore[no-any-return]


# Over several axes --------------------------------------------------------------------------------


def _twice(kind: str, *, ascending: bool) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, i, j = v["x"], v["i"], v["j"]
        both = (i, j) if ascending else (j, i)
        return (
            _reduce(kind, _reduce(kind, x, (i,)), (j,)),
            _reduce(kind, x, both),
            i < j if ascending else j < i,
            *_divides(kind, x),
        )

    order = "ascending" if ascending else "descending"
    after = "a later" if ascending else "an earlier"
    return declared(
        f"reduction/{kind}-twice-{order}",
        f"A {_WORD[kind]} over one axis and then over {after} one is one {_WORD[kind]} over both.",
        {"x": "Tensor", "i": "Int", "j": "Int"},
        sides,
        numerics=_CLASS[kind],
        phase=Phase.SIMPLIFY,
    )


sum_twice, mean_twice, max_twice = (_twice(kind, ascending=True) for kind in _OPS)
sum_twice_back, mean_twice_back, max_twice_back = (_twice(kind, ascending=False) for kind in _OPS)


def _of_one(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, i = v["x"], v["i"]
        return _reduce(kind, x, (i,)), x, x.dim(i) == 1, *_divides(kind, x)

    return declared(
        f"reduction/{kind}-of-one",
        f"A {_WORD[kind]} over an axis of extent 1 is the tensor itself.",
        {"x": "Tensor", "i": "Int"},
        sides,
        phase=Phase.SIMPLIFY,
    )


sum_of_one, mean_of_one = _of_one("sum"), _of_one("mean")


# Linearity ----------------------------------------------------------------------------------------


def _of_sum(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, y, k = v["x"], v["y"], v["k"]
        return (
            _reduce(kind, x, k) + _reduce(kind, y, k),
            _reduce(kind, x + y, k),
            x.shape == y.shape,
            *_divides(kind, x),
        )

    return declared(
        f"reduction/{kind}-of-sum",
        f"Two tensors that are each reduced by a {_WORD[kind]} and then added are added first and "
        "reduced once.",
        {"x": "Tensor", "y": "Tensor", "k": "Ints"},
        sides,
        numerics=Numerics.REASSOCIATE,
    )


def _of_scalar(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, k = v["x"], v["c"], v["k"]
        right = _reduce(kind, x, k) * c
        return _reduce(kind, x * c, k), right, c.rank == 0, *_divides(kind, x)

    return declared(
        f"reduction/{kind}-of-scaled",
        f"A scalar factor is applied after a {_WORD[kind]} over axes, to fewer elements.",
        {"x": "Tensor", "c": "Tensor", "k": "Ints"},
        sides,
        numerics=Numerics.REASSOCIATE,
    )


def _of_factor(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, i = v["x"], v["c"], v["i"]
        return (
            _reduce(kind, x * c, (i,)),
            _reduce(kind, x, (i,)) * c,
            x.rank == c.rank,
            (c.dim(i) == 1).because("the factor must not change along the axis"),
            *_divides(kind, x),
        )

    return declared(
        f"reduction/{kind}-of-product",
        f"A factor that is constant along the axis of a {_WORD[kind]} is applied after it, to "
        "fewer elements.",
        {"x": "Tensor", "c": "Tensor", "i": "Int"},
        sides,
        numerics=Numerics.REASSOCIATE,
    )


sum_of_sum, mean_of_sum = _of_sum("sum"), _of_sum("mean")
sum_of_scaled, mean_of_scaled = _of_scalar("sum"), _of_scalar("mean")
sum_of_product, mean_of_product = _of_factor("sum"), _of_factor("mean")


@rule("reduction/mean-of-bias", numerics=Numerics.REASSOCIATE)
def mean_of_bias(x: Tensor, c: Tensor, i: Int) -> Sides:
    """An addend that is constant along the axis is added after the mean, to fewer elements."""
    return (
        _reduce("mean", x + c, (i,)),
        _reduce("mean", x, (i,)) + c,
        x.rank == c.rank,
        c.dim(i) == 1,
        is_float(x),
    )


@rule("reduction/mean-of-bias-over-two", numerics=Numerics.REASSOCIATE)
def mean_of_bias_over_two(x: Tensor, c: Tensor, i: Int, j: Int) -> Sides:
    """An addend constant along two axes, as a bias before a global pool, follows the mean."""
    return (
        _reduce("mean", x + c, (i, j)),
        _reduce("mean", x, (i, j)) + c,
        x.rank == c.rank,
        c.dim(i) == 1,
        c.dim(j) == 1,
        is_float(x),
    )


@rule("reduction/max-of-relu")
def max_of_relu(x: Tensor, k: Ints) -> Sides:
    """Relu is monotone, so it is applied after a maximum, to fewer elements."""
    return _reduce("max", ops.Relu(x), k), ops.Relu(_reduce("max", x, k))


# Contractions -------------------------------------------------------------------------------------


def _of_matmul(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, w, i = v["x"], v["w"], v["i"]
        return (
            _reduce(kind, x @ w, (i,)),
            _reduce(kind, x, (i,)) @ w,
            w.rank == 2,
            (i + 1 < x.rank).because("the last axis belongs to the matrix"),
            *_divides(kind, x),
        )

    return declared(
        f"reduction/{kind}-of-matmul",
        f"The {_WORD[kind]} over an axis of rows is taken before the product with a matrix, so "
        "that fewer rows meet the matrix.",
        {"x": "Tensor", "w": "Tensor", "i": "Int"},
        sides,
        numerics=Numerics.REASSOCIATE,
    )


sum_of_matmul, mean_of_matmul = _of_matmul("sum"), _of_matmul("mean")


@rule("reduction/mean-of-pointwise-conv", numerics=Numerics.REASSOCIATE)
def mean_of_conv(x: Tensor, w: Tensor, d: Ints, g: Int) -> Sides:
    """A 1 x 1 convolution before a global average is applied after it, to a single pixel."""
    attrs = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": d, "group": g}
    return (
        _reduce("mean", ops.Conv(x, w, **attrs), (2, 3)),
        ops.Conv(_reduce("mean", x, (2, 3)), w, **attrs),
        w.rank == 4,
        w.dim(2) == 1,
        w.dim(3) == 1,
        is_float(x),
    )


@rule("reduction/sum-of-weighted", numerics=Numerics.REASSOCIATE)
def sum_of_weighted(x: Tensor, w: Weight, i: Int) -> Sides:
    """A sum over the last axis with constant weights is a matrix product with a column."""
    column = ops.Reshape(w, shape=(x.dim(i), 1))
    return (
        _reduce("sum", x * w, (i,)),
        x @ column,
        x.rank >= 2,
        i + 1 == x.rank,
        w.rank >= 1,
        w.rank <= x.rank,
        w.dim(w.rank - 1) == x.dim(i),
    )


@rule("reduction/sum-as-matmul", phase=Phase.DERIVATION, numerics=Numerics.REASSOCIATE)
def sum_as_matmul(x: Tensor, i: Int) -> Sides:
    """A sum over the last axis is a matrix product with a column of ones."""
    ones = ops.Expand(scalar(1.0, x), shape=(x.dim(i), 1))
    return _reduce("sum", x, (i,)), x @ ones, x.rank >= 2, i + 1 == x.rank


# Parts --------------------------------------------------------------------------------------------

_COMBINE = {"sum": "Add", "max": "Max"}


def _along(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, y, i = v["x"], v["y"], v["i"]
        parts = _reduce(kind, x, (i,)), _reduce(kind, y, (i,))
        return _reduce(kind, ops.Concat(x, y, axis=i), (i,)), Apply(_COMBINE[kind], parts, {})

    return declared(
        f"reduction/{kind}-of-concat",
        f"A {_WORD[kind]} along the axis of a concatenation is combined from the {_WORD[kind]} of "
        "each part, so nothing is concatenated.",
        {"x": "Tensor", "y": "Tensor", "i": "Int"},
        sides,
        numerics=_CLASS[kind],
    )


sum_of_concat, max_of_concat = _along("sum"), _along("max")


def _stacked(kind: str) -> Rule:
    return gathered(
        f"reduction/{kind}-stacked",
        f"Two tensors that are each reduced by a {_WORD[kind]} and then concatenated along another "
        "axis are concatenated first and reduced once.",
        reduced(_OPS[kind]),
    )


def _taken(kind: str) -> Rule:
    return inward(
        f"reduction/take-{kind}",
        f"Of a {_WORD[kind]} over an axis, only the part that is read is computed.",
        reduced(_OPS[kind]),
    )


sum_stacked, mean_stacked, max_stacked = map(_stacked, _OPS)
take_sum, take_mean, take_max = map(_taken, _OPS)


# Transposes, pools --------------------------------------------------------------------------------


def _of_transpose(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, p, i = v["x"], v["p"], v["i"]
        moved = ops.Transpose(x, perm=p)
        turned = ops.Transpose(_reduce(kind, x, (p[i],)), perm=p)
        return _reduce(kind, moved, (i,)), turned, *_divides(kind, x)

    return declared(
        f"reduction/{kind}-of-transpose",
        f"A {_WORD[kind]} over one axis is taken before a transpose, which then moves less data.",
        {"x": "Tensor", "p": "Ints", "i": "Int"},
        sides,
        numerics=_CLASS[kind],
    )


def _of_transpose_over_two(kind: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, p, i, j = v["x"], v["p"], v["i"], v["j"]
        first = _reduce(kind, x, (p[i], p[j]))
        moved = _reduce(kind, ops.Transpose(x, perm=p), (i, j))
        turned = ops.Transpose(first, perm=p)
        return moved, turned, x.rank == 4, p[i] < p[j], *_divides(kind, x)

    return declared(
        f"reduction/{kind}-of-transpose-over-two",
        f"A {_WORD[kind]} over two axes, as a global pool in another layout, is taken before a "
        "transpose, which then moves less data.",
        {"x": "Tensor", "p": "Ints", "i": "Int", "j": "Int"},
        sides,
        numerics=_CLASS[kind],
    )


sum_of_transpose, mean_of_transpose, max_of_transpose = map(_of_transpose, _OPS)
mean_of_transpose_over_two = _of_transpose_over_two("mean")
max_of_transpose_over_two = _of_transpose_over_two("max")


@rule("reduction/global-average", phase=Phase.SIMPLIFY, numerics=Numerics.REASSOCIATE)
def global_average(x: Tensor, h: Int, w: Int, s: Ints, c: Int, i: Int) -> Sides:
    """An average pool whose window is the whole plane is a mean, which runtimes pool faster."""
    pool = ops.AveragePool(
        x, kernel=(h, w), strides=s, pads=(0, 0, 0, 0), dilations=(1, 1), ceil=c,
        count_include_pad=i,
    )  # fmt: skip
    return pool, _reduce("mean", x, (2, 3)), h == x.dim(2), w == x.dim(3)


@rule("reduction/global-maximum", phase=Phase.SIMPLIFY)
def global_maximum(x: Tensor, h: Int, w: Int, s: Ints, c: Int) -> Sides:
    """A max pool whose window is the whole plane is a global one, which has no attributes."""
    pool = ops.MaxPool(x, kernel=(h, w), strides=s, pads=(0, 0, 0, 0), dilations=(1, 1), ceil=c)
    return pool, ops.GlobalMaxPool(x), h == x.dim(2), w == x.dim(3), is_float(x)
