"""Pad in all modes: with a constant, or with elements of its operand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Call,
    expect,
    literal_ints,
    normal_axis,
    reads,
    refuse,
    scalar,
    writes,
)
from eqsat_opt.ir.values.dims import Dim, SymDim
from eqsat_opt.ir.values.types import TensorType, numpy_dtype

__all__: list[str] = []


@reads("Pad")
def _read_pad(call: Call, context: ImportContext) -> None:
    x = context.type(call.inputs[0])
    mode = call.get("mode", "constant")
    value: float | int = call.get("value", 0.0)
    pads: list[Dim]
    if context.opset >= 11:
        pads = [*context.dims(call.inputs[1])]
        operand = call.input(2)
        value = scalar(context.array(operand)) if operand else 0
    else:
        pads = list(call.attrs["pads"])
    axes_operand = call.input(3)
    if axes_operand is not None:
        axes = [normal_axis(int(a), x.rank) for a in context.array(axes_operand).reshape(-1)]
        full: list[Dim] = [0] * (2 * x.rank)
        for i, axis in enumerate(axes):
            full[axis], full[x.rank + axis] = pads[i], pads[len(axes) + i]
        pads = full
    expect(len(pads) == 2 * x.rank)
    if not any(pad != 0 for pad in pads):
        context.alias(call.inputs[0], call.outputs[0])
        return
    value = 0.0 if mode != "constant" else float(value)
    expect(value == value)
    widths = _plain_widths(x, pads) if mode == "constant" else None
    if widths is None:
        expect(context.are_computable(pads, x))
        attrs = {"pads": tuple(pads), "mode": mode, "value": value}
        context.emit("Continued", call.inputs[:1], call.outputs[0], **attrs)
        return
    kept = _cropped(context, call, widths)
    wider = tuple(max(pad, 0) for pad in widths)
    if any(wider):
        context.emit("Pad", [kept], call.outputs[0], pads=wider, value=value)


def _plain_widths(x: TensorType, pads: Sequence[Dim]) -> list[int] | None:
    """Return the widths as numbers, ``None`` if one is a size or crops an axis of open size."""
    widths = [pad for pad in pads if isinstance(pad, int)]
    places = zip(x.shape * 2, pads, strict=True)
    is_open = any(isinstance(size, SymDim) and pad in widths and pad < 0 for size, pad in places)
    return None if is_open or len(widths) < len(pads) else widths


def _cropped(context: ImportContext, call: Call, pads: list[int]) -> str:
    """Cut off the elements that negative pads remove; this is the result if no pad is positive."""
    value, x = call.inputs[0], context.type(call.inputs[0])
    cut = [axis for axis in range(x.rank) if min(pads[axis], pads[x.rank + axis]) < 0]
    for axis in cut:
        (size,) = literal_ints([x.shape[axis]])
        low, high = max(-pads[axis], 0), size + min(pads[x.rank + axis], 0)
        expect(low < high)
        is_last = axis == cut[-1] and max(pads) <= 0
        out = call.outputs[0] if is_last else None
        value = context.emit("Slice", [value], out, axis=axis, lo=low, hi=high)
    return value


@writes("Continued")
def _write_continued(node: Node, context: ExportContext) -> None:
    (x,), pads, mode, value = node.inputs, node.attr("pads"), node.attr("mode"), node.attr("value")
    if context.opset < 11:
        if not all(isinstance(pad, int) for pad in pads):
            refuse(node, context.opset)
        context.op("Pad", [x], node.output, pads=pads, mode=mode, value=value)
        return
    operands = [x, context.shape_value(tuple(pads))]
    if value != 0:
        operands.append(context.constant(np.asarray(value, numpy_dtype(context.type(x).dtype))))
    context.op("Pad", operands, node.output, mode=mode)


@writes("Pad")
def _write_pad(node: Node, context: ExportContext) -> None:
    (x,), pads, value = node.inputs, node.attr("pads"), node.attr("value")
    if context.opset < 11:
        context.op("Pad", [x], node.output, pads=pads, value=value)
        return
    operands = [x, context.constant(np.asarray(pads, np.int64))]
    if value != 0:
        operands.append(context.constant(np.asarray(value, numpy_dtype(context.type(x).dtype))))
    context.op("Pad", operands, node.output)
