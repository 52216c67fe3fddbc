"""Types of opaque nodes whose operands determine more than inference node by node finds.

Inference by onnx gives up after symbolic dimensions and computed shapes. A reader of the result of
such a node is typed only if the node is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import onnx_ir

from eqsat_opt.ir.onnx.mapping import Untranslatable
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.ops.cuts import cut_length
from eqsat_opt.ir.ops.moving.resampling import scaled
from eqsat_opt.ir.sizes.given_values import is_of_value
from eqsat_opt.ir.values.dim_names import fresh_dim
from eqsat_opt.ir.values.dims import Dim, dim_names, dim_product, floor_div, literal
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["computed_types"]


class KnownValues(Protocol):
    """A reader of values that are known before any run."""

    def dims(self, name: str) -> Sequence[Dim]:
        """Return the elements of an integer vector; raise `Untranslatable` if unknown."""
        ...

    def numbers(self, name: str) -> Sequence[float]:
        """Return the elements of a constant; raise `Untranslatable` if there is none."""
        ...

    def has_no_zero(self, name: str) -> bool:
        """Return whether a value is known to be other than 0 in every place."""
        ...


def computed_types(
    node: onnx_ir.Node, types: Mapping[str, ValueType], values: KnownValues
) -> Sequence[TensorType]:
    """Return the types of the first outputs, none if nothing more is known than before.

    Args:
        node: a node of any operator.
        types: types of the values so far.
        values: reads values.
    """
    if node.domain not in ("", "ai.onnx") or not node.inputs or node.inputs[0] is None:
        return ()
    rule = _RULES.get(node.op_type)
    first = types.get(node.inputs[0].name or "")
    if rule is None or not isinstance(first, TensorType):
        return ()
    names = ["" if value is None else value.name or "" for value in node.inputs]
    try:
        found = rule(_Call(node, first, tuple(names), types, values=values))
    except (Untranslatable, IllTyped, IndexError, ValueError, ZeroDivisionError):
        return ()
    return found if isinstance(found, tuple) else (found,)


@dataclass(frozen=True)
class _Call:
    """A node, the known facts about its operands, and the type of the first of them."""

    node: onnx_ir.Node
    x: TensorType
    names: tuple[str, ...]
    types: Mapping[str, ValueType]
    values: KnownValues

    def dims(self, name: str) -> Sequence[Dim]:
        """Return the elements of an integer vector."""
        return self.values.dims(name)

    def dims_or_none(self, name: str) -> Sequence[Dim] | None:
        """Return the elements of an integer vector if they are known."""
        try:
            return self.dims(name)
        except Untranslatable:
            return None


def _reshape(call: _Call) -> TensorType:
    """Type a Reshape that cannot be proven to fit its operand, by its target."""
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
        elif is_copied or (isinstance(dim, int) and dim < 0) or _may_be_negative(dim):
            shape.append(fresh_dim(name, axis))
        else:
            shape.append(dim)
    return TensorType(call.x.dtype, tuple(shape))


def _may_be_negative(dim: Dim) -> bool:
    """Return whether a size of a target is a value of an input, which may be -1 there."""
    return any(map(is_of_value, dim_names(dim)))


def _resize(call: _Call) -> TensorType:
    """Type a Resize by known sizes or factors, or an Upsample by factors."""
    axes = call.node.attributes.get_ints("axes", None) or range(call.x.rank)
    policy = call.node.attributes.get_string("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" or len(call.names) < 2:
        raise Untranslatable
    shape = list(call.x.shape)
    if len(call.names) > 3 and call.names[3]:
        for axis, size in zip(axes, call.dims(call.names[3]), strict=True):
            shape[axis] = size
        return TensorType(call.x.dtype, tuple(shape))
    scales = call.values.numbers(call.names[2] if len(call.names) > 2 else call.names[1])
    for axis, scale in zip(axes, scales, strict=True):
        shape[axis] = scaled(shape[axis], Fraction(float(scale)))
    return TensorType(call.x.dtype, tuple(shape))


def _top_k(call: _Call) -> tuple[TensorType, TensorType]:
    """Type a TopK; how many elements are kept may be a value that only the run knows."""
    axis = call.node.attributes.get_int("axis", -1) % call.x.rank
    known = call.dims_or_none(call.names[1])
    count = fresh_dim(call.node.outputs[0].name or "", axis) if known is None else known[0]
    shape = (*call.x.shape[:axis], count, *call.x.shape[axis + 1 :])
    return TensorType(call.x.dtype, shape), TensorType("int64", shape)


def _slice(call: _Call) -> TensorType:
    """Type a slice; its length along an axis that is cut may be unknown."""
    starts, name = call.types.get(call.names[1]), call.node.outputs[0].name or ""
    if not isinstance(starts, TensorType):
        raise Untranslatable
    count, shape = literal(starts.shape[0]), list(call.x.shape)
    axes, steps = (
        call.dims(call.names[i]) if len(call.names) > i and call.names[i] else default
        for i, default in ((3, range(count)), (4, (1,) * count))
    )
    begins, ends = (call.dims_or_none(call.names[i]) for i in (1, 2))
    for index in range(count):
        axis = literal(axes[index]) % call.x.rank
        length: Dim = fresh_dim(name, axis)
        if begins is not None and ends is not None:
            with suppress(IllTyped):
                length = cut_length(shape[axis], begins[index], ends[index], steps[index])
        shape[axis] = length
    return TensorType(call.x.dtype, tuple(shape))


def _split(call: _Call) -> tuple[TensorType, ...]:
    """Type the parts of a Split, by given sizes or equal ones of which the last may be less."""
    axis = call.node.attributes.get_int("axis", 0) % call.x.rank
    size, count = call.x.shape[axis], len(call.node.outputs)
    if len(call.names) > 1 and call.names[1]:
        parts = list(call.dims(call.names[1]))
    elif given := call.node.attributes.get_ints("split", ()):
        parts = list(given)
    else:
        chunk = floor_div(size + (count - 1), count)
        parts = [chunk] * (count - 1) + [size - chunk * (count - 1)]
    if any(isinstance(part, int) and part < 0 for part in parts):
        raise Untranslatable
    shapes = [(*call.x.shape[:axis], part, *call.x.shape[axis + 1 :]) for part in parts]
    return tuple(TensorType(call.x.dtype, shape) for shape in shapes)


def _depth_to_space(call: _Call) -> TensorType:
    batch, channels, *sides = call.x.shape
    block = literal(call.node.attributes.get_int("blocksize", 1))
    blocks = [side * block for side in sides]
    return TensorType(call.x.dtype, (batch, floor_div(channels, block * block), *blocks))


def _space_to_depth(call: _Call) -> TensorType:
    batch, channels, *sides = call.x.shape
    block = literal(call.node.attributes.get_int("blocksize", 1))
    blocks = [floor_div(side, block) for side in sides]
    return TensorType(call.x.dtype, (batch, channels * (block * block), *blocks))


def _pad(call: _Call) -> TensorType:
    """Type a Pad whose pads are computed, on all axes or on those that are named."""
    pads = call.dims(call.names[1])
    axes: Sequence[Dim] = range(call.x.rank)
    if len(call.names) > 3 and call.names[3]:
        axes = call.dims(call.names[3])
    if len(pads) != 2 * len(axes):
        raise Untranslatable
    shape = list(call.x.shape)
    for place, axis in enumerate(axes):
        shape[literal(axis)] += pads[place] + pads[place + len(axes)]
    return TensorType(call.x.dtype, tuple(shape))


def _integer_convolution(call: _Call) -> TensorType:
    """Type a convolution of integers, whose weights come second or, with scales, fourth."""
    weight = call.types.get(call.names[1] if call.node.op_type == "ConvInteger" else call.names[3])
    if not isinstance(weight, TensorType) or weight.rank != call.x.rank or call.x.rank < 3:
        raise Untranslatable
    spatial = call.x.rank - 2
    ones = (1,) * spatial
    strides = call.node.attributes.get_ints("strides", ones)
    dilations = call.node.attributes.get_ints("dilations", ones)
    pads = call.node.attributes.get_ints("pads", (0,) * 2 * spatial)
    same = call.node.attributes.get_string("auto_pad", "NOTSET").startswith("SAME")
    shape: list[Dim] = [call.x.shape[0], weight.shape[0]]
    for axis in range(spatial):
        if same:
            shape.append(floor_div(call.x.shape[axis + 2] + strides[axis] - 1, strides[axis]))
            continue
        window = dilations[axis] * (literal(weight.shape[axis + 2]) - 1) + 1
        room = call.x.shape[axis + 2] + (pads[axis] + pads[axis + spatial] - window)
        shape.append(floor_div(room, strides[axis]) + 1)
    dtype = "int32" if call.node.op_type == "ConvInteger" else call.x.dtype
    return TensorType(dtype, tuple(shape))


def _same_window(call: _Call) -> tuple[TensorType, ...]:
    """Type a window whose pads are SAME: every stride has one place, whatever the size."""
    attributes, spatial = call.node.attributes, call.x.rank - 2
    if not attributes.get_string("auto_pad", "NOTSET").startswith("SAME") or spatial < 1:
        raise Untranslatable
    strides = attributes.get_ints("strides", (1,) * spatial)
    sides = zip(call.x.shape[2:], strides, strict=True)
    channels = call.x.shape[1]
    if call.node.op_type == "Conv":
        weight = call.types.get(call.names[1])
        if not isinstance(weight, TensorType):
            raise Untranslatable
        channels = weight.shape[0]
    shape = (call.x.shape[0], channels, *(floor_div(n + s - 1, s) for n, s in sides))
    return TensorType(call.x.dtype, shape), TensorType("int64", shape)


def _non_zero(call: _Call) -> TensorType:
    """Type the places of elements where no element is 0: PyTorch counts in this way."""
    if not call.values.has_no_zero(call.names[0]):
        raise Untranslatable
    return TensorType("int64", (call.x.rank, dim_product(call.x.shape)))


def _tile(call: _Call) -> TensorType:
    counts = call.dims_or_none(call.names[1])
    if counts is None:
        name = call.node.outputs[0].name or ""
        return TensorType(call.x.dtype, tuple(fresh_dim(name, i) for i in range(call.x.rank)))
    pairs = zip(call.x.shape, counts, strict=True)
    return TensorType(call.x.dtype, tuple(size * count for size, count in pairs))


_RULES: dict[str, Callable[[_Call], TensorType | tuple[TensorType, ...]]] = {
    "Reshape": _reshape,
    "Resize": _resize,
    "Upsample": _resize,
    "Tile": _tile,
    "TopK": _top_k,
    "DepthToSpace": _depth_to_space,
    "SpaceToDepth": _space_to_depth,
    "Slice": _slice,
    "Split": _split,
    "NonZero": _non_zero,
    "Pad": _pad,
    "Conv": _same_window,
    "MaxPool": _same_window,
    "AveragePool": _same_window,
    "ConvInteger": _integer_convolution,
    "QLinearConv": _integer_convolution,
}
