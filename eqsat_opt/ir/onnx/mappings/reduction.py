"""Reductions over axes, softmax, and the greatest elements of an axis."""

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
    refuse,
    scalar,
    writes,
)
from eqsat_opt.ir.ops.global_pool import GLOBAL_POOLS

__all__ = ["write_reduction"]

_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")


@reads(*_REDUCTIONS)
def _read_reduction(call: Call, context: ImportContext) -> None:
    x = context.type(call.inputs[0])
    axes = tuple(call.get("axes", ()))
    operand = call.input(1)
    if operand is not None:
        axes = tuple(int(a) for a in context.array(operand).reshape(-1))
    if not axes:
        expect(not call.get("noop_with_empty_axes", 0))
        axes = tuple(range(x.rank))
    axes = tuple(sorted({normal_axis(a, x.rank) for a in axes}))
    context.emit(
        call.op_type, call.inputs[:1], call.outputs[0], axes=axes, keepdims=call.get("keepdims", 1)
    )


@writes(*GLOBAL_POOLS)
def _write_global_pool(node: Node, context: ExportContext) -> None:
    """Write a global pool, or a reduction where runtimes have no such pool.

    They have pools for float16 and float32 only, and for up to three spatial axes.
    """
    (x,) = node.inputs
    type_ = context.type(x)
    if type_.dtype in ("float16", "float32") and type_.rank <= 5:
        context.op(node.op, [x], node.output)
        return
    axes = tuple(range(2, type_.rank))
    write_reduction(context, GLOBAL_POOLS[node.op], x, axes=axes, keepdims=1, out=node.output)


def write_reduction(
    context: ExportContext,
    op: str,
    x: str,
    axes: tuple[int, ...],
    keepdims: int = 1,
    out: str | None = None,
) -> str:
    """Write a reduction, with its axes as an operand or an attribute as the opset requires."""
    if context.opset >= (13 if op == "ReduceSum" else 18):
        return context.op(
            op, [x, context.constant(np.asarray(axes, np.int64))], out, keepdims=keepdims
        )
    return context.op(op, [x], out, axes=axes, keepdims=keepdims)


@writes(*_REDUCTIONS)
def _write_reduction(node: Node, context: ExportContext) -> None:
    axes, keepdims = node.attr("axes"), node.attr("keepdims")
    write_reduction(context, node.op, node.inputs[0], axes=axes, keepdims=keepdims, out=node.output)


@reads("Softmax", "LogSoftmax")
def _read_softmax(call: Call, context: ImportContext) -> None:
    """Read a softmax along one axis.

    Before opset 13 the axes from ``axis`` on are one; this is the same if only one of these has a
    size other than 1.
    """
    x = context.type(call.inputs[0])
    expect(x.rank > 0)
    axis = normal_axis(call.get("axis", -1 if context.opset >= 13 else 1), x.rank)
    if context.opset < 13:
        wide = [i for i in range(axis, x.rank) if x.shape[i] != 1]
        expect(len(wide) <= 1)
        axis = wide[0] if wide else axis
    context.emit(call.op_type, call.inputs, call.outputs[0], axis=axis)


@writes("Softmax", "LogSoftmax")
def _write_softmax(node: Node, context: ExportContext) -> None:
    axis = node.attr("axis")
    type_ = context.type(node.inputs[0])
    if context.opset >= 13 or all(d == 1 for d in type_.shape[axis + 1 :]):
        context.op(node.op, node.inputs, node.output, axis=axis)
        return
    perm = [i for i in range(type_.rank) if i != axis] + [axis]
    inverse = tuple(perm.index(i) for i in range(type_.rank))
    moved = context.op("Transpose", node.inputs, perm=tuple(perm))
    result = context.op(node.op, [moved], axis=type_.rank - 1)
    context.op("Transpose", [result], node.output, perm=inverse)


@reads("TopK")
def _read_top_k(call: Call, context: ImportContext) -> None:
    """Read a TopK whose results are in order; any other order is up to the runtime."""
    (x,), axis = call.inputs[:1], call.get("axis", -1)
    expect(call.get("sorted", 1) == 1)
    (k,) = (call.attrs["k"],) if context.opset < 10 else context.dims(call.inputs[1])
    axis = normal_axis(axis, context.type(x).rank)
    expect(context.are_computable([k], context.type(x)))
    context.emit_outputs("TopK", [x], axis=axis, k=k, largest=call.get("largest", 1))


@writes("TopK")
def _write_top_k(node: Node, context: ExportContext) -> None:
    inputs, k = [*node.inputs], node.attr("k")
    attrs = {"axis": node.attr("axis")}
    if context.opset >= 11:
        attrs["largest"] = node.attr("largest")
    elif not node.attr("largest"):
        refuse(node, context.opset)
    if context.opset >= 10:
        inputs.append(context.shape_value((k,)))
    elif not isinstance(k, int):
        refuse(node, context.opset)
    else:
        attrs["k"] = k
    context.op_of_several("TopK", inputs, node.outputs, **attrs)


@reads("ArgMax", "ArgMin")
def _read_place(call: Call, context: ImportContext) -> None:
    axis = normal_axis(call.get("axis", 0), context.type(call.inputs[0]).rank)
    attrs = {"keepdims": call.get("keepdims", 1), "axis": axis}
    is_last = call.get("select_last_index", 0)
    context.emit(call.op_type, call.inputs, call.outputs[0], **attrs, select_last_index=is_last)


@writes("ArgMax", "ArgMin")
def _write_place(node: Node, context: ExportContext) -> None:
    attrs = dict(node.attrs)
    if not attrs["select_last_index"]:
        del attrs["select_last_index"]
    context.op(node.op, node.inputs, node.output, **attrs)


@reads("CumSum")
def _read_sums(call: Call, context: ImportContext) -> None:
    axis = normal_axis(
        int(scalar(context.array(call.inputs[1]))), context.type(call.inputs[0]).rank
    )
    attrs = {name: call.get(name, 0) for name in ("exclusive", "reverse")}
    context.emit("CumSum", call.inputs[:1], call.outputs[0], axis=axis, **attrs)


@writes("CumSum")
def _write_sums(node: Node, context: ExportContext) -> None:
    axis = context.constant(np.asarray(node.attr("axis"), np.int64))
    attrs = {name: node.attr(name) for name in ("exclusive", "reverse")}
    context.op("CumSum", [*node.inputs, axis], node.output, **attrs)
