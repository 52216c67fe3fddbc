"""Types of nodes that stay opaque, where their operands tell more than inference node by node.

Inference by onnx gives up behind symbolic dimensions and computed shapes. Whatever reads the result
of such a node is typed only if the node is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import onnx_ir

from eqsat_opt.ir.dims import Dim, floor_div, literal
from eqsat_opt.ir.onnx_mapping import Untranslatable
from eqsat_opt.ir.onnx_types import fresh_dim
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
        return rule(node, first, names, types, dims, numbers)
    except (Untranslatable, IndexError, ValueError, ZeroDivisionError):
        return None


def _reshape(
    node: onnx_ir.Node,
    x: TensorType,
    names: Sequence[str],
    types: Mapping[str, ValueType],
    dims: Dims,
    numbers: Numbers,
) -> TensorType:
    """A Reshape that cannot be proven to fit its operand has the shape that its target says."""
    name = node.outputs[0].name or ""
    try:
        wanted = dims(names[1])
    except Untranslatable:
        target = types.get(names[1])
        if not isinstance(target, TensorType) or target.rank != 1:
            raise
        wanted = [-1] * literal(target.shape[0])
    shape: list[Dim] = []
    for axis, dim in enumerate(wanted):
        is_copied = dim == 0 and not node.attributes.get_int("allowzero", 0)
        if is_copied and axis < x.rank:
            shape.append(x.shape[axis])
        elif is_copied or (isinstance(dim, int) and dim < 0):
            shape.append(fresh_dim(name, axis))
        else:
            shape.append(dim)
    return TensorType(x.dtype, tuple(shape))


def _resize(
    node: onnx_ir.Node,
    x: TensorType,
    names: Sequence[str],
    types: Mapping[str, ValueType],
    dims: Dims,
    numbers: Numbers,
) -> TensorType:
    """Resize to sizes that are known, or by factors that are; Upsample by factors."""
    axes = node.attributes.get_ints("axes", None) or range(x.rank)
    policy = node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" or len(names) < 2:
        raise Untranslatable
    shape = list(x.shape)
    if len(names) > 3 and names[3]:
        for axis, size in zip(axes, dims(names[3]), strict=True):
            shape[axis] = size
        return TensorType(x.dtype, tuple(shape))
    scales = numbers(names[2] if len(names) > 2 else names[1])
    for axis, scale in zip(axes, scales, strict=True):
        exact = Fraction(float(scale))
        shape[axis] = floor_div(shape[axis] * exact.numerator, exact.denominator)
    return TensorType(x.dtype, tuple(shape))


def _top_k(
    node: onnx_ir.Node,
    x: TensorType,
    names: Sequence[str],
    types: Mapping[str, ValueType],
    dims: Dims,
    numbers: Numbers,
) -> TensorType:
    axis = node.attributes.get_int("axis", -1) % x.rank
    (count,) = dims(names[1])
    return TensorType(x.dtype, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def _convolution(
    node: onnx_ir.Node,
    x: TensorType,
    names: Sequence[str],
    types: Mapping[str, ValueType],
    dims: Dims,
    numbers: Numbers,
) -> TensorType:
    """A convolution of integers, whose weights come second or, with scales, fourth."""
    weight = types.get(names[1] if node.op_type == "ConvInteger" else names[3])
    if not isinstance(weight, TensorType) or weight.rank != x.rank or x.rank < 3:
        raise Untranslatable
    spatial = x.rank - 2
    ones = (1,) * spatial
    strides = node.attributes.get_ints("strides", ones)
    dilations = node.attributes.get_ints("dilations", ones)
    pads = node.attributes.get_ints("pads", (0,) * 2 * spatial)
    if node.attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Untranslatable
    shape: list[Dim] = [x.shape[0], weight.shape[0]]
    for axis in range(spatial):
        window = dilations[axis] * (literal(weight.shape[axis + 2]) - 1) + 1
        room = x.shape[axis + 2] + (pads[axis] + pads[axis + spatial] - window)
        shape.append(floor_div(room, strides[axis]) + 1)
    dtype = "int32" if node.op_type == "ConvInteger" else x.dtype
    return TensorType(dtype, tuple(shape))


_RULES = {
    "Reshape": _reshape,
    "Resize": _resize,
    "Upsample": _resize,
    "TopK": _top_k,
    "ConvInteger": _convolution,
    "QLinearConv": _convolution,
}
