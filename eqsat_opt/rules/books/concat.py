"""Concatenation and slicing: how merged operators are taken apart and put together again."""

from __future__ import annotations

from eqsat_opt.rules.rule import Func, Int, Phase, Sides, Tensor, Weight, rule
from eqsat_opt.rules.term import Condition, Expr, Var, concat, slice_

__all__: list[str] = []


@rule("concat/slice-of-slice", phase=Phase.SIMPLIFY)
def slice_of_slice(x: Tensor, axis: Int, lo: Int, hi: Int, start: Int, end: Int) -> Sides:
    """Two slices along one axis are one."""
    return slice_(slice_(x, axis, lo, hi), axis, start, end), slice_(x, axis, lo + start, lo + end)


@rule("concat/whole-slice", phase=Phase.SIMPLIFY)
def whole_slice(x: Tensor, axis: Int, hi: Int) -> Sides:
    """A slice of everything is the tensor."""
    return slice_(x, axis, 0, hi), x, x.dim(axis) == hi


@rule("concat/slice-left", phase=Phase.SIMPLIFY)
def slice_left(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """A slice within the first part."""
    return slice_(concat(x, y, axis), axis, lo, hi), slice_(x, axis, lo, hi), hi <= x.dim(axis)


@rule("concat/slice-right", phase=Phase.SIMPLIFY)
def slice_right(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """A slice within the second part."""
    n = x.dim(axis)
    return slice_(concat(x, y, axis), axis, lo, hi), slice_(y, axis, lo - n, hi - n), n <= lo


@rule("concat/adjacent-slices", phase=Phase.SIMPLIFY)
def adjacent_slices(x: Tensor, axis: Int, lo: Int, mid: Int, hi: Int) -> Sides:
    """Neighbouring slices of one tensor need no concatenation."""
    return concat(slice_(x, axis, lo, mid), slice_(x, axis, mid, hi), axis), slice_(x, axis, lo, hi)


@rule("concat/adjacent-slices-nested", phase=Phase.SIMPLIFY)
def adjacent_slices_nested(x: Tensor, z: Tensor, axis: Int, lo: Int, mid: Int, hi: Int) -> Sides:
    """The same at the end of a longer concatenation."""
    left = concat(z, slice_(x, axis, lo, mid), axis)
    return concat(left, slice_(x, axis, mid, hi), axis), concat(z, slice_(x, axis, lo, hi), axis)


@rule("concat/map", bidirectional=True)
def map_over_concat(f: Func, x: Tensor, y: Tensor, axis: Int) -> Sides:
    """One launch of an elementwise function instead of two."""
    return concat(f(x), f(y), axis), f(concat(x, y, axis))


@rule("concat/map-slice")
def map_over_slice(f: Func, x: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """An elementwise function of a slice is the slice of the function."""
    return f(slice_(x, axis, lo, hi)), slice_(f(x), axis, lo, hi)


@rule("concat/add", phase=Phase.ALGEBRA)
def add_of_concats(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """Sums of matching parts are one sum."""
    return (
        concat(x + z, y + w, axis),
        concat(x, y, axis) + concat(z, w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


@rule("concat/mul", phase=Phase.ALGEBRA)
def mul_of_concats(x: Tensor, y: Tensor, z: Tensor, w: Tensor, axis: Int) -> Sides:
    """Products of matching parts are one product."""
    return (
        concat(x * z, y * w, axis),
        concat(x, y, axis) * concat(z, w, axis),
        x.shape == z.shape,
        y.shape == w.shape,
    )


def _aligned(x: Var, y: Var, axis: Expr) -> tuple[Condition, Condition]:
    """Same axes, same extent along the sliced one; the operands may broadcast along others."""
    return x.rank == y.rank, x.dim(axis) == y.dim(axis)


@rule("concat/add-slices")
def add_of_slices(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """The same slice of two tensors is added as a whole."""
    return (
        slice_(x, axis, lo, hi) + slice_(y, axis, lo, hi),
        slice_(x + y, axis, lo, hi),
        *_aligned(x, y, axis),
    )


@rule("concat/mul-slices")
def mul_of_slices(x: Tensor, y: Tensor, axis: Int, lo: Int, hi: Int) -> Sides:
    """The same slice of two tensors is multiplied as a whole."""
    return (
        slice_(x, axis, lo, hi) * slice_(y, axis, lo, hi),
        slice_(x * y, axis, lo, hi),
        *_aligned(x, y, axis),
    )


@rule("concat/add-row-slice")
def add_row_to_slice(x: Tensor, b: Weight, axis: Int, lo: Int, hi: Int) -> Sides:
    """A constant that broadcasts along the sliced axis is added to all parts at once."""
    return (
        slice_(x, axis, lo, hi) + b,
        slice_(x + b, axis, lo, hi),
        x.rank == b.rank,
        b.dim(axis) == 1,
    )


@rule("concat/mul-row-slice")
def mul_row_to_slice(x: Tensor, b: Weight, axis: Int, lo: Int, hi: Int) -> Sides:
    """A constant that broadcasts along the sliced axis multiplies all parts at once."""
    return (
        slice_(x, axis, lo, hi) * b,
        slice_(x * b, axis, lo, hi),
        x.rank == b.rank,
        b.dim(axis) == 1,
    )
