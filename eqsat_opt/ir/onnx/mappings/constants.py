"""Constants, and operators whose result is known when the model is read."""

from __future__ import annotations

import math

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Array,
    Call,
    Untranslatable,
    expect,
    literal_ints,
    reads,
    scalar,
    writes,
)
from eqsat_opt.ir.values.dims import Dim, SymDim, dim_max, floor_div
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []


@reads("Constant")
def _read_constant(call: Call, context: ImportContext) -> None:
    """Read the forms other than ``value``, which the importer keeps as a handle."""
    ((form, value),) = call.attrs.items()
    if form in ("value_float", "value_floats"):
        array: Array = np.asarray(value, np.float32)
    else:
        expect(form in ("value_int", "value_ints"))
        array = np.asarray(value, np.int64)
    context.constant(array, call.outputs[0])


@reads("ConstantOfShape")
def _read_constant_of_shape(call: Call, context: ImportContext) -> None:
    shape = context.dims(call.inputs[0])
    value = np.asarray(call.get("value", np.zeros(1, np.float32))).reshape(())
    if not any(isinstance(dim, SymDim) for dim in shape):
        context.splat(value, literal_ints(shape), call.outputs[0])
        return
    expect(context.is_expressible(TensorType(str(value.dtype), ()), shape, "Expand"))
    context.emit("Expand", [context.constant(value)], call.outputs[0], shape=shape)


@reads("Range")
def _read_range(call: Call, context: ImportContext) -> None:
    """Read a Range; its size is distance divided by step, or a new size if data-dependent."""
    context.emit("Range", call.inputs, call.outputs[0], shape=(_count(call, context),))


def _count(call: Call, context: ImportContext) -> Dim:
    try:
        arrays = [context.array(name) for name in call.inputs]
    except Untranslatable:
        arrays = []
    if arrays:
        first, limit, step = arrays
        distance, by = float(scalar(limit - first)), float(scalar(step))  # as runtimes round them
        expect(by != 0)
        return max(0, math.ceil(distance / by))
    try:
        (low,), (high,), (stride,) = map(context.dims, call.inputs)
    except Untranslatable:
        return context.open_dim(call.outputs[0], 0)
    if not isinstance(stride, int) or stride == 0:
        return context.open_dim(call.outputs[0], 0)
    span = high - low if stride > 0 else low - high
    length = context.facts.simplified(dim_max(0, span))
    return floor_div(length + (abs(stride) - 1), abs(stride))


@writes("Range")
def _write_range(node: Node, context: ExportContext) -> None:
    context.op("Range", node.inputs, node.output)


@reads("Identity")
def _read_identity(call: Call, context: ImportContext) -> None:
    context.alias(call.inputs[0], call.outputs[0])


@reads("Dropout")
def _read_dropout(call: Call, context: ImportContext) -> None:
    """Read a Dropout in inference mode whose mask is not read."""
    expect(len(call.outputs) == 1)
    training = call.input(2)
    expect(training is None or not scalar(context.array(training)))
    context.alias(call.inputs[0], call.outputs[0])
