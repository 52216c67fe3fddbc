"""The frozen e-graph: canonical NumPy arrays that all later stages read.

The engine's own numbers differ from run to run. Here classes are numbered by their content: first
those of the model's terms, then new ones in rounds, ordered by their smallest node over classes
that already have a number. Equal e-graphs therefore freeze to equal arrays.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.egraph.encoding.compile import BY_SCALE
from eqsat_opt.egraph.encoding.extents import ExtentCodes
from eqsat_opt.egraph.encoding.schema import Schema, want_table
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.egraph.loading.tables import generic_key
from eqsat_opt.egraph.terms import LEAF, OUT, Lowered
from eqsat_opt.errors import RuleError
from eqsat_opt.ir.graph.broadcasting import Joins, result_type
from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, attributes
from eqsat_opt.ir.graph.handles import folding_room
from eqsat_opt.ir.onnx.folding import is_exact
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops._base import IllTyped
from eqsat_opt.ir.values.dims import SymDim, literal
from eqsat_opt.ir.values.types import OtherType, StaticType, TensorType, ValueType

__all__ = ["EClasses", "SelfLoop", "freeze"]

IntArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class SelfLoop:
    """An e-node that reads its own class, such as ``x + 0`` in the class of ``x``.

    No extracted graph can contain one.

    Attributes:
        eclass: its class.
        op, attrs, children: the same as of e-nodes.
        origin: the same as of e-nodes.
    """

    eclass: int
    op: str
    attrs: Attrs
    children: tuple[int, ...]
    origin: int


@dataclass(frozen=True, kw_only=True)
class EClasses:
    """All e-nodes and e-classes of a frozen e-graph.

    Attributes:
        class_of: [nodes] class of each e-node; nodes are sorted by class.
        op, attrs: operator and attributes of each e-node.
        child_ptr, child_ix: CSR: classes of the operands of each e-node.
        types: type of each class.
        is_const: [classes] whether the class is known at compile time; a parameter is not.
        origin: [nodes] 0 for nodes of the model, else ``iteration * BY_SCALE + rule number``.
        rule_names: name of each rule number.
        term_class: [terms] class of each term of the model.
        united_by: names of the rules that united members of a class, by class.
        loops: e-nodes that read their own class; they are in none of the arrays.
    """

    class_of: IntArray
    op: tuple[str, ...]
    attrs: tuple[Attrs, ...]
    child_ptr: IntArray
    child_ix: IntArray
    types: tuple[ValueType, ...]
    is_const: npt.NDArray[np.bool_]
    origin: npt.NDArray[np.int64]
    rule_names: Mapping[int, str]
    term_class: IntArray
    united_by: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    loops: tuple[SelfLoop, ...] = ()

    @property
    def n_nodes(self) -> int:
        """Number of e-nodes."""
        return len(self.op)

    @property
    def n_classes(self) -> int:
        """Number of e-classes."""
        return len(self.types)

    def children(self, node: int) -> tuple[int, ...]:
        """Return the operand classes of an e-node."""
        return self._children[node]

    @cached_property
    def _children(self) -> list[tuple[int, ...]]:
        flat, ptr = self.child_ix.tolist(), self.child_ptr.tolist()
        return [tuple(flat[a:b]) for a, b in pairwise(ptr)]

    @cached_property
    def nodes_of(self) -> list[range]:
        """The e-nodes of each class."""
        bounds = np.searchsorted(self.class_of, np.arange(self.n_classes + 1)).tolist()
        return [range(a, b) for a, b in pairwise(bounds)]

    @cached_property
    def parents(self) -> list[list[int]]:
        """The e-nodes that read each class, each once."""
        result: list[list[int]] = [[] for _ in range(self.n_classes)]
        for node, children in enumerate(self._children):
            for child in dict.fromkeys(children):
                result[child].append(node)
        return result

    def type_of(self, node: int) -> TensorType:
        """Return the type of the result of an e-node's operator, as the registry and the model say.

        Raises:
            IllTyped: the operator is not defined on these operands.
        """
        operands: list[Any] = [self.types[child] for child in self.children(node)]
        return result_type(self.op[node], operands, dict(self.attrs[node]), self._joins)

    @cached_property
    def _joins(self) -> Joins:
        own = (
            (self.op[node], self.attrs[node], self.children(node), int(self.class_of[node]))
            for node in np.flatnonzero(self.origin == 0).tolist()
        )
        loops = ((one.op, one.attrs, one.children, one.eclass) for one in self.loops)
        return Joins.of(
            (op, attrs, [self.types[child] for child in children], self.types[eclass])
            for op, attrs, children, eclass in (*own, *loops)
        )

    def scalar(self, cls: int) -> float | None:
        """Return the value of a scalar literal; ``None`` for any other class."""
        for node in self.nodes_of[cls]:
            if self.op[node] == "Scalar":
                attrs: dict[str, Any] = dict(self.attrs[node])
                return float(attrs["value"])
        return None

    def rule_of(self, node: int) -> str | None:
        """Return the rule that made an e-node, ``None`` for the model's own."""
        return self.rule_at(int(self.origin[node]))

    def rule_at(self, origin: int) -> str | None:
        """Return the rule of an origin, ``None`` for the model's own."""
        return self.rule_names[origin % BY_SCALE] if origin else None

    def fingerprint(self) -> int:
        """Return a hash of the structure; within one process equal e-graphs have equal ones."""
        return hash(
            (self.class_of.tobytes(), self.op, self.attrs, self.child_ix.tobytes(), self.types)
        )


