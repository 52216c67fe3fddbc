"""The pass that converts a graph to float16 where possible; inputs and outputs keep their types."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node, attributes
from eqsat_opt.ir.graph.handles import is_expensive, uniform_value
from eqsat_opt.ir.graph.values_json import TYPING_FAILURES
from eqsat_opt.ir.onnx.folding import fold
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.types import StaticType, TensorType, ValueType

__all__ = ["in_half"]

_FULL, _HALF = "float32", "float16"
_MOST, _LEAST = 65504.0, 2.0**-24
"""The largest number of float16, and the smallest positive one."""

_WIDE = frozenset({"LRN", "InstanceNormalization"})
"""Operators that square their operands, so that intermediate values leave the range of float16."""


def in_half(graph: Graph) -> Graph:
    """Convert the float32 operators of a graph to float16 where possible, with casts in between.

    An operator stays in float32 in these cases:

    1. It is opaque, a Cast, has several results, or is not defined in float16.
    2. Its intermediate values would leave the range although the result is within it.
    3. It reads a constant with a number beyond the range of float16, or with one number for all
       elements that would become zero, as a small divisor would.
    """
    writer = _Writer(graph)
    for node in graph.nodes:
        writer.write(node)
    for name in graph.outputs:
        writer.full(name)
    return writer.graph()


class _Writer:
    """Nodes of the new graph; a value has its old name in float32 and another one in float16."""

    def __init__(self, old: Graph) -> None:
        self._old = old
        self._types: dict[str, ValueType] = {name: old.types[name] for name in old.inputs}
        self._types.update((name, old.types[name]) for name in old.constants)
        self._constants = dict(old.constants)
        self._nodes: list[Node] = []
        self._half: dict[str, str] = {}
        self._taken = {*old.types}

    def write(self, node: Node) -> None:
        """Append a node, in float16 if possible."""
        type_ = self._half_type(node)
        if type_ is None:
            inputs = node.inputs
            for name in node.reads:
                self.full(name)
            outputs = node.outputs
            self._types.update((name, self._old.types[name]) for name in outputs if name)
        else:
            inputs = tuple(map(self._in_half, node.inputs))
            outputs = node.outputs
            if type_ != self._old.types[node.output]:
                outputs = (self._named(node.output),)
                self._half[node.output] = outputs[0]
            self._types[outputs[0]] = type_
        self._nodes.append(replace(node, inputs=inputs, outputs=outputs))

    def full(self, name: str) -> None:
        """Make a value available under its old name and in its old type."""
        if name not in self._types:
            self._cast(self._half[name], name, _FULL)

    def graph(self) -> Graph:
        """Return the graph of the nodes and constants that were written and are needed."""
        old = self._old
        made = Graph(
            inputs=old.inputs,
            outputs=old.outputs,
            nodes=tuple(self._nodes),
            constants=self._constants,
            types=self._types,
            parameters=old.parameters,
            model=old.model,
        )
        made = made.with_nodes(tuple(made.live_nodes()))
        read = {*made.outputs, *(name for node in made.nodes for name in node.reads)}
        kept = {name: one for name, one in made.constants.items() if name in read}
        return replace(made, constants=kept)

    def _half_type(self, node: Node) -> TensorType | None:
        """Return the type of the node's result in float16; ``None`` if the node stays as it is."""
        if node.op in (OPAQUE, "Cast", *_WIDE) or len(node.outputs) > 1:
            return None
        given = [self._old.tensor_type(name) for name in node.inputs]
        wanted = self._old.tensor_type(node.output)
        if (
            wanted is None
            or None in given
            or not any(one is not None and one.dtype == _FULL for one in (wanted, *given))
        ):
            return None
        if not all(map(self._is_in_range, node.inputs)):
            return None
        types = [_halved(one) for one in given if one is not None]
        try:
            found = get_op(node.op).type_fn(types, dict(node.attrs))
        except TYPING_FAILURES:
            return None
        return found if found == _halved(wanted) else None

    def _is_in_range(self, name: str) -> bool:
        constant = self._old.constants.get(name)
        if constant is None or constant.type.dtype != _FULL or is_expensive(constant):
            return True
        number = uniform_value(constant)
        if number is not None:
            return number == 0 or _LEAST <= abs(number) <= _MOST
        values = np.asarray(constant.load())
        return bool(np.all((np.abs(values) <= _MOST) | ~np.isfinite(values)))

    def _in_half(self, name: str) -> str:
        type_ = self._old.tensor_type(name)
        if type_ is None or type_.dtype != _FULL:
            return name
        if name not in self._half:
            self._half[name] = self._named(name)
            constant = self._half_constant(name)
            if constant is None:
                self._cast(name, self._half[name], _HALF)
            else:
                self._constants[self._half[name]] = constant
                self._types[self._half[name]] = constant.type
        return self._half[name]

    def _half_constant(self, name: str) -> Constant | None:
        constant = self._old.constants.get(name)
        if constant is None:
            return None
        node = Node("Cast", (name,), (self._half[name],), attributes(to=_HALF))
        type_ = constant.type
        return fold(node, [constant], StaticType(_HALF, type_.shape), type_.bytes)

    def _cast(self, source: str, name: str, dtype: str) -> None:
        type_ = self._types[source]
        assert isinstance(type_, TensorType)
        self._types[name] = replace(type_, dtype=dtype)
        self._nodes.append(Node("Cast", (source,), (name,), attributes(to=dtype), name=name))

    def _named(self, name: str) -> str:
        found = f"{name}_half"
        while found in self._taken:
            found += "_"
        self._taken.add(found)
        return found


def _halved(type_: TensorType) -> TensorType:
    return replace(type_, dtype=_HALF) if type_.dtype == _FULL else type_
