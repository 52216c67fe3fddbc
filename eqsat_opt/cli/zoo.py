"""`eqsat-opt zoo`: the built-in benchmark models."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import (
    Session,
    check_writable,
    output_console,
    write_json,
)
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import OptionError

__all__ = ["app"]

app = typer.Typer(help="List or build the built-in benchmark models.", no_args_is_help=False)


app.callback(invoke_without_command=True)(a.show_help)


@app.command("list")
def _list(json: a.Json = None, debug: a.Debug = False) -> None:
    """List the models; other commands take `zoo:NAME`, `zoo:NAME@tiny` or `zoo:NAME@n=4`."""
    from eqsat_opt.lab import zoo

    models = [zoo.describe(name) for name in zoo.names()]
    if json is not None:
        write_json({"models": [asdict(model) for model in models]}, json)
    if json == "-":
        return
    from eqsat_opt.common.text import count_text, plain_table

    titles = ("name", "title", "operators", "parameters", "source")
    table = plain_table(*titles, right=slice(2, 4))
    for m in models:
        table.add_row(m.name, m.title, count_text(m.n_operators), count_text(m.n_params), m.source)
    output_console().print(table)


@app.command("build")
def _build(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A name of the list, NAME@tiny, or NAME@SIZE=4.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write.", show_default=False),
    ],
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the weights.")] = 0,
    debug: a.Debug = False,
) -> None:
    """Build a model and write it to a file."""
    check_writable(output)
    from eqsat_opt.lab import zoo

    name = name.removeprefix("zoo:")
    model = zoo.build_named(name, seed=seed)
    write_whole(output, model.SerializeToString(deterministic=True), OptionError)
    context.ensure_object(Session).written = output
    typer.echo(f"{name} written to {output}")