class _Decoder:
    """Decoder of the engine's values, with a cache."""

    def __init__(self, engine: Engine, codes: ExtentCodes) -> None:
        self.engine = engine
        self._codes = codes
        self._cache: dict[tuple[str, Any], Any] = {}

    def attr(self, value: Any, kind: str) -> Any:
        """Decode a column of an attribute kind; ``None`` if a size in it cannot be named."""
        key = (kind, value)
        if key not in self._cache:
            self._cache[key] = self._attr(value, kind)
        return self._cache[key]

    def _attr(self, value: Any, kind: str) -> Any:
        if kind == "int":
            number = self.engine.i64(value)
            # No attribute of this kind can hold a symbolic size.
            return None if isinstance(self._codes.extents.get(number), SymDim) else number
        if kind == "size":
            return self._codes.decode(self.engine.i64(value))
        if kind == "float":
            return self.engine.f64(value)
        if kind == "str":
            return self.engine.string(value)
        dims = tuple(self._codes.decode(self.engine.i64(v)) for v in self.engine.vector(value))
        return None if any(d is None for d in dims) else dims


@dataclass
class _Raw:
    """One row: class value, operator, attributes, operand values, provenance."""

    cls: Any
    op: str
    attrs: Attrs
    children: tuple[Any, ...]
    origin: int


def _rows(
    engine: Engine, schema: Schema, lowered: Lowered, decoder: _Decoder, tables: Mapping[str, Any]
) -> list[_Raw]:
    keys = {generic_key(t): (t.op, t.attrs) for t in lowered.terms}
    others: dict[str, tuple[str, Attrs]] = {}
    rows: list[_Raw] = []
    for name in schema.constructors():
        if name not in tables:
            continue
        by = {tuple(r.inputs): engine.i64(r.output) for r in tables[f"{name}_by"].rows}
        for row in tables[name].rows:
            inputs = list(row.inputs)
            origin = by.get(tuple(inputs), 0)
            if name in (LEAF, OUT):
                op, attrs, children = name, attributes(index=engine.i64(inputs[0])), inputs[1:]
            elif name == "Map" or name.startswith("Node_"):
                key = decoder.attr(inputs[0], "str")
                op, attrs = keys.get(key) or others.setdefault(key, _parse_key(key))
                children = inputs[1:]
            else:
                arity = schema.arity(name)
                kinds = zip(schema.attr_kinds(name), inputs[arity:], strict=True)
                values = {key: decoder.attr(value, kind) for (key, kind), value in kinds}
                if any(value is None for value in values.values()):
                    continue
                op, attrs, children = name, tuple(values.items()), inputs[:arity]
            rows.append(_Raw(row.output, op, attrs, tuple(children), origin=origin))
    return rows


def _parse_key(key: str) -> tuple[str, Attrs]:
    """Parse the key of an operator that no term of the model has: its attributes are literals."""
    op, *parts = key.split("|")
    pairs = (part.split("=", 1) for part in parts)
    kinds = get_op(op).attrs
    # A Python literal cannot express an infinite float, so floats are parsed from their text.
    return op, tuple(
        (name, float(text) if kinds[name] == "float" else ast.literal_eval(text))
        for name, text in pairs
    )


