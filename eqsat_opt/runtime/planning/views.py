"""Which Concat, Slice and Reshape move nothing, because strides can say what they do.

A Slice is a part of what it reads; so is a Reshape that splits or joins axes without gaps between
them. The operands of a Concat are written where they belong in its result from the beginning, if
they are computed by the plan and have no other such place; what cannot be is copied there. A Split
is several Slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from eqsat_opt.ir.graph import Node
from eqsat_opt.runtime.plan.plan import dense_strides

__all__ = ["Layout", "Views", "find_views", "reshaped_strides"]

Dims = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a value lies in the memory of another one, or of its own.

    Attributes:
        root: the value whose memory it is.
        offset: of the first element, in elements.
        strides: by axis, in elements.
    """

    root: str
    offset: int
    strides: Dims


@dataclass(frozen=True)
class Views:
    """What moves nothing.

    Attributes:
        nodes: outputs of nodes that need no launch.
        layouts: of every value that the plan may keep in memory.
        copies: for a Concat that is a view, the operands that are copied: (result, number) to
            the name of the part.
    """

    nodes: frozenset[str]
    layouts: Mapping[str, Layout]
    copies: Mapping[tuple[str, int], str]


def reshaped_strides(dims: Dims, strides: Dims, new: Dims) -> Dims | None:
    """Strides by which the same elements have other extents; ``None`` if there are none.

    Runs of axes that lie densely inside one another are cut anew.
    """
    if 0 in dims:
        return dense_strides(new)
    runs: list[list[int]] = []  # number of elements, stride of the last axis; merged where dense
    for dim, stride in zip(dims, strides, strict=True):
        if dim == 1:
            continue
        if runs and runs[-1][1] == dim * stride:
            runs[-1] = [runs[-1][0] * dim, stride]
        else:
            runs.append([dim, stride])
    result = [0] * len(new)
    axis = len(new) - 1
    for size, stride in reversed(runs):
        rest, step = size, stride
        while rest > 1:
            if axis < 0 or rest % new[axis]:
                return None
            result[axis] = step
            step, rest, axis = step * new[axis], rest // new[axis], axis - 1
    for left in range(axis + 1):  # extents of 1: any stride will do
        result[left] = dense_strides(new)[left]
    return tuple(result)


def _always(_node: Node, _copied: Sequence[int]) -> bool:
    return True


def find_views(
    nodes: Sequence[Node],
    dims: Mapping[str, Dims],
    movable: Collection[str],
    given: Collection[str],
    *,
    strides: Mapping[str, Dims] = MappingProxyType({}),
    packed: Collection[str] = (),
    is_cheaper: Callable[[Node, Sequence[int]], bool] = _always,
) -> Views:
    """The views of a graph.

    Args:
        nodes: in order; of one output each.
        dims: of every value.
        movable: outputs of the nodes that may become views.
        given: values that are not computed by these nodes: inputs and constants.
        strides: of values that have memory of their own; dense ones by default.
        packed: values that lie as if they had memory of their own, without gaps, because what
            computes or reads them knows no other way.
        is_cheaper: whether to copy some operands of a Concat, which are named by their numbers, is
            cheaper than to compute all of it.
    """

    def own(value: str) -> Layout:
        return Layout(value, 0, strides.get(value) or dense_strides(dims[value]))

    def may_lie(value: str, found: Dims) -> bool:
        """Whether a value may have some strides."""
        if value not in packed or 0 in dims[value]:
            return True
        wanted = zip(dims[value], own(value).strides, found, strict=True)
        return all(dim == 1 or one == other for dim, one, other in wanted)

    def root_strides(value: str) -> Dims:
        """Of what a Concat is written into, or of itself."""
        while value in place:
            value, _ = place[value]
        return own(value).strides

    producer = {node.output: node for node in nodes}
    place: dict[str, tuple[str, int]] = {}  # value to the Concat that it is written into, and where
    joined: dict[str, list[int]] = {}  # a Concat that is a view to the operands that are copied
    for node in reversed(nodes):
        if node.op != "Concat" or node.output not in movable or 0 in dims[node.output]:
            continue
        placed, copied, begin = {}, [], 0
        for number, value in enumerate(node.inputs):
            source = producer.get(value)
            is_free = value not in given and value not in place and value not in placed
            if (
                is_free
                and source is not None
                and not _is_part(source, movable)
                and may_lie(value, root_strides(node.output))
            ):
                placed[value] = begin
            else:
                copied.append(number)
            begin += dims[value][node.attr("axis")]
        if placed and is_cheaper(node, copied):
            joined[node.output] = copied
            place.update({value: (node.output, at) for value, at in placed.items()})
    layouts: dict[str, Layout] = {}
    views = set(joined)

    def placed_layout(value: str) -> Layout:
        """Of what is no part of something that is computed before; a Concat comes after."""
        chain = [value]
        while chain[-1] in place and chain[-1] not in layouts:
            chain.append(place[chain[-1]][0])
        layout = layouts.setdefault(chain[-1], own(chain[-1]))
        for one in reversed(chain[:-1]):
            whole, at = place[one]
            axis = producer[whole].attr("axis")
            offset = layout.offset + at * layout.strides[axis]
            layout = layouts[one] = Layout(layout.root, offset, layout.strides)
        return layout

    for value in given:
        layouts[value] = own(value)
    for node in nodes:
        value = node.output
        if value in layouts:
            continue
        if value not in place and _is_part(node, movable):
            part = _part_of(node, layouts[node.inputs[0]], dims)
            if part is not None and may_lie(value, part.strides):
                layouts[value] = part
                views.add(value)
                continue
        placed_layout(value)
    copies: dict[tuple[str, int], str] = {}
    for value, numbers in joined.items():
        for number in numbers:
            name = f"{value}[{number}]"
            while name in dims:
                name += "_"
            copies[value, number] = name
    return Views(frozenset(views), layouts, copies)


def _is_part(node: Node, movable: Collection[str]) -> bool:
    """Whether a node may be a view into what it reads."""
    return node.output in movable and node.op in ("Slice", "Reshape")


def _part_of(node: Node, whole: Layout, dims: Mapping[str, Dims]) -> Layout | None:
    if node.op == "Slice":
        offset = whole.offset + node.attr("lo") * whole.strides[node.attr("axis")]
        return Layout(whole.root, offset if prod(dims[node.output]) else 0, whole.strides)
    strides = reshaped_strides(dims[node.inputs[0]], whole.strides, dims[node.output])
    return None if strides is None else Layout(whole.root, whole.offset, strides)
