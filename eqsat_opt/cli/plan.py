"""`eqsat-opt plan`: make and show plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.plotting import check_plot
from eqsat_opt.cli.session import Session, check_writable, output_console, write_json
from eqsat_opt.common.text import bytes_text, counted, plain_table, shortened, time_text
from eqsat_opt.errors import OptionError
from eqsat_opt.runtime.backends.ort import NAME as ORT

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["PlanFile", "app", "resolved"]

app = typer.Typer(
    help="Make and show plans: which kernels run, in which memory and order.", no_args_is_help=False
)

PlanFile = Annotated[
    str, typer.Argument(metavar="PLAN", help="A file that holds a plan.", show_default=False)
]


@app.callback(invoke_without_command=True)
def _plan(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def resolved(model: str) -> Any:
    """Build the model of ``zoo:NAME``; return a path unchanged, without loading the search."""
    if not model.startswith("zoo:"):
        return model
    from eqsat_opt.api import resolve

    return resolve(model)


@app.command("make")
def _make(
    context: typer.Context,
    model: a.Model,
    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", help="Where to write.", show_default=False),
    ],
    backend: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Who runs it: ort as one session, numpy operator by operator, or generated or "
            "native, with numpy for what they have no kernel for.",
        ),
    ] = ORT,
    streams: Annotated[int, typer.Option(metavar="N", help="How many streams at most.")] = 1,
    target: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="cpu, or a device profile; such a plan can be shown and not run.",
        ),
    ] = "cpu",
    memory_limit: Annotated[
        float | None,
        typer.Option(
            metavar="BYTES",
            help="Largest size of the arena: values are dropped and computed twice to keep it.",
            show_default=False,
        ),
    ] = None,
    memory_front: Annotated[
        bool,
        typer.Option(
            "--memory-front", help="Show what less memory costs in values computed twice."
        ),
    ] = False,
    input_shape: a.InputShape = None,
    debug: a.Debug = False,
) -> None:
    """Plan a model without rewriting it, for fixed sizes."""
    check_writable(output, [model], noun="the model")
    sets = a.parse_shapes(input_shape or ())
    if len(sets) > 1:
        raise OptionError("a plan is for one set of sizes; give each name once")
    from eqsat_opt.pipeline import plans

    source = resolved(model)
    if memory_front:
        typer.echo(str(plans.memory_front(source, shapes=sets[0])))
    plan = plans.plan_model(
        source,
        backend=backend,
        shapes=sets[0],
        streams=streams,
        target=target,
        memory_limit=memory_limit,
    )
    plans.write_plan(output, plan)
    context.ensure_object(Session).written = output
    typer.echo(f"{counted(len(plan.launches), 'kernel')} written to {output}")


@app.command("show")
def _show(
    plan: PlanFile,
    json: a.Json = None,
    plot: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Draw when each launch runs on which stream: .svg, .png or .pdf.",
            show_default=False,
        ),
    ] = None,
    debug: a.Debug = False,
) -> None:
    """Show the launches of a plan, its memory and its predicted time."""
    if plot is not None:
        check_plot(plot)
    for file in (json, plot):
        check_writable(file, [plan], noun="the plan")
    if plot is not None and json not in (None, "-"):
        check_writable(plot, [json], noun="the JSON file of --json")
    from eqsat_opt.pipeline import plans

    facts = plans.describe_plan(plans.read_plan(plan))
    if json is not None:
        write_json(facts, json)
    if plot is not None:
        from eqsat_opt.cli.plan_plot import draw_timeline

        draw_timeline(facts, plot, plan)
    if json == "-":
        return
    console, analytic = output_console(), facts["analytic"]
    console.print(_launch_table(facts))
    used, least = facts["arena_bytes"], facts["lower_bound_bytes"]
    joined = facts["concatenations"]
    places = (
        f"{counted(joined['views'], 'concatenation')} in place: {joined['in_place']} parts written "
        f"where they belong, {joined['copied']} copied; {joined['computed']} computed by kernels",
    )
    lines = (
        f"for {facts['target']}, {', '.join(facts['versions'].values())}",
        f"{counted(len(facts['launches']), 'kernel')} on {counted(facts['streams'], 'stream')}, "
        f"{counted(facts['events'], 'event')}, {counted(facts['views'], 'view')}",
        *(places if any(joined.values()) else ()),
        f"arena {bytes_text(used)}, at least {bytes_text(least)}; largest workspace "
        f"{bytes_text(facts['workspace_bytes'])}",
        f"analytic, by the profile {analytic['profile']}, not measured: "
        f"{time_text(analytic['sum_us'])} in sum, {time_text(analytic['makespan_us'])} until the "
        "last launch ends",
    )
    console.print()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


_NUMBERS = ("stream", "predicted", "offset", "workspace")
_USUAL = {
    "algorithm": "default",
    "forms": "host/plain",
    "stream": "0",
    "waits": "",
    "workspace": "",
}
"""Cells of most launches in most plans."""


def _launch_table(facts: dict[str, Any]) -> Table:
    """Return a table of the launches in the order of submission, and their totals.

    A column in which every launch has what is usual is left out.
    """
    from rich.text import Text

    rows = [
        {
            "launch": one["name"],
            "kernel": shortened(one["body"], _WIDEST),
            "backend": one["backend"],
            "algorithm": one["algorithm"],
            "forms": _forms(one),
            "stream": str(one["stream"]),
            "predicted": time_text(one["analytic_us"]),
            "waits": " ".join(map(str, one["waits"])),
            "writes": shortened(", ".join(place["type"] for place in one["writes"]), _WIDEST),
            "offset": shortened(", ".join(map(_offset, one["writes"])), _WIDEST),
            "workspace": str(one["workspace_bytes"] or ""),
        }
        for one in facts["launches"]
    ]
    titles = [
        title
        for title in rows[0]
        if title not in _USUAL or any(row[title] != _USUAL[title] for row in rows)
    ]
    table = plain_table(*titles)
    for title, column in zip(titles, table.columns, strict=True):
        if title in _NUMBERS:
            column.justify = "right"
    for row in rows:
        table.add_row(*(Text(row[title]) for title in titles))
    totals = {
        "launch": "total",
        "kernel": counted(len(facts["launches"]), "kernel"),
        "stream": str(facts["streams"]),
        "predicted": time_text(facts["analytic"]["sum_us"]),
        "offset": str(facts["arena_bytes"]),
        "workspace": str(facts["workspace_bytes"] or ""),
    }
    table.add_row(*(Text(totals.get(title, ""), style="bold") for title in titles))
    return table


def _forms(launch: dict[str, Any]) -> str:
    """Describe the forms that a launch reads and those that it writes, or one if they are equal."""
    read, written = (
        ", ".join(dict.fromkeys(place["form"] for place in launch[side]))
        for side in ("reads", "writes")
    )
    return written if read in ("", written) else f"{read} > {written}"


_WIDEST = 40


def _offset(place: dict[str, Any]) -> str:
    return f"{place['offset']}{' in ' + place['base'] if place['base'] else ''}"
