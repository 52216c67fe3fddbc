"""Normalisations with a scale and a shift."""

from __future__ import annotations

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Call,
    expect,
    normal_axis,
    reads,
    writes,
)
from eqsat_opt.ir.onnx.mappings.reduction import write_reduction
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType, numpy_dtype

__all__: list[str] = []


def _stash_type(x: TensorType) -> int:
    """Return the type in which ONNX must compute to agree with the registry: at least float32."""
    return DTYPE_CODES["float64" if x.dtype == "float64" else "float32"]


@reads("LayerNormalization", "RMSNormalization")
def _read_layer(call: Call, context: ImportContext) -> None:
    x = context.type(call.inputs[0])
    expect(len(call.outputs) == 1 and call.get("stash_type", 1) == _stash_type(x))
    expect(all(context.type(p).dtype == x.dtype for p in call.inputs if p))
    axis = normal_axis(call.get("axis", -1), x.rank)
    operands = [name for name in call.inputs if name]
    context.emit(
        call.op_type, operands, call.outputs[0], axis=axis, epsilon=call.get("epsilon", 1e-5)
    )


@writes("LayerNormalization", "RMSNormalization")
def _write_layer(node: Node, context: ExportContext) -> None:
    axis, epsilon = node.attr("axis"), node.attr("epsilon")
    layer = node.op == "LayerNormalization"
    x = node.inputs[0]
    type_ = context.type(x)
    # onnxruntime does not normalise rows without elements, and an attribute is rounded to float32,
    # which moves float64 results by far more than their own rounding.
    is_kept = type_.dtype != "float64" or float(np.float32(epsilon)) == epsilon
    is_defined = context.opset >= (17 if layer else 23) or context.is_in_original(node.op)
    if is_defined and 0 not in type_.shape[axis:] and is_kept:
        wide = {"stash_type": _stash_type(type_)} if type_.dtype == "float64" else {}
        context.op(node.op, node.inputs, node.output, axis=axis, epsilon=epsilon, **wide)
        return
    axes = tuple(range(axis, type_.rank))
    if layer:
        x = context.op("Sub", [x, write_reduction(context, "ReduceMean", x, axes)])
    two = context.constant(np.asarray(2.0, numpy_dtype(type_.dtype)))
    # A power, because onnxruntime's fusions expect one.
    variance = write_reduction(context, "ReduceMean", context.op("Pow", [x, two]), axes)
    constant = context.constant(np.asarray(epsilon, numpy_dtype(type_.dtype)))
    deviation = context.op("Sqrt", [context.op("Add", [variance, constant])])
    result = context.op("Div", [x, deviation])
    with_bias = len(node.inputs) == 3
    result = context.op("Mul", [result, node.inputs[1]], None if with_bias else node.output)
    if with_bias:
        context.op("Add", [result, node.inputs[2]], node.output)


@writes("Center")
def _write_center(node: Node, context: ExportContext) -> None:
    (x,) = node.inputs
    mean = write_reduction(context, "ReduceMean", x, node.attr("axes"))
    context.op("Sub", [x, mean], node.output)


@writes("RmsN")
def _write_root_mean_square(node: Node, context: ExportContext) -> None:
    (x,) = node.inputs
    square = write_reduction(context, "ReduceMean", context.op("Mul", [x, x]), node.attr("axes"))
    epsilon = context.constant(np.asarray(node.attr("epsilon"), numpy_dtype(context.type(x).dtype)))
    deviation = context.op("Sqrt", [context.op("Add", [square, epsilon])])
    context.op("Div", [x, deviation], node.output)


@reads("BatchNormalization")
def _read_batch(call: Call, context: ImportContext) -> None:
    """Read a normalisation for inference: one output, no training mode, statistics per channel."""
    expect(
        len(call.outputs) == 1 and not call.get("training_mode", 0) and call.get("spatial", 1) == 1
    )
    x = context.type(call.inputs[0])
    expect(all(context.type(p).dtype == x.dtype for p in call.inputs[1:]))
    context.emit(
        "BatchNormalization", call.inputs, call.outputs[0], epsilon=call.get("epsilon", 1e-5)
    )


@reads("InstanceNormalization")
def _read_instance(call: Call, context: ImportContext) -> None:
    expect(context.type(call.inputs[0]).rank >= 3)
    context.emit(
        "InstanceNormalization", call.inputs, call.outputs[0], epsilon=call.get("epsilon", 1e-5)
    )
