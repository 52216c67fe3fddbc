"""Resize, and its predecessor Upsample."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import Call, expect, normal_axis, reads, writes
from eqsat_opt.ir.ops.moving.resampling import COORDINATES
from eqsat_opt.ir.values.dims import Dim, SymDim
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []

_NEAREST = "round_prefer_floor"
_FIRST_NAMED = 11
"""First operator set with a choice of coordinates and of rounding; before it there is one each."""


@reads("Resize", "Upsample")
def _read_resize(call: Call, context: ImportContext) -> None:
    """Read a Resize; one in linear mode only on floats, since integers would be rounded."""
    x = context.type(call.inputs[0])
    is_named = context.opset >= _FIRST_NAMED
    mode = call.get("mode", "nearest")
    expect(mode in ("nearest", "linear") and not call.get("antialias", 0))
    expect(call.get("keep_aspect_ratio_policy", "stretch") == "stretch")
    coordinates = call.get("coordinate_transformation_mode", "half_pixel")
    expect(not is_named or coordinates in COORDINATES)
    rounding = call.get("nearest_mode", _NEAREST) if mode == "nearest" else _NEAREST
    # If a position is a quotient, onnxruntime also rounds up numbers slightly below a half.
    is_quotient = coordinates in ("asymmetric", "tf_half_pixel_for_nn")
    expect(not is_named or rounding != "round_prefer_ceil" or not is_quotient)
    sizes, scales = _wanted(call, context, x)
    if mode == "linear":
        expect(x.dtype in ("float32", "float16"))
        # To a known size, onnxruntime folds a table: this registry would round otherwise.
        is_open = any(isinstance(size, SymDim) for size in sizes)
        expect(is_open or call.inputs[0] not in context.constants)
    if not is_named:
        coordinates = "asymmetric"
        if mode == "nearest":  # rounds down if there are more pixels than before
            expect(min(scales) >= 1 or max(scales) <= 1)
            rounding = "floor" if min(scales) >= 1 else "ceil"
    context.emit(
        "Resize",
        call.inputs[:1],
        call.outputs[0],
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        sizes=sizes,
        up=tuple(scale.numerator for scale in scales),
        down=tuple(scale.denominator for scale in scales),
    )


def _wanted(
    call: Call, context: ImportContext, x: TensorType
) -> tuple[tuple[Dim, ...], tuple[Fraction, ...]]:
    """Return either the size along every axis, or the scale."""
    axes = [normal_axis(axis, x.rank) for axis in call.get("axes", range(x.rank))]
    sizes = call.input(3)
    if sizes is not None:
        shape = list(x.shape)
        for axis, size in zip(axes, context.dims(sizes), strict=True):
            shape[axis] = size
        expect(all(not isinstance(size, int) or size > 0 for size in shape))
        expect(context.is_expressible(x, tuple(shape), "Expand"))
        return tuple(shape), ()
    if "scales" in call.attrs:
        given = np.asarray(call.attrs["scales"], np.float32)
    else:
        second = call.op_type == "Upsample" or context.opset < _FIRST_NAMED
        given = context.array(call.inputs[1 if second else 2])
    scales = [Fraction(1)] * x.rank
    for axis, scale in zip(axes, given.reshape(-1).tolist(), strict=True):
        expect(scale > 0)
        scales[axis] = Fraction(scale)
    return (), tuple(scales)


@writes("Resize")
def _write_resize(node: Node, context: ExportContext) -> None:
    attrs: dict[str, Any] = dict(node.attrs)
    sizes, up, down = (attrs.pop(key) for key in ("sizes", "up", "down"))
    mode = {"mode": node.attr("mode")}
    scales = context.constant(
        np.asarray([a / b for a, b in zip(up, down, strict=True)], np.float32)
    )
    if context.opset >= _FIRST_NAMED:
        how = {**mode, "coordinate_transformation_mode": node.attr("coordinates")}
        if node.attr("mode") == "nearest":
            how["nearest_mode"] = node.attr("rounding")
        none = "" if context.opset >= 13 else context.constant(np.zeros(0, np.float32))
        operands = [*node.inputs, none, scales]
        if sizes:
            operands = [*node.inputs, none, none, context.shape_value(sizes)]
        context.op("Resize", operands, node.output, **how)
    elif context.opset == 10:
        context.op("Resize", [*node.inputs, scales], node.output, **mode)
    elif context.opset == 9:
        context.op("Upsample", [*node.inputs, scales], node.output, **mode)
    else:
        given = tuple(a / b for a, b in zip(up, down, strict=True))
        context.op("Upsample", node.inputs, node.output, **mode, scales=given)
