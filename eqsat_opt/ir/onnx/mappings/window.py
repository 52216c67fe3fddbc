"""Pools and local response normalisation."""

from __future__ import annotations

from typing import Any

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Call,
    expect,
    reads,
    refuse,
    writes,
)
from eqsat_opt.ir.onnx.mappings.linear import resolve_pads, same_padding

__all__: list[str] = []


@reads("MaxPool", "AveragePool")
def _read_pool(call: Call, context: ImportContext) -> None:
    expect(len(call.outputs) == 1 and not call.get("storage_order", 0))
    x = context.type(call.inputs[0])
    kernel = tuple(call.attrs["kernel_shape"])
    axes = len(kernel)
    expect(axes == x.rank - 2)
    strides = tuple(call.get("strides", (1,) * axes))
    dilations = tuple(call.get("dilations", (1,) * axes))
    same = call.get("auto_pad", "NOTSET").startswith("SAME")
    if same:
        # Runtimes disagree on a pool for which SAME would mean negative padding.
        expect(min(map(same_padding, x.shape[2:], kernel, strides, dilations)) >= 0)
    attrs: dict[str, Any] = {
        "kernel": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": resolve_pads(call, x.shape[2:], kernel, strides, dilations=dilations),
        # The pads of SAME make the division exact, whatever the rounding.
        "ceil": 0 if same else int(bool(call.get("ceil_mode", 0))),
    }
    if call.op_type == "AveragePool":
        attrs["count_include_pad"] = int(bool(call.get("count_include_pad", 0)))
    context.emit(call.op_type, call.inputs, call.outputs[0], **attrs)


@writes("MaxPool", "AveragePool")
def _write_pool(node: Node, context: ExportContext) -> None:
    attrs = dict(node.attrs)
    named: dict[str, Any] = {
        "kernel_shape": attrs["kernel"],
        "strides": attrs["strides"],
        "pads": attrs["pads"],
    }
    if attrs.get("count_include_pad"):
        named["count_include_pad"] = 1
    if attrs["ceil"]:
        if context.opset < 10:
            refuse(node, context.opset)
        named["ceil_mode"] = 1
    if any(d != 1 for d in attrs["dilations"]):  # type: ignore[union-attr]
        if context.opset < (10 if node.op == "MaxPool" else 19):
            refuse(node, context.opset)
        named["dilations"] = attrs["dilations"]
    context.op(node.op, node.inputs, node.output, **named)
