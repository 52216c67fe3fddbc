"""`eqsat-opt doctor`: what works in this installation, and how to get the rest."""

from __future__ import annotations

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json

__all__ = ["diagnose"]


def diagnose(
    store: a.StoreShown = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show what works in this installation, and how to get the rest.

    The exit code is 1 if something is broken without which no model can be optimised.
    """
    from eqsat_opt.pipeline.doctor import REQUIRED, diagnosis

    check_writable(json)
    items = diagnosis(store)
    if json is not None:
        write_json({"items": [item.to_json() for item in items]}, json)
    if json != "-":
        from rich.table import Table
        from rich.text import Text

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column(style="dim", no_wrap=True)
        for item in items:
            mark = "ok" if item.is_here else "failed" if item.name in REQUIRED else "-"
            style = "" if item.is_here else "yellow"
            grid.add_row(
                Text(mark, style=style or "green"), item.name, Text(item.text, style=style)
            )
        output_console().print(grid)
    if any(item.name in REQUIRED and not item.is_here for item in items):
        raise typer.Exit(1)
