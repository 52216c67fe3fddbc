"""A graph as an edit of another one, as JSON: nodes and constants that stay, and new ones.

Weights are never part of it. A constant is one of the other graph, by its name, or is computed from
such constants by the operators with which it was folded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.errors import InternalError, ModelError, StageError
from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node, attributes
from eqsat_opt.ir.graph.handles import (
    Expression,
    Splat,
    array_constant,
    folding_room,
    splat_constant,
)
from eqsat_opt.ir.graph.values_json import (
    TYPING_FAILURES,
    operator_from_json,
    operator_to_json,
    type_from_json,
    type_to_json,
)
from eqsat_opt.ir.onnx.exporter import SPLIT
from eqsat_opt.ir.ops import AttrKind, get_op
from eqsat_opt.ir.values.types import StaticType, ValueType, numpy_dtype
from eqsat_opt.select.rebuilding.constants import folded_constant, in_shape

__all__ = ["GraphEdit", "edited_graph", "graph_edit"]

_INLINE_BYTES = 1 << 12
"""Largest constant that is written in full: shapes and other literals, not weights."""

_OTHERS: Mapping[str, Mapping[str, AttrKind]] = {SPLIT: {"axis": "int", "sizes": "ints"}}


@dataclass(frozen=True)
class GraphEdit:
    """An edit of a graph, whose parts are checked when it is applied.

    Attributes:
        constants: the name of each constant that stays, and an object for each new one.
        computed: constants that are made of others, operands first.
        nodes: ranges of nodes that stay, and new nodes, in the order of the result.
        outputs: names of the outputs.
    """

    constants: list[Any]
    computed: list[Document]
    nodes: list[Document]
    outputs: tuple[str, ...]


def graph_edit(graph: Graph, base: Graph) -> GraphEdit:
    """Return the edit that makes ``graph`` of ``base``; :func:`edited_graph` applies it.

    Args:
        graph: a graph that was found for ``base``, with the same interface.
        base: the graph that was searched.

    Raises:
        InternalError: the edit would not give back the same graph.
    """
    edit = _Writer(base).edit(graph)
    again = edited_graph(edit, base)
    payloads = [node.payload for node in graph.nodes] == [node.payload for node in again.nodes]
    if not payloads or again != graph.with_nodes(graph.nodes, types=dict(_types(graph))):
        raise InternalError("the result is not an edit of the model; please report the model")
    return edit


def _types(graph: Graph) -> Iterator[tuple[str, ValueType]]:
    """Yield the types of the values that are inputs, constants, or outputs of nodes."""
    made = (name for node in graph.nodes for name in node.outputs if name)
    for name in (*graph.inputs, *graph.constants, *made):
        yield name, graph.types[name]


def _first_output(node: Node) -> str:
    return next(filter(None, node.outputs))


class _Writer:
    """The walk that writes one edit."""

    def __init__(self, base: Graph) -> None:
        self.base = base
        self.own = {one.digest: name for name, one in reversed(list(base.constants.items()))}
        self.made: list[Document] = []
        self.places: dict[str, int] = {}

    def edit(self, graph: Graph) -> GraphEdit:
        constants = [self._constant(name, one) for name, one in graph.constants.items()]
        return GraphEdit(constants, self.made, list(self._nodes(graph)), graph.outputs)

    def _constant(self, name: str, constant: Constant) -> Any:
        own = self.base.constants.get(name)
        if own is not None and own.digest == constant.digest:
            return name
        return {"name": name, "is": self._reference(constant)}

    def _reference(self, constant: Constant) -> str | int:
        """Return the name of a constant of the base, or the number of a computed one."""
        if constant.digest in self.own:
            return self.own[constant.digest]
        if constant.digest not in self.places:
            value = self._value(constant)
            self.places[constant.digest] = len(self.made)
            self.made.append(value)
        return self.places[constant.digest]

    def _value(self, constant: Constant) -> Document:
        source, type_ = constant.source, constant.type
        if isinstance(source, Expression):
            operands = [self._reference(one) for one in source.operands]
            if source.op == "Reshape" and in_shape(source.operands[0], type_.shape) == constant:
                return {"shape": list(type_.shape), "of": operands}
            told = operator_to_json(source.op, source.attrs)
            return {**told, "of": operands, "type": type_to_json(type_)}
        if isinstance(source, Splat):
            scalar = np.asarray(source.value).astype(numpy_dtype(type_.dtype))
            return {"all": scalar.tobytes().hex(), "type": type_to_json(type_)}
        if type_.dtype == "string" or type_.bytes > _INLINE_BYTES:
            raise InternalError(
                f"it is not known how a constant of type {type_} was computed; please report the "
                "model"
            )
        array = np.ascontiguousarray(constant.load())
        return {"bytes": array.tobytes().hex(), "type": type_to_json(type_)}

    def _nodes(self, graph: Graph) -> Iterator[Document]:
        """Yield ranges of nodes that stay in the order of the base, and all others in full."""
        nodes = self.base.nodes
        place = {_first_output(node): i for i, node in enumerate(nodes)}
        begin = end = -1  # the range that is open
        for node in graph.nodes:
            at = place.get(_first_output(node), -1)
            stays = at >= 0 and self._is_same(node, nodes[at], graph)
            if stays and at == end + 1 and begin >= 0:
                end = at
                continue
            if begin >= 0:
                yield self._range(begin, end)
            begin = end = at if stays else -1
            if not stays:
                yield self._node(node, graph)
        if begin >= 0:
            yield self._range(begin, end)

    def _range(self, begin: int, end: int) -> Document:
        first, last = (_first_output(self.base.nodes[i]) for i in (begin, end))
        return {"keep": [first] if begin == end else [first, last]}

    def _is_same(self, node: Node, own: Node, graph: Graph) -> bool:
        return (
            node == own
            and node.payload is own.payload
            and all(graph.types[n] == self.base.types[n] for n in node.outputs if n)
        )

    def _node(self, node: Node, graph: Graph) -> Document:
        if node.op == OPAQUE:
            return {"opaque": _first_output(node), "inputs": list(node.inputs)}
        value = {
            **operator_to_json(node.op, node.attrs),
            "inputs": list(node.inputs),
            "outputs": {name: type_to_json(graph.types[name]) for name in node.outputs},
        }
        if node.name:
            value["name"] = node.name
        return value | {key: list(getattr(node, key)) for key in _LISTS if getattr(node, key)}


_LISTS = ("sources", "rules")


def edited_graph(edit: GraphEdit, base: Graph) -> Graph:
    """Return the graph that an edit makes of ``base``.

    Raises:
        StageError: the edit is damaged, or one of another graph.
    """
    return _Reader(base).graph(edit)


class _Reader:
    """The walk that applies one edit."""

    def __init__(self, base: Graph) -> None:
        self.base = base
        self.room = folding_room(base.constants.values())
        self.computed: list[Constant] = []
        self.types: dict[str, ValueType] = {name: base.types[name] for name in base.inputs}

    def graph(self, edit: GraphEdit) -> Graph:
        entry = Entry(vars(edit), "the edit")
        self.computed.extend(self._computed_in_turn(entry))
        constants = dict(self._constants(entry))
        self.types.update((name, one.type) for name, one in constants.items())
        graph = Graph(
            inputs=self.base.inputs,
            outputs=edit.outputs,
            nodes=tuple(self._nodes(entry)),
            constants=constants,
            types=self.types,
            parameters=self.base.parameters,
            model=self.base.model,
        )
        if len(graph.outputs) != len(self.base.outputs):
            raise StageError(
                f"{entry.where} has {len(graph.outputs)} outputs; the model has others"
            )
        try:
            graph.check()
        except ModelError as error:
            raise StageError(f"{entry.where} is not well formed: {error}") from error
        return graph

    # Constants ------------------------------------------------------------------------------------

    def _own(self, name: str, where: str) -> Constant:
        found = self.base.constants.get(name)
        if found is None:
            raise StageError(f"{where} names the constant {name!r}, which the model does not have")
        return found

    def _constants(self, entry: Entry) -> Iterator[tuple[str, Constant]]:
        for number, item in enumerate(entry.items("constants")):
            where = f"constant {number} of {entry.where}"
            if isinstance(item, str):
                yield item, self._own(item, where)
                continue
            one = Entry(item, where)
            one.require_all("name", "is")
            yield one.text("name"), self._referred(one.get("is"), where)

    def _referred(self, value: Any, where: str) -> Constant:
        if isinstance(value, str):
            return self._own(value, where)
        if not isinstance(value, int) or not 0 <= value < len(self.computed):
            raise StageError(f"{where} refers to {value!r:.40}, which is no constant before it")
        return self.computed[value]

    def _computed_in_turn(self, entry: Entry) -> Iterator[Constant]:
        for one in entry.entries("computed", "computed constant"):
            operands = [self._referred(item, one.where) for item in one.items("of")]
            if "shape" in one.value:
                yield self._shaped(one, operands)
                continue
            type_ = type_from_json(one.get("type"), one.place("type"))
            if not isinstance(type_, StaticType) or type_.bytes > self.room:
                raise StageError(f"{one.where} has the type {type_}, which no folded constant has")
            if "op" in one.value:
                yield self._folded(one, operands, type_)
            else:
                yield self._literal(one, type_)

    def _shaped(self, one: Entry, operands: list[Constant]) -> Constant:
        one.require_all("shape", "of")
        shape = one.wholes("shape", 1 << 62)
        if len(operands) != 1 or StaticType("bool", shape).size != operands[0].type.size:
            raise StageError(f"{one.where} has another number of elements than its operand")
        return in_shape(operands[0], shape)

    def _folded(self, one: Entry, operands: list[Constant], type_: StaticType) -> Constant:
        one.require_fields("op", "attrs", "of", "type")
        op, attrs = operator_from_json(one, len(operands), {})
        try:
            found = get_op(op).type_fn([operand.type for operand in operands], dict(attrs))
        except TYPING_FAILURES as error:
            raise StageError(f"{one.where} cannot be typed: {error}") from error
        if found != type_:
            raise StageError(f"{one.where} is of type {found}, not {type_}")
        return folded_constant(op, attrs, operands, type_)

    def _literal(self, one: Entry, type_: StaticType) -> Constant:
        key = "all" if "all" in one.value else "bytes"
        one.require_all(key, "type")
        shape = () if key == "all" else type_.shape
        dtype = numpy_dtype(type_.dtype)
        try:
            array = np.frombuffer(bytes.fromhex(one.text(key)), dtype).reshape(shape)
        except ValueError as error:
            raise StageError(f"{one.place(key)} are not the bytes of a {type_}") from error
        return splat_constant(array, type_.shape) if key == "all" else array_constant(array)

    # Nodes ----------------------------------------------------------------------------------------

    def _nodes(self, entry: Entry) -> Iterator[Node]:
        nodes = self.base.nodes
        place = {_first_output(node): i for i, node in enumerate(nodes)}
        for one in entry.entries("nodes", "node"):
            if "keep" in one.value:
                one.require_all("keep")
                ends = [_place(place, name, one.where) for name in one.texts("keep")]
                for node in nodes[ends[0] : ends[-1] + 1] if ends else ():
                    self._define(node, self.base.types)
                    yield node
            elif "opaque" in one.value:
                yield self._opaque(one, nodes[_place(place, one.text("opaque"), one.where)])
            else:
                yield self._node(one)

    def _define(self, node: Node, types: Mapping[str, ValueType]) -> None:
        self.types.update((name, types[name]) for name in node.outputs if name)

    def _opaque(self, one: Entry, own: Node) -> Node:
        one.require_all("opaque", "inputs")
        inputs = one.texts("inputs")
        if own.op != OPAQUE or len(inputs) != len(own.inputs):
            raise StageError(f"{one.where} is not a node that passes through the search")
        self._define(own, self.base.types)
        return replace(own, inputs=inputs)

    def _node(self, one: Entry) -> Node:
        one.require_fields("op", "attrs", "inputs", "outputs", "name", *_LISTS)
        inputs = one.texts("inputs")
        op, attrs = operator_from_json(one, len(inputs), _OTHERS)
        outputs = one.mapping("outputs")
        types = {name: type_from_json(outputs.get(name), one.where) for name in outputs.value}
        if op != SPLIT and len(types) != 1:
            raise StageError(f"{one.where}: {op} has {len(types)} outputs; it has one")
        node = Node(
            op,
            inputs,
            tuple(types),
            attributes(**dict(attrs)),
            name=one.text("name") if "name" in one.value else "",
            **{key: one.texts(key) for key in _LISTS},
        )
        self._define(node, types)
        return node


def _place(place: Mapping[str, int], name: str, where: str) -> int:
    if name not in place:
        raise StageError(f"{where} names the value {name!r}, which the model does not have")
    return place[name]
