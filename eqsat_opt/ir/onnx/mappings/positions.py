"""Elements read from and written to indices that tensors hold."""

from __future__ import annotations

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import Call, normal_axis, reads, writes

__all__: list[str] = []

_RENAMED = 11
"""First operator set with the name ScatterElements in place of Scatter."""


@reads("GatherElements", "ScatterElements", "Scatter")
def _read_elements(call: Call, context: ImportContext) -> None:
    axis = normal_axis(call.get("axis", 0), context.type(call.inputs[0]).rank)
    attrs = {"axis": axis}
    if call.op_type == "GatherElements":
        context.emit("GatherElements", call.inputs, call.outputs[0], **attrs)
        return
    reduction = call.get("reduction", "none")
    context.emit("ScatterElements", call.inputs, call.outputs[0], **attrs, reduction=reduction)


@reads("GatherND")
def _read_gather_nd(call: Call, context: ImportContext) -> None:
    context.emit("GatherND", call.inputs, call.outputs[0], batch_dims=call.get("batch_dims", 0))


@reads("ScatterND")
def _read_scatter_nd(call: Call, context: ImportContext) -> None:
    reduction = call.get("reduction", "none")
    context.emit("ScatterND", call.inputs, call.outputs[0], reduction=reduction)


@reads("ReverseSequence")
def _read_reversed(call: Call, context: ImportContext) -> None:
    attrs = {"batch_axis": call.get("batch_axis", 1), "time_axis": call.get("time_axis", 0)}
    context.emit("ReverseSequence", call.inputs, call.outputs[0], **attrs)


@writes("GatherElements", "GatherND", "ScatterElements", "ScatterND", "ReverseSequence")
def _write(node: Node, context: ExportContext) -> None:
    attrs, name = dict(node.attrs), node.op
    if name == "GatherND" and not attrs["batch_dims"]:
        del attrs["batch_dims"]
    if attrs.get("reduction") == "none":
        del attrs["reduction"]
    if name == "ScatterElements" and context.opset < _RENAMED:
        name = "Scatter"
    context.op(name, node.inputs, node.output, **attrs)
