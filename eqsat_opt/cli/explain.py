"""`eqsat-opt explain`: which rules fired, which were chosen, why not another."""

from __future__ import annotations

from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.session import (
    check_writable,
    output_console,
    print_rule_notes,
    stage_progress,
    write_json,
)
from eqsat_opt.options import Options

__all__ = ["explain_model"]


def explain_model(
    model: a.Model,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="List the kernels with their prices as well.")
    ] = False,
    objective: a.Objective = "time",
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
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Search without racing or writing, and say what was found and why it was chosen."""
    options = a.make_options(
        input_shape,
        objective=objective,
        rules=rules,
        numerics=numerics,
        effort=effort,
        budget_s=budget,
        threads=threads,
        nodes=nodes,
        measure=False if no_measure else None,
        deadline_s=deadline,
        seed=seed,
        store=store,
        custom_ops=custom_ops or (),
    )
    if json not in (None, "-"):
        check_writable(json)
    from eqsat_opt import api

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
