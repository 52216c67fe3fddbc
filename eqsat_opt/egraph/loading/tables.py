"""Loading of terms as tables: one file and one rule per signature, far faster than text.

Terms have the same signature if their rows have the same columns and need the same commands.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from eqsat_opt.egraph.encoding.extents import ExtentCodes
from eqsat_opt.egraph.encoding.schema import SORTS, Schema, key_of
from eqsat_opt.egraph.encoding.typing import on_integers
from eqsat_opt.egraph.engine.driver import Engine
from eqsat_opt.egraph.loading.siblings import Seeds
from eqsat_opt.egraph.terms import LEAF, OUT, Lowered, TermNode
from eqsat_opt.ir.graph.broadcasting import Joins
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.onnx.folding import rounds_alike
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["generic_key", "load"]


def generic_key(term: TermNode) -> str:
    """Return the key of a ``Map`` or ``Node_k`` term, without double quotes.

    A double quote would end the engine's string.
    """
    if term.op == OPAQUE:
        return f"{OPAQUE}|{term.attrs[0][1]}"
    return key_of(term.op, term.attrs).replace('"', "'")


class _Row:
    """The table row of one term: its values, and actions on them that many terms share."""

    def __init__(self, number: int, codes: ExtentCodes) -> None:
        self.codes = codes
        self.columns = ["i64"]
        self.values: list[object] = [number]
        self.actions: list[str] = []

    def column(self, sort: str, value: object) -> str:
        """Add a value and return its name."""
        self.columns.append(sort)
        self.values.append(value)
        return f"a{len(self.columns) - 1}"

    def vector(self, values: Sequence[Dim]) -> str:
        """Return an expression for a vector of integers."""
        parts = [self.column("i64", self.codes.encode(value)) for value in values]
        return f"(vec-of {' '.join(parts)})" if parts else "(vec-empty)"

    def insert(self, schema: Schema, term: TermNode, by: int) -> None:
        """Add actions that insert the e-node into the class of its number and record its rule."""
        children = [f"(Orig {self.column('i64', child)})" for child in term.children]
        name = schema.constructor(term.op, len(children))
        if name in (LEAF, OUT):
            arguments = [self.column("i64", term.attrs[0][1]), *children]
        elif name == term.op:
            arguments = children
            values: dict[str, Any] = dict(term.attrs)
            for key, kind in schema.attr_kinds(term.op):
                if kind == "ints":
                    arguments.append(self.vector(values[key]))
                elif kind == "size":
                    arguments.append(self.column("i64", self.codes.encode(values[key])))
                else:
                    value = repr(float(values[key])) if kind == "float" else values[key]
                    arguments.append(self.column(SORTS[kind], value))
        else:
            arguments = [self.column("String", generic_key(term)), *children]
        text = " ".join(arguments)
        self.actions += [f"(union (Orig a0) ({name} {text}))", f"(set ({name}_by {text}) {by})"]

    def type(self, type_: TensorType) -> None:
        """Add actions that set its shape and element type."""
        shape = self.vector(type_.shape)
        dtype = self.column("String", type_.dtype)
        self.actions += [f"(set (shape (Orig a0)) {shape})", f"(set (dtype (Orig a0)) {dtype})"]

    def rounds_alike(self, term: TermNode) -> None:
        """Add the action that lets the function be moved even where results must be bit-equal."""
        self.actions.append(f"(rounds-alike {self.column('String', generic_key(term))})")

    def is_on_integers(self, term: TermNode) -> None:
        """Add the action that marks the function as applied to integers."""
        self.actions.append(f"(on-integers {self.column('String', generic_key(term))})")


def load(
    engine: Engine,
    schema: Schema,
    lowered: Lowered,
    seeds: Seeds,
    seeded_by: Sequence[int],
    codes: ExtentCodes,
) -> int:
    """Insert all terms with their types, and mark the constant ones.

    The engine has run the program of ``schema``. The rule of the model's own terms is 0; seeds are
    numbered after these terms.

    Returns:
        The number of e-nodes.
    """
    tables: dict[tuple[tuple[str, ...], str], list[list[object]]] = defaultdict(list)
    terms = (*lowered.terms, *seeds.terms)
    for number, term in enumerate(terms):
        is_own = number < len(lowered.terms)
        row = _Row(number, codes)
        row.insert(schema, term, 0 if is_own else seeded_by[number - len(lowered.terms)])
        if isinstance(term.type, TensorType):
            row.type(term.type)
        if schema.constructor(term.op, len(term.children)) == "Map":
            operand = terms[term.children[0]].type
            is_float = isinstance(operand, TensorType) and operand.dtype in FLOATS
            if on_integers(term.op) and isinstance(operand, TensorType) and not is_float:
                row.is_on_integers(term)
            if schema.exact and rounds_alike(term.op):
                row.rounds_alike(term)
        is_leaf = is_own and (lowered.constant(number) is not None or term.op == "Scalar")
        if is_leaf or number in seeds.constant:
            row.actions.append("(const (Orig a0))")
        tables[tuple(row.columns), " ".join(row.actions)].append(row.values)
    joins = Joins.of(
        (term.op, term.attrs, [terms[child].type for child in term.children], term.type)
        for term in lowered.terms
    )
    for pair, size in joins.sizes.items():
        tables[("i64",) * 3, "(joins a0 a1 a2)"].append(list(map(codes.encode, (*pair, size))))
    if seeds.equal:
        tables[("i64", "i64"), "(union (Orig a0) (Orig a1))"] += [
            list(pair) for pair in seeds.equal
        ]
    commands = [
        command
        for (columns, action), rows in tables.items()
        for command in engine.load_table(columns, rows, action)
    ]
    *_, counted = engine.run([*commands, "(run load 1)", "(print-size)"])
    return schema.enodes(dict(counted.sizes))
