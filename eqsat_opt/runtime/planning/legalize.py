"""Replacement of ONNX nodes by operators of the registry, the only ones that plans can hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import SPLIT
from eqsat_opt.ir.values.dims import Dim, dim_names, evaluate_dim
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["apart", "legalized"]


def apart(node: Node) -> Iterator[Node]:
    """Yield nodes of one result each: a Split as several Slices, any other node unchanged."""
    if node.op != SPLIT:
        yield node
        return
    begin = 0
    for name, size in zip(node.outputs, node.attr("sizes"), strict=True):
        attrs = attributes(axis=node.attr("axis"), lo=begin, hi=begin + size)
        yield replace(node, op="Slice", outputs=(name,), attrs=attrs)
        begin += size


def legalized(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """Return the graph of the live nodes, replaced by operators of the registry where possible.

    Args:
        graph: any graph.
        sizes: sizes of symbolic dimensions.
    """
    types = dict(graph.types)
    nodes = []
    for node in (part for one in graph.live_nodes() for part in apart(one)):
        found = None
        if node.op == OPAQUE and node.payload is not None and not node.payload.domain:
            stand_in = _REPLACEMENTS.get(node.payload.op_type)
            found = stand_in(graph, node, sizes, types=types) if stand_in else None
        nodes += [node] if found is None else found
    return replace(graph, nodes=tuple(nodes), types=types)


def _copied(
    graph: Graph, node: Node, _sizes: Mapping[str, int], *, types: dict[str, ValueType]
) -> list[Node] | None:
    """Return an Identity as a Transpose that copies.

    An Identity remains in a graph where a value and its second name are both outputs.
    """
    type_ = graph.tensor_type(node.inputs[0])
    if type_ is None:
        return None
    stay = attributes(perm=tuple(range(type_.rank)))
    return [Node("Transpose", node.inputs[:1], node.outputs, stay, name=node.name)]


_MOST = 1 << 20
"""Limit of extents: below it, coordinates in float32 stay clear of the borders between pixels."""


def _repeated(
    graph: Graph, node: Node, sizes: Mapping[str, int], *, types: dict[str, ValueType]
) -> list[Node] | None:
    """Return a Resize that repeats pixels as one Repeat per axis; ``None`` for any other Resize."""
    source, target = graph.tensor_type(node.inputs[0]), graph.tensor_type(node.output)
    if source is None or target is None or not _is_nearest(node):
        return None
    factors = _factors(source, target, sizes)
    if factors is None or not _says(graph, node, factors):
        return None
    axes = [axis for axis, factor in enumerate(factors) if factor != 1]
    if not axes:
        return _copied(graph, node, sizes, types=types)
    nodes, name, shape = [], node.inputs[0], list(source.shape)
    for axis in axes:
        shape[axis] = target.shape[axis]
        made = node.output if axis == axes[-1] else _new(f"{node.output} along {axis}", types)
        types[made] = TensorType(source.dtype, tuple(shape))
        attrs = attributes(axis=axis, repeats=factors[axis])
        nodes.append(Node("Repeat", (name,), (made,), attrs, name=node.name))
        name = made
    return nodes


def _is_nearest(node: Node) -> bool:
    """Return whether a Resize by whole factors repeats pixels.

    It does in mode nearest if no sample is exactly halfway between two pixels.
    """
    values = {name: one.value for name, one in node.payload.attributes.items()}
    if values.get("mode", "nearest") != "nearest" or values.get("antialias", 0):
        return False
    if values.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return False
    if len(node.inputs) == 2:  # before opset 11
        return True
    rule = values.get("coordinate_transformation_mode", "half_pixel")
    rounding = values.get("nearest_mode", "round_prefer_floor")
    if rule == "asymmetric":
        return bool(rounding == "floor")
    return rule == "half_pixel" and rounding in ("round_prefer_floor", "round_prefer_ceil")


def _factors(
    source: TensorType, target: TensorType, sizes: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Return the factor by which each axis grows; ``None`` if one is not whole or not known."""
    factors = []
    for old, new in zip(source.shape, target.shape, strict=True):
        before, after = _fixed(old, sizes), _fixed(new, sizes)
        if old == new:
            factors.append(1)
            continue
        if not isinstance(before, int) or not isinstance(after, int):
            return None
        if not 0 < before <= after < _MOST or after % before:
            return None
        factors.append(after // before)
    return tuple(factors)


def _fixed(dim: Dim, sizes: Mapping[str, int]) -> Dim:
    return evaluate_dim(dim, sizes) if set(dim_names(dim)) <= sizes.keys() else dim


def _says(graph: Graph, node: Node, factors: tuple[int, ...]) -> bool:
    """Return whether the scales of a Resize equal the factors; sizes always agree with them."""
    if len(node.inputs) > 3 and node.inputs[3]:
        return True
    name = node.inputs[1 if len(node.inputs) == 2 else 2]
    scales = graph.constants.get(name)
    if scales is None:
        return False
    axes = node.payload.attributes.get("axes")
    wanted = factors if axes is None else [factors[axis] for axis in axes.value]
    return bool(np.array_equal(scales.load(), np.asarray(wanted, np.float32)))


def _new(name: str, types: Mapping[str, ValueType]) -> str:
    while name in types:
        name += "'"
    return name


_REPLACEMENTS = {"Identity": _copied, "Resize": _repeated, "Upsample": _repeated}
