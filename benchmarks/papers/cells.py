"""Figures as cells: each under each budget is a file, computed by any executor."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.papers.figures import figure_of, table_of
from benchmarks.papers.verdicts import Figure
from eqsat_opt import __version__
from eqsat_opt.common.codecs import read_document, write_document
from eqsat_opt.lab.experiments.gathering import gathered_parts
from eqsat_opt.lab.experiments.worker import end_running

__all__ = ["PaperCell", "cells_of", "computed", "told"]


@dataclass(frozen=True)
class PaperCell:
    """One figure of a table under one budget.

    Attributes:
        table: name of the table.
        number: place of the figure in it.
        given: the figure, as JSON.
        common: settings of the whole table, as JSON.
        cpu_s: budget of each search; ``None`` for that of the table.
    """

    table: str
    number: int
    given: str
    common: str
    cpu_s: float | None

    @property
    def file(self) -> str:
        """Name of the file of its result: another one where anything that it depends on changed."""
        digest = hashlib.sha256(repr((self, __version__)).encode()).hexdigest()[:10]
        return f"{self.table}-{self.number:02}-{digest}.json"


def told(cell: PaperCell) -> dict[str, Any]:
    """Compute a cell; any worker may call this."""
    return asdict(figure_of(json.loads(cell.given), json.loads(cell.common), cell.cpu_s))


def cells_of(table: str, budgets: Sequence[float | None]) -> Iterator[PaperCell]:
    """All cells of a table, budget by budget."""
    given = table_of(table)
    common = json.dumps(given.get("compare", {}), sort_keys=True)
    for cpu_s in budgets:
        for number, one in enumerate(given["figure"]):
            text = json.dumps(one)  # the order of sides is theirs
            is_told = isinstance(one["paper"], str) and "sides" not in one
            if not is_told or cpu_s == budgets[-1]:
                yield PaperCell(table, number, text, common, cpu_s)


def computed(
    cells: Sequence[PaperCell], folder: Path | None, executor: Executor
) -> dict[PaperCell, Figure]:
    """Return the figures of cells, of which those in a folder are read and the others computed.

    Raises:
        SystemExit: some cells did not come back; those that did are stored.
    """
    found = {}
    for cell in cells:
        if folder is not None and (folder / cell.file).exists():
            found[cell] = Figure(**read_document(str(folder / cell.file)))

    def take(cell: PaperCell, value: dict[str, Any]) -> None:
        if folder is not None:
            write_document(str(folder / cell.file), value)
        found[cell] = Figure(**value)
        print(f"{len(found)} of {len(cells)}: {value['what']}", file=sys.stderr, flush=True)

    missing = [cell for cell in cells if cell not in found]
    lost = gathered_parts(missing, lambda cell: executor.submit(told, cell), take, end_running)
    if lost:
        raise SystemExit(f"{len(lost)} figures did not come back ({lost[0][1]}); run again")
    return found
