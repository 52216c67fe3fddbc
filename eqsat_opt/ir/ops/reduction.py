"""Reductions over axes, and softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    EvalFn,
    Trait,
    define,
    per_operand_element,
    require,
    traits,
)
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.ops.index import reduction as index_reduction
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["REDUCTIONS"]


def _reduce_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    axes = attrs["axes"]
    require(bool(axes) and all(0 <= a < x.rank for a in axes), "axes {} of {}", axes, x)
    require(len(set(axes)) == len(axes), "an axis is reduced once, not as in {}", axes)
    if attrs["keepdims"]:
        return TensorType(x.dtype, tuple(1 if i in axes else d for i, d in enumerate(x.shape)))
    return TensorType(x.dtype, tuple(d for i, d in enumerate(x.shape) if i not in axes))


def _extremum_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    """Return the type of an extremum, which must not be over an empty axis.

    The runtime decides an extremum over no elements: it obeys none of the laws of other extrema.
    """
    result = _reduce_type(inputs, attrs)
    require(all(inputs[0].shape[a] != 0 for a in attrs["axes"]), "an extremum over nothing")
    return result


def _finish(x: Array, kept: Array, attrs: AttrMap) -> Array:
    if attrs["keepdims"]:
        return kept
    return kept.reshape(tuple(s for i, s in enumerate(x.shape) if i not in attrs["axes"]))


def _mean(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    count = math.prod(x.shape[a] for a in attrs["axes"])
    total = domain.sum(x, attrs["axes"])
    return _finish(x, domain.div(total, domain.constant(count, x)), attrs)


def _max(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return _finish(x, domain.maximum(x, attrs["axes"]), attrs)


def _min(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return _finish(x, x.min(axis=attrs["axes"], keepdims=True), attrs)


def _prod(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    if domain is FLOAT:
        return _finish(x, x.prod(axis=attrs["axes"], keepdims=True, dtype=x.dtype), attrs)
    kept = [axis for axis in range(x.ndim) if axis not in attrs["axes"]]
    shape = tuple(1 if axis in attrs["axes"] else size for axis, size in enumerate(x.shape))
    factors = x.transpose(*attrs["axes"], *kept).reshape(-1, *(x.shape[axis] for axis in kept))
    one = np.broadcast_to(domain.constant(1, x), factors.shape[1:])
    return _finish(x, reduce(domain.mul, factors, one).reshape(shape), attrs)


REDUCTIONS: dict[str, EvalFn] = {
    "ReduceSum": lambda d, x, a: _finish(x[0], d.sum(x[0], a["axes"]), a),
    "ReduceMean": _mean,
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceProd": _prod,
}
_INDEX_FNS = {
    "ReduceSum": index_reduction.reduction("sum"),
    "ReduceMean": index_reduction.reduction("sum", mean=True),
    "ReduceMax": index_reduction.reduction("max"),
    "ReduceMin": index_reduction.reduction("min"),
}
_TRAITS: dict[str, frozenset[Trait]] = {
    **dict.fromkeys(("ReduceSum", "ReduceProd"), traits("ring")),
    **dict.fromkeys(("ReduceMax", "ReduceMin"), traits("order")),
}
for _name, _evaluate in REDUCTIONS.items():
    define(
        "reduction",
        _name,
        {"axes": "ints", "keepdims": "int"},
        _extremum_type if _name in ("ReduceMax", "ReduceMin") else _reduce_type,
        eval_fn=_evaluate,
        index_fn=_INDEX_FNS.get(_name),
        flops=per_operand_element,
        traits=_TRAITS.get(_name, frozenset()) | traits("reducing"),
        choices={"keepdims": (0, 1)},
    )


def _softmax_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "a function of floats of {}", inputs[0])
    require(0 <= attrs["axis"] < inputs[0].rank, "axis {} of {}", attrs["axis"], inputs[0])
    return inputs[0]


def _softmax(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    axes = (attrs["axis"],)
    shifted = domain.sub(x, domain.maximum(x, axes)) if domain.name == "float" else x
    exponentials = domain.apply("Exp", {}, shifted)
    total = domain.sum(exponentials, axes)
    return domain.div(exponentials, total)


def _log_softmax(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    axes = (attrs["axis"],)
    shifted = domain.sub(x, domain.maximum(x, axes)) if domain.name == "float" else x
    total = domain.sum(domain.apply("Exp", {}, shifted), axes)
    return domain.sub(shifted, domain.apply("Log", {}, np.broadcast_to(total, x.shape)))


for _name, _evaluate, _index_fn in (
    ("Softmax", _softmax, index_reduction.softmax),
    ("LogSoftmax", _log_softmax, index_reduction.log_softmax),
):
    define(
        "reduction",
        _name,
        {"axis": "int"},
        _softmax_type,
        eval_fn=_evaluate,
        index_fn=_index_fn,
        flops=12,
        traits=traits("along", "floats"),
    )
