"""Views: Concat, Slice and Reshape that move no data, because strides can express them.

A Slice is a view into its operand; so is a Reshape that splits or merges axes without gaps between
them. The operands of a Concat are written into its memory directly, if the plan computes them and
they are not placed elsewhere already. If an operand is a Slice at one end of a merged kernel's
result, and is at the opposite end of the Concat, result and Concat share memory that covers both,
and overlap in the operand. All other operands are copied. A Split is several Slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.runtime.planning.layouts import Dims, Layout, NestedPlaces, is_part, part_layout

__all__ = ["Views", "find_views"]


@dataclass(frozen=True)
class Views:
    """The views of a graph, and the layouts of all values.

    Attributes:
        nodes: outputs of nodes that need no launch.
        layouts: the layout of every value that the plan may keep in memory.
        copies: operands that are copied into a Concat that is a view: by the Concat's output and
            the number of the operand, the name of the part.
        unions: memory in which several values overlap, by name: its extents, and one of the values.
    """

    nodes: frozenset[str]
    layouts: Mapping[str, Layout]
    copies: Mapping[tuple[str, int], str]
    unions: Mapping[str, tuple[Dims, str]]


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
    aligned: Mapping[str, int] = MappingProxyType({}),
    is_cheaper: Callable[[Node, Sequence[int]], bool] = _always,
) -> Views:
    """Find the views of a graph.

    Args:
        nodes: its nodes in order, of one output each.
        dims: extents of every value.
        movable: outputs of the nodes that may become views.
        given: values that are not computed by these nodes: inputs and constants.
        strides: strides of values that have memory of their own; dense ones by default.
        packed: values that must have the strides of memory of their own, without gaps, because a
            kernel that computes or reads them takes no views.
        aligned: by value, a number of elements of which its offset must be a multiple.
        is_cheaper: returns whether copying some operands of a Concat, given by their numbers, is
            cheaper than computing the whole Concat.
    """
    places = NestedPlaces(nodes, dims, movable, strides=strides, packed=packed, aligned=aligned)
    joined: dict[str, list[int]] = {}  # by Concat that is a view, the operands that are copied
    for node in reversed(nodes):
        if node.op != "Concat" or node.output not in movable or 0 in dims[node.output]:
            continue
        before = places.saved()
        copied = _placed(node, places)
        if len(copied) < len(node.inputs) and is_cheaper(node, copied):
            joined[node.output] = copied
        else:
            places.restore(before)
    layouts = {value: places.own(value) for value in given}
    views = set(joined)
    for node in nodes:
        value = node.output
        if is_part(node, movable):
            part = part_layout(node, layouts[node.inputs[0]], dims)
            if part is not None and places.may_lie(value, part):
                layouts[value] = part
                views.add(value)
                continue
        layouts[value] = places.layout(value)
    layouts.update((name, places.own(name)) for name in places.unions)
    copies: dict[tuple[str, int], str] = {}
    for value, numbers in joined.items():
        for number in numbers:
            name = f"{value}[{number}]"
            while name in dims:
                name += "_"
            copies[value, number] = name
    unions = {name: (places.dims[name], value) for name, value in places.unions.items()}
    return Views(frozenset(views), layouts, copies, unions)


def _placed(concat: Node, places: NestedPlaces) -> list[int]:
    """Place the operands of a Concat in it; return the numbers of those that must be copied.

    Operands that can be written into the Concat directly come first, because they determine whether
    slices can overlap with it.
    """
    axis, left, begin = concat.attr("axis"), [], 0
    for number, value in enumerate(concat.inputs):
        if not places.put(value, concat.output, axis, begin):
            left.append((number, value, begin))
        begin += places.dims[value][axis]
    left = [one for one in left if not places.unite(one[1], concat.output, axis, one[2])]
    # Shared memory may begin before the Concat and so align operands that were not aligned before.
    return [
        number for number, value, begin in left if not places.put(value, concat.output, axis, begin)
    ]
