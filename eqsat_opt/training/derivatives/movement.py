"""Derivatives of operators that move elements: gradients move back, and add up where they meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.evaluation import evaluate_operator
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.values.dims import SymDim
from eqsat_opt.ir.values.types import StaticType, TensorType
from eqsat_opt.training.derivatives.table import TapeApplication, derives, no_derivative
from eqsat_opt.training.tape import TapeValue

__all__: list[str] = []


@derives("Transpose")
def _transpose(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [one.gradient.transpose(*np.argsort(one.attrs["perm"]).tolist())]


@derives("Reshape")
def _reshape(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [one.gradient.reshape(*one.operand.shape)]


@derives("Expand")
def _expand(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [one.gradient]


@derives("Concat")
def _concat(one: TapeApplication) -> Sequence[TapeValue | None]:
    axis, begin = one.attrs["axis"], 0
    parts: list[TapeValue | None] = []
    for number, operand in enumerate(one.operands):
        size = operand.shape[axis]
        if number in one.wanted and size != 0:
            if isinstance(begin, SymDim) or isinstance(size, SymDim):
                cut = (begin, begin + size, 1)
                parts.append(one.gradient.apply("StridedSlice", axis=axis, cut=cut))
            else:
                parts.append(one.gradient.apply("Slice", axis=axis, lo=begin, hi=begin + size))
        else:
            parts.append(None)
        begin = begin + size
    return parts


@derives("Slice")
def _slice(one: TapeApplication) -> Sequence[TapeValue | None]:
    rank, axis = one.operand.rank, one.attrs["axis"]
    pads = [0] * (2 * rank)
    pads[axis] = one.attrs["lo"]
    pads[rank + axis] = one.operand.shape[axis] - one.attrs["hi"]
    return [one.gradient.apply("Pad", pads=tuple(pads), value=0.0)]


@derives("StridedSlice")
def _cut(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, axis = one.operand, one.attrs["axis"]
    size, (begin, end, step) = x.shape[axis], one.attrs["cut"]
    if all(isinstance(one, int) for one in (size, begin, end)):
        places = np.arange(size)[begin:end:step]
        return [_added_at(x, x.tape.constant(places), one.gradient, axis)]
    if step != 1 or (isinstance(begin, int) and begin < 0):
        raise no_derivative(one.node, f"a slice {begin}:{end}:{step} of {size} elements")
    pads = [0] * (2 * x.rank)
    pads[axis], pads[x.rank + axis] = begin, size - begin - one.gradient.shape[axis]
    continued: dict[str, Any] = {"mode": "constant", "value": 0.0}
    return [one.gradient.apply("Continued", pads=tuple(pads), **continued)]


@derives("Pad")
def _pad(one: TapeApplication) -> Sequence[TapeValue | None]:
    pads = tuple(-width for width in one.attrs["pads"])
    return [one.gradient.apply("Pad", pads=pads, value=0.0)]


def _matrix(one: TapeApplication, axis: int, attrs: dict[str, Any]) -> np.ndarray[Any, Any]:
    """Return the matrix of an operator that is linear along an axis: [new size, size].

    Args:
        one: the application.
        axis: the axis.
        attrs: the attributes of the operator on [size, 1] along this axis.
    """
    size, new = one.operand.shape[axis], one.result.shape[axis]
    if not isinstance(size, int) or not isinstance(new, int):
        raise no_derivative(one.node, f"axis {axis} has an open size")
    type_ = StaticType("float64", (new, size))
    return evaluate_operator(one.node.op, attributes(**attrs), [np.eye(size)], type_)


@derives("Continued")
def _continued(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, pads, gradient = one.operand, one.attrs["pads"], one.gradient
    if one.attrs["mode"] == "constant":
        cut = tuple(-width for width in pads)
        return [gradient.apply("Continued", pads=cut, mode="constant", value=0.0)]
    for axis in range(x.rank):
        before, after = pads[axis], pads[x.rank + axis]
        if before != 0 or after != 0:
            attrs = {**one.attrs, "pads": (before, 0, after, 0)}
            gradient = gradient.mapped(axis, _matrix(one, axis, attrs).T)
    return [gradient]


@derives("Resize")
def _resize(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, attrs, gradient = one.operand, one.attrs, one.gradient
    for axis in range(x.rank):
        own = {
            name: (attrs[name][axis], unchanged) if attrs[name] else ()
            for name, unchanged in (("sizes", x.shape[axis]), ("up", 1), ("down", 1))
        }
        if own["up"] != own["down"] or x.shape[axis] != one.result.shape[axis]:
            gradient = gradient.mapped(axis, _matrix(one, axis, {**attrs, **own}).T)
    return [gradient]


@derives("Repeat")
def _repeat(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, axis, repeats = one.operand, one.attrs["axis"], one.attrs["repeats"]
    shape = (*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :])
    return [one.gradient.reshape(*shape).sum([axis + 1])]


@derives("ReverseSequence")
def _reversed(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [one.gradient.apply("ReverseSequence", one.operands[1], **one.attrs), None]


# ** places that are values **


def _zeros(like: TapeValue) -> TapeValue:
    return like.tape.filled(0.0, like.type)


def _added_at(x: TapeValue, places: TapeValue, gradient: TapeValue, axis: int) -> TapeValue:
    """Return gradients of a Gather added up at the places that it read.

    Args:
        x: the operand of the Gather, of whose shape the result is.
        places: indices along the axis, of any shape.
        gradient: [*axes of x before, *shape of places, *axes of x after].
        axis: the axis of x.
    """
    rank = places.rank
    order = (*range(axis, axis + rank), *range(axis), *range(axis + rank, gradient.rank))
    front = (x.shape[axis], *x.shape[:axis], *x.shape[axis + 1 :])
    zeros = x.tape.filled(0.0, TensorType(x.dtype, front))
    named = places.cast("int64").reshape(*places.shape, 1)
    added = zeros.apply("ScatterND", named, gradient.transpose(*order), reduction="add")
    return added.moved(0, axis)


@derives("Gather")
def _gather(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, places = one.operands
    return [_added_at(x, places, one.gradient, one.attrs["axis"]), None]


@derives("GatherElements")
def _gather_elements(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, places = one.operands
    axis = one.attrs["axis"]
    added = _zeros(x).apply("ScatterElements", places, one.gradient, axis=axis, reduction="add")
    return [added, None]


@derives("GatherND")
def _gather_nd(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, places = one.operands
    batch = one.attrs["batch_dims"]
    return [_zeros(x).apply("ScatterND", _full(one, places, batch), one.gradient, reduction="add"),
            None]  # fmt: skip


def _full(one: TapeApplication, places: TapeValue, batch: int) -> TapeValue:
    """Return indices that also name the batch axes, which GatherND shares with its operand."""
    rows = places.shape[:-1]
    named = []
    for axis in range(batch):
        size = rows[axis]
        if not isinstance(size, int):
            raise no_derivative(one.node, f"batch axis {axis} has an open size")
        own = np.arange(size, dtype=np.int64).reshape(size, *(1,) * (len(rows) - axis))
        named.append(places.tape.constant(own).expand((*rows, 1)))
    if not named:
        return places
    return places.tape.apply("Concat", *named, places, axis=places.rank - 1)


@derives("TopK")
def _top_k(one: TapeApplication) -> Sequence[TapeValue | None]:
    axis = one.attrs["axis"]
    places = one.operand.apply("TopK", **{**one.attrs, "output": 1})
    zeros = _zeros(one.operand)
    return [zeros.apply("ScatterElements", places, one.gradient, axis=axis, reduction="add")]


@derives("ScatterElements")
def _scatter_elements(one: TapeApplication) -> Sequence[TapeValue | None]:
    _, places, updates = one.operands
    axis, reduction = one.attrs["axis"], one.attrs["reduction"]
    kept = one.gradient
    if reduction == "none" and 0 in one.wanted:
        kept = kept.apply("ScatterElements", places, _zeros(updates), axis=axis, reduction="none")
    elif reduction not in ("none", "add"):
        raise no_derivative(one.node, f"the reduction {reduction!r}")
    return [kept, None, one.gradient.apply("GatherElements", places, axis=axis)]


@derives("ScatterND")
def _scatter_nd(one: TapeApplication) -> Sequence[TapeValue | None]:
    _, places, updates = one.operands
    reduction = one.attrs["reduction"]
    kept = one.gradient
    if reduction == "none" and 0 in one.wanted:
        kept = kept.apply("ScatterND", places, _zeros(updates), reduction="none")
    elif reduction not in ("none", "add"):
        raise no_derivative(one.node, f"the reduction {reduction!r}")
    return [kept, None, one.gradient.apply("GatherND", places, batch_dims=0)]
