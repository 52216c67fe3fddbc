"""Types of nodes that stay opaque, where their operands tell more than inference node by node.

Inference by onnx gives up behind symbolic dimensions and computed shapes. Whatever reads the result
of such a node is typed only if the node is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import onnx_ir

from eqsat_opt.ir.dims import Dim, floor_div, literal
from eqsat_opt.ir.onnx_mapping import Untranslatable
from eqsat_opt.ir.onnx_types import fresh_dim
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.ops.resampling import scaled
from eqsat_opt.ir.types import TensorType, ValueType

__all__ = ["computed_type"]

Dims = Callable[[str], Sequence[Dim]]
"""Elements of an integer vector; raises `Untranslatable` where they are not known."""

Numbers = Callable[[str], Sequence[float]]
"""Elements of a constant; raises `Untranslatable` where it is none."""


def computed_type(
    node: onnx_ir.Node, types: Mapping[str, ValueType], dims: Dims, numbers: Numbers
) -> TensorType | None:
    """Return the type of the first output, ``None`` where nothing more is known than before."""
    if node.domain not in ("", "ai.onnx") or not node.inputs or node.inputs[0] is None:
        return None
    rule = _RULES.get(node.op_type)
    first = types.get(node.inputs[0].name or "")
    if rule is None or not isinstance(first, TensorType):
        return None
    names = ["" if value is None else value.name or "" for value in node.inputs]
    try:
        return rule(_Call(node, first, tuple(names), types, dims=dims, numbers=numbers))
    except (Untranslatable, IllTyped, IndexError, ValueError, ZeroDivisionError):
        return None


@dataclass(frozen=True)
class _Call:
    """A node, what is known of its operands, and the type of the first of them."""

    node: onnx_ir.Node
    x: TensorType
    names: tuple[str, ...]
    types: Mapping[str, ValueType]
    dims: Dims
    numbers: Numbers


def _reshape(call: _Call) -> TensorType:
    """A Reshape that cannot be proven to fit its operand has the shape that its target says."""
    name = call.node.outputs[0].name or ""
    try:
        wanted = call.dims(call.names[1])
    except Untranslatable:
        target = call.types.get(call.names[1])
        if not isinstance(target, TensorType) or target.rank != 1:
            raise
        wanted = [-1] * literal(target.shape[0])
    shape: list[Dim] = []
    for axis, dim in enumerate(wanted):
        is_copied = dim == 0 and not call.node.attributes.get_int("allowzero", 0)
        if is_copied and axis < call.x.rank:
            shape.append(call.x.shape[axis])
        elif is_copied or (isinstance(dim, int) and dim < 0):
            shape.append(fresh_dim(name, axis))
        else:
            shape.append(dim)
    return TensorType(call.x.dtype, tuple(shape))


def _resize(call: _Call) -> TensorType:
    """Resize to sizes that are known, or by factors that are; Upsample by factors."""
    axes = call.node.attributes.get_ints("axes", None) or range(call.x.rank)
    policy = call.node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" or len(call.names) < 2:
        raise Untranslatable
    shape = list(call.x.shape)
    if len(call.names) > 3 and call.names[3]:
        for axis, size in zip(axes, call.dims(call.names[3]), strict=True):
            shape[axis] = size
        return TensorType(call.x.dtype, tuple(shape))
    scales = call.numbers(call.names[2] if len(call.names) > 2 else call.names[1])
    for axis, scale in zip(axes, scales, strict=True):
        shape[axis] = scaled(shape[axis], Fraction(float(scale)))
    return TensorType(call.x.dtype, tuple(shape))


def _top_k(call: _Call) -> TensorType:
    axis = call.node.attributes.get_int("axis", -1) % call.x.rank
    (count,) = call.dims(call.names[1])
    return TensorType(call.x.dtype, (*call.x.shape[:axis], count, *call.x.shape[axis + 1 :]))


def _integer_convolution(call: _Call) -> TensorType:
    """A convolution of integers, whose weights come second or, with scales, fourth."""
    weight = call.types.get(call.names[1] if call.node.op_type == "ConvInteger" else call.names[3])
    if not isinstance(weight, TensorType) or weight.rank != call.x.rank or call.x.rank < 3:
        raise Untranslatable
    spatial = call.x.rank - 2
    ones = (1,) * spatial
    strides = call.node.attributes.get_ints("strides", ones)
    dilations = call.node.attributes.get_ints("dilations", ones)
    pads = call.node.attributes.get_ints("pads", (0,) * 2 * spatial)
    if call.node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Untranslatable
    shape: list[Dim] = [call.x.shape[0], weight.shape[0]]
    for axis in range(spatial):
        window = dilations[axis] * (literal(weight.shape[axis + 2]) - 1) + 1
        room = call.x.shape[axis + 2] + (pads[axis] + pads[axis + spatial] - window)
        shape.append(floor_div(room, strides[axis]) + 1)
    dtype = "int32" if call.node.op_type == "ConvInteger" else call.x.dtype
    return TensorType(dtype, tuple(shape))


def _tile(call: _Call) -> TensorType:
    counts = call.dims(call.names[1])
    pairs = zip(call.x.shape, counts, strict=True)
    return TensorType(call.x.dtype, tuple(size * count for size, count in pairs))


_RULES = {
    "Reshape": _reshape,
    "Resize": _resize,
    "Upsample": _resize,
    "Tile": _tile,
    "TopK": _top_k,
    "ConvInteger": _integer_convolution,
    "QLinearConv": _integer_convolution,
}
