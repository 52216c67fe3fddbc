"""Concatenation and slicing: how merged operators are taken apart and put together again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eqsat_opt.rules.blockwise import gathered, outward
from eqsat_opt.rules.declare import declared
from eqsat_opt.rules.forms import MAPPED
from eqsat_opt.rules.rule import Int, Phase, Rule, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Apply, Condition, Expr, Var, concat, slice_

__all__: list[str] = []


@rule("concat/slice-of-slice", phase=Phase.SIMPLIFY)
def slice_of_slice(x: Tensor, axis: Int, lo: Int, hi: Int, start: Int, end: Int) -> Sides:
    """A slice of a slice along the same axis is one slice."""
    return slice_(slice_(x, axis, lo, hi), axis, start, end), slice_(x, axis, lo + start, lo + end)


@rule("concat/whole-slice", phase=Phase.SIMPLIFY)
def whole_slice(x: Tensor, axis: Int, hi: Int) -> Sides:
    """A slice that covers the whole axis is the tensor itself."""
    return slice_(x, axis, 0, hi), x, x.dim(axis) == hi


@rule("concat/slice-left", phase=Phase.SIMPLIFY)
def slice_left(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """A slice within the first part of a concatenation is a slice of that part."""
    return slice_(concat(x, y, axis), axis, lo, hi), slice_(x, axis, lo, hi), hi <= x.dim(axis)


@rule("concat/slice-right", phase=Phase.SIMPLIFY)
def slice_right(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """A slice within the second part of a concatenation is a slice of that part."""
    n = x.dim(axis)
    return slice_(concat(x, y, axis), axis, lo, hi), slice_(y, axis, lo - n, hi - n), n <= lo


@rule("concat/adjacent-slices", phase=Phase.SIMPLIFY)
def adjacent_slices(x: Tensor, axis: Int, lo: Int, mid: Int, hi: Int) -> Sides:
    """Two adjacent slices of one tensor that are concatenated are one slice."""
    return concat(slice_(x, axis, lo, mid), slice_(x, axis, mid, hi), axis), slice_(x, axis, lo, hi)


@rule("concat/adjacent-slices-nested", phase=Phase.SIMPLIFY)
def adjacent_slices_nested(x: Tensor, z: Tensor, axis: Int, lo: Int, mid: Int, hi: Int) -> Sides:
    """Two adjacent slices at the end of a longer concatenation are one slice."""
    left = concat(z, slice_(x, axis, lo, mid), axis)
    return concat(left, slice_(x, axis, mid, hi), axis), concat(z, slice_(x, axis, lo, hi), axis)


map_over_concat = gathered(
    "concat/map",
    "An elementwise function of two parts that are concatenated is one function of the "
    "concatenation: one kernel instead of two.",
    MAPPED,
    both_ways=True,
)
map_over_slice = outward(
    "concat/map-slice",
    "An elementwise function commutes with a slice: slices share one function, or only what is "
    "read is computed.",
    MAPPED,
    both_ways=True,
)


@rule("concat/add", phase=Phase.ALGEBRA)
def add_of_concats(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """Two sums that are concatenated are one sum of concatenations."""
    return (
        concat(x + z, y + w, axis),
        concat(x, y, axis) + concat(z, w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


@rule("concat/mul", phase=Phase.ALGEBRA)
def mul_of_concats(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """Two elementwise products that are concatenated are one product of concatenations."""
    return (
        concat(x * z, y * w, axis),
        concat(x, y, axis) * concat(z, w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


def _aligned(x: Var, y: Var, axis: Expr) -> tuple[Condition, Condition]:
    """Return the conditions that operands have one rank, and one extent along the sliced axis.

    They may broadcast along other axes.
    """
    return x.rank == y.rank, x.dim(axis) == y.dim(axis)


@rule("concat/add-slices", bidirectional=True)
def add_of_slices(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """Adding the same slice of two tensors is slicing their sum; either can be cheaper."""
    return (
        slice_(x, axis, lo, hi) + slice_(y, axis, lo, hi),
        slice_(x + y, axis, lo, hi),
        *_aligned(x, y, axis),
    )


@rule("concat/mul-slices", bidirectional=True)
def mul_of_slices(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """Multiplying the same slice of two tensors is slicing their product; either can be cheaper."""
    return (
        slice_(x, axis, lo, hi) * slice_(y, axis, lo, hi),
        slice_(x * y, axis, lo, hi),
        *_aligned(x, y, axis),
    )


@rule("concat/add-row-slice")
def add_row_to_slice(x: Tensor, b: Weight, axis: Int, lo: Int, hi: Int) -> Sides:
    """A constant that broadcasts along the sliced axis is added once, before the slicing."""
    return (
        slice_(x, axis, lo, hi) + b,
        slice_(x + b, axis, lo, hi),
        x.rank == b.rank,
        b.dim(axis) == 1,
    )


@rule("concat/mul-row-slice")
def mul_row_to_slice(x: Tensor, b: Weight, axis: Int, lo: Int, hi: Int) -> Sides:
    """A constant that broadcasts along the sliced axis multiplies once, before the slicing."""
    return (
        slice_(x, axis, lo, hi) * b,
        slice_(x * b, axis, lo, hi),
        x.rank == b.rank,
        b.dim(axis) == 1,
    )


# A part of what is put together -------------------------------------------------------------------


@rule("concat/take-other-axis")
def take_other_axis(x: Tensor, y: Tensor, axis: Int, along: Int, lo: Int, hi: Int) -> Sides:
    """A slice of a concatenation along another axis is a concatenation of slices."""
    parts = slice_(x, along, lo, hi), slice_(y, along, lo, hi)
    return slice_(concat(x, y, axis), along, lo, hi), concat(*parts, axis), axis != along


@rule("concat/take-across")
def take_across(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """A slice across the seam of a concatenation joins a slice of each part."""
    n = x.dim(axis)
    parts = slice_(x, axis, lo, n), slice_(y, axis, 0, hi - n)
    return slice_(concat(x, y, axis), axis, lo, hi), concat(*parts, axis), lo < n, n < hi


def _take_row(op: str, word: str) -> Rule:
    def sides(v: Mapping[str, Any]) -> Sides:
        x, y, axis, lo, hi = (v[n] for n in ("x", "y", "axis", "lo", "hi"))
        whole = slice_(Apply(op, (x, y), {}), axis, lo, hi)
        right = Apply(op, (slice_(x, axis, lo, hi), y), {})
        return whole, right, x.rank == y.rank, y.dim(axis) == 1, hi <= x.dim(axis)

    return declared(
        f"concat/take-{op.lower()}-row",
        f"A slice of a {word} with an operand that broadcasts along the axis computes only what is "
        "read.",
        {"x": "Tensor", "y": "Tensor", "axis": "Int", "lo": "Int", "hi": "Int"},
        sides,
    )


take_add_row, take_mul_row = _take_row("Add", "sum"), _take_row("Mul", "product")


@rule("concat/slice-exchange", phase=Phase.DERIVATION)
def slice_exchange(x: Tensor, a: Int, b: Int, lo: Int, hi: Int, start: Int, end: Int) -> Sides:
    """Slices along two different axes can be taken in either order."""
    left = slice_(slice_(x, a, lo, hi), b, start, end)
    return left, slice_(slice_(x, b, start, end), a, lo, hi), a != b
