"""The greatest or least elements along an axis, in order, and their indices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    OUTPUT,
    Array,
    AttrMap,
    Domain,
    define,
    per_operand_element,
    require,
    traits,
)
from eqsat_opt.ir.ops.domains import FloatDomain
from eqsat_opt.ir.ops.index.integers import Formula, Poly, at_least, less, poly
from eqsat_opt.ir.ops.index.scalars import (
    ONE,
    ZERO,
    Call,
    IndexTensor,
    Plus,
    Premises,
    Scalar,
    Whole,
    literal,
    reduce_over,
)
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []

_VALUES = 0
"""The output that holds the elements; the other output holds their indices along the axis."""
_BEFORE = {1: ("GreaterOrEqual", "Greater"), 0: ("LessOrEqual", "Less")}
"""Relations of an element to one that it precedes in the result: left of it, and right of it."""


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), axis, k = inputs, attrs["axis"], attrs["k"]
    require(x.dtype not in ("bool", "string"), "an order of {}", x)
    require(0 <= axis < x.rank, "axis {} of {}", axis, x)
    size = x.shape[axis]
    # Symbolic sizes are accepted: a run fails if the axis has fewer than k elements, or k is
    # negative.
    fits = not isinstance(k, int) or (k >= 1 and (not isinstance(size, int) or k <= size))
    require(fits, "{} elements of axis {} of {}", k, axis, x)
    dtype = x.dtype if attrs[OUTPUT] == _VALUES else "int64"
    return TensorType(dtype, (*x.shape[:axis], k, *x.shape[axis + 1 :]))


def _evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Return the first elements in order, or their indices; equal elements keep their order."""
    (x,), axis, k = operands, attrs["axis"], attrs["k"]
    if not isinstance(domain, FloatDomain):
        return _by_rank(domain, np.moveaxis(x, axis, -1), attrs)
    if attrs["largest"]:
        rising = np.argsort(np.flip(x, axis), axis, kind="stable")
        order = x.shape[axis] - 1 - np.flip(rising, axis)
    else:
        order = np.argsort(x, axis, kind="stable")
    places = order.take(range(k), axis)
    return np.take_along_axis(x, places, axis) if attrs[OUTPUT] == _VALUES else places


def _by_rank(domain: Domain, x: Array, attrs: AttrMap) -> Array:
    """Select elements, or their indices, by the number of elements that precede each.

    The index function has the same definition. The axis is the last one of ``x``.
    """
    place, zero, one = np.arange(x.shape[-1]), domain.constant(0, x), domain.constant(1, x)

    def truths(relation: str) -> Array:
        return domain.where(domain.apply(relation, {}, x[..., None], x[..., None, :]), one, zero)

    left, right = map(truths, _BEFORE[attrs["largest"]])
    before = np.where(place[:, None] > place, right, zero)
    before = np.where(place[:, None] < place, left, before)
    wanted = _numbers(domain, np.arange(attrs["k"]), x)[:, None]
    found = domain.apply("Equal", {}, domain.sum(before, (-2,)), wanted)
    chosen = x if attrs[OUTPUT] == _VALUES else _numbers(domain, place, x)
    taken = domain.where(found, chosen[..., None, :], zero)
    return np.moveaxis(domain.sum(taken, (-1,))[..., 0], -1, attrs["axis"])


def _numbers(domain: Domain, integers: Array, like: Array) -> Array:
    return np.asarray([domain.constant(int(number), like) for number in integers])


def _indexed(operands: Sequence[IndexTensor], attrs: AttrMap, premises: Premises) -> IndexTensor:
    (x,), axis, k = operands, literal(attrs["axis"]), poly(attrs["k"])
    require(0 <= axis < x.rank, "no such axis")
    extent = x.shape[axis]
    premises.require(at_least(k, 1), at_least(extent, k))
    is_values = literal(attrs[OUTPUT]) == _VALUES
    relations = _BEFORE[literal(attrs["largest"])]

    def at(index: Sequence[Poly]) -> Scalar:
        def element(place: Poly) -> Scalar:
            return x.at((*index[:axis], place, *index[axis + 1 :]))

        def before(here: Poly, relation: str, is_there: Callable[[Poly], Formula]) -> Scalar:
            def one(other: Sequence[Poly]) -> Scalar:
                is_before = Call(relation, (), (element(other[0]), element(here)))
                return Call("Where", (), (is_before, ONE, ZERO))

            return reduce_over("sum", [extent], one, lambda other: is_there(other[0]))

        def taken(place: Sequence[Poly]) -> Scalar:
            (here,) = place
            left = before(here, relations[0], lambda other: less(other, here))
            right = before(here, relations[1], lambda other: less(here, other))
            found = Call("Equal", (), (Plus((left, right)), Whole(index[axis])))
            return Call("Where", (), (found, element(here) if is_values else Whole(here), ZERO))

        return reduce_over("sum", [extent], taken)

    return IndexTensor((*x.shape[:axis], k, *x.shape[axis + 1 :]), at)


define(
    "reduction",
    "TopK",
    {"axis": "int", "k": "size", "largest": "int", OUTPUT: "int"},
    _type,
    eval_fn=_evaluate,
    index_fn=_indexed,
    flops=per_operand_element,
    traits=traits("along", "order", "sorting"),
    result_types={1: "int64"},
    choices={"largest": (0, 1), OUTPUT: (0, 1)},
)