def _types(engine: Engine, decoder: _Decoder, tables: Mapping[str, Any]) -> dict[Any, ValueType]:
    dtypes = (
        {r.inputs[0]: engine.string(r.output) for r in tables["dtype"].rows}
        if "dtype" in tables
        else {}
    )
    types: dict[Any, ValueType] = {}
    for row in tables["shape"].rows if "shape" in tables else ():
        shape = decoder.attr(row.output, "ints")
        if shape is not None and row.inputs[0] in dtypes:
            types[row.inputs[0]] = TensorType(dtypes[row.inputs[0]], shape)
    return types


def _attr_key(attrs: Attrs) -> str:
    return repr(attrs)


def _number_classes(rows: list[_Raw], first: dict[Any, int]) -> dict[Any, int]:
    """Return canonical numbers of classes: the given ones, then round by round by smallest node."""
    numbers = dict(first)
    pending: dict[Any, list[_Raw]] = defaultdict(list)
    for row in rows:
        if row.cls not in numbers:
            pending[row.cls].append(row)
    while pending:
        ready: list[tuple[Any, Any]] = []
        for cls, nodes in pending.items():
            keys = [
                (node.op, tuple(numbers[c] for c in node.children), _attr_key(node.attrs))
                for node in nodes
                if all(c in numbers for c in node.children)
            ]
            if keys:
                ready.append((min(keys), cls))
        if not ready:
            break  # Only classes without any node over known ones are left; nothing can read them.
        ready.sort(key=lambda item: item[0])
        for _, cls in ready:
            numbers[cls] = len(numbers)
            del pending[cls]
    return numbers


def freeze(
    engine: Engine,
    schema: Schema,
    lowered: Lowered,
    rule_names: Mapping[int, str],
    codes: ExtentCodes,
) -> EClasses:
    """Read the engine's tables into canonical arrays.

    Nodes that are ill-typed, that have a symbolic size which cannot be named, or that read their
    own class are left out of the arrays.

    Raises:
        RuleError: a rule made a node whose type is not that of its class.
    """
    tables = engine.tables()
    decoder = _Decoder(engine, codes)
    types = _types(engine, decoder, tables)
    rows = _rows(engine, schema, lowered, decoder, tables=tables)
    origins = {engine.i64(r.inputs[0]): r.output for r in tables["Orig"].rows}
    first: dict[Any, int] = {}
    for number in range(len(lowered.terms)):
        first.setdefault(origins[number], len(first))
    untyped = {cls for cls in first if cls not in types}

    def usable(row: _Raw) -> bool:
        known = row.cls in types or row.cls in untyped
        return known and all(c in types or c in untyped for c in row.children)

    rows = [row for row in rows if usable(row)]
    loops = [row for row in rows if row.cls in row.children]
    rows = [row for row in rows if row.cls not in row.children]
    numbers = _number_classes(rows, first)
    rows = [row for row in rows if row.cls in numbers and all(c in numbers for c in row.children)]
    used = sorted({numbers[row.cls] for row in rows})
    dense = {number: i for i, number in enumerate(used)}
    numbers = {cls: dense[number] for cls, number in numbers.items() if number in dense}

    def key(row: _Raw) -> Any:
        return (
            numbers[row.cls],
            row.origin != 0,
            row.op,
            tuple(numbers[c] for c in row.children),
            _attr_key(row.attrs),
        )

    rows.sort(key=key)
    # A value that is not a tensor has the type that the model gives it.
    other = {origins[i]: term.type for i, term in enumerate(lowered.terms)}
    by_class: dict[int, ValueType] = {
        number: types.get(cls) or other.get(cls, OtherType()) for cls, number in numbers.items()
    }
    constant = {r.inputs[0] for r in tables["const"].rows} if "const" in tables else set()
    flat = [numbers[c] for row in rows for c in row.children]
    ptr = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row.children) for row in rows], out=ptr[1:])
    is_const = np.zeros(len(used), dtype=np.bool_)
    is_const[
        _computable(
            rows,
            numbers,
            {numbers[c] for c in constant if c in numbers},
            by_class,
            room_bytes=folding_room(lowered.constants.values()),
            exact=lowered.exact,
        )
    ] = True
    eclasses = EClasses(
        class_of=np.array([numbers[row.cls] for row in rows], dtype=np.int32),
        op=tuple(row.op for row in rows),
        attrs=tuple(row.attrs for row in rows),
        child_ptr=ptr,
        child_ix=np.array(flat, dtype=np.int32),
        types=tuple(by_class[i] for i in range(len(used))),
        is_const=is_const,
        origin=np.array([row.origin for row in rows], dtype=np.int64),
        rule_names=dict(rule_names),
        term_class=np.array(
            [numbers[origins[i]] for i in range(len(lowered.terms))], dtype=np.int32
        ),
        united_by=_united_by(engine, schema, tables, numbers, rule_names=rule_names),
        loops=_loops(loops, numbers),
    )
    _check_types(eclasses)
    return eclasses


