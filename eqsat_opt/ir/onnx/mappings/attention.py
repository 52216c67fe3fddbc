"""Scaled dot-product attention."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.graph.graph import Node, number_of
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import Array, Call, expect, reads, writes
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.ir.values.types import TensorType, numpy_dtype

__all__: list[str] = []

_MOST_OF_A_MASK = 1 << 24
"""Elements up to which a constant mask is read."""

_SHOWN = -1e30
"""A mask above this leaves a key to attend to, whatever the logit is."""


def _is_whole_mask(types: Sequence[TensorType]) -> bool:
    """Return whether a mask, if any, has every key: ONNX extends a mask that is too short."""
    return all(mask.rank > 0 and mask.shape[-1] == types[1].shape[2] for mask in types[3:])


def _is_some(types: Sequence[TensorType]) -> bool:
    """Return whether there are queries, keys and heads: native kernels refuse empty operands."""
    return all(isinstance(d, int) and d > 0 for t in types[:3] for d in t.shape[1:])


def _leaves_a_key(mask: Array) -> bool:
    """Return whether each row of an additive mask leaves a key, and no element is huge or NaN."""
    return bool(
        mask.size and np.all(np.max(mask, axis=-1) >= _SHOWN) and not np.any(mask > -_SHOWN)
    )


@reads("Attention")
def _read_attention(call: Call, context: ImportContext) -> None:
    """Read the attention of the registry: four axes, an additive mask, no cache, no cap."""
    operands = [name for name in call.inputs if name]
    expect(len(call.outputs) == 1 and len(operands) == len(call.inputs) <= 4)
    types = [context.type(name) for name in operands]
    expect(len(types) >= 3 and all(t.rank == 4 for t in types[:3]))
    expect(all(t.dtype == "float32" for t in types))
    plain = ("is_causal", "softcap", "qk_matmul_output_mode", "softmax_precision")
    expect(not any(call.get(name, 0) for name in plain))
    size = types[0].shape[3]
    scale = call.attrs.get("scale")
    expect(scale is not None or isinstance(size, int))
    value = float(scale) if scale is not None else 1.0 / math.sqrt(literal(size))
    expect(value > 0 and _is_whole_mask(types))
    # Native kernels return zeros for rows in which every key is masked; the formula does not.
    masks = (context.array(mask, _MOST_OF_A_MASK) for mask in operands[3:])
    expect(all(map(_leaves_a_key, masks)))
    op = "Attention" if len(operands) == 3 else "MaskedAttention"
    context.emit(op, operands, call.outputs[0], scale=value)


@writes("Attention", "MaskedAttention")
def _write_attention(node: Node, context: ExportContext) -> None:
    """Write the native operator if it covers the case, else the plain formula.

    The formula repeats keys and values that a group of heads shares.
    """
    scale = number_of(node.attrs, "scale")
    q, k, v, *mask = node.inputs
    types = [context.type(name) for name in node.inputs]
    if context.opset >= 23 and (
        context.is_original(node, "Attention")
        or (types[0].dtype == "float32" and scale > 0 and not mask and _is_some(types))
    ):
        context.op("Attention", node.inputs, node.output, scale=scale)
        return
    heads, shared = types[0].shape[1], types[1].shape[1]
    if heads != shared:
        repeats = literal(heads) // literal(shared)
        k, v = (_repeated(context, name, 1, repeats) for name in (k, v))
    logits = context.op("MatMul", [q, context.op("Transpose", [k], perm=(0, 1, 3, 2))])
    factor = context.constant(np.asarray(scale, numpy_dtype(types[0].dtype)))
    logits = context.op("Mul", [logits, factor])
    if mask:
        logits = context.op("Add", [logits, mask[0]])
    weights = context.op("Softmax", [logits], axis=3)
    context.op("MatMul", [weights, v], node.output)


def _repeated(
    context: ExportContext, x: str, axis: int, repeats: int, out: str | None = None
) -> str:
    extent = literal(context.type(x).shape[axis])
    index = np.repeat(np.arange(extent, dtype=np.int64), repeats)
    return context.op("Gather", [x, context.constant(index)], out, axis=axis)


@writes("Repeat")
def _write_repeat(node: Node, context: ExportContext) -> None:
    axis, repeats = node.attr("axis"), node.attr("repeats")
    _repeated(context, node.inputs[0], axis, repeats=repeats, out=node.output)
