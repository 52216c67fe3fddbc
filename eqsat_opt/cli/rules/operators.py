"""`eqsat-opt rules operators`: the operators that rules are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json
from eqsat_opt.errors import RuleError, or_nearest

if TYPE_CHECKING:
    from eqsat_opt.ir.ops import Op

__all__ = ["show_operators"]

_ANY = 1 << 16
"""Numbers of operands from here on mean any number."""


def show_operators(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One operator; all by default.", show_default=False),
    ] = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """List the operators that rules may name, with their operands and attributes."""
    from eqsat_opt.ir.ops import OPS
    from eqsat_opt.rules.library import book
    from eqsat_opt.rules.term import applied

    if name is not None and name not in OPS:
        raise RuleError(f"rules have no operator {name!r}; {or_nearest(name, sorted(OPS))}")
    check_writable(json)
    shown = [OPS[one] for one in (sorted(OPS) if name is None else [name])]
    rules: dict[str, list[str]] = {}
    for rule in book().values():
        for op_name in {term.op for term in applied((*rule.lhs, *rule.rhs))}:
            rules.setdefault(op_name, []).append(rule.name)
    if json is not None:
        values = [_values(op, rules.get(op.name, [])) for op in shown]
        write_json({"operators": values}, json)
    if json == "-":
        return
    from rich.text import Text

    from eqsat_opt.common.text import count_text, plain_table

    console = output_console()
    table = plain_table("operator", "operands", "attributes", "rules", "", right=slice(3, 4))
    for op in shown:
        notes = ", ".join(filter(None, (op.kind, "" if op.index_fn else "instances only")))
        count = count_text(len(rules.get(op.name, [])))
        attributes = ", ".join(f"{key}: {kind}" for key, kind in op.attrs.items())
        table.add_row(*map(Text, (op.name, _arity(op), attributes, count, notes)))
    console.print(table)
    if name is not None:
        if op.doc:
            console.print(f"\n{op.doc}")
        for one in rules.get(name, []):
            console.print(one)


def _arity(op: Op) -> str:
    least, most = op.arity
    if least == most:
        return str(least)
    return f"{least} or more" if most >= _ANY else f"{least} to {most}"


def _values(op: Op, rules: list[str]) -> dict[str, Any]:
    """Return plain values with stable keys."""
    return {
        "name": op.name,
        "arity": list(op.arity),
        "attributes": dict(op.attrs),
        "kind": op.kind,
        "traits": sorted(op.traits),
        "commutative": op.commutative,
        "proved_for_all_sizes": op.index_fn is not None,
        "doc": op.doc,
        "rules": rules,
    }