def _computable(
    rows: list[_Raw],
    numbers: Mapping[Any, int],
    constant: set[int],
    types: Mapping[int, ValueType],
    room_bytes: int,
    exact: bool,
) -> list[int]:
    """Return the constant classes whose value can be computed ahead of time.

    Classes in ``constant`` may have any size, even symbolic ones. A class can be computed if its
    extents are numbers and one of its e-nodes is a leaf, or has operands that can be computed and
    fits into ``room_bytes``, as must each of the operands.

    If ``exact``, only operators whose result IEEE 754 fixes are computed: libraries multiply by a
    weight with another routine than by a value that was just computed.
    """
    static = {
        c
        for c in constant
        if not isinstance(t := types[c], TensorType) or isinstance(t, StaticType)
    }
    large = {
        c for c in static if isinstance(t := types[c], TensorType) and literal(t.bytes) > room_bytes
    }
    if static == constant and not large and not exact:
        return sorted(constant)
    known: set[int] = set()
    found = -1
    while found < len(known):
        found = len(known)
        known |= {
            numbers[row.cls]
            for row in rows
            if numbers[row.cls] in static
            and all(numbers[c] in known for c in row.children)
            and (
                row.op == LEAF
                or (
                    (is_exact(row.op) or not exact)
                    and large.isdisjoint(map(numbers.__getitem__, (row.cls, *row.children)))
                )
            )
        }
    return sorted(known)


def _loops(rows: list[_Raw], numbers: Mapping[Any, int]) -> tuple[SelfLoop, ...]:
    loops = [
        SelfLoop(
            eclass=numbers[row.cls],
            op=row.op,
            attrs=row.attrs,
            children=tuple(numbers[c] for c in row.children),
            origin=row.origin,
        )
        for row in rows
        if row.cls in numbers and all(c in numbers for c in row.children)
    ]
    return tuple(
        sorted(loops, key=lambda one: (one.eclass, one.op, one.children, _attr_key(one.attrs)))
    )


def _united_by(
    engine: Engine,
    schema: Schema,
    tables: Mapping[str, Any],
    numbers: Mapping[Any, int],
    rule_names: Mapping[int, str],
) -> dict[int, tuple[str, ...]]:
    united: dict[int, set[int]] = defaultdict(set)
    for table in map(want_table, schema.roots):
        for row in tables[table].rows if table in tables else ():
            *pairs, rule = row.inputs
            if pairs[::2] == pairs[1::2]:
                for eclass in {numbers[left] for left in pairs[::2] if left in numbers}:
                    united[eclass].add(engine.i64(rule))
    return {
        eclass: tuple(rule_names[rule] for rule in sorted(rules))
        for eclass, rules in sorted(united.items())
    }


def _check_types(eclasses: EClasses) -> None:
    """Raise an error if the registry's typing of a new node differs from the type of its class."""
    for node in np.flatnonzero(eclasses.origin).tolist():
        op, expected = eclasses.op[node], eclasses.types[int(eclasses.class_of[node])]
        if op in (LEAF, OUT, OPAQUE) or not isinstance(expected, TensorType):
            continue
        try:
            actual = eclasses.type_of(node)
        except IllTyped as error:
            raise RuleError(
                f"rule {eclasses.rule_of(node)} made an ill-typed {op}: {error}"
            ) from error
        if actual != expected:
            raise RuleError(
                f"rule {eclasses.rule_of(node)} made {op} of type {actual} in a class of {expected}"
            )
