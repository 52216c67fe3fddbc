"""Which Concat, Slice and Reshape move nothing, because strides can say what they do.

A Slice is a part of what it reads; so is a Reshape that splits or joins axes without gaps between
them. The operands of a Concat are written where they belong in its result from the beginning, if
they are computed by the plan and have no other such place. If an operand is a Slice at one end of
what a merged kernel computes, and stands at the other end of the Concat, both lie in memory that
covers both, and overlap in the operand. What cannot be is copied. A Split is several Slices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.runtime.planning.layouts import Dims, Layout, Places, is_part, part_layout

__all__ = ["Views", "find_views"]


@dataclass(frozen=True)
class Views:
    """What moves nothing.

    Attributes:
        nodes: outputs of nodes that need no launch.
        layouts: of every value that the plan may keep in memory.
        copies: for a Concat that is a view, the operands that are copied: (result, number) to
            the name of the part.
        unions: memory in which several values lie that overlap: its extents, and one of them.
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
    """The views of a graph.

    Args:
        nodes: in order; of one output each.
        dims: of every value.
        movable: outputs of the nodes that may become views.
        given: values that are not computed by these nodes: inputs and constants.
        strides: of values that have memory of their own; dense ones by default.
        packed: values that lie as if they had memory of their own, without gaps, because what
            computes or reads them knows no other way.
        aligned: values whose first element has a number that is a multiple of this.
        is_cheaper: whether to copy some operands of a Concat, which are named by their numbers, is
            cheaper than to compute all of it.
    """
    places = Places(nodes, dims, movable, strides=strides, packed=packed, aligned=aligned)
    joined: dict[str, list[int]] = {}  # a Concat that is a view to the operands that are copied
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


def _placed(concat: Node, places: Places) -> list[int]:
    """Give operands of a Concat their places in it; the numbers of those that must be copied.

    Those that lie nowhere come first: that decides where others fit.
    """
    axis, left, begin = concat.attr("axis"), [], 0
    for number, value in enumerate(concat.inputs):
        if not places.put(value, concat.output, axis, begin):
            left.append((number, value, begin))
        begin += places.dims[value][axis]
    left = [one for one in left if not places.unite(one[1], concat.output, axis, one[2])]
    # Memory that begins before the Concat may align what did not lie well in it alone.
    return [
        number for number, value, begin in left if not places.put(value, concat.output, axis, begin)
    ]
