"""`eqsat-opt compare --list`: methods, their parameters and sources, devices, rule sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eqsat_opt.cli.session import output_console, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from eqsat_opt.lab.comparison.listing import Listing, MethodFacts

__all__ = ["show_listing"]


def show_listing(json: str | None, *, quiet: bool) -> None:
    """Print methods, devices and rule sets of comparisons, and write them as JSON if requested."""
    from eqsat_opt.lab.comparison.listing import listing

    found = listing()
    if json is not None:
        write_json(found.to_json(), json)
    if quiet or json == "-":
        return
    console = output_console()
    for table in (_methods(found), _parameters(found), _devices(found)):
        console.print(table)
        console.print()
    console.print(_rules(found))


def _rules(found: Listing) -> Table:
    from eqsat_opt.common.text import plain_table

    table = plain_table("for --rules", "")
    table.add_row("sets", ", ".join(("default", "none", *found.rule_sets)))
    counts = (f"{name} ({count})" for name, count in found.families.items())
    table.add_row("families", ", ".join(counts))
    if found.rulebooks:
        table.add_row("rulebooks", ", ".join(found.rulebooks))
    return table


def _methods(found: Listing) -> Table:
    from eqsat_opt.common.text import plain_table

    table = plain_table("method", "what it is", "source")
    for one in found.methods:
        table.add_row(one.name, one.title or one.trouble, one.source)
    return table


def _parameters(found: Listing) -> Table:
    from eqsat_opt.common.text import plain_table

    table = plain_table("parameter", "default", "meaning")
    for method in found.methods:
        for name, default, meaning in _rows(method):
            table.add_row(name, default, meaning)
    return table


def _rows(method: MethodFacts) -> list[tuple[str, str, str]]:
    rows = []
    for one in method.parameters:
        default = str(one.default).lower() if isinstance(one.default, bool) else str(one.default)
        meaning = one.meaning.replace("``", "").rstrip(".")
        rows.append((f"{method.name}.{one.name}", default, meaning))
    return rows


def _devices(found: Listing) -> Table:
    from eqsat_opt.common.text import plain_table

    table = plain_table("device", "product", "prices")
    for one in found.devices:
        table.add_row(one.name, one.title, ", ".join(one.metrics))
    return table
