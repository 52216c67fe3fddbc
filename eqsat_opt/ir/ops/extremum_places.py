"""Indices of the greatest or least element along an axis."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    EvalFn,
    define,
    per_operand_element,
    require,
    traits,
)
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []

_FINDERS = {"ArgMax": np.argmax, "ArgMin": np.argmin}


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), axis = inputs, attrs["axis"]
    require(x.dtype not in ("bool", "string"), "an order of {}", x)
    require(0 <= axis < x.rank and x.shape[axis] != 0, "an extremum over axis {} of {}", axis, x)
    kept = (1,) if attrs["keepdims"] else ()
    return TensorType("int64", (*x.shape[:axis], *kept, *x.shape[axis + 1 :]))


def _places(op: str, x: Array, attrs: AttrMap) -> Array:
    """Return the index of the extremum: of several equal elements the first, or the last."""
    axis, is_last = attrs["axis"], attrs["select_last_index"]
    turned = np.flip(x, axis) if is_last else x
    places = np.asarray(_FINDERS[op](turned, axis=axis, keepdims=bool(attrs["keepdims"])))
    return x.shape[axis] - 1 - places if is_last else places


def _finding(op: str) -> EvalFn:
    return lambda _domain, operands, attrs: _places(op, operands[0], attrs)


for _name in _FINDERS:
    define(
        "reduction",
        _name,
        {"axis": "int", "keepdims": "int", "select_last_index": "int"},
        _type,
        eval_fn=_finding(_name),
        flops=per_operand_element,
        traits=traits("order", "sorting", "exact"),
        choices={"keepdims": (0, 1), "select_last_index": (0, 1)},
    )
