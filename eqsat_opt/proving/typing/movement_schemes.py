"""The constraints on shapes and attributes of operators that only move data, or make it."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from math import prod

from eqsat_opt.ir.values.types import FLOATS
from eqsat_opt.proving.typing.choices import orders
from eqsat_opt.proving.typing.extents import Extent, Shape, Unknown, apply, resolve
from eqsat_opt.proving.typing.most_general import Fresh, Known, Scheme, Typing
from eqsat_opt.proving.typing.open_attributes import (
    SIGNED,
    attribute,
    axis_of,
    extents_of,
    numbers,
    repeated,
)
from eqsat_opt.rules.term import Apply

__all__ = ["MOVEMENT"]


_ODD = range(1, 6, 2)
"""Extents of kernels with a centre."""


def _concat(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    axis = t.value(term.attrs["axis"])
    known = [shape for shape in operands if not isinstance(shape, Fresh)]
    least = 1 if axis is None else axis + 1
    first = known[0] if known else t.at_least(operands[0], least)
    t.require(len(first) >= least)
    axis = attribute(t, term, "axis", range(len(first)))
    t.require(isinstance(axis, int))
    shapes: list[Shape] = []
    for i, operand in enumerate(operands):
        if not isinstance(operand, Fresh):
            shape = operand
        elif not known and i == 0:
            shape = first
        else:
            shape = t.fresh(operand, (len(first),))
        t.require(len(shape) == len(first))
        t.equal(shape[:axis], first[:axis])
        t.equal(shape[axis + 1 :], first[axis + 1 :])
        shapes.append(shape)
    total: Extent = shapes[0][axis]
    for shape in shapes[1:]:
        total = apply(python.add, total, shape[axis])
    return shapes, (*first[:axis], total, *first[axis + 1 :])


def _slice(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, axis = axis_of(t, operands[0], term)
    lo, hi = t.known(term.attrs["lo"]), t.known(term.attrs["hi"])
    lo = t.extents.new(low=0) if lo is None else lo
    t.bind(term.attrs["lo"], lo)
    hi = apply(python.add, lo, t.extents.new()) if hi is None else hi
    t.bind(term.attrs["hi"], hi)
    if isinstance(resolve(x[axis]), Unknown):
        t.equal(x[axis], apply(python.add, hi, t.extents.new(low=0)))
    return [x], (*x[:axis], apply(python.sub, hi, lo), *x[axis + 1 :])


def _transpose(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    perm = t.value(term.attrs["perm"])
    x = operands[0]
    if isinstance(x, Fresh):
        x = t.fresh(x, (2, 3, 4) if perm is None else (len(perm),), core=2)
    options, likely = orders(len(x))
    perm = attribute(t, term, "perm", options, core=likely)
    t.require(len(perm) == len(x) and all(isinstance(p, int) and p < len(x) for p in perm))
    return [x], tuple(x[p] for p in perm)


def _product(*extents: int) -> int:
    return prod(extents)


def _reshape(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = operands[0]
    if isinstance(x, Fresh):
        name, x = x, t.any_shape(x)
        t.shapes.setdefault(name, x)
    count = apply(_product, *x)
    if isinstance(term.attrs["shape"], tuple):
        shape = extents_of(t, term.attrs["shape"])
        t.equal(count, apply(_product, *shape))
        return [x], shape
    options = [(count,), tuple(reversed(x)), (*x, 1), (1, *x)]
    options += [(apply(python.mul, x[0], x[1]), *x[2:])] if len(x) > 1 else []
    shape = attribute(t, term, "shape", options)
    t.equal(count, apply(_product, *shape))
    return [x], shape


def _expand(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, pattern = operands[0], term.attrs["shape"]
    shape = extents_of(t, pattern) if isinstance(pattern, tuple) else t.value(pattern)
    if isinstance(x, Fresh):
        x = t.any_shape(x) if shape is None else t.partner(x, shape)
    if shape is None:
        shape = t.prefer([x, tuple(t.extents.new() for _ in x), (t.extents.new(), *x)])
        t.bind(term.attrs["shape"], shape)
    t.equal(t.broadcast(x, shape), shape)
    return [x], shape


def _pad(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, pads = operands[0], t.value(term.attrs["pads"])
    if isinstance(x, Fresh):
        x = t.any_shape(x) if pads is None else t.fresh(x, (len(pads) // 2,))
    rank = len(x)
    pads = numbers(
        t, term, "pads", count=2 * rank, usual=repeated(2 * rank, 1, 0), each=(0, 1, 2, -1), low=-1
    )
    attribute(t, term, "value", (0.0, 2.0, *SIGNED), core=1)
    t.require(len(pads) == 2 * rank)
    return [x], tuple(apply(lambda *n: sum(n), d, pads[i], pads[rank + i]) for i, d in enumerate(x))


def _value(t: Typing, term: Apply) -> None:
    """Decide a number of the element type of the operands, a whole one for integers."""
    t.require(attribute(t, term, "dtype", (t.dtype,)) == t.dtype)
    options = SIGNED if t.dtype in FLOATS else tuple(v for v in SIGNED if v.is_integer())
    value = attribute(t, term, "value", options, core=2)
    t.require(t.dtype in FLOATS or float(value).is_integer())


def _fill(t: Typing, _operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    _value(t, term)
    pattern = term.attrs["shape"]
    if isinstance(pattern, tuple):
        return [], extents_of(t, pattern)
    return [], attribute(t, term, "shape", [(t.extents.new(),), (t.extents.new(), t.extents.new())])


def _scalar(t: Typing, _operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    _value(t, term)
    return [], ()


def _identity(t: Typing, _operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    channels = t.value(term.attrs["channels"])
    if channels is None:
        t.bind(term.attrs["channels"], channels := t.extents.new())
    height = attribute(t, term, "height", _ODD, core=2)
    width = attribute(t, term, "width", _ODD, core=2)
    attribute(t, term, "dtype", (t.dtype,))
    return [], (channels, channels, height, width)


def _gather(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, axis = axis_of(t, operands[0], term)
    indices = operands[1]
    k = t.fresh(indices, (1, 2, 0), core=2) if isinstance(indices, Fresh) else indices
    return [x, k], (*x[:axis], *k, *x[axis + 1 :])


MOVEMENT: dict[str, Scheme] = {
    "Concat": _concat, "Slice": _slice, "Transpose": _transpose, "Reshape": _reshape,
    "Expand": _expand, "Pad": _pad, "Fill": _fill, "Scalar": _scalar,
    "IdentityKernel": _identity, "Gather": _gather,
}  # fmt: skip
"""Operator to scheme."""
