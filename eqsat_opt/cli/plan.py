"""`eqsat-opt plan`: make and show plans."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import Session, check_writable, output_console, write_json
from eqsat_opt.errors import OptionError

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
    """``zoo:NAME`` as a model, and a path as it is, without loading the search."""
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
    ] = "ort",
    streams: Annotated[int, typer.Option(metavar="N", help="How many streams at most.")] = 1,
    target: Annotated[
        str,
        typer.Option(
            metavar="NAME|FILE",
            help="cpu, or a device profile; such a plan can be shown and not run.",
        ),
    ] = "cpu",
    input_shape: a.InputShape = None,
    debug: a.Debug = False,
) -> None:
    """Plan a model as it stands, for fixed sizes."""
    check_writable(output, [model], noun="the model")
    sets = a.parse_shapes(input_shape or ())
    if len(sets) > 1:
        raise OptionError("a plan is for one set of sizes; give each name once")
    from eqsat_opt import plans
    from eqsat_opt.wording import counted

    plan = plans.plan_model(
        resolved(model), backend=backend, shapes=sets[0], streams=streams, target=target
    )
    plans.write_plan(output, plan)
    context.ensure_object(Session).written = output
    typer.echo(f"{counted(len(plan.launches), 'kernel')} written to {output}")


@app.command("show")
def _show(plan: PlanFile, json: a.Json = None, debug: a.Debug = False) -> None:
    """Show the launches of a plan, its memory and what it would take."""
    check_writable(json, [plan], noun="the plan")
    from eqsat_opt import plans

    facts = plans.describe_plan(plans.read_plan(plan))
    if json is not None:
        write_json(facts, json)
    if json == "-":
        return
    from rich.table import Table
    from rich.text import Text

    from eqsat_opt.wording import bytes_text, counted, time_text

    console, analytic = output_console(), facts["analytic"]
    source = f"analytic, profile {analytic['profile']}"
    titles = ("launch", "kernel", "by", "stream", "waits", "writes", "at byte", "workspace", source)
    table = Table(*titles, box=None, pad_edge=False, header_style="dim")
    for column in table.columns[6:]:
        column.justify = "right"
    for one in facts["launches"]:
        algorithm = "" if one["algorithm"] == "default" else f":{one['algorithm']}"
        cells = (
            one["name"],
            _short(one["body"]),
            one["backend"] + algorithm,
            str(one["stream"]),
            " ".join(map(str, one["waits"])),
            _short(", ".join(f"{w['type']} {w['form']}" for w in one["writes"])),
            _short(", ".join(map(_offset, one["writes"]))),
            str(one["workspace_bytes"] or ""),
            time_text(one["analytic_us"]),
        )
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
    used, least = facts["arena_bytes"], facts["lower_bound_bytes"]
    lines = (
        f"for {facts['target']}, {', '.join(facts['versions'].values())}",
        f"{counted(len(facts['launches']), 'kernel')} on {counted(facts['streams'], 'stream')}, "
        f"{counted(facts['events'], 'event')}, {counted(facts['views'], 'view')}",
        f"arena {bytes_text(used)}, at least {bytes_text(least)}",
        f"analytic, not measured: {time_text(analytic['sum_us'])} in sum, "
        f"{time_text(analytic['makespan_us'])} until the last launch ends",
    )
    console.print()
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)


_WIDEST = 40


def _short(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _offset(place: dict[str, Any]) -> str:
    return f"{place['offset']}{' in ' + place['base'] if place['base'] else ''}"
