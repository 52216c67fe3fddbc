"""Sums of all elements up to each element along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    define,
    per_operand_element,
    require,
    traits,
)
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.ops.index.integers import Formula, Poly, at_least, poly
from eqsat_opt.ir.ops.index.scalars import IndexTensor, Premises, Scalar, literal, reduce_over
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    require(x.dtype not in ("bool", "string"), "sums of {}", x)
    require(0 <= attrs["axis"] < x.rank, "axis {} of {}", attrs["axis"], x)
    return x


def _evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Sum up in the element type, one addition after the other."""
    (x,), axis = operands, attrs["axis"]
    parts = np.moveaxis(x, axis, 0)
    parts = parts[::-1] if attrs["reverse"] else parts
    if attrs["exclusive"]:
        parts = np.concatenate([np.zeros_like(parts[:1]), parts[:-1]])
    if domain is FLOAT:
        sums = np.add.accumulate(parts, dtype=parts.dtype)
    else:
        sums = parts.copy()
        for place in range(1, len(parts)):
            sums[place] = domain.add(sums[place - 1], parts[place])
    return np.moveaxis(sums[::-1] if attrs["reverse"] else sums, 0, axis)


def _indexed(operands: Sequence[IndexTensor], attrs: AttrMap, premises: Premises) -> IndexTensor:
    (x,), axis = operands, literal(attrs["axis"])
    require(0 <= axis < x.rank, "no such axis")
    is_reverse = literal(attrs["reverse"])
    margin = poly(literal(attrs["exclusive"]))
    premises.require(at_least(x.shape[axis], 1))

    def at(index: Sequence[Poly]) -> Scalar:
        def element(place: Sequence[Poly]) -> Scalar:
            return x.at((*index[:axis], place[0], *index[axis + 1 :]))

        def is_added(place: Sequence[Poly]) -> Formula:
            before, after = (index[axis], place[0]) if is_reverse else (place[0], index[axis])
            return at_least(after, before + margin)

        return reduce_over("sum", [x.shape[axis]], element, is_added)

    return IndexTensor(x.shape, at)


define(
    "reduction",
    "CumSum",
    {"axis": "int", "exclusive": "int", "reverse": "int"},
    _type,
    eval_fn=_evaluate,
    index_fn=_indexed,
    flops=per_operand_element,
    traits=traits("ring"),
    choices={"exclusive": (0, 1), "reverse": (0, 1)},
)
