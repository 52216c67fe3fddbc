"""Operators that have the same name, operands and attributes in ONNX, as their records declare."""

from __future__ import annotations

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    WRITERS,
    Call,
    expect,
    reads,
    refuse,
    writes,
)
from eqsat_opt.ir.ops import OPS, OUTPUT, OnnxForm

__all__ = ["fill"]

_FORMS: dict[str, OnnxForm] = {name: op.onnx for name, op in OPS.items() if op.onnx is not None}


def _read(call: Call, context: ImportContext) -> None:
    form, op = _FORMS[call.op_type], OPS[call.op_type]
    given = {**form.defaults, **call.attrs}
    expect(context.opset >= form.since and given.keys() == op.attrs.keys() - {OUTPUT})
    context.emit_outputs(op.name, call.inputs, **given)


def _write(node: Node, context: ExportContext) -> None:
    if context.opset < _FORMS[node.op].since:
        refuse(node, context.opset)
    context.op_of_several(node.op, node.inputs, node.outputs, **dict(node.attrs))


def fill() -> None:
    """Register readers, and writers unless another module writes an operator in older opsets."""
    reads(*_FORMS)(_read)
    writes(*(_FORMS.keys() - WRITERS.keys()))(_write)
