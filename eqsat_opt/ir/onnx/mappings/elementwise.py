"""Pointwise operators."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.columns import axes_beside
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Call,
    dtype_name,
    expect,
    reads,
    refuse,
    scalar,
    writes,
)
from eqsat_opt.ir.values.types import DTYPE_CODES, FLOATS, INTEGERS, numpy_dtype

__all__: list[str] = []


def _bound(context: ExportContext, like: str, value: float) -> str:
    return context.constant(np.asarray(value, dtype=numpy_dtype(context.type(like).dtype)))


def _scalar(context: ExportContext, like: str, value: float) -> str:
    """Return a number that broadcasts beside a value."""
    type_ = context.type(like)
    array = np.full(axes_beside(type_), value, numpy_dtype(type_.dtype))
    return context.constant(array)


@writes("Gelu")
def _write_gelu(node: Node, context: ExportContext) -> None:
    """Write a Gelu; before opset 20, write x/2 (1 + erf(x/√2)) or the tanh formula."""
    (x,) = node.inputs
    if context.opset >= 20:
        context.op("Gelu", [x], node.output, approximate=node.attr("approximate"))
        return
    one, half = _scalar(context, x, 1.0), _scalar(context, x, 0.5)
    if node.attr("approximate") == "tanh":
        cube = context.op("Mul", [x, context.op("Mul", [x, x])])
        inner = context.op("Add", [x, context.op("Mul", [cube, _scalar(context, x, 0.044715)])])
        gate = context.op(
            "Tanh", [context.op("Mul", [inner, _scalar(context, x, math.sqrt(2 / math.pi))])]
        )
    else:
        if context.opset < 9:
            refuse(node, context.opset)
        gate = context.op("Erf", [context.op("Div", [x, _scalar(context, x, math.sqrt(2))])])
    context.op("Mul", [context.op("Mul", [x, half]), context.op("Add", [gate, one])], node.output)


@writes("Swish")
def _write_swish(node: Node, context: ExportContext) -> None:
    """Write a product with a sigmoid: onnxruntime has no Swish of opset 24, but fuses this."""
    (x,), alpha = node.inputs, node.attr("alpha")
    inner = x if alpha == 1.0 else context.op("Mul", [x, _scalar(context, x, alpha)])
    context.op("Mul", [x, context.op("Sigmoid", [inner])], node.output)


@writes("Scale", "Shift")
def _write_affine(node: Node, context: ExportContext) -> None:
    (x,) = node.inputs
    ((name, _),) = node.attrs
    op = "Mul" if node.op == "Scale" else "Add"
    context.op(op, [x, _scalar(context, x, node.attr(name))], node.output)


@writes("Square")
def _write_square(node: Node, context: ExportContext) -> None:
    context.op("Mul", [node.inputs[0], node.inputs[0]], node.output)


@writes("Rsqrt")
def _write_rsqrt(node: Node, context: ExportContext) -> None:
    context.op("Reciprocal", [context.op("Sqrt", node.inputs)], node.output)


@writes("HardSwish")
def _write_hard_swish(node: Node, context: ExportContext) -> None:
    (x,) = node.inputs
    if context.type(x).dtype == "float64" and not context.is_original(node, "HardSwish"):
        # onnxruntime has no HardSwish of doubles, and no HardSigmoid.
        zero, three, six = (_scalar(context, x, value) for value in (0.0, 3.0, 6.0))
        above = context.op("Max", [context.op("Add", [x, three]), zero])
        gate = context.op("Div", [context.op("Min", [above, six]), six])
        context.op("Mul", [x, gate], node.output)
        return
    if context.opset >= 14:
        context.op("HardSwish", node.inputs, node.output)
        return
    gate = context.op("HardSigmoid", node.inputs, alpha=1 / 6, beta=0.5)
    context.op("Mul", [x, gate], node.output)


@writes("Mish")
def _write_mish(node: Node, context: ExportContext) -> None:
    if context.opset >= 18:
        context.op("Mish", node.inputs, node.output)
        return
    gate = context.op("Tanh", [context.op("Softplus", node.inputs)])
    context.op("Mul", [node.inputs[0], gate], node.output)


@writes("Celu")
def _write_celu(node: Node, context: ExportContext) -> None:
    (x,), alpha = node.inputs, node.attr("alpha")
    if context.opset >= 12:
        context.op("Celu", [x], node.output, alpha=alpha)
        return
    factor = _scalar(context, x, alpha)
    unit = context.op("Elu", [context.op("Div", [x, factor])], alpha=1.0)
    context.op("Mul", [unit, factor], node.output)


@writes("GreaterOrEqual", "LessOrEqual")
def _write_weak_comparison(node: Node, context: ExportContext) -> None:
    if context.opset >= 12:
        context.op(node.op, node.inputs, node.output)
        return
    whole = context.type(node.inputs[0]).dtype in ("int32", "int64")
    if context.opset < (9 if whole else 11):
        refuse(node, context.opset)  # Greater takes integers since 9, Equal floats since 11.
    # The negation of the opposite comparison would differ on NaN.
    strict = context.op(node.op.removesuffix("OrEqual"), node.inputs)
    context.op("Or", [strict, context.op("Equal", node.inputs)], node.output)


@reads("Min", "Max", "Sum", "Mean")
def _read_variadic(call: Call, context: ImportContext) -> None:
    if len(call.inputs) == 1:
        context.alias(call.inputs[0], call.outputs[0])
        return
    op = {"Sum": "Add", "Mean": "Add"}.get(call.op_type, call.op_type)
    # Runtimes round a sum of several narrow numbers once, and a mean of them.
    narrow = context.type(call.inputs[0]).dtype in ("float16", "bfloat16")
    expect(op != "Add" or not narrow or (call.op_type == "Sum" and len(call.inputs) == 2))
    is_mean = call.op_type == "Mean"
    total = call.inputs[0]
    for index, operand in enumerate(call.inputs[1:], start=2):
        last = index == len(call.inputs) and not is_mean
        total = context.emit(op, [total, operand], call.outputs[0] if last else None)
    if is_mean:
        # Runtimes multiply the sum by the rounded reciprocal, which a quotient would not match.
        dtype = numpy_dtype(context.type(total).dtype)
        share = np.ones((), dtype) / np.asarray(len(call.inputs), dtype)
        context.emit("Mul", [total, context.constant(np.asarray(share, dtype))], call.outputs[0])


@writes("Min", "Max")
def _write_extremum(node: Node, context: ExportContext) -> None:
    left, right = (context.type(name).shape for name in node.inputs)
    if context.opset < 8 and left != right:
        refuse(node, context.opset)  # Before opset 8 they do not broadcast.
    context.op(node.op, node.inputs, node.output)


def _range(dtype: str) -> tuple[float, float]:
    """Return the bounds of runtimes if none are given: the least and greatest finite floats."""
    if dtype not in FLOATS:
        return -math.inf, math.inf
    limits: Any = ml_dtypes.finfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]
    return float(limits.min), float(limits.max)


@reads("Clip")
def _read_clip(call: Call, context: ImportContext) -> None:
    dtype = context.type(call.inputs[0]).dtype
    if any(name and name not in context.constants for name in call.inputs[1:]):
        _read_clamp(call, context, dtype)
        return
    bounds: list[Any] = list(_range(dtype))
    for index, name in enumerate(("min", "max")):
        operand = call.input(index + 1)
        if context.opset >= 11 and operand is not None:
            bounds[index] = scalar(context.array(operand))
        elif context.opset < 11 and name in call.attrs:
            bounds[index] = call.attrs[name]
    expect(all(float(b) == b and not math.isnan(b) for b in bounds))
    context.emit(
        "Clip", call.inputs[:1], call.outputs[0], min=float(bounds[0]), max=float(bounds[1])
    )


def _read_clamp(call: Call, context: ImportContext, dtype: str) -> None:
    """Read a Clip with computed bounds; on integers, which are never NaN, it is Max and Min."""
    x, *bounds = call.inputs
    if dtype in INTEGERS:
        given = [(op, b) for op, b in zip(("Max", "Min"), bounds, strict=False) if b]
        for index, (op, bound) in enumerate(given, start=1):
            x = context.emit(op, [x, bound], call.outputs[0] if index == len(given) else None)
        return
    absent = [np.asarray(bound, numpy_dtype(dtype)) for bound in _range(dtype)]
    named = (call.input(1), call.input(2))
    # Operator sets without Clip of float16 do not define its bounds where none are given.
    is_narrow = dtype in ("float16", "bfloat16")
    expect(not is_narrow or context.opset >= _CLIP_OF_HALF or all(named))
    operands = (name or context.constant(b) for name, b in zip(named, absent, strict=True))
    context.emit("Clamp", [x, *operands], call.outputs[0])


_CLIP_OF_HALF = 12
"""First operator set in which Clip accepts floats other than float32."""


@writes("Clamp")
def _write_clamp(node: Node, context: ExportContext) -> None:
    if context.opset < 11:
        refuse(node, context.opset)
    context.op("Clip", node.inputs, node.output)


@writes("Clip")
def _write_clip(node: Node, context: ExportContext) -> None:
    (x,) = node.inputs
    bounds = node.attr("min"), node.attr("max")
    absent = _range(context.type(x).dtype)
    if context.opset < 11:
        named = zip(("min", "max"), bounds, absent, strict=True)
        given = {name: bound for name, bound, default in named if bound != default}
        context.op("Clip", [x], node.output, **given)
        return
    operands = [x]
    for bound, default in zip(bounds, absent, strict=True):
        operands.append("" if bound == default else _bound(context, x, bound))
    while not operands[-1]:
        operands.pop()
    context.op("Clip", operands, node.output)


@reads("Cast")
def _read_cast(call: Call, context: ImportContext) -> None:
    context.emit("Cast", call.inputs, call.outputs[0], to=dtype_name(call.attrs["to"]))


@reads("CastLike")
def _read_cast_like(call: Call, context: ImportContext) -> None:
    context.emit("Cast", call.inputs[:1], call.outputs[0], to=context.type(call.inputs[1]).dtype)


@writes("Cast")
def _write_cast(node: Node, context: ExportContext) -> None:
    context.op("Cast", node.inputs, node.output, to=DTYPE_CODES[node.attr("to")])
