"""A graph as text and as JSON and back, without the contents of its constants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.common.text_columns import aligned
from eqsat_opt.errors import ModelError, StageError
from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node, ValueKind
from eqsat_opt.ir.graph.values_json import (
    attrs_text,
    operator_from_json,
    operator_to_json,
    type_from_json,
    type_to_json,
)
from eqsat_opt.ir.values.types import StaticType, ValueType

__all__ = ["FORMAT", "ListedGraph", "graph_from_json", "graph_to_json"]

FORMAT = "eqsat-opt graph 1"

_DIGEST = 8
"""Characters of a digest that suffice to distinguish the constants of one model."""

_LISTS = ("sources", "rules", "captures")


@dataclass(frozen=True)
class ListedGraph:
    """A graph that prints itself line by line.

    Attributes:
        graph: the graph; one read from a file has constants without contents, and opaque nodes of
            which only the domain and the operator are known.
    """

    graph: Graph

    def lines(self, *, short: bool = False) -> Iterator[str]:
        """Yield a line of counts, a header, and one line per input, constant and node.

        Args:
            short: whether to omit the lines of inputs and constants; constants are marked ``!``
                where they are read.
        """
        graph = self.graph
        yield (
            f"nodes {len(graph.nodes)}, inputs {len(graph.inputs)}, constants "
            f"{len(graph.constants)}, outputs {', '.join(graph.outputs) or 'none'}"
            + ("; without inputs and constants" if short else "")
        )
        rows = []
        if not short:
            for name in graph.inputs:
                kind = graph.kind(name)
                word = "input" if kind is ValueKind.ACTIVATION else str(kind)
                rows.append((name, str(graph.types[name]), word))
            for name, handle in graph.constants.items():
                rows.append((name, str(handle.type), f"constant {handle.digest[:_DIGEST]}"))
        for node in graph.nodes:
            outputs = [name for name in node.outputs if name]
            types = ", ".join(str(graph.types[name]) for name in outputs)
            rows.append((", ".join(outputs), types, self._application(node)))
        yield from aligned(("value", "type", "runs"), rows)

    def _application(self, node: Node) -> str:
        constants = self.graph.constants
        operands = ", ".join(f"{name}!" if name in constants else name for name in node.inputs)
        op = ".".join(filter(None, _operator(node))) if node.op == OPAQUE else node.op
        by = f" by {', '.join(node.rules)}" if node.rules else ""
        return f"{op}({'; '.join(filter(None, (operands, attrs_text(node.attrs))))}){by}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class _Operator:
    """The stored part of an opaque node's payload."""

    domain: str
    op_type: str


def _operator(node: Node) -> tuple[str, str]:
    """Return the domain and the operator of an opaque node."""
    domain, op = (getattr(node.payload, name, "") for name in ("domain", "op_type"))
    return str(domain or ""), str(op or node.op)


# ** writing **


def graph_to_json(listed: ListedGraph) -> Document:
    """Return the document of a graph; :func:`graph_from_json` gives back an equal graph."""
    graph = listed.graph
    return {
        "format": FORMAT,
        "inputs": [
            _value(graph, name) | ({"parameter": True} if name in graph.parameters else {})
            for name in graph.inputs
        ],
        "constants": [
            {**_value(graph, name), "digest": handle.digest}
            for name, handle in graph.constants.items()
        ],
        "nodes": [_node_to_json(graph, node) for node in graph.nodes],
        "outputs": list(graph.outputs),
    }


def _value(graph: Graph, name: str) -> dict[str, Any]:
    return {"name": name, "type": type_to_json(graph.types[name])}


def _node_to_json(graph: Graph, node: Node) -> dict[str, Any]:
    value = operator_to_json(node.op, node.attrs)
    if node.op == OPAQUE:
        value["of"] = list(_operator(node))
    value["inputs"] = list(node.inputs)
    value["outputs"] = [_value(graph, name) if name else {} for name in node.outputs]
    if node.name:
        value["name"] = node.name
    return value | {name: list(getattr(node, name)) for name in _LISTS if getattr(node, name)}


# ** reading **


def graph_from_json(document: Any) -> ListedGraph:
    """Return the graph that a document holds.

    Raises:
        StageError: the document is of another kind or version, a field is missing or unknown, an
            operator or attribute is unknown, or a value is defined twice or read before its
            definition.
    """
    entry = Entry(document, "the graph")
    entry.require_format(FORMAT)
    entry.require_all("format", "inputs", "constants", "nodes", "outputs")
    types: dict[str, ValueType] = {}
    given = tuple(entry.entries("inputs", "input"))
    inputs = tuple(_read_value(one, types, "parameter") for one in given)
    held = ("parameter" in one.value and one.flag("parameter") for one in given)
    constants = {}
    for one in entry.entries("constants", "constant"):
        name = _read_value(one, types, "digest")
        type_ = types[name]
        if not isinstance(type_, StaticType):
            raise StageError(f"{one.where} has the type {type_}, which has no fixed size")
        constants[name] = Constant(type_, one.text("digest"), _no_contents)
    nodes = tuple(_read_node(one, types) for one in entry.entries("nodes", "node"))
    graph = Graph(
        inputs=inputs,
        outputs=entry.texts("outputs"),
        nodes=nodes,
        constants=constants,
        types=types,
        parameters=frozenset(itertools.compress(inputs, held)),
    )
    try:
        graph.check()
    except ModelError as error:
        raise StageError(f"the graph is not well formed: {error}") from error
    return ListedGraph(graph)


def _no_contents() -> NoReturn:
    raise StageError("a stored graph holds no contents of constants; load the model it is of")


def _read_value(entry: Entry, types: dict[str, ValueType], *others: str) -> str:
    entry.require_fields("name", "type", *others)
    name = entry.text("name")
    if not name or name in types:
        raise StageError(f"{entry.where} has the name {name!r}, which is empty or taken")
    types[name] = type_from_json(entry.get("type"), entry.place("type"))
    return name


def _read_node(entry: Entry, types: dict[str, ValueType]) -> Node:
    entry.require_fields("op", "attrs", "of", "inputs", "outputs", "name", *_LISTS)
    inputs, payload = entry.texts("inputs"), None
    op, attrs = operator_from_json(entry, len(inputs), {OPAQUE: {}})
    if op == OPAQUE:
        parts = entry.texts("of")
        if len(parts) != 2:
            raise StageError(f"{entry.place('of')} is not a pair of a domain and an operator")
        payload = _Operator(*parts)
    elif "of" in entry.value:
        raise StageError(f"{entry.where} is not an opaque node, but has the field 'of'")
    outputs = []
    for one in entry.entries("outputs", "output"):
        if one.value or op != OPAQUE:
            outputs.append(_read_value(one, types))
        else:
            outputs.append("")
    if op != OPAQUE and len(outputs) != 1:
        raise StageError(f"{entry.where}: {op} has {len(outputs)} outputs; it has one")
    return Node(
        op,
        inputs,
        tuple(outputs),
        attrs,
        name=entry.text("name") if "name" in entry.value else "",
        payload=payload,
        **{field: entry.texts(field) for field in _LISTS},
    )
