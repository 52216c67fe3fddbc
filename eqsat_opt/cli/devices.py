"""`eqsat-opt devices`: an inventory of this machine, and the devices to plan for."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import Session, check_writable, output_console, write_json
from eqsat_opt.errors import OptionError

__all__ = ["app"]

app = typer.Typer(
    help="Show what can run a model here; list, show and import devices to plan for.",
    no_args_is_help=False,
)


@app.callback(invoke_without_command=True)
def _devices(
    context: typer.Context,
    store: a.StoreShown = None,
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show what can run a model here, one line each, and what is missing."""
    command = context.invoked_subcommand
    if command is not None:
        if store is not None or json is not None:
            raise OptionError(f"options of devices {command} stand behind its name")
        return
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


@app.command("list")
def _list(json: a.Json = None, debug: a.Debug = False) -> None:
    """List the values of --target: this machine, profiles, and devices with recorded prices."""
    from eqsat_opt.pipeline.targets import targets

    check_writable(json)
    found = targets()
    if json is not None:
        write_json({"targets": [asdict(one) for one in found]}, json)
    if json == "-":
        return
    from rich.text import Text

    from eqsat_opt.common.text import plain_table

    table = plain_table("name", "kind", "device", "known")
    for one in found:
        cells = (one.name, one.kind, one.title, one.text)
        style = "" if one.is_usable else "yellow"
        table.add_row(*(Text(cell, style=style) for cell in cells))
    output_console().print(table)


@app.command("show")
def _show(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Of the list, or a file.", show_default=False),
    ],
    json: a.Json = None,
    debug: a.Debug = False,
) -> None:
    """Show the figures of a device, each with its unit and source."""
    from eqsat_opt.pipeline.targets import describe_target

    check_writable(json)
    facts = describe_target(name)
    if json is not None:
        write_json(facts, json)
    if json == "-":
        return
    from rich.text import Text

    from eqsat_opt.common.text import plain_table

    console = output_console()
    console.print(f"{facts['name']}: {facts['title']}, {facts['kind']}", soft_wrap=True)
    if "figures" not in facts:
        console.print(f"{facts['id']}, usable cores {facts['cores']}", soft_wrap=True)
        meter = facts["energy"] or f"no meter counts ({'; '.join(facts['tried'])})"
        console.print(f"energy: {meter}", soft_wrap=True)
        return
    console.print(facts["file"], style="dim", soft_wrap=True)
    if "prices" in facts:
        prices = facts["prices"]
        counts = ", ".join(f"{count} kernels of {by}" for by, count in prices["kernels"].items())
        console.print(
            f"prices of {prices['machine']} with --threads {prices['threads']}: {counts}, until "
            f"{prices['newest']}; what has none is bounded by these figures",
            soft_wrap=True,
        )
    console.print()
    table = plain_table("figure", "value", "unit", "source", right=slice(1, 2))
    for one in facts["figures"]:
        cells = (one["name"], f"{one['value']:.6g}", one["unit"], one["source"])
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)


@app.command("import")
def _import(
    context: typer.Context,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="A device profile, or what eqsat-opt profile export wrote on another machine.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Of the device, if not that of the file.", show_default=False),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Whose figures stand behind prices; by default those of a processor.",
            show_default=False,
        ),
    ] = None,
    machine: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Which machine, if prices are of several.", show_default=False
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many threads, if prices are of several.", show_default=False
        ),
    ] = None,
    debug: a.Debug = False,
) -> None:
    """Import a device under a name for --target, whole or not at all."""
    from eqsat_opt.pipeline.targets import import_target

    done = import_target(file, name, base=profile, machine=machine, threads=threads)
    context.ensure_object(Session).written = done.path
    where = "takes the place of an earlier one in" if done.replaced else "written to"
    typer.echo(f"{done.target.name}, {done.target.kind}, {done.target.text}; {where} {done.path}")
