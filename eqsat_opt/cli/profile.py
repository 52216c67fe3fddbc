"""`eqsat-opt profile`: the store of measured kernels."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import check_writable, output_console, write_json

if TYPE_CHECKING:
    from eqsat_opt.cost.store import ProfileStore

__all__ = ["app"]

app = typer.Typer(
    help="Show, clear, export or import the store of measured kernels.", no_args_is_help=False
)

_File = Annotated[str, typer.Argument(metavar="FILE", help="A JSON file.", show_default=False)]


app.callback(invoke_without_command=True)(a.show_help)


def _opened(path: str | None) -> ProfileStore:
    from eqsat_opt.cost.store import ProfileStore

    return ProfileStore(path)


@app.command("show")
def _show(
    kernels: Annotated[bool, typer.Option("--kernels", help="List every kernel.")] = False,
    store: a.StoreShown = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show the number of stored kernels by backend and device."""
    check_writable(json)
    with _opened(store) as opened:
        stats = opened.stats()
        rows = opened.rows() if kernels else []
    if json is not None:
        write_json(asdict(stats), json)
    if json == "-":
        return
    from rich.table import Table
    from rich.text import Text

    from eqsat_opt.common.text import bytes_text, count_text, time_text

    console = output_console()
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim")
    facts = [
        ("store", f"{stats.path} ({bytes_text(stats.size_bytes)})"),
        ("measured", f"{count_text(stats.n_measurements)} kernels"),
        ("cannot run", f"{count_text(stats.n_failures)} kernels"),
        *((f"by {name}", count_text(count)) for name, count in stats.per_backend.items()),
        *((f"on {name}", count_text(count)) for name, count in stats.per_device.items()),
        ("between", f"{stats.oldest} and {stats.newest}" if stats.newest else "-"),
    ]
    for title, text in facts:
        grid.add_row(title, Text(text))
    console.print(grid)
    if not kernels:
        return
    table = Table("kernel", "threads", "time", "measured at", box=None, pad_edge=False)
    for row in rows:
        time = "cannot run" if row.measurement is None else time_text(row.measurement.time_us)
        cells = (_kernel_text(row.key.kernel), str(row.key.threads), time, row.measured_at)
        table.add_row(*(Text(cell) for cell in cells))
    console.print()
    console.print(table)


def _kernel_text(signature: str) -> str:
    """Format a signature as operators and operand types, with `!` for constants.

    A text that is no signature is returned unchanged.
    """
    from json import loads

    try:
        parts = loads(signature)
        operators = "+".join(step[0] for step in parts["steps"])
        operands = ", ".join(f"{o[0]}{'!' if o[1] else ''}" for o in parts["operands"])
    except (LookupError, TypeError, ValueError):
        return signature
    return f"{operators}({operands})"


@app.command("clear")
def _clear(store: a.StoreShown = None, debug: a.Debug = False) -> None:
    """Delete all measurements."""
    with _opened(store) as opened:
        typer.echo(f"{opened.clear()} entries deleted from {opened.path}")


@app.command("export")
def _export(file: _File, store: a.StoreShown = None, debug: a.Debug = False) -> None:
    """Write all measurements to a JSON file."""
    check_writable(file)
    with _opened(store) as opened:
        typer.echo(f"{opened.export_json(file)} entries written to {file}")


@app.command("import")
def _import(file: _File, store: a.StoreShown = None, debug: a.Debug = False) -> None:
    """Add the measurements of a JSON file; they replace equal ones."""
    with _opened(store) as opened:
        typer.echo(f"{opened.import_json(file)} entries read into {opened.path}")
