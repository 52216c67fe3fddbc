"""`eqsat-opt compare --sweep`: the cells of a file, here or on a cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from eqsat_opt.cli.automation.executors import open_executor, require_workers
from eqsat_opt.cli.compare.table import print_comparison
from eqsat_opt.cli.session import (
    Session,
    check_writable,
    make_folder,
    output_console,
    print_notes,
    stage_progress,
    write_json,
)
from eqsat_opt.errors import OptionError

if TYPE_CHECKING:
    from eqsat_opt.lab.comparison import Comparison
    from eqsat_opt.lab.experiments import Cell, Reply

__all__ = ["sweep_cells"]

_MEANT = frozenset({"sweep", "resume", "save", "workers", "cluster", "json", "quiet", "debug"})
"""Options that go with --sweep; all others are in the file."""


def sweep_cells(
    context: typer.Context,
    file: str,
    *,
    resume: bool,
    save: str | None,
    workers: int,
    cluster: str,
    json: str | None,
    quiet: bool,
) -> tuple[Comparison, ...]:
    """Compute missing cells, print a table for each model and device, return all comparisons.

    Raises:
        OptionError: an option contradicts the sweep, or belongs in its file.
    """
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in _MEANT:
            title = name.rstrip("_").replace("_", "-")
            what = "MODEL is" if name == "model" else f"--{title} is"
            raise OptionError(f"{what} given beside --sweep; write it into {file}")
    require_workers(workers, cluster)
    check_writable(json, [file], noun="the file of --sweep")
    from eqsat_opt import api

    sweep = api.read_sweep(file)
    folder = save or f"{os.path.splitext(file)[0]}.cells"
    with open_executor(workers, cluster) as executor, stage_progress(quiet) as progress:
        make_folder(folder)
        # The message after an interruption is this text with "is complete".
        context.ensure_object(Session).written = f"every cell in {folder}"
        progress("sweep", f"{len(sweep.cells)} cells")

        def told(cell: Cell, reply: Reply, known: int, of: int) -> None:
            progress("sweep", f"{known} of {of} cells, last {cell.method} on {cell.model}")

        found = api.run_sweep(sweep, folder, executor, resume=resume, told=told)
    if json is not None:
        write_json({"comparisons": [one.to_json() for one in found]}, json)
    tables = not quiet and json != "-"
    if tables:
        console = output_console()
        for one in found:
            print_comparison(console, one)
    print_notes(dict.fromkeys(note for one in found for note in one.notes), tables=tables)
    return found
