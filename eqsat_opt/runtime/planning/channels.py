"""Reordering of the channels of merged kernels, so that Concats can take parts without a copy.

Siblings that were merged are parts of one result. A part that goes into a Concat can share memory
with it only if the rest of that result does not overlap other operands (`Places.unite`): the
part must be the last of its kernel's result and the first of the Concat, or the other way round.
Weights and biases are constants, so they can be reordered when the plan is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import StaticType

__all__ = ["with_parts_at_ends"]

Piece = tuple[int, int]
"""Half-open interval of channels: the first one, and one past the last."""


def with_parts_at_ends(graph: Graph, is_movable: Callable[[Node], bool]) -> Graph:
    """Return the graph with channels reordered so that Concats can share memory with operands.

    Args:
        graph: a graph of literal sizes.
        is_movable: returns whether a Concat or Slice may become a view.
    """
    graph = _with_flat_slices(graph, is_movable)
    known = set(graph.constants) | graph.parameters
    producer: dict[str, Node] = {}
    readers: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if all(name in known for name in node.inputs):
            known.update(node.outputs)
        else:
            producer[node.output] = node
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    change = _Change(graph, known, producer, readers)
    for value, (axis, ends) in _wanted(graph.nodes, producer, is_movable).items():
        order = _order(change.size(value, axis), ends)
        if order is not None and value not in graph.outputs:
            change.reorder(value, axis, order)
    return change.graph()


def _with_flat_slices(graph: Graph, is_movable: Callable[[Node], bool]) -> Graph:
    """Return the graph with slices of slices merged into slices of the whole."""
    slices: dict[str, Node] = {}
    nodes, flattened = [], set()
    for node in graph.nodes:
        if node.op == "Slice" and is_movable(node):
            outer = slices.get(node.inputs[0])
            if outer is not None and outer.attr("axis") == node.attr("axis"):
                lo = outer.attr("lo")
                bounds = {"lo": lo + node.attr("lo"), "hi": lo + node.attr("hi")}
                attrs = attributes(axis=node.attr("axis"), **bounds)
                flattened.add(outer.output)
                node = replace(node, inputs=outer.inputs, attrs=attrs)
            slices[node.output] = node
        nodes.append(node)
    unread = flattened - {n for node in nodes for n in node.inputs} - set(graph.outputs)
    return replace(graph, nodes=tuple(one for one in nodes if one.outputs[0] not in unread))


def _wanted(
    nodes: Sequence[Node], producer: Mapping[str, Node], is_movable: Callable[[Node], bool]
) -> dict[str, tuple[int, tuple[list[Piece], list[Piece]]]]:
    """Return, by sliced value, the axis, and its parts that are first or last in a Concat."""
    found: dict[str, tuple[int, tuple[list[Piece], list[Piece]]]] = {}
    for concat in nodes:
        if concat.op != "Concat" or not is_movable(concat):
            continue
        axis = concat.attr("axis")
        for end, name in enumerate((concat.inputs[0], concat.inputs[-1])):
            part = producer.get(name)
            if part is None or part.op != "Slice" or part.attr("axis") != axis:
                continue
            if part.inputs[0] in producer and is_movable(part):
                along, ends = found.setdefault(part.inputs[0], (axis, ([], [])))
                if along == axis:
                    ends[end].append((part.attr("lo"), part.attr("hi")))
    return found


def _order(size: int, ends: tuple[list[Piece], list[Piece]]) -> list[Piece] | None:
    """Return the pieces of a value in their new order; ``None`` if it is the old order.

    The piece that is first in a Concat becomes the last one, and the reverse.
    """
    last = next(iter(ends[0]), None)
    first = next((one for one in ends[1] if last is None or _is_apart(one, last)), None)
    cuts = sorted({0, size, *(cut for piece in (first, last) if piece for cut in piece)})
    pieces = list(pairwise(cuts))
    middle = [piece for piece in pieces if piece not in (first, last)]
    order = [*([first] if first else []), *middle, *([last] if last else [])]
    return None if order == pieces else order


def _is_apart(one: Piece, other: Piece) -> bool:
    return one[1] <= other[0] or other[1] <= one[0]


@dataclass
class _Change:
    """A graph in which values get another order of channels.

    Attributes:
        old: the graph before the change.
        known: values that are known when the plan is loaded.
        producer: the node that computes each other value.
        readers: the nodes that read each value.
        new: by result, the nodes that replace others.
        before: by result, the nodes that reorder the constants of a replacing node.
        types: types of the results of the nodes in ``before``.
    """

    old: Graph
    known: Collection[str]
    producer: Mapping[str, Node]
    readers: Mapping[str, Sequence[Node]]
    new: dict[str, Node] = field(default_factory=dict)
    before: dict[str, list[Node]] = field(default_factory=dict)
    types: dict[str, StaticType] = field(default_factory=dict)

    def graph(self) -> Graph:
        """Return the changed graph."""
        if not self.new:
            return self.old
        nodes = [
            one
            for node in self.old.nodes
            for one in (*self.before.get(node.outputs[0], ()), self.new.get(node.outputs[0], node))
        ]
        return replace(self.old, nodes=tuple(nodes), types={**self.old.types, **self.types})

    def type(self, name: str) -> StaticType:
        return self.types.get(name) or self.old.static_type(name)

    def size(self, name: str, axis: int) -> int:
        return self.type(name).shape[axis]

    def reorder(self, value: str, axis: int, order: Sequence[Piece]) -> None:
        """Reorder the channels of a value if its weights are constants and only slices read it."""
        parts = {node.output: self._moved(node, axis, order) for node in self.readers[value]}
        made = self._made_of(value, axis, order)
        if made is None or None in parts.values():
            return
        self.new.update({name: node for name, node in parts.items() if node is not None})
        for node, operands in made:
            reordered = [
                name if along is None else self._constant(node, name, along, order)
                for name, along in zip(node.inputs, operands, strict=True)
            ]
            self.new[node.output] = replace(node, inputs=tuple(reordered))

    def _moved(self, part: Node, axis: int, order: Sequence[Piece]) -> Node | None:
        """Return the Slice at its new place; ``None`` if it is no Slice or would be split."""
        if part.op != "Slice" or part.attr("axis") != axis or part.output in self.new:
            return None
        lo, hi = part.attr("lo"), part.attr("hi")
        begin = 0
        for start, end in order:
            if start <= lo and hi <= end:
                shift = begin - start
                return replace(part, attrs=attributes(axis=axis, lo=lo + shift, hi=hi + shift))
            begin += end - start
        return None

    def _made_of(
        self, value: str, axis: int, order: Sequence[Piece]
    ) -> list[tuple[Node, list[int | None]]] | None:
        """Return the nodes that compute a value, and the axes along which to reorder constants.

        The axis of an operand is ``None`` if it keeps its order. The result is ``None`` unless
        the value is computed by a convolution or product and pointwise operators after it.
        """
        node = self.producer.get(value)
        if node is None or value in self.new or len(node.outputs) > 1:
            return None
        rank = self.type(value).rank
        weight = next(iter(node.inputs[1:2]), "")
        constants = all(name in self.known for name in node.inputs[1:])
        if node.op == "Conv" and axis == 1 and node.attr("group") == 1 and constants:
            return [(node, [None, *[0] * (len(node.inputs) - 1)])]
        if node.op == "MatMul" and axis == rank - 1 and constants and self.type(weight).rank > 1:
            return [(node, [None, self.type(weight).rank - 1])]
        op = get_op(node.op)
        if op.kind != "pointwise":
            return None
        found: list[tuple[Node, list[int | None]]] = []
        operands: list[int | None] = []
        for number, name in enumerate(node.inputs):
            along = axis - rank + self.type(name).rank
            if number and "channel" in op.traits:  # a number for each channel, which is axis 1
                along = 0 if axis == 1 else -1
            is_whole = along >= 0 and self.size(name, along) > 1
            operands.append(along if is_whole and name in self.known else None)
            if is_whole and name not in self.known and name not in node.inputs[:number]:
                inner = self._made_of(name, along, order) if self._is_own(name, node) else None
                if inner is None:
                    return None
                found += inner
        return [*found, (node, operands)]

    def _is_own(self, name: str, node: Node) -> bool:
        """Return whether only the given node reads a value."""
        return name not in self.old.outputs and list(self.readers[name]) == [node]

    def _constant(self, node: Node, name: str, axis: int, order: Sequence[Piece]) -> str:
        """Add nodes that reorder a constant before a node reads it; return the result's name."""
        made = self.before.setdefault(node.outputs[0], [])
        type_ = self.type(name)
        shape = type_.shape

        def add(op: str, inputs: Sequence[str], size: int, **attrs: int) -> str:
            extents = tuple(size if i == axis else extent for i, extent in enumerate(shape))
            result = f"{name} for {node.output}" + ("" if op == "Concat" else f" {len(made)}")
            while result in self.types or result in self.old.types:
                result += "_"
            self.types[result] = StaticType(type_.dtype, extents)
            made.append(Node(op, tuple(inputs), (result,), attributes(**attrs), name=result))
            return result

        pieces = [add("Slice", [name], hi - lo, axis=axis, lo=lo, hi=hi) for lo, hi in order]
        return add("Concat", pieces, shape[axis], axis=axis)
