"""Operators that compute each element on its own, with ONNX broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.dims import Dim
from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    EvalFn,
    ExactFn,
    FlopsFn,
    OnnxForm,
    Op,
    TypeFn,
    broadcast_shapes,
    elements,
    register,
    require,
    traits,
)
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.ir.ops.scalars import (
    MINUS_ONE,
    IndexFn,
    Inverse,
    Plus,
    Times,
    called,
    elementwise,
)
from eqsat_opt.ir.types import DTYPE_CODES, FLOATS, TensorType, numpy_dtype

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


def _flops(per_element: int = 1) -> FlopsFn:
    def flops(_inputs: Sequence[TensorType], output: TensorType, _attrs: AttrMap) -> Dim:
        return elements(output) * per_element

    return flops


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


for _name, _function in FUNCTIONS.items():
    register(
        Op(
            _name,
            (1, 1),
            _function.attrs,
            "pointwise",
            type_fn=_same if _function.on_integers else _float,
            eval_fn=_applied(_name),
            flops=_flops(_function.flops),
            index_fn=called(_name),
            traits=_function.traits,
            choices=_function.choices,
            exact=_function.exact,
            onnx=OnnxForm(_function.since, _function.defaults) if _function.since else None,
        )
    )

_EXACTLY: dict[str, ExactFn] = {
    "Not": lambda x, _a: not x,
    "IsNaN": lambda x, _a: bool(x != x),
    "Min": lambda x, y, _a: min(x, y),
    "Max": lambda x, y, _a: max(x, y),
    "Equal": lambda x, y, _a: x == y,
    "Greater": lambda x, y, _a: x > y,
    "Less": lambda x, y, _a: x < y,
    "GreaterOrEqual": lambda x, y, _a: x >= y,
    "LessOrEqual": lambda x, y, _a: x <= y,
    "And": lambda x, y, _a: bool(x) and bool(y),
    "Or": lambda x, y, _a: bool(x) or bool(y),
    "Xor": lambda x, y, _a: bool(x) != bool(y),
}
for _name, _operand_fn in (("Not", _logical), ("IsNaN", _nan)):
    register(
        Op(
            _name,
            (1, 1),
            {},
            "pointwise",
            type_fn=_operand_fn,
            eval_fn=_applied(_name),
            flops=_flops(),
            index_fn=called(_name),
            traits=_TRUTH,
            onnx=OnnxForm(9 if _name == "IsNaN" else 1),
            element_types={0: "bool"} if _name == "Not" else {},
            exact=_EXACTLY[_name],
        )
    )

_ARITHMETIC: dict[str, EvalFn] = {
    "Add": lambda d, x, _a: d.add(*x),
    "Sub": lambda d, x, _a: d.sub(*x),
    "Mul": lambda d, x, _a: d.mul(*x),
    "Div": lambda d, x, _a: d.div(*x),
}
_NEUTRAL: dict[str, dict[int, float]] = {
    "Add": {0: -0.0, 1: -0.0},
    "Sub": {1: 0.0},
    "Mul": {0: 1, 1: 1},
    "Div": {1: 1},
    "And": {0: 1, 1: 1},
    "Or": {0: 0, 1: 0},
}
_ARITHMETIC_INDEX: dict[str, IndexFn] = {
    "Add": elementwise(lambda x, _a: Plus(tuple(x))),
    "Sub": elementwise(lambda x, _a: Plus((x[0], Times((MINUS_ONE, x[1]))))),
    "Mul": elementwise(lambda x, _a: Times(tuple(x))),
    "Div": elementwise(lambda x, _a: Times((x[0], Inverse(x[1])))),
}
for _name, _evaluate in _ARITHMETIC.items():
    register(
        Op(
            _name,
            (2, 2),
            {},
            "pointwise",
            type_fn=_broadcast,
            eval_fn=_evaluate,
            flops=_flops(),
            commutative=_name in ("Add", "Mul"),
            index_fn=_ARITHMETIC_INDEX[_name],
            neutral=_NEUTRAL[_name],
            traits=_RING if _name != "Div" else _DETERMINED | _SPREAD | traits("pole"),
            onnx=OnnxForm(),
        )
    )

register(
    Op(
        "Neg",
        (1, 1),
        {},
        "pointwise",
        type_fn=_signed,
        eval_fn=lambda d, x, _a: d.sub(np.zeros_like(x[0]), x[0]),
        flops=_flops(),
        traits=_EXACT | traits("ring"),
        onnx=OnnxForm(),
        index_fn=elementwise(lambda x, _a: Times((MINUS_ONE, x[0]))),
    )
)
register(
    Op(
        "Reciprocal",
        (1, 1),
        {},
        "pointwise",
        type_fn=_float,
        eval_fn=lambda d, x, _a: d.div(np.broadcast_to(d.constant(1, x[0]), x[0].shape), x[0]),
        flops=_flops(),
        index_fn=elementwise(lambda x, _a: Inverse(x[0])),
        traits=traits("pole"),
        onnx=OnnxForm(),
    )
)

for _name in ("Min", "Max"):
    register(
        Op(
            _name,
            (2, 2),
            {},
            "pointwise",
            type_fn=_broadcast,
            eval_fn=_applied(_name),
            flops=_flops(),
            commutative=True,
            index_fn=called(_name),
            traits=_EXACT | _SPREAD | traits("order"),
            exact=_EXACTLY[_name],
        )
    )
register(
    Op(
        "Pow",
        (2, 2),
        {},
        "pointwise",
        type_fn=_pow,
        eval_fn=_applied("Pow"),
        flops=_flops(_POWER_FLOPS),
        index_fn=called("Pow"),
        traits=_SPREAD | traits("nonnegative", "pole", "vanishing"),
        element_types={1: ""},
        neutral={1: 1},
        onnx=OnnxForm(),
    )
)
register(
    Op(
        "PRelu",
        (2, 2),
        {},
        "pointwise",
        type_fn=_prelu,
        eval_fn=_applied("PRelu"),
        flops=_flops(),
        index_fn=called("PRelu"),
        onnx=OnnxForm(),
        exact=lambda x, slope, _a: x if x >= 0 else slope * x,
    )
)

COMPARISONS = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
_TRUTHS: tuple[tuple[str, TypeFn], ...] = (
    ("Equal", _compared),
    *((name, _ordered) for name in COMPARISONS[1:]),
    *((name, _logical) for name in ("And", "Or", "Xor")),
)
for _name, _truth_fn in _TRUTHS:
    register(
        Op(
            _name,
            (2, 2),
            {},
            "pointwise",
            type_fn=_truth_fn,
            eval_fn=_applied(_name),
            flops=_flops(),
            index_fn=called(_name),
            traits=_TRUTH | _SPREAD,
            neutral=_NEUTRAL.get(_name, {}),
            exact=_EXACTLY[_name],
            element_types={0: "bool", 1: "bool"} if _truth_fn is _logical else {},
            onnx=OnnxForm(12 if _name.endswith("OrEqual") else 1),
        )
    )


def _where_type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    condition, left, right = inputs
    require(condition.dtype == "bool" and left.dtype == right.dtype, "Where on {}", inputs)
    return TensorType(left.dtype, broadcast_shapes(condition.shape, left.shape, right.shape))


register(
    Op(
        "Where",
        (3, 3),
        {},
        "pointwise",
        type_fn=_where_type,
        eval_fn=lambda d, x, _a: d.where(*x),
        flops=_flops(),
        index_fn=called("Where"),
        traits=_EXACT | _SPREAD | traits("moving"),
        element_types={0: "bool"},
        onnx=OnnxForm(9),
    )
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


register(
    Op(
        "Cast",
        (1, 1),
        {"to": "str"},
        "pointwise",
        type_fn=_cast_type,
        eval_fn=_cast,
        flops=_flops(),
        index_fn=called("Cast"),
        traits=_DETERMINED,
    )
)
