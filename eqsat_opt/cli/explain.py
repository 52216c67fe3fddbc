"""`eqsat-opt explain`: the rules that matched, those that were chosen, and each stage."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.pages import check_page, write_explanation_page
from eqsat_opt.cli.session import (
    check_writable,
    output_console,
    print_rule_notes,
    stage_progress,
    write_json,
    write_text,
)
from eqsat_opt.common.codecs import document_text
from eqsat_opt.errors import OptionError
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.backends.ort import NAME as ORT

__all__ = ["explain_model"]

_LINES = 40
"""Default number of rows, about what fits on a screen."""

_PRICED = ("problem", "selection")
"""Stages that show energies, if these are known."""

_HEAD = 2
"""Lines above the rows: the counts and the names of the columns."""


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
    target: a.Target = Options.target,
    precision: a.Precision = Options.precision,
    objective: a.Objective = "time",
    limit: a.Limit = None,
    energy_model: a.EnergyModel = None,
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
    backends: a.Backends = ORT,
    json: a.Json = None,
    html: a.Html = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Search without racing or writing; explain the result and the choice of its graph."""
    if stage is None and lines is not None:
        raise OptionError("--lines counts the rows of a stage; name one with --stage")
    if stage is not None and kernels:
        raise OptionError("--kernels does not belong to a stage; leave out --kernels or --stage")
    if stage is not None and html is not None:
        raise OptionError("--html is a page of the whole search; leave out --html or --stage")
    options = a.make_options(context)
    from eqsat_opt import api

    check_writable(json, api.files_of(model), noun="a file of the model")
    a.keep_inputs((json, html), target, energy_model)
    check_page(html, (json,), model)
    if stage is not None:
        _explain_stage(model, stage, options, lines=lines, json=json, quiet=quiet)
        return
    with stage_progress(quiet) as progress:
        explanation = api.explain(model, options, progress=progress)
    if json is not None:
        write_json(explanation.to_json(), json)
    write_explanation_page(explanation, html)
    tables = not quiet and json != "-"
    if tables:
        console = output_console()
        console.print(explanation)
        if kernels:
            console.print()
            console.print(explanation.kernel_table())
    print_rule_notes(tables=tables)


def _explain_stage(
    model: str, stage: str, options: Options, *, lines: int | None, json: str | None, quiet: bool
) -> None:
    """Search as far as needed, print the first rows of a stage, and write all of it.

    All rows are printed if `lines` is 0, and a screenful of shortened rows if it is None.

    Raises:
        OptionError: there is no such stage, or the number of lines is negative.
    """
    from eqsat_opt import api

    api.require_stage(stage)
    if lines is not None and lines < 0:
        raise OptionError(f"{lines} lines cannot be printed; give a number, or 0 for all")
    with stage_progress(quiet) as progress:
        value = api.stage(model, stage, options, progress=progress)
    if json is not None:
        write_text(document_text(api.stage_document(value)), json)
    is_shown = not quiet and json != "-"
    if is_shown:
        console = output_console()
        if stage in _PRICED and (told := api.energy_source(options)):
            console.print(f"energy is {told}", soft_wrap=True)
        for line in _cut(value.lines(short=lines is None), _LINES if lines is None else lines):
            # Rows are not wrapped here, so that each stays one line in a file or a pipe.
            console.print(line, soft_wrap=True)
    print_rule_notes(tables=is_shown)


def _cut(text: Iterator[str], most: int) -> Iterator[str]:
    """Yield the first rows and the number of further ones, or all rows if ``most`` is 0."""
    if not most:
        yield from text
        return
    yield from islice(text, _HEAD + most)
    more = sum(1 for _ in text)
    if more:
        noun = "row" if more == 1 else "rows"
        yield f"… {more} more {noun}: --lines 0 prints all, --json FILE writes them"
