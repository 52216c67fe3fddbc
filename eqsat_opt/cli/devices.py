"""`eqsat-opt devices`: what can run a model here."""

from __future__ import annotations

from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json

__all__ = ["show_devices"]


def show_devices(
    store: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The store, if not the user's own.", show_default=False),
    ] = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show what can run a model here, one line each, and what is missing for more."""
    from eqsat_opt.api import inventory

    check_writable(json)
    items = inventory(store)
    if json is not None:
        write_json({"devices": [item.to_json() for item in items]}, json)
    if json == "-":
        return
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    for item in items:
        grid.add_row(item.name, Text(item.text, style="" if item.is_here else "yellow"))
    output_console().print(grid)
