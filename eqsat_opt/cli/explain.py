"""`eqsat-opt explain`: the rules that fired, those that were chosen, and each stage."""

from __future__ import annotations

from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.explain_stage import explain_stage
from eqsat_opt.cli.session import (
    check_writable,
    output_console,
    print_rule_notes,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import OptionError
from eqsat_opt.options import Options

__all__ = ["explain_model"]


def explain_model(
    context: typer.Context,
    model: a.Model,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List the kernels with their prices as well.")
    ] = False,
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Show one stage of the search instead: graph, eclasses, candidates, "
            "problem or selection.",
            show_default=False,
        ),
    ] = None,
    lines: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Rows of a stage to print, by default 40; 0 prints all.",
            show_default=False,
        ),
    ] = None,
    objective: a.Objective = "time",
    limit: a.Limit = None,
    rules: a.Rules = Options.rules,
    numerics: a.Numerics = Options.numerics,
    effort: a.Effort = Options.effort,
    budget: a.Budget = None,
    input_shape: a.InputShape = None,
    threads: a.Threads = Options.threads,
    nodes: a.Nodes = Options.nodes,
    no_measure: a.NoMeasure = False,
    deadline: a.Deadline = Options.deadline_s,
    seed: a.Seed = Options.seed,
    store: a.Store = None,
    custom_ops: a.CustomOps = None,
    backends: a.Backends = "ort",
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Search without racing or writing; explain what was found and why it was chosen."""
    if stage is None and lines is not None:
        raise OptionError("--lines counts the rows of a stage; name one with --stage")
    if stage is not None and kernels:
        raise OptionError("--kernels does not belong to a stage; leave out --kernels or --stage")
    options = a.make_options(context)
    from eqsat_opt import api

    check_writable(json, api.files_of(model), noun="a file of the model")
    if stage is not None:
        explain_stage(model, stage, options, lines=lines, json=json, quiet=quiet)
        return
    with stage_progress(quiet) as progress:
        explanation = api.explain(model, options, progress=progress)
    if json is not None:
        write_json(explanation.to_json(), json)
    tables = not quiet and json != "-"
    if tables:
        console = output_console()
        console.print(explanation)
        if kernels:
            console.print()
            console.print(explanation.kernel_table())
    print_rule_notes(tables=tables)
