"""A graph in the making, to which nodes are added anywhere, and sorted at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.graph.graph import Attr, Constant, Graph, Node, attributes
from eqsat_opt.ir.graph.handles import array_constant
from eqsat_opt.ir.onnx.files.load import inner_names
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.passes.recurrences.affine_forms import Block, ColumnRange, Data
from eqsat_opt.ir.values.dims import Dim, SymDim, plain_symbol, substituted
from eqsat_opt.ir.values.types import TensorType, numpy_dtype

__all__ = ["Writing"]


class Writing:
    """The nodes, constants and types of a graph, in which values may get another definition.

    Attributes:
        graph: the graph before.
        types: types by name.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types = dict(graph.types)
        self._constants = dict(graph.constants)
        self._nodes: list[Node] = []
        self._made: dict[object, str] = {}
        self._sources: tuple[str, ...] = ()
        self._known: dict[str, Dim] = {}
        inner = (node.payload for node in graph.nodes if node.payload is not None)
        self._taken = set(chain.from_iterable(map(inner_names, inner)))

    def about(self, sources: Iterable[str]) -> None:
        """Set the names of the nodes of the model that the next nodes represent."""
        self._sources = tuple(dict.fromkeys(sources))

    def type(self, name: str) -> TensorType:
        """Return the type of a value that is a tensor."""
        type_ = self.types[name]
        assert isinstance(type_, TensorType)
        return type_

    def constant(self, base: str, values: npt.NDArray[Any]) -> str:
        """Add a constant."""
        handle = array_constant(values)
        if handle.digest not in self._made:
            self._made[handle.digest] = name = self._fresh(base)
            self._constants[name], self.types[name] = handle, handle.type
        return self._made[handle.digest]

    def held(self, name: str, handle: Constant) -> str:
        """Return the name of a constant of another graph, which is added unless it is there."""
        if name not in self._constants or self._constants[name].digest != handle.digest:
            key = ("held", handle.digest)
            if key not in self._made:
                self._made[key] = new = self._fresh(name)
                self._constants[new], self.types[new] = handle, handle.type
            return self._made[key]
        return name

    def apply(self, op: str, inputs: Sequence[str], *, name: str = "", **attrs: Any) -> str:
        """Add an operator and return its value; an equal one with any name is taken again.

        Args:
            op: an operator of the registry.
            inputs: its operands.
            name: the value that it defines, instead of what the graph defined it by.
            attrs: its attributes.
        """
        key = (op, tuple(inputs), attributes(**attrs))
        if not name and key in self._made:
            return self._made[key]
        type_ = get_op(op).type_fn([self.type(one) for one in inputs], attrs)
        output = name or self._fresh(f"{inputs[0]}__{op.lower()}")
        self._nodes.append(
            Node(op, tuple(inputs), (output,), attributes(**attrs), sources=self._sources)
        )
        self.types[output] = type_
        self._made.setdefault(key, output)
        return output

    def reshape(self, value: str, *shape: Dim, name: str = "") -> str:
        """Add a Reshape, unless the value has this shape and needs no other name."""
        if self.type(value).shape == shape and not name:
            return value
        return self.apply("Reshape", [value], name=name, shape=shape)

    def concat(self, values: Sequence[str], axis: int) -> str:
        """Add a concatenation of one or more values."""
        return values[0] if len(values) == 1 else self.apply("Concat", values, axis=axis)

    def cut(self, value: str, axis: int, lo: int, hi: int) -> str:
        """Add a Slice, unless it takes all."""
        if (lo, hi) == (0, self.type(value).shape[axis]):
            return value
        return self.apply("Slice", [value], axis=axis, lo=lo, hi=hi)

    def block(self, block: Block) -> str:
        """Add a block of a weight: [F, N]."""
        rows = self.cut(block.of.name, 0, *block.rows)
        return self.cut(rows, 1, block.of.lo, block.of.hi)

    def vector(self, part: ColumnRange) -> str:
        """Add columns of a constant whose other axes have the size 1: [N]."""
        size = self.type(part.name).shape[-1]
        return self.cut(self.reshape(part.name, size), 0, part.lo, part.hi)

    def vectors(self, parts: Sequence[ColumnRange], size: int, dtype: str) -> str:
        """Add the sum of columns of constants, zeros if there are none: [N]."""
        if not parts:
            return self.constant("zeros", np.zeros(size, numpy_dtype(dtype)))
        total, *rest = (self.vector(part) for part in parts)
        for vector in rest:
            total = self.apply("Add", [total, vector])
        return total

    def data(self, data: Data) -> str:
        """Add a part of a value."""
        if data.pick is None:
            return data.name
        pick = data.pick
        value = self.cut(data.name, pick.axis, pick.lo, pick.hi)
        if not pick.is_dropped:
            return value
        shape = self.type(value).shape
        return self.reshape(value, *shape[: pick.axis], *shape[pick.axis + 1 :])

    def numbers(self, size: Dim) -> str:
        """Add the numbers from 0 to below a size, int64."""
        one = self.constant("one", np.ones((1,), np.int64))
        count = self.apply("Expand", [one], shape=(size,))
        count = self.apply("CumSum", [count], axis=0, exclusive=0, reverse=0)
        return self.apply("Sub", [count, one])

    def result(self) -> Graph:
        """Return the graph with the new definitions of values, operands first, and nothing dead."""
        defined = {name for node in self._nodes for name in node.outputs}
        self._retype(defined)
        kept = [node for node in self.graph.nodes if defined.isdisjoint(node.outputs)]
        nodes = _sorted([*kept, *self._nodes], self.graph.outputs)
        if self._known:
            nodes = [self._sized(node) for node in nodes]
        alive = {name for node in nodes for name in (*node.reads, *node.outputs)}
        alive.update(self.graph.inputs, self.graph.outputs)
        return replace(
            self.graph,
            nodes=tuple(nodes),
            constants={name: one for name, one in self._constants.items() if name in alive},
            types={name: one for name, one in self.types.items() if name in alive},
        )

    def _retype(self, defined: Iterable[str]) -> None:
        """Replace sizes that were unknown before a value got its new definition."""
        known: dict[str, Dim] = {}
        for name in defined:
            before, after = self.graph.tensor_type(name), self.types[name]
            if before is None or before == after or not isinstance(after, TensorType):
                continue
            for old, new in zip(before.shape, after.shape, strict=True):
                symbol = plain_symbol(old) if isinstance(old, SymDim) else None
                if old != new and symbol is not None:
                    known[symbol] = new
        if not known:
            return
        for name, type_ in self.types.items():
            if isinstance(type_, TensorType):
                shape = tuple(substituted(dim, known) for dim in type_.shape)
                self.types[name] = TensorType(type_.dtype, shape)
        self._known = known

    def _sized(self, node: Node) -> Node:
        def at_sizes(value: Attr) -> Attr:
            if isinstance(value, tuple):
                return tuple(substituted(dim, self._known) for dim in value)
            return substituted(value, self._known) if isinstance(value, SymDim) else value

        return replace(node, attrs=tuple((name, at_sizes(value)) for name, value in node.attrs))

    def _fresh(self, base: str) -> str:
        name = base
        number = 0
        while name in self.types or name in self._constants or name in self._taken:
            number += 1
            name = f"{base}_{number}"
        return name


def _sorted(nodes: Sequence[Node], outputs: Iterable[str]) -> list[Node]:
    """Return the nodes that outputs need, each after those whose values it reads."""
    producers = {name: node for node in nodes for name in node.outputs if name}
    done: set[int] = set()
    order: list[Node] = []
    wanted = {name for name in outputs if name in producers}
    stack: list[tuple[Node, bool]] = [
        (node, False) for node in reversed(nodes) if not wanted.isdisjoint(node.outputs)
    ]
    while stack:
        node, is_ready = stack.pop()
        if id(node) in done:
            continue
        if is_ready:
            done.add(id(node))
            order.append(node)
            continue
        stack.append((node, True))
        stack += [
            (producers[name], False)
            for name in reversed(node.reads)
            if name in producers and id(producers[name]) not in done
        ]
    return order
