"""E-classes as JSON and back: exact, canonical, without the contents of constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.egraph.encoding.compile import BY_SCALE
from eqsat_opt.egraph.frozen import EClasses, SelfLoop
from eqsat_opt.egraph.legend import Leaf, Legend, NamedEClasses, OpaqueNode
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, ValueKind
from eqsat_opt.ir.graph.values_json import (
    TYPING_FAILURES,
    operator_from_json,
    operator_to_json,
    type_from_json,
    type_to_json,
)
from eqsat_opt.ir.ops import AttrKind
from eqsat_opt.ir.values.types import TensorType

__all__ = ["FORMAT", "eclasses_from_json", "eclasses_to_json"]

FORMAT = "eqsat-opt eclasses 1"

_INDEX: dict[str, AttrKind] = {"index": "int"}
_OTHERS = {LEAF: _INDEX, OUT: _INDEX, OPAQUE: _INDEX}

_MANY = 1 << 31
_ORIGINS = 1 << 63


# ** writing **


def eclasses_to_json(named: NamedEClasses) -> Document:
    """Return the document of an e-graph; :func:`eclasses_from_json` restores an equal value.

    Each class lists its e-nodes in the order of their numbers. Fields that are empty, false or 0
    are left out, except the type and the e-nodes of a class.
    """
    eclasses, legend = named.eclasses, named.legend
    return {
        "format": FORMAT,
        "outputs": [[name, cls] for name, cls in legend.outputs],
        "leaves": [
            {"name": leaf.name, "type": type_to_json(leaf.type)}
            | ({} if leaf.digest is None else {"digest": leaf.digest})
            | ({"parameter": True} if leaf.kind is ValueKind.PARAMETER else {})
            for leaf in legend.leaves
        ],
        "opaque": [
            {"op": node.op, "name": node.name, "outputs": list(node.outputs)}
            for node in legend.opaque
        ],
        "classes": [_class_to_json(named, cls) for cls in range(eclasses.n_classes)],
        "loops": [
            {"class": loop.eclass} | _node_to_json(loop.op, loop.attrs, loop.children, loop.origin)
            for loop in eclasses.loops
        ],
        "term_class": eclasses.term_class.tolist(),
        "rules": {str(number): name for number, name in sorted(eclasses.rule_names.items())},
    }


def _class_to_json(named: NamedEClasses, cls: int) -> dict[str, Any]:
    eclasses = named.eclasses
    value: dict[str, Any] = {"type": type_to_json(eclasses.types[cls])}
    if cls in named.legend.names:
        value["name"] = named.legend.names[cls]
    if eclasses.is_const[cls]:
        value["const"] = True
    if cls in eclasses.united_by:
        value["united_by"] = list(eclasses.united_by[cls])
    value["nodes"] = [
        _node_to_json(
            eclasses.op[node],
            eclasses.attrs[node],
            eclasses.children(node),
            int(eclasses.origin[node]),
        )
        for node in eclasses.nodes_of[cls]
    ]
    return value


def _node_to_json(op: str, attrs: Attrs, children: Sequence[int], origin: int) -> dict[str, Any]:
    value = operator_to_json(op, attrs)
    if children:
        value["children"] = list(children)
    if origin:
        value["origin"] = origin
    return value


# ** reading **


def eclasses_from_json(document: Any) -> NamedEClasses:
    """Read an e-graph from its document.

    Raises:
        StageError: the document is of another kind or version, a field is missing or foreign, a
            number is out of range, an operator or attribute is unknown, or the type of an e-node
            that a rule made differs from that of its class.
    """
    entry = Entry(document, "the e-graph")
    entry.require_format(FORMAT)
    entry.require_all(
        "format", "outputs", "leaves", "opaque", "classes", "loops", "term_class", "rules"
    )
    leaves = tuple(map(_leaf, entry.entries("leaves", "leaf")))
    opaque = tuple(map(_opaque_node, entry.entries("opaque", "opaque node")))
    rules = _rules(entry.mapping("rules"))
    classes = list(entry.entries("classes", "class"))
    reader = _Nodes(len(classes), {LEAF: len(leaves), OPAQUE: len(opaque), OUT: _MANY}, rules)
    for number, one in enumerate(classes):
        one.require_fields("type", "name", "const", "united_by", "nodes")
        one.get("nodes")
        for node in one.entries("nodes", "e-node"):
            node.require_fields("op", "attrs", "children", "origin")
            reader.add(number, node)
    loops = []
    for one in entry.entries("loops", "loop"):
        one.require_fields("class", "op", "attrs", "children", "origin")
        cls = one.whole("class", len(classes))
        op, attrs, children, origin = reader.read(one)
        if cls not in children:
            raise StageError(f"{one.where} does not read its own class, so it is not a loop")
        loops.append(SelfLoop(eclass=cls, op=op, attrs=attrs, children=children, origin=origin))
    eclasses = EClasses(
        class_of=np.array(reader.class_of, dtype=np.int32),
        op=tuple(reader.op),
        attrs=tuple(reader.attrs),
        child_ptr=np.array(reader.child_ptr, dtype=np.int32),
        child_ix=np.array(reader.child_ix, dtype=np.int32),
        types=tuple(type_from_json(one.get("type"), one.place("type")) for one in classes),
        is_const=np.array(
            [one.flag("const") if "const" in one.value else False for one in classes], bool
        ),
        origin=np.array(reader.origin, dtype=np.int64),
        rule_names=rules,
        term_class=np.array(entry.wholes("term_class", len(classes)), dtype=np.int32),
        united_by={
            i: one.texts("united_by") for i, one in enumerate(classes) if "united_by" in one.value
        },
        loops=tuple(loops),
    )
    names = {i: one.text("name") for i, one in enumerate(classes) if "name" in one.value}
    _require_types(eclasses)
    return NamedEClasses(eclasses, Legend(leaves, opaque, names, _outputs(entry, len(classes))))


class _Nodes:
    """E-nodes, collected in the order of their numbers."""

    def __init__(self, n_classes: int, ends: dict[str, int], rules: dict[int, str]) -> None:
        self._n_classes, self._ends, self._rules = n_classes, ends, rules
        self.class_of: list[int] = []
        self.op: list[str] = []
        self.attrs: list[Attrs] = []
        self.child_ptr = [0]
        self.child_ix: list[int] = []
        self.origin: list[int] = []

    def add(self, cls: int, entry: Entry) -> None:
        op, attrs, children, origin = self.read(entry)
        if cls in children:
            raise StageError(f"{entry.where} reads its own class, so it belongs to the loops")
        self.class_of.append(cls)
        self.op.append(op)
        self.attrs.append(attrs)
        self.child_ix.extend(children)
        self.child_ptr.append(len(self.child_ix))
        self.origin.append(origin)

    def read(self, entry: Entry) -> tuple[str, Attrs, tuple[int, ...], int]:
        children = entry.wholes("children", self._n_classes)
        op, attrs = operator_from_json(entry, len(children), _OTHERS)
        if op in self._ends:
            Entry(entry.get("attrs"), f"attributes of {entry.where}").whole("index", self._ends[op])
        if op in (LEAF, OUT) and len(children) != (op == OUT):
            raise StageError(f"{entry.where}: {op} is applied to {len(children)} operands")
        origin = entry.whole("origin", _ORIGINS) if "origin" in entry.value else 0
        if origin and origin % BY_SCALE not in self._rules:
            raise StageError(
                f"{entry.where} was made by rule number {origin % BY_SCALE}, which has no name"
            )
        return op, attrs, children, origin


def _leaf(entry: Entry) -> Leaf:
    entry.require_fields("name", "type", "digest", "parameter")
    name, type_ = entry.text("name"), type_from_json(entry.get("type"), entry.place("type"))
    if "digest" in entry.value:
        return Leaf(name, type_, entry.text("digest"), ValueKind.CONSTANT)
    is_parameter = "parameter" in entry.value and entry.flag("parameter")
    return Leaf(name, type_, kind=ValueKind.PARAMETER if is_parameter else ValueKind.ACTIVATION)


def _opaque_node(entry: Entry) -> OpaqueNode:
    entry.require_fields("op", "name", "outputs")
    return OpaqueNode(entry.text("op"), entry.text("name"), entry.texts("outputs"))


def _rules(entry: Entry) -> dict[int, str]:
    rules = {}
    for key in entry.value:
        if not (key.isascii() and key.isdecimal() and str(int(key)) == key):
            raise StageError(f"{entry.where} has the key {key!r}, which is not a rule number")
        rules[int(key)] = entry.text(key)
    return rules


def _outputs(entry: Entry, n_classes: int) -> tuple[tuple[str, int], ...]:
    outputs = []
    for number, item in enumerate(entry.items("outputs")):
        where = f"output {number} of {entry.where}"
        if not isinstance(item, list) or len(item) != 2:
            raise StageError(f"{where} is not a pair of a name and a class")
        pair = Entry({"name": item[0], "class": item[1]}, where)
        outputs.append((pair.text("name"), pair.whole("class", n_classes)))
    return tuple(outputs)


def _require_types(eclasses: EClasses) -> None:
    """Raise an error if an e-node that a rule made has another type than its class."""
    for node in np.flatnonzero(eclasses.origin).tolist():
        op, expected = eclasses.op[node], eclasses.types[int(eclasses.class_of[node])]
        if op in _OTHERS or not isinstance(expected, TensorType):
            continue
        where = f"e-node {node}, {op} of class {int(eclasses.class_of[node])},"
        try:
            actual = eclasses.type_of(node)
        except TYPING_FAILURES as error:
            raise StageError(f"{where} is ill-typed: {error}") from error
        if actual != expected:
            raise StageError(f"{where} has the type {actual}, but its class {expected}")
