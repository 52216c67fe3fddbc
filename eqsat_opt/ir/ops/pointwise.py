"""Operators that compute each element separately, with ONNX broadcasting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrKind,
    AttrMap,
    Domain,
    EvalFn,
    OnnxForm,
    TypeFn,
    broadcast_shapes,
    define,
    require,
    traits,
)
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.ops.index.integers import Poly, poly
from eqsat_opt.ir.ops.index.scalars import (
    MINUS_ONE,
    Call,
    IndexTensor,
    Inverse,
    Plus,
    Premises,
    Scalar,
    Times,
    called,
    elementwise,
)
from eqsat_opt.ir.values.types import DTYPE_CODES, FLOATS, TensorType, numpy_dtype

__all__ = ["COMPARISONS"]


def _same(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype != "string", "arithmetic on strings")
    return inputs[0]


def _signed(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    require(not inputs[0].dtype.startswith(("uint", "bool")), "the opposite of {}", inputs[0])
    return _same(inputs, attrs)


def _truths(inputs: Sequence[TensorType]) -> TensorType:
    return TensorType("bool", broadcast_shapes(*(i.shape for i in inputs)))


def _logical(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(all(i.dtype == "bool" for i in inputs), "truth values, not {}", inputs)
    return _truths(inputs)


def _compared(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(all(i.dtype == inputs[0].dtype for i in inputs), "element types differ: {}", inputs)
    return _truths(inputs)


def _ordered(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype not in ("bool", "string"), "an order of {}", inputs[0])
    return _compared(inputs, attrs)


def _nan(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "a test for NaN of {}", inputs[0])
    return _truths(inputs)


def _broadcast(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(all(i.dtype == inputs[0].dtype for i in inputs), "element types differ: {}", inputs)
    require(inputs[0].dtype != "string", "arithmetic on strings")
    return TensorType(inputs[0].dtype, broadcast_shapes(*(i.shape for i in inputs)))


def _pow(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    return TensorType(inputs[0].dtype, broadcast_shapes(*(i.shape for i in inputs)))


def _prelu(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    result = _broadcast(inputs, _attrs)
    require(result.shape == inputs[0].shape, "PRelu broadcasts the slope only")
    return result


_POWER_FLOPS = 10


def _applied(name: str) -> EvalFn:
    def evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
        return domain.apply(name, attrs, *operands)

    return evaluate


_DETERMINED = traits("determined")
_EXACT = _DETERMINED | traits("exact")
_TRUTH = _EXACT | traits("truth")
_SPREAD = traits("broadcasting")
_RING = _DETERMINED | traits("broadcasting", "ring")


def _float(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "a function of floats of {}", inputs[0])
    return _same(inputs, attrs)


_pointwise = partial(define, "pointwise")


def _called(name: str, type_fn: TypeFn, **facts: Any) -> None:
    """Register a function that number domains know by its name."""
    attrs: Mapping[str, AttrKind] = facts.pop("attrs", {})
    _pointwise(name, attrs, type_fn, _applied(name), called(name), **facts)


for _name, _function in FUNCTIONS.items():
    _called(
        _name,
        _same if _function.on_integers else _float,
        attrs=_function.attrs,
        flops=_function.flops,
        traits=_function.traits,
        choices=_function.choices,
        exact=_function.exact,
        onnx=OnnxForm(_function.since, _function.defaults) if _function.since else None,
    )
_called(
    "Not",
    _logical,
    traits=_TRUTH,
    element_types={0: "bool"},
    exact=lambda x, _a: not x,
    onnx=OnnxForm(),
)
_called("IsNaN", _nan, traits=_TRUTH, exact=lambda x, _a: bool(x != x), onnx=OnnxForm(9))

_arithmetic = partial(define, "pointwise", arity=2, onnx=OnnxForm())
_arithmetic(
    "Add",
    {},
    _broadcast,
    lambda d, x, _a: d.add(*x),
    index_fn=elementwise(lambda x, _a: Plus(tuple(x))),
    commutative=True,
    neutral={0: -0.0, 1: -0.0},
    traits=_RING,
)
_arithmetic(
    "Sub",
    {},
    _broadcast,
    lambda d, x, _a: d.sub(*x),
    index_fn=elementwise(lambda x, _a: Plus((x[0], Times((MINUS_ONE, x[1]))))),
    neutral={1: 0.0},
    traits=_RING,
)
_arithmetic(
    "Mul",
    {},
    _broadcast,
    lambda d, x, _a: d.mul(*x),
    index_fn=elementwise(lambda x, _a: Times(tuple(x))),
    commutative=True,
    neutral={0: 1, 1: 1},
    traits=_RING,
)
_arithmetic(
    "Div",
    {},
    _broadcast,
    lambda d, x, _a: d.div(*x),
    index_fn=elementwise(lambda x, _a: Times((x[0], Inverse(x[1])))),
    neutral={1: 1},
    traits=_DETERMINED | _SPREAD | traits("pole"),
)
_pointwise(
    "Neg",
    {},
    _signed,
    lambda d, x, _a: d.sub(np.zeros_like(x[0]), x[0]),
    elementwise(lambda x, _a: Times((MINUS_ONE, x[0]))),
    traits=_EXACT | traits("ring"),
    onnx=OnnxForm(),
)
_pointwise(
    "Reciprocal",
    {},
    _float,
    lambda d, x, _a: d.div(d.constant(1, x[0]), x[0]),
    elementwise(lambda x, _a: Inverse(x[0])),
    traits=traits("pole"),
    onnx=OnnxForm(),
)
_extremum = partial(
    _called,
    type_fn=_broadcast,
    arity=2,
    commutative=True,
    traits=_EXACT | _SPREAD | traits("order"),
)
_extremum("Min", exact=lambda x, y, _a: min(x, y))
_extremum("Max", exact=lambda x, y, _a: max(x, y))
_called(
    "Pow",
    _pow,
    arity=2,
    flops=_POWER_FLOPS,
    traits=_SPREAD | traits("nonnegative", "pole", "vanishing"),
    element_types={1: ""},
    neutral={1: 1},
    onnx=OnnxForm(),
)
_pointwise(
    "Mod",
    {"fmod": "int"},
    _broadcast,
    _applied("Mod"),
    arity=2,
    traits=_EXACT | _SPREAD,
    choices={"fmod": (0, 1)},
    onnx=OnnxForm(10, {"fmod": 0}),
)
_called(
    "PRelu",
    _prelu,
    arity=2,
    exact=lambda x, slope, _a: x if x >= 0 else slope * x,
    onnx=OnnxForm(),
)

COMPARISONS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
_relation = partial(_called, arity=2, traits=_TRUTH | _SPREAD)
_relation("Equal", _compared, exact=lambda x, y, _a: x == y, onnx=OnnxForm())
_relation("Greater", _ordered, exact=lambda x, y, _a: x > y, onnx=OnnxForm())
_relation("Less", _ordered, exact=lambda x, y, _a: x < y, onnx=OnnxForm())
_relation("GreaterOrEqual", _ordered, exact=lambda x, y, _a: x >= y, onnx=OnnxForm(12))
_relation("LessOrEqual", _ordered, exact=lambda x, y, _a: x <= y, onnx=OnnxForm(12))
_both_bool = partial(
    _relation, type_fn=_logical, element_types={0: "bool", 1: "bool"}, onnx=OnnxForm()
)
_both_bool("And", neutral={0: 1, 1: 1}, exact=lambda x, y, _a: bool(x) and bool(y))
_both_bool("Or", neutral={0: 0, 1: 0}, exact=lambda x, y, _a: bool(x) or bool(y))
_both_bool("Xor", exact=lambda x, y, _a: bool(x) != bool(y))


def _where_type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    condition, left, right = inputs
    require(condition.dtype == "bool" and left.dtype == right.dtype, "Where on {}", inputs)
    return TensorType(left.dtype, broadcast_shapes(condition.shape, left.shape, right.shape))


_pointwise(
    "Where",
    {},
    _where_type,
    lambda d, x, _a: d.where(*x),
    called("Where"),
    arity=3,
    traits=_EXACT | _SPREAD | traits("moving"),
    element_types={0: "bool"},
    onnx=OnnxForm(9),
)


def _clamp_type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    x, *bounds = inputs
    require(x.dtype not in ("bool", "string"), "an order of {}", x)
    fits = all(bound.dtype == x.dtype and bound.shape in ((), (1,)) for bound in bounds)
    require(fits, "bounds {} of {}", bounds, x)
    return x


def _clamp(domain: Domain, operands: Sequence[Array], _attrs: AttrMap) -> Array:
    x, low, high = (operands[0], *(bound.reshape(()) for bound in operands[1:]))
    x = domain.where(domain.apply("Less", {}, x, low), low, x)
    return domain.where(domain.apply("Less", {}, high, x), high, x)


def _clamp_indexed(
    operands: Sequence[IndexTensor], _attrs: AttrMap, premises: Premises
) -> IndexTensor:
    x, *bounds = operands
    for bound in bounds:
        require(bound.rank <= 1, "a bound with axes")
        for extent in bound.shape:
            premises.same(extent, 1)

    def at(index: Sequence[Poly]) -> Scalar:
        low, high = (bound.at([poly(0)] * bound.rank) for bound in bounds)
        above = Call("Where", (), (Call("Less", (), (x.at(index), low)), low, x.at(index)))
        return Call("Where", (), (Call("Less", (), (high, above)), high, above))

    return IndexTensor(x.shape, at)


_pointwise(
    "Clamp",
    {},
    _clamp_type,
    _clamp,
    _clamp_indexed,
    arity=3,
    flops=2,
    traits=_EXACT,
    doc="ONNX's Clip with bounds that are computed: the second operand in place of what is less, "
    "then the third in place of what is greater. Unlike Max and Min it ignores a bound that is "
    "NaN, and keeps the sign of zeros",
)


def _cast_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    require(
        attrs["to"] in DTYPE_CODES and "string" not in (attrs["to"], inputs[0].dtype),
        "Cast from or to strings",
    )
    return TensorType(attrs["to"], inputs[0].shape)


def _cast(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    if domain.name != "float":
        return domain.apply("Cast", attrs, operands[0])
    with np.errstate(all="ignore"):
        return operands[0].astype(numpy_dtype(attrs["to"]))


_pointwise("Cast", {"to": "str"}, _cast_type, _cast, called("Cast"), traits=_DETERMINED)
