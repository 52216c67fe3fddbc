"""`eqsat-opt bench`: a race of two models."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated
from warnings import catch_warnings, simplefilter

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.automation.data import Input, InputData
from eqsat_opt.cli.session import (
    check_writable,
    output_console,
    print_warnings,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import CheckFailed
from eqsat_opt.pipeline.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from eqsat_opt.api import Difference, OperatorTime, RaceResult

__all__ = ["bench_models"]


def bench_models(
    context: typer.Context,
    model: a.Model,
    other: Annotated[
        str,
        typer.Argument(metavar="OTHER", help="The model to compare it with.", show_default=False),
    ],
    numerics: a.Numerics = Options.numerics,
    budget: a.Budget = None,
    input_shape: a.InputShape = None,
    input_data: InputData = None,
    input_: Input = None,
    threads: a.Threads = Options.threads,
    check: a.Check = None,
    seed: a.Seed = Options.seed,
    custom_ops: a.CustomOps = None,
    per_operator: Annotated[
        bool,
        typer.Option("--per-operator", help="Also show what the operators of both models take."),
    ] = False,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Race two models and compare their outputs; the exit code is 2 if these differ."""
    options = a.make_options(context)
    from eqsat_opt import api

    check_writable(json, api.files_of(model, other), noun="a file of the model")
    with stage_progress(quiet) as progress:
        progress("race", f"{model} against {other}")
        with catch_warnings(record=True) as caught:  # a tuned form may not fit this machine
            simplefilter("always")
            race, outputs = api.bench(model, other, options)
        profiles = api.operator_times(model, other, options) if per_operator else None
    print_warnings(list(dict.fromkeys(str(one.message) for one in caught)))
    agree = not any(output.why for output in outputs)
    verdict, advice = _verdict(race), _advice(race)
    if json is not None:
        value = {
            "models": {"original": model, "other": other},
            "verdict": verdict,
            "advice": advice,
            "agree": agree,
            "outputs": [asdict(output) for output in outputs],
            "race": race.to_json(),
        }
        if profiles is not None:
            roles = zip(("original", "other"), profiles, strict=True)
            value["operators"] = {role: [asdict(row) for row in rows] for role, rows in roles}
        write_json(value, json)
    if not quiet and json != "-":
        console = output_console()
        console.print(_race_table(race, {"original": model, "other": other}))
        console.print(f"\n{verdict}", style="bold")
        if advice:
            console.print(advice, style="bold")
        console.print(_race_terms(race))
        if race.meter:
            console.print(f"energy of a run by {race.meter}, other processes included")
        if race.is_busy:
            console.print(race.busy_text, style="yellow")
        if profiles is not None:
            console.print("\noperators as onnxruntime runs them, by its profiler", style="dim")
            console.print(_operator_table(*profiles))
        console.print(f"\noutputs on {max(1, options.check)} random inputs", style="dim")
        console.print(_output_table(outputs))
    if not agree:
        wrong = ", ".join(repr(output.name) for output in outputs if output.why)
        raise CheckFailed(f"{other} computes something else than {model}: output {wrong} differs")


def _verdict(race: RaceResult) -> str:
    """Describe the result of the race between default sessions."""
    other = race.entries["other"]
    ratio = other.ratio
    if other.note:
        return f"OTHER {other.note}"
    if other.wins:
        return f"OTHER is {1 / ratio:.3f}x as fast"
    if race.loses("other"):
        return f"OTHER is slower: it takes {ratio:.3f} times as long"
    return "no difference beyond noise"


def _advice(race: RaceResult) -> str:
    """Describe the gain by the level in OTHER's metadata; empty if there is none."""
    for name, entry in race.entries.items():
        level = name.partition("@")[2]
        if level and entry.wins and race.beats(name, "other"):
            return (
                f"{1 / entry.ratio:.3f}x as fast with graph optimisation level {level}: "
                "eqsat_opt.session(OTHER) opens it so"
            )
    return ""


def _race_terms(race: RaceResult) -> str:
    return (
        f"noise {race.noise:.1%}; a win is below {1 / (1 + race.threshold):.3f}, and faster than "
        f"both sessions of MODEL in {race.needed} of {race.builds} builds; {race.rounds} rounds, "
        f"{race.clock} clock, {race.seconds:.1f} s"
    )


def _race_table(race: RaceResult, names: Mapping[str, str]) -> Table:
    from rich.text import Text

    from eqsat_opt.common.text import amount_text, plain_table, time_text

    energy = ("energy",) if race.meter else ()
    titles = ("", "model", "best", "median", "spread", "ratio", *energy, "note")
    table = plain_table(*titles, right=slice(2, len(titles) - 1))
    for role, entry in race.entries.items():
        times = (time_text(entry.time_us), time_text(entry.median_us))
        share = (f"{entry.spread:.1%}", f"{entry.ratio:.3f}")
        name, _, level = role.partition("@")
        title = "MODEL" if name == "original" else "OTHER"
        note = entry.note or (f"at level {level}" if level else "")
        used = entry.energy_uj
        cells = ("" if used is None else amount_text(used, "µJ") for _ in energy)
        table.add_row(*(Text(t) for t in (title, names[name], *times, *share, *cells, note)))
    return table


def _operator_table(model: Sequence[OperatorTime], other: Sequence[OperatorTime]) -> Table:
    """Return a table of the operators of both models, those that take most in either first."""
    from rich.text import Text

    from eqsat_opt.common.text import plain_table, time_text

    titles = ("operator", "MODEL", "share", "kernels", "OTHER", "share", "kernels", "slowest")
    table = plain_table(*titles, right=slice(1, 7))
    sides = [{row.operator: row for row in rows} for rows in (model, other)]
    order = sorted(
        sides[0].keys() | sides[1].keys(),
        key=lambda name: (-max(side[name].time_us for side in sides if name in side), name),
    )
    for name in order:
        cells = [name]
        for side in sides:
            row = side.get(name)
            cells += (
                ["", "", ""]
                if row is None
                else [time_text(row.time_us), f"{row.share:.1%}", str(row.nodes)]
            )
        last = sides[1].get(name) or sides[0][name]
        table.add_row(*map(Text, (*cells, last.slowest)))
    totals = [sum(row.time_us for row in rows) for rows in (model, other)]
    table.add_row("all", time_text(totals[0]), "", "", time_text(totals[1]), style="bold")
    return table


def _output_table(outputs: Sequence[Difference]) -> Table:
    from rich.text import Text

    from eqsat_opt.common.text import plain_table

    table = plain_table("output", "max abs", "max rel", "tolerance", "", right=slice(1, 4))
    for output in outputs:
        numbers = (f"{x:.2e}" for x in (output.max_abs, output.max_rel, output.tolerance))
        why = Text(output.why or "agrees", style="red" if output.why else "green")
        table.add_row(Text(output.name), *(Text(number) for number in numbers), why)
    return table
