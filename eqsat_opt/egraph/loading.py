"""Loading terms as tables: one file and one rule per signature, far faster than text."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from eqsat_opt.egraph.engine import Engine
from eqsat_opt.egraph.lowering import LEAF, OUT, Lowered, TermNode
from eqsat_opt.egraph.schema import SORTS, Schema, key_of
from eqsat_opt.egraph.siblings import Seeds
from eqsat_opt.ir.dims import encode_dim
from eqsat_opt.ir.graph import OPAQUE
from eqsat_opt.ir.types import TensorType

__all__ = ["generic_key", "load"]


def generic_key(term: TermNode) -> str:
    """The key of a ``Map`` or ``Node_k`` term; quotes would end the engine's strings."""
    if term.op == OPAQUE:
        return f"{OPAQUE}|{term.attrs[0][1]}"
    return key_of(term.op, term.attrs).replace('"', "'")


def _encode(value: Any) -> list[object]:
    if isinstance(value, tuple):
        return [encode_dim(v) for v in value]
    return [value]


class _Tables:
    """Rows by signature; a signature fixes the columns and the action."""

    def __init__(self) -> None:
        self.rows: dict[tuple[tuple[str, ...], str], list[list[object]]] = defaultdict(list)

    def add(self, columns: list[str], action: str, row: list[object]) -> None:
        self.rows[(tuple(columns), action)].append(row)


def _term_row(
    schema: Schema, term: TermNode, number: int, by: int
) -> tuple[list[str], str, list[object]]:
    columns = ["i64"]
    row: list[object] = [number]

    def column(sort: str, value: object) -> str:
        columns.append(sort)
        row.append(value)
        return f"a{len(columns) - 1}"

    children = [f"(Orig {column('i64', child)})" for child in term.children]
    name = schema.constructor(term.op, len(children))
    if name in (LEAF, OUT):
        arguments = [column("i64", term.attrs[0][1]), *children]
    elif name == term.op:
        arguments = children
        values = dict(term.attrs)
        for key, kind in schema.attr_kinds(term.op):
            if kind == "ints":
                parts = [column("i64", v) for v in _encode(values[key])]
                arguments.append(f"(vec-of {' '.join(parts)})" if parts else "(vec-empty)")
            else:
                value = repr(float(values[key])) if kind == "float" else values[key]  # type: ignore[arg-type]
                arguments.append(column(SORTS[kind], value))
    else:
        arguments = [column("String", generic_key(term)), *children]
    text = " ".join(arguments)
    return columns, f"(union (Orig a0) ({name} {text})) (set ({name}_by {text}) {by})", row


def load(
    engine: Engine, schema: Schema, lowered: Lowered, seeds: Seeds, seeded_by: Sequence[int]
) -> int:
    """Insert all terms with types and constness: the model's made by 0, each seed by its rule.

    Returns:
        The number of e-nodes.
    """
    tables = _Tables()
    for number, term in enumerate((*lowered.terms, *seeds.terms)):
        is_own = number < len(lowered.terms)
        by = 0 if is_own else seeded_by[number - len(lowered.terms)]
        tables.add(*_term_row(schema, term, number, by))
        if isinstance(term.type, TensorType):
            shape = [encode_dim(d) for d in term.type.shape]
            vector = (
                f"(vec-of {' '.join(f'a{i + 1}' for i in range(len(shape)))})"
                if shape
                else "(vec-empty)"
            )
            tables.add(
                ["i64"] * (len(shape) + 1), f"(set (shape (Orig a0)) {vector})", [number, *shape]
            )
            tables.add(["i64", "String"], "(set (dtype (Orig a0)) a1)", [number, term.type.dtype])
        is_leaf = is_own and (lowered.constant(number) is not None or term.op == "Scalar")
        if is_leaf or number in seeds.constant:
            tables.add(["i64"], "(const (Orig a0))", [number])
    for pair in seeds.equal:
        tables.add(["i64", "i64"], "(union (Orig a0) (Orig a1))", list(pair))
    commands = [
        command
        for (columns, action), rows in tables.rows.items()
        for command in engine.load_table(columns, rows, action)
    ]
    *_, counted = engine.run([*commands, "(run load 1)", "(print-size)"])
    return schema.enodes(dict(counted.sizes))
