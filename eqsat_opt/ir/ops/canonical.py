"""Operators of the normal form that recognition produces; ONNX spells each in many ways."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from eqsat_opt.ir.ops._base import Array, AttrMap, Domain, define, require, traits
from eqsat_opt.ir.ops.index import movement as index_movement
from eqsat_opt.ir.ops.index import reduction as index_reduction
from eqsat_opt.ir.ops.index.scalars import Call, Inverse, Plus, Times, elementwise
from eqsat_opt.ir.ops.normalisation import inverse_deviation, mean
from eqsat_opt.ir.values.types import FLOATS, TensorType, has_element, numpy_dtype

__all__: list[str] = []


def _same(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "a number that is no float: {}", inputs[0])
    return inputs[0]


def _along(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    axes = attrs["axes"]
    require(bool(axes) and all(0 <= a < inputs[0].rank for a in axes), "axes {}", axes)
    require(len(set(axes)) == len(axes), "an axis is reduced once, not as in {}", axes)
    return _same(inputs, attrs)


def _scale(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return domain.mul(x, domain.constant(attrs["factor"], x))


def _shift(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return domain.add(x, domain.constant(attrs["offset"], x))


def _rsqrt(domain: Domain, operands: Sequence[Array], _attrs: AttrMap) -> Array:
    root = domain.apply("Sqrt", {}, operands[0])
    return domain.div(domain.constant(1, root), root)


def _rms(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    return domain.mul(x, inverse_deviation(domain, x, attrs["axes"], attrs["epsilon"]))


_pointwise, _moving = partial(define, "pointwise"), partial(define, "movement", flops=0)
_reduction = partial(define, "reduction", traits=traits("along", "floats"))
_pointwise(
    "Scale",
    {"factor": "float"},
    _same,
    _scale,
    elementwise(lambda x, a: Times((x[0], a["factor"]))),
    doc="`x` times the constant `factor`",
)
_pointwise(
    "Shift",
    {"offset": "float"},
    _same,
    _shift,
    elementwise(lambda x, a: Plus((x[0], a["offset"]))),
    doc="`x` plus the constant `offset`",
)
_pointwise(
    "Square",
    {},
    _same,
    lambda d, x, _a: d.mul(x[0], x[0]),
    elementwise(lambda x, _a: Times((x[0], x[0]))),
    traits=traits("ring"),
    doc="`x` times `x`",
)
_pointwise(
    "Rsqrt",
    {},
    _same,
    _rsqrt,
    elementwise(lambda x, _a: Inverse(Call("Sqrt", (), (x[0],)))),
    traits=traits("pole"),
    doc="1/√`x`",
)
_reduction(
    "Center",
    {"axes": "ints"},
    _along,
    lambda d, x, a: d.sub(x[0], mean(d, x[0], a["axes"])),
    index_fn=index_reduction.center,
    flops=2,
    doc="`x` less its mean over `axes`",
)
_reduction(
    "RmsN",
    {"axes": "ints", "epsilon": "float"},
    _along,
    _rms,
    index_fn=index_reduction.root_mean_square,
    flops=4,
    doc="`x` divided by √(mean of `x²` over `axes` + `epsilon`)",
)


def _fill_type(_inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    dtype, value = attrs["dtype"], attrs["value"]
    require(has_element(dtype, value), "{} as {}", value, dtype)
    return TensorType(dtype, tuple(attrs["shape"]))


def _fill(domain: Domain, _operands: Sequence[Array], attrs: AttrMap) -> Array:
    dtype = numpy_dtype(attrs["dtype"]) if domain.name == "float" else np.dtype(np.int64)
    value = domain.constant(attrs["value"], np.zeros((), dtype))
    return np.broadcast_to(value, attrs["shape"]).copy()


_moving(
    "Fill",
    {"shape": "ints", "value": "float", "dtype": "str"},
    _fill_type,
    _fill,
    index_movement.fill,
    arity=0,
    doc="a tensor of this shape with the same value everywhere",
)


def _repeat_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), axis, repeats = inputs, attrs["axis"], attrs["repeats"]
    require(0 <= axis < x.rank and repeats > 0, "{} times along axis {} of {}", repeats, axis, x)
    return TensorType(x.dtype, (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :]))


_moving(
    "Repeat",
    {"axis": "int", "repeats": "int"},
    _repeat_type,
    lambda _d, x, a: np.repeat(x[0], a["repeats"], axis=a["axis"]),
    index_movement.repeat,
    traits=traits("along"),
    doc="every slice along `axis`, `repeats` times in a row: (a, b) becomes (a, a, b, b)",
)
