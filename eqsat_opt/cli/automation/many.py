"""`eqsat-opt optimize FOLDER`: many models, a line for each."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eqsat_opt.cli.automation.executors import open_executor, require_workers
from eqsat_opt.cli.session import (
    Session,
    check_writable,
    make_folder,
    output_console,
    stage_progress,
    write_json,
)
from eqsat_opt.common.text import counted
from eqsat_opt.errors import ModelError, OptionError, TooSlow, printable

if TYPE_CHECKING:
    from eqsat_opt.lab.experiments import BatchResult
    from eqsat_opt.pipeline.options import Options

__all__ = ["Cluster", "Resume", "Workers", "is_many", "optimize_many"]

Resume = Annotated[
    bool,
    typer.Option("--resume", help="Of many models, skip those that the folder has results of."),
]
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        help="Models at a time; several disturb each other's measurements and races.",
    ),
]
Cluster = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="ADDRESS",
        help="Address of a dask scheduler, whose workers have the same files.",
        show_default=False,
    ),
]

_FOR_ONE = ("tuned", "plan", "html", "save_decisions", "replay", "dry_run")
"""Options about further files of one model."""


def is_many(models: Sequence[str]) -> bool:
    """Return whether the arguments mean several models, or a folder or pattern of them."""
    (first, *others) = models
    is_zoo = first.startswith("zoo:")
    return bool(others) or (
        not is_zoo
        and (os.path.isdir(first) or (not os.path.exists(first) and glob.has_magic(first)))
    )


def optimize_many(
    context: typer.Context,
    models: Sequence[str],
    options: Options,
    *,
    output: str | None,
    resume: bool,
    workers: int,
    cluster: str,
    min_speedup: float | None,
    json: str | None,
    quiet: bool,
) -> None:
    """Optimise models into a folder, and print a line for each as soon as it is done.

    Raises:
        OptionError: an option is about one model, or the folder holds other results.
        ModelError: a model could not be optimised; the others are.
        TooSlow: a result gains less than the user demands.
    """
    for name in _FOR_ONE:
        if context.params.get(name):
            title = name.replace("_", "-")
            raise OptionError(f"--{title} is about one model; leave it out, or give one model")
    if output == "-":
        raise OptionError("many models need a folder; give -o one")
    require_workers(workers, cluster)
    check_writable(json)
    from eqsat_opt import api

    found = api.models_in(models)
    folder = output or _folder_of(models)
    make_folder(folder)
    width = max(len(one.name) for one in found)
    console = output_console()
    # The message after an interruption is this text with "is complete".
    context.ensure_object(Session).written = f"every result in {folder}"
    with open_executor(workers, cluster) as executor, stage_progress(quiet) as progress:
        progress("models", f"0 of {len(found)}")

        def told(one: BatchResult, number: int, of: int) -> None:
            if not quiet and json != "-":
                console.print(f"{one.name:<{width}}  {_line(one)}", markup=False, soft_wrap=True)
            progress("models", f"{number} of {of}, last {one.name}")

        results = api.run_batch(found, folder, options, executor, resume=resume, told=told)
    if json is not None:
        write_json({"models": [one.to_json() for one in results]}, json)
    if not quiet and json != "-":
        made = sum(not one.error for one in results)
        text = f"{counted(made, 'result')} in {folder}" if made else f"no result in {folder}"
        console.print(text, markup=False, soft_wrap=True)
    _require_all(results, min_speedup)


def _folder_of(models: Sequence[str]) -> str:
    """Return the folder of results where none is given: that of the models, with ``.opt``."""
    if len(models) > 1:
        raise OptionError("several models need a folder for their results; give -o one")
    text = models[0]
    while glob.has_magic(text) and not os.path.exists(text):
        text = os.path.dirname(text) or "models"
    text = os.path.normpath(text)
    if os.path.basename(text) in ("", os.curdir, os.pardir):
        raise OptionError(f"{text} has no name to call the folder of results by; give -o one")
    return f"{text}.opt"


def _line(one: BatchResult) -> str:
    """Return what became of a model, in one line."""
    if one.error:
        return f"failed: {printable(one.error)}"
    report: Any = one.report
    before, after = (sum(report["operators"][side].values()) for side in ("before", "after"))
    gain = f"{report['speedup']:.2f}x" if report["speedup"] != 1 else "     "
    changed = f"{before} → " * (before != after) + counted(after, "operator")
    status = report["status"].replace("_", " ")
    return f"{gain}  {status}, {changed}, {sum(report['stages_s'].values()):.1f} s"


def _require_all(results: Sequence[BatchResult], least: float | None) -> None:
    """Raise an error if a model failed, or gains too little.

    Raises:
        ModelError: a model failed.
        TooSlow: the result of a model gains less than the user demands.
    """
    failed = [one for one in results if one.error]
    if failed:
        raise ModelError(
            f"{len(failed)} of {len(results)} models failed, {failed[0].name} first: "
            f"{failed[0].error}"
        )
    slow = [one for one in results if least is not None and one.report["speedup"] < least]
    if slow:
        raise TooSlow(
            f"{len(slow)} of {len(results)} results gain less than {least:g}x, {slow[0].name} "
            f"first: {slow[0].report['speedup']:.3f}x"
        )
