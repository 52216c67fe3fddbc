"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Call,
    expect,
    literal_ints,
    reads,
    writes,
)
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import numpy_dtype

__all__ = ["resolve_pads", "same_padding"]


def same_padding(size: Dim, kernel: int, stride: int, dilation: int) -> int:
    """Return the total padding of SAME on an axis, negative if the stride exceeds the window.

    A symbolic size has a result if it is a multiple of the stride.
    """
    windows = -(-size // stride)
    (padding,) = literal_ints([(windows - 1) * stride + dilation * (kernel - 1) + 1 - size])
    return padding


def resolve_pads(
    call: Call,
    sizes: tuple[Dim, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    """Return the pads of a window, begins then ends, with ``auto_pad`` resolved."""
    mode = call.get("auto_pad", "NOTSET")
    axes = len(kernel)
    if mode == "NOTSET":
        pads = tuple(call.get("pads", (0,) * 2 * axes))
        expect(len(pads) == 2 * axes and min(pads, default=0) >= 0)
        return pads
    if mode == "VALID":
        return (0,) * 2 * axes
    expect(mode in ("SAME_UPPER", "SAME_LOWER"))
    totals = [max(total, 0) for total in map(same_padding, sizes, kernel, strides, dilations)]
    return _divided(totals, mode)


def _divided(totals: Sequence[int], mode: str) -> tuple[int, ...]:
    """Divide the padding of each axis between its two ends; an odd one is at the end in UPPER."""
    small = [total // 2 for total in totals]
    large = [total - half for total, half in zip(totals, small, strict=True)]
    return (*small, *large) if mode == "SAME_UPPER" else (*large, *small)


def _resolve_transposed_pads(
    call: Call, sizes: tuple[Dim, ...], kernel: tuple[int, ...], attrs: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the pads of a transposed convolution, which ``output_shape`` may decide.

    SAME makes the result as large as the operand times the stride, so its pads follow from the
    window alone.
    """
    mode, wanted = call.get("auto_pad", "NOTSET"), call.get("output_shape", ()) or None
    if wanted is None and not mode.startswith("SAME"):
        return resolve_pads(call, sizes, kernel, attrs["strides"], dilations=attrs["dilations"])
    results = wanted or [n * s for n, s in zip(sizes, attrs["strides"], strict=True)]
    totals = literal_ints(
        stride * (size - 1) + added + dilation * (k - 1) + 1 - result
        for size, k, stride, dilation, added, result in zip(
            sizes,
            kernel,
            attrs["strides"],
            attrs["dilations"],
            attrs["output_padding"],
            results,
            strict=True,
        )
    )
    expect(min(totals) >= 0)  # runtimes disagree on a result larger than the windows
    return _divided(totals, mode)


@reads("Gemm")
def _read_gemm(call: Call, context: ImportContext) -> None:
    """Read alpha A'B' + beta C; libraries add C within the product, so no bit is certain."""
    left, right = call.inputs[:2]
    dtype = context.type(left).dtype
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    expect(dtype.startswith(("float", "bfloat")) or (alpha == 1 and beta == 1))
    expect(context.type(left).rank == 2 and context.type(right).rank == 2)
    bias = call.input(2) if beta else None
    is_product = alpha == 1 and bias is None and not call.get("transA", 0)
    expect(not context.exact or (is_product and not call.get("transB", 0)))
    if call.get("transA", 0):
        left = context.emit("Transpose", [left], perm=(1, 0))
    if call.get("transB", 0):
        right = context.emit("Transpose", [right], perm=(1, 0))
    last = call.outputs[0]
    result = context.emit("MatMul", [left, right], last if alpha == 1 and bias is None else None)
    if alpha != 1:
        factor = context.constant(np.asarray(alpha, numpy_dtype(dtype)))
        result = context.emit("Mul", [result, factor], last if bias is None else None)
    if bias is not None:
        if beta != 1:
            bias = context.emit(
                "Mul", [bias, context.constant(np.asarray(beta, numpy_dtype(dtype)))]
            )
        context.emit("Add", [result, bias], last)


@reads("Conv", "ConvTranspose")
def _read_conv(call: Call, context: ImportContext) -> None:
    x, weight = context.type(call.inputs[0]), context.type(call.inputs[1])
    kernel = literal_ints(weight.shape[2:])
    axes = len(kernel)
    expect(axes == x.rank - 2 and axes >= 1)
    expect(tuple(call.get("kernel_shape", kernel)) == kernel)
    strides = tuple(call.get("strides", (1,) * axes))
    dilations = tuple(call.get("dilations", (1,) * axes))
    attrs = {"strides": strides, "dilations": dilations, "group": call.get("group", 1)}
    if call.op_type == "ConvTranspose":
        attrs["output_padding"] = tuple(call.get("output_padding", (0,) * axes))
        attrs["pads"] = _resolve_transposed_pads(call, x.shape[2:], kernel, attrs)
    else:
        attrs["pads"] = resolve_pads(call, x.shape[2:], kernel, strides, dilations=dilations)
    operands = [name for name in call.inputs if name]
    context.emit(call.op_type, operands, call.outputs[0], **attrs)


@writes("Conv", "ConvTranspose")
def _write_conv(node: Node, context: ExportContext) -> None:
    kernel = literal_ints(context.type(node.inputs[1]).shape[2:])
    context.op(node.op, node.inputs, node.output, kernel_shape=kernel, **dict(node.attrs))
