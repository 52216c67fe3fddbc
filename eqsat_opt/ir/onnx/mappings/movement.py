"""Operators that move data; in the graph, every change of shape is one Reshape."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.export_context import ExportContext
from eqsat_opt.ir.onnx.import_context import ImportContext
from eqsat_opt.ir.onnx.mapping import (
    Call,
    expect,
    literal_ints,
    normal_axis,
    reads,
    refuse,
    scalar,
    writes,
)
from eqsat_opt.ir.ops.cuts import cut_length
from eqsat_opt.ir.values.dims import (
    Dim,
    SymDim,
    atom_of,
    dim_max,
    dim_product,
    expand_target,
    floor_div,
    is_size,
    plain_symbol,
    reshape_target,
    unsqueezed_axes,
)
from eqsat_opt.ir.values.types import FLOATS, StaticType, TensorType, numpy_dtype

__all__: list[str] = []

_MAX = 2**31 - 1

_ADDRESSABLE_BYTES = 1 << 47
"""Limit of the memory of a process on present processors."""


def _flattened_axis(source: tuple[Dim, ...], shape: tuple[Dim, ...]) -> int | None:
    """Return the axis at which a Flatten to ``shape`` cuts, ``None`` if there is none."""
    if len(shape) != 2:
        return None
    cuts = (
        axis
        for axis in range(len(source) + 1)
        if (dim_product(source[:axis]), dim_product(source[axis:])) == shape
    )
    return next(cuts, None)


def _spells(target: Sequence[int], source: tuple[Dim, ...], shape: tuple[Dim, ...]) -> bool:
    """Return whether a Reshape by the constant ``target`` gives ``shape`` whenever it succeeds."""
    if len(target) != len(shape) or list(target).count(-1) > 1:
        return False
    copied = (*source, *(-1,) * len(shape))
    return all(
        size == -1 or dim == (size or same)
        for size, dim, same in zip(target, shape, copied, strict=False)
    )


def _emit_reshape(call: Call, context: ImportContext, shape: tuple[Dim, ...]) -> None:
    x = context.type(call.inputs[0])
    expect(context.is_expressible(x, shape, "Reshape"))
    context.emit("Reshape", call.inputs[:1], call.outputs[0], shape=shape)


@reads("Reshape")
def _read_reshape(call: Call, context: ImportContext) -> None:
    x, wanted = context.type(call.inputs[0]), list(context.dims(call.inputs[1]))
    if not call.get("allowzero", 0):
        for axis, dim in enumerate(wanted):
            if dim == 0:
                expect(axis < x.rank)
                wanted[axis] = x.shape[axis]
    if -1 in wanted:
        rest = dim_product(d for d in wanted if d != -1)
        expect(wanted.count(-1) == 1 and rest != 0)
        wanted[wanted.index(-1)] = floor_div(x.size, rest)
    elif not call.get("allowzero", 0) and dim_product(wanted) != x.size:
        # A size that is 0 in some run would copy that of the operand instead.
        expect(all(_is_filled(dim, x, context) for dim in wanted[: x.rank]))
    _emit_reshape(call, context, tuple(wanted))


def _is_filled(dim: Dim, x: TensorType, context: ImportContext) -> bool:
    """Return whether a size is never 0 where an operand has elements."""
    return context.facts.is_size(dim - 1) or floor_div(x.size, dim) * dim == x.size


@reads("Flatten")
def _read_flatten(call: Call, context: ImportContext) -> None:
    x = context.type(call.inputs[0])
    axis = call.get("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    _emit_reshape(call, context, (dim_product(x.shape[:axis]), dim_product(x.shape[axis:])))


def _axes(call: Call, context: ImportContext) -> tuple[int, ...] | None:
    operand = call.input(1)
    if operand is not None:
        return tuple(int(a) for a in context.array(operand).reshape(-1))
    return tuple(call.attrs["axes"]) if "axes" in call.attrs else None


@reads("Squeeze")
def _read_squeeze(call: Call, context: ImportContext) -> None:
    x, axes = context.type(call.inputs[0]), _axes(call, context)
    if axes is None:
        expect(isinstance(x, StaticType))
        axes = tuple(i for i, d in enumerate(x.shape) if d == 1)
    drop = {normal_axis(a, x.rank) for a in axes}
    expect(all(x.shape[i] == 1 for i in drop))
    _emit_reshape(call, context, tuple(d for i, d in enumerate(x.shape) if i not in drop))


@reads("Unsqueeze")
def _read_unsqueeze(call: Call, context: ImportContext) -> None:
    x, axes = context.type(call.inputs[0]), _axes(call, context)
    expect(axes is not None)
    rank = x.rank + len(axes or ())
    new = {normal_axis(a, rank) for a in axes or ()}
    expect(len(new) == rank - x.rank)
    rest = iter(x.shape)
    _emit_reshape(call, context, tuple(1 if i in new else next(rest) for i in range(rank)))


def _write_axes(context: ExportContext, op: str, x: str, axes: tuple[int, ...], out: str) -> None:
    if context.opset >= 13:
        context.op(op, [x, context.constant(np.asarray(axes, np.int64))], out)
    else:
        context.op(op, [x], out, axes=axes)


def _own_target(
    node: Node, context: ExportContext, source: tuple[Dim, ...], shape: tuple[Dim, ...]
) -> tuple[int, ...] | None:
    """Return the constant operand of the original node, if it gives ``shape``.

    With this operand, the node refuses the same inputs as the original.
    """
    wanted = context.original_constant(node, "Reshape", 1)
    if wanted is None:
        return None
    target = tuple(int(size) for size in wanted.reshape(-1))
    return target if _spells(target, source, shape) else None


def _with_inferred(source: tuple[Dim, ...], shape: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """Return the target with -1 for the quotient of all elements by the other sizes, if it has one.

    A runtime infers it wherever Div would divide, and also at sizes of 0, by ways of its own.
    """
    for axis, dim in enumerate(shape):
        meaning = atom_of(plain_symbol(dim) or "")
        if meaning is None or meaning.function != "floor":
            continue
        others = dim_product((*shape[:axis], *shape[axis + 1 :]))
        if meaning.right == others and meaning.left == dim_product(source):
            return (*shape[:axis], -1, *shape[axis + 1 :])
    return None


@writes("Reshape")
def _write_reshape(node: Node, context: ExportContext) -> None:
    (x,), shape = node.inputs, tuple(node.attr("shape"))
    source = context.type(x).shape
    axes = unsqueezed_axes(source, shape)
    if axes:
        _write_axes(context, "Unsqueeze", x, axes=axes, out=node.output)
        return
    target = reshape_target(source, shape) or _own_target(node, context, source, shape)
    if target is not None:
        context.op("Reshape", [x, context.constant(np.asarray(target, np.int64))], node.output)
        return
    axes = unsqueezed_axes(shape, source)
    if axes:
        _write_axes(context, "Squeeze", x, axes=axes, out=node.output)
        return
    axis = _flattened_axis(source, shape)
    if axis is not None and (context.opset >= 9 or context.type(x).dtype in FLOATS):
        context.op("Flatten", [x], node.output, axis=axis)
        return
    inferred = _with_inferred(source, shape)
    if inferred is not None:
        flag = context.original_int(node, "Reshape", "allowzero")
        keeps_zeros = context.opset >= 14 if flag is None else bool(flag)
        zeros = {"allowzero": 1} if keeps_zeros else {}
        context.op("Reshape", [x, context.shape_value(inferred)], node.output, **zeros)
        return
    if context.opset >= 14:
        context.op("Reshape", [x, context.shape_value(shape)], node.output, allowzero=1)
        return
    if any(dim == 0 and source[axis : axis + 1] != (0,) for axis, dim in enumerate(shape)):
        refuse(node, context.opset)
    context.op("Reshape", [x, context.shape_value(shape)], node.output)


@reads("Expand")
def _read_expand(call: Call, context: ImportContext) -> None:
    x, wanted = context.type(call.inputs[0]), context.dims(call.inputs[1])
    rank = max(x.rank, len(wanted))
    source = (1,) * (rank - x.rank) + x.shape
    wanted = (1,) * (rank - len(wanted)) + wanted
    shape = tuple(map(context.joined, source, wanted))
    expect(context.is_expressible(x, shape, "Expand"))
    context.emit("Expand", call.inputs[:1], call.outputs[0], shape=shape)


@reads("Tile")
def _read_tile(call: Call, context: ImportContext) -> None:
    """Read a Tile as an Expand along axes of size 1, which are inserted where needed."""
    x, counts = context.type(call.inputs[0]), context.dims(call.inputs[1])
    expect(len(counts) == x.rank and 0 not in counts)
    pairs = list(zip(x.shape, counts, strict=True))
    apart: list[Dim] = []
    repeated: list[Dim] = []
    for size, count in pairs:
        if 1 not in (size, count):
            apart.append(1)
            repeated.append(count)
            count = 1
        apart.append(size)
        repeated.append(size * count)
    shapes = tuple(apart), tuple(repeated), tuple(size * count for size, count in pairs)
    value = call.inputs[0]
    ops = [
        (op, shape)
        for op, shape, before in zip(
            ("Reshape", "Expand", "Reshape"), shapes, (x.shape, *shapes), strict=False
        )
        if shape != before
    ]
    if not ops:
        context.alias(value, call.outputs[0])
    for index, (op, shape) in enumerate(ops, start=1):
        expect(context.is_expressible(context.type(value), shape, op))
        out = call.outputs[0] if index == len(ops) else None
        value = context.emit(op, [value], out, shape=shape)


@writes("Expand")
def _write_expand(node: Node, context: ExportContext) -> None:
    (x,), shape = node.inputs, tuple(node.attr("shape"))
    if context.opset < 8:
        refuse(node, context.opset)
    target = expand_target(context.type(x).shape, shape)
    operand = (
        context.shape_value(shape)
        if target is None
        else context.constant(np.asarray(target, np.int64))
    )
    context.op("Expand", [x, operand], node.output)


@reads("Transpose")
def _read_transpose(call: Call, context: ImportContext) -> None:
    rank = context.type(call.inputs[0]).rank
    perm = tuple(call.get("perm", tuple(reversed(range(rank)))))
    context.emit("Transpose", call.inputs, call.outputs[0], perm=perm)


@reads("Concat", "Gather")
def _read_along(call: Call, context: ImportContext) -> None:
    axis = call.get("axis", 0) if call.op_type == "Gather" else call.attrs["axis"]
    axis = normal_axis(axis, context.type(call.inputs[0]).rank)
    context.emit(call.op_type, call.inputs, call.outputs[0], axis=axis)


@writes("BatchNormalization", "Concat", "Gather", "InstanceNormalization", "Transpose")
def _write_as_it_is(node: Node, context: ExportContext) -> None:
    context.op(node.op, node.inputs, node.output, **dict(node.attrs))


def _slice_bounds(call: Call, context: ImportContext) -> list[tuple[int, Dim, Dim, Dim]]:
    """Return axis, start, end and step of each cut as the model gives them."""
    if context.opset >= 10:
        starts, ends = (context.dims(call.inputs[i]) for i in (1, 2))
        axes_operand, steps_operand = call.input(3), call.input(4)
        axes = context.dims(axes_operand) if axes_operand else range(len(starts))
        steps = context.dims(steps_operand) if steps_operand else (1,) * len(starts)
    else:
        starts, ends = tuple(call.attrs["starts"]), tuple(call.attrs["ends"])
        axes = call.get("axes", range(len(starts)))
        steps = (1,) * len(starts)
    return list(zip(literal_ints(axes), starts, ends, steps, strict=True))


def _is_beyond(x: TensorType, axis: int, end: int) -> bool:
    """Return whether any tensor of this type that ``end`` would cut is too large for a machine."""
    other = [dim for i, dim in enumerate(x.shape) if i != axis and isinstance(dim, int) and dim]
    return math.prod(other) * end * numpy_dtype(x.dtype).itemsize >= _ADDRESSABLE_BYTES


@reads("Slice")
def _read_slice(call: Call, context: ImportContext) -> None:
    x = context.type(call.inputs[0])
    cuts: list[tuple[str, dict[str, Any]]] = []
    for raw_axis, start, end, step in _slice_bounds(call, context):
        axis = normal_axis(raw_axis, x.rank)
        size = x.shape[axis]
        start, end = (_from_begin(bound, context) for bound in (start, end))
        if isinstance(end, int) and _is_beyond(x, axis, end):
            end = _MAX
        length = cut_length(size, start, end, step)
        if step == 1 and length == size:
            continue
        expect(context.are_computable((start, end), x))
        cuts.append(_cut_of(axis, size, (start, end, step)))
    if not cuts:
        context.alias(call.inputs[0], call.outputs[0])
    value = call.inputs[0]
    for index, (op, attrs) in enumerate(cuts, start=1):
        out = call.outputs[0] if index == len(cuts) else None
        value = context.emit(op, [value], out, **attrs)


def _from_begin(bound: Dim, context: ImportContext) -> Dim:
    """Rewrite a bound that is never negative in a run that succeeds, so that its form shows it."""
    if isinstance(bound, SymDim) and not is_size(bound) and context.facts.is_size(bound):
        return dim_max(0, bound)
    return bound


def _cut_of(axis: int, size: Dim, cut: tuple[Dim, Dim, Dim]) -> tuple[str, dict[str, Any]]:
    """Choose the operator of a slice along one axis, with its attributes in one normal form."""
    bounds = [bound for bound in (size, *cut) if isinstance(bound, int)]
    if len(bounds) <= len(cut):
        return "StridedSlice", {"axis": axis, "cut": cut}
    places = range(bounds[0])[slice(*bounds[1:])]
    if places and (places.step == 1 or len(places) == 1):
        return "Slice", {"axis": axis, "lo": places[0], "hi": places[0] + len(places)}
    stop = places.stop if places.stop >= 0 else -_MAX
    return "StridedSlice", {"axis": axis, "cut": (places.start, stop, places.step)}


@writes("StridedSlice")
def _write_strided_slice(node: Node, context: ExportContext) -> None:
    axis, cut = node.attr("axis"), tuple(node.attr("cut"))
    if context.opset < 10:
        begin, end, step = cut
        if step != 1 or not isinstance(begin, int) or not isinstance(end, int):
            refuse(node, context.opset)
        context.op("Slice", node.inputs, node.output, axes=(axis,), starts=(begin,), ends=(end,))
        return
    begin, end, step = (context.shape_value((bound,)) for bound in cut)
    operands = [*node.inputs, begin, end, context.constant(np.asarray([axis], np.int64))]
    context.op("Slice", [*operands, step] if cut[2] != 1 else operands, node.output)


@writes("Slice")
def _write_slice(node: Node, context: ExportContext) -> None:
    axis, low, high = node.attr("axis"), node.attr("lo"), node.attr("hi")
    if context.opset < 10:
        context.op("Slice", node.inputs, node.output, axes=(axis,), starts=(low,), ends=(high,))
        return
    bounds = [context.constant(np.asarray([value], np.int64)) for value in (low, high, axis)]
    context.op("Slice", [*node.inputs, *bounds], node.output)


def _emit_parts(
    context: ImportContext, x: str, axis: int, sizes: list[int], outputs: tuple[str, ...]
) -> None:
    (total,) = literal_ints([context.type(x).shape[axis]])
    expect(sum(sizes) == total and len(sizes) >= len(outputs) and min(sizes) > 0)
    low = 0
    for size, out in zip(sizes, outputs, strict=False):
        if out and size == total:
            context.alias(x, out)
        elif out:
            context.emit("Slice", [x], out, axis=axis, lo=low, hi=low + size)
        low += size


def _even_sizes(total: int, parts: int) -> list[int]:
    chunk = -(-total // parts)
    return [min(chunk, total - i * chunk) for i in range(parts)]


@reads("Split")
def _read_split(call: Call, context: ImportContext) -> None:
    x = context.type(call.inputs[0])
    axis = normal_axis(call.get("axis", 0), x.rank)
    operand = call.input(1)
    if operand is not None:
        sizes = [int(s) for s in context.array(operand).reshape(-1)]
    elif "split" in call.attrs:
        sizes = list(call.attrs["split"])
    else:
        (total,) = literal_ints([x.shape[axis]])
        sizes = _even_sizes(total, call.get("num_outputs", call.n_outputs))
    _emit_parts(context, call.inputs[0], axis, sizes, outputs=call.outputs)


@reads("SequenceAt")
def _read_sequence_at(call: Call, context: ImportContext) -> None:
    """Read one part of a SplitToSequence, which exporters write in place of a Split."""
    split = context.sequence(call.inputs[0])
    index = int(scalar(context.array(call.inputs[1])))
    if split is None or split.op_type != "SplitToSequence":
        expect(False)
        return
    x = context.type(split.inputs[0])
    axis = normal_axis(split.get("axis", 0), x.rank)
    (total,) = literal_ints([x.shape[axis]])
    sizes_operand = split.input(1)
    expect(sizes_operand is not None)
    sizes = context.array(sizes_operand or "")
    if sizes.ndim == 0:
        chunk = int(sizes)
        expect(chunk > 0)
        parts = [min(chunk, total - low) for low in range(0, total, chunk)]
    else:
        parts = [int(s) for s in sizes]
    expect(-len(parts) <= index < len(parts))
    outputs = [""] * len(parts)
    outputs[index] = call.outputs[0]
    _emit_parts(context, split.inputs[0], axis, parts, outputs=tuple(outputs))
