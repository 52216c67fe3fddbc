"""`eqsat-opt reduce`: the smallest part of a model on which a command still fails."""

from __future__ import annotations

import os
import shlex
from typing import Annotated

import typer

from eqsat_opt.cli import arguments as a
from eqsat_opt.cli.models.given import files_of, given
from eqsat_opt.cli.session import check_writable, output_console, stage_progress, write_json
from eqsat_opt.errors import OptionError

__all__ = ["reduce_model"]


def reduce_model(
    model: a.Model,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where to write; by default NAME.reduced.onnx beside the model.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            metavar="TEXT",
            help="A command that fails on the model, with {} for its path; by default eqsat-opt "
            "optimize {} --strict --no-race --effort quick.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Seconds after which the smallest part so far is written."
        ),
    ] = 120.0,
    json: a.Json = None,
    quiet: a.Quiet = False,
    debug: a.Debug = False,
) -> None:
    """Find the smallest part of a model on which a command fails in the same way."""
    from eqsat_opt.ir.onnx.files.save import save_model
    from eqsat_opt.pipeline.reduction import reduce as reduction
    from eqsat_opt.pipeline.reduction.failure import DEFAULT_COMMAND

    if not budget > 0:
        raise OptionError(f"the budget is {budget:g} s; give a positive number of seconds")
    file = output or f"{os.path.splitext(model.removeprefix('zoo:'))[0]}.reduced.onnx"
    check_writable(file, files_of(model), noun="a file of the model")
    check_writable(json, (file, *files_of(model)), noun="another file of this run")
    line = DEFAULT_COMMAND if command is None else _split(command)
    with stage_progress(quiet) as progress:
        found, told = reduction.reduce_model(given(model), line, budget_s=budget, progress=progress)
    save_model(found, file)
    if json is not None:
        write_json({"model": model, "output": file, **told.to_json()}, json)
    if not quiet and json != "-":
        console = output_console()
        console.print(str(told), soft_wrap=True)
        console.print(f"written to {file}", soft_wrap=True)


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise OptionError(f"--command cannot be read: {error}") from error
