"""Other forms of convolutions, pools and products, which runtimes compute at other speeds.

None of them saves arithmetic. A form wins where a runtime lacks a good kernel for the shape at
hand, so
:mod:`eqsat_opt.rules.worth` has some explored for such shapes only, and measured prices choose.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.rule import Int, Ints, Numerics, Rule, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Apply, Expr, Size, Term, Var, is_float, ops, slice_

__all__: list[str] = []


def _reshape(x: Term, *shape: object) -> Term:
    return ops.Reshape(x, shape=shape)


# Sequences as images of one row -------------------------------------------------------------------


def _positions(x: Var, kernel: Size, s: Size, a: Expr, b: Expr, d: Expr) -> Expr:
    """Return the positions of a window along the last axis of a sequence [N, C, L]."""
    steps = x.dim(2) + a + b - d * (kernel - 1) - 1
    return (steps if isinstance(s, int) else steps // s) + 1


def _sequence_as_row(name: str, further: Mapping[str, str]) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, w, a, b, d, g = (v[name] for name in "xwabdg")
        strides = v.get("s", (1,))
        s = strides[0]
        sequence = {"strides": strides, "pads": (a, b), "dilations": (d,), "group": g}
        row = {"strides": (1, s), "pads": (0, a, 0, b), "dilations": (1, d), "group": g}
        image = _reshape(x, x.dim(0), x.dim(1), 1, x.dim(2))
        kernel = _reshape(w, w.dim(0), w.dim(1), 1, w.dim(2))
        length = _positions(x, w.dim(2), s, a, b, d)
        return (
            ops.Conv(x, w, **sequence),
            _reshape(ops.Conv(image, kernel, **row), x.dim(0), w.dim(0), length),
            x.rank == 3,
            w.rank == 3,
            *((s > 1).because("another rule has those without a stride") for _ in further),
        )

    return declared(
        name,
        "A convolution of sequences is one of images of one row, which runtimes vectorise.",
        {"x": "Tensor", "w": "Weight", **further, **dict.fromkeys("abdg", "Int")},
        sides,
    )


sequence_as_row = _sequence_as_row("form/sequence-as-row", {})
strided_sequence_as_row = _sequence_as_row("form/strided-sequence-as-row", {"s": "Ints"})


def _pool_as_row(op: str, word: str, further: Mapping[str, str]) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, k, s, a, b, d = (v[name] for name in "xksabd")
        more = {"ceil": 0} | {name: v[name] for name in further}
        sequence = {"kernel": (k,), "strides": s, "pads": (a, b), "dilations": (d,)}
        row = {"kernel": (1, k), "strides": (1, s[0]), "pads": (0, a, 0, b), "dilations": (1, d)}
        image = _reshape(x, x.dim(0), x.dim(1), 1, x.dim(2))
        pooled = getattr(ops, op)(image, **row, **more)
        return (
            getattr(ops, op)(x, **sequence, **more),
            _reshape(pooled, x.dim(0), x.dim(1), _positions(x, k, s[0], a, b, d)),
            x.rank == 3,
        )

    return declared(
        f"form/{word}-of-sequence-as-row",
        f"A {word} pool of sequences is one of images of one row, beside convolutions of such.",
        {"x": "Tensor", "s": "Ints", **dict.fromkeys("kabd", "Int"), **further},
        sides,
    )


max_pool_as_row = _pool_as_row("MaxPool", "max", {})
average_pool_as_row = _pool_as_row("AveragePool", "average", {"count_include_pad": "Int"})


def _per_channel(op: str, word: str, rank: int) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, c, shape = v["x"], v["c"], [v[name] for name in "nmhw"[:rank]]
        ones = [c.dim(axis) == 1 for axis in range(rank) if axis != 1]
        before = Apply(op, (x, _reshape(c, 1, x.dim(1), 1, 1)), {})
        return (
            Apply(op, (_reshape(x, *shape), c), {}),
            _reshape(before, *shape),
            x.rank == 4,
            c.rank == rank,
            c.dim(1) == x.dim(1),
            *ones,
            (shape[0] == x.dim(0)).because("samples and channels stay what they are"),
            shape[1] == x.dim(1),
        )

    return declared(
        f"form/{op.lower()}-before-reshape-{rank}d",
        f"A constant {word} per channel is applied before positions are reshaped, where it meets "
        "the convolution.",
        {"x": "Tensor", "c": "Weight", **dict.fromkeys("nmhw"[:rank], "Int")},
        sides,
    )


per_channel = [
    _per_channel(op, word, rank)
    for op, word in (("Add", "addend"), ("Mul", "factor"))
    for rank in (3, 4)
]


# Dilations ----------------------------------------------------------------------------------------


def _folded(
    x: Term, w: Var, n: Expr, rows: Expr, d: Expr, pads: tuple[object, ...], g: Expr
) -> Term:
    """Return a convolution of rows with dilation d as one of columns, which hold every d-th."""
    alike = {"strides": (1, 1), "dilations": (1, 1), "group": g}
    columns = _reshape(x, n, w.dim(1) * g, rows, d)
    kernel = _reshape(w, w.dim(0), w.dim(1), w.dim(3), 1)
    return ops.Conv(columns, kernel, pads=pads, **alike)


@rule("form/fold-dilation")
def fold_dilation(x: Tensor, w: Weight, a: Int, b: Int, dilations: Ints, g: Int) -> Sides:
    """A dilated convolution of a row is a dense one of columns: only its operands are reshaped."""
    size, d = x.dim(3), dilations[1]
    length = size + a + b - d * (w.dim(3) - 1)
    row = {"strides": (1, 1), "pads": (0, a, 0, b), "dilations": dilations, "group": g}
    pads = (a // d, 0, b // d, 0)
    return (
        ops.Conv(x, w, **row),
        _reshape(
            _folded(x, w=w, n=x.dim(0), rows=size // d, d=d, pads=pads, g=g),
            x.dim(0),
            w.dim(0),
            1,
            length,
        ),
        x.rank == 4,
        w.rank == 4,
        x.dim(2) == 1,
        w.dim(2) == 1,
        d > 1,
        ((size // d) * d == size).because("the dilation must divide the row and its pads"),
        (a // d) * d == a,
        (b // d) * d == b,
    )


@rule("form/fold-dilation-padded")
def fold_dilation_padded(x: Tensor, w: Weight, a: Int, b: Int, dilations: Ints, g: Int) -> Sides:
    """A dilated convolution of a row that the dilation does not divide is padded, and then cut."""
    size, d = x.dim(3) + a + b, dilations[1]
    rows = (size + d - 1) // d
    span = d * (w.dim(3) - 1)
    row = {"strides": (1, 1), "pads": (0, a, 0, b), "dilations": dilations, "group": g}
    padded = ops.Pad(x, pads=(0, 0, 0, a, 0, 0, 0, b + rows * d - size), value=0.0)
    folded = _folded(padded, w=w, n=x.dim(0), rows=rows, d=d, pads=(0,) * 4, g=g)
    whole = _reshape(folded, x.dim(0), w.dim(0), 1, rows * d - span)
    divides = ((x.dim(3) % d) + (a % d)) + (b % d)
    return (
        ops.Conv(x, w, **row),
        slice_(whole, 3, 0, size - span),
        x.rank == 4,
        w.rank == 4,
        x.dim(2) == 1,
        w.dim(2) == 1,
        d > 1,
        (divides > 0).because("otherwise nothing is padded"),
    )


# Steps --------------------------------------------------------------------------------------------


@rule("form/points-before-product")
def points_before_product(x: Tensor, w: Weight, s: Int, t: Int, d: Int, e: Int, g: Int) -> Sides:
    """A 1 x 1 convolution with a stride is one of the pixels that it reads, without a stride.

    Runtimes have a fast kernel for those without one. An average over one pixel picks it.
    """
    pick = {"kernel": (1, 1), "strides": (s, t), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    alike = {"pads": (0, 0, 0, 0), "group": g}
    picked = ops.AveragePool(x, **pick, ceil=0, count_include_pad=1)
    return (
        ops.Conv(x, w, strides=(s, t), dilations=(d, e), **alike),
        ops.Conv(picked, w, strides=(1, 1), dilations=(1, 1), **alike),
        x.rank == 4,
        w.rank == 4,
        w.dim(2) == 1,
        w.dim(3) == 1,
        (s * t > 1).because("without a stride it is that already"),
        is_float(x),
    )


# Products of few rows -----------------------------------------------------------------------------


def _pixels(x: Var, w: Var, kept: list[Expr], rows: Size, bias: Var | None = None) -> Term:
    """Return a product as a 1 x 1 convolution whose pixels are the rows."""
    channels, features = w.dim(0), w.dim(1)
    is_one = isinstance(rows, int)
    columns = x if is_one else ops.Transpose(_reshape(x, rows, channels), perm=(1, 0))
    kernel = _reshape(ops.Transpose(w, perm=(1, 0)), features, channels, 1, 1)
    made = ops.Conv(
        _reshape(columns, 1, channels, 1, rows), kernel,
        strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1,
    )  # fmt: skip
    if bias is not None:
        made = made + _reshape(bias, 1, features, 1, 1)
    if not is_one:
        made = ops.Transpose(_reshape(made, features, rows), perm=(1, 0))
    return _reshape(made, *kept, features)


def _product_as_pixels(rank: int, is_one: bool, is_summed: bool) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, w, c = v["x"], v["w"], v.get("c")
        kept = [x.dim(i) for i in range(rank - 1)]
        rows = prod(kept[1:], start=kept[0])
        conditions = [x.rank == rank, w.rank == 2, is_float(x), *([rows == 1] if is_one else [])]
        product = x @ w
        if c is not None:
            product = product + c
            ones = prod((c.dim(i) for i in range(1, rank - 1)), start=c.dim(0))
            conditions += [c.rank == rank, ones == 1, c.dim(rank - 1) == w.dim(1)]
        return product, _pixels(x, w=w, kept=kept, rows=1 if is_one else rows, bias=c), *conditions

    what, bias = ("sum", " and its bias are") if is_summed else ("product", " is")
    rows, pixels = ("one row", "pixel") if is_one else ("few rows", "pixels")
    return declared(
        f"form/{what}-as-{pixels}-{rank}d",
        f"A product of {rows} with a weight{bias} a 1 x 1 convolution whose {pixels} are the rows: "
        "runtimes stream the large weight of a convolution faster.",
        {"x": "Tensor", "w": "Weight"} | ({"c": "Weight"} if is_summed else {}),
        sides,
        numerics=Numerics.REASSOCIATE,
    )


products_as_pixels = [
    _product_as_pixels(rank, is_one, is_summed)
    for rank in (2, 3)
    for is_one in (True, False)
    for is_summed in (False, True)
]
