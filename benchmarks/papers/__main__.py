"""What the papers report, what we find, and whether that agrees.

    python -m benchmarks.papers [TABLE …] [--cpu SECONDS …] [--save FOLDER] [--workers N]
        [--cluster ADDRESS] [--results FOLDER] [--json FILE]

A table is a file beside this one: metaflow, ocggs, energy, autograph, streams, collage. Each of its
figures is a *change*, a number before and after a method, or an *order*, a number of several
methods, or of one method under several parameters (`variants`) or other settings (`sides`). It is
*reproduced* if ours goes the paper's way, where the reason says if it goes less than half or more
than twice as far; *opposite* if it goes the other way; *not shown* if ours differ by half a percent
at most where the paper's do, or by more where the paper's are equal. Whatever needs what is not
here, or compares with systems that are not here, is *not comparable*, with the reason. Costs are
predicted by the profile of the paper's device, never measured on it, or measured on this processor;
times of searches are CPU seconds of this machine. What is *measured* ran in one race, in turns: on
streams of this processor, beside the model in one session of as many threads. What differs by less
than the race can tell is a tie there, and a race in which what runs twice differs from itself by
more than 10 % is not comparable.

`--cpu` replaces the budgets of the files; of several the largest counts, and the table says from
which one on the verdict is the same. With `--save` each figure under each budget is a file, and a
command that was ended goes on where it was. `--results` writes the tables for `benchmarks.tables`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.papers.cells import cells_of, computed
from benchmarks.papers.figures import table_of, tables
from benchmarks.papers.verdicts import VERDICTS, Figure, settled
from eqsat_opt.cli.automation.executors import open_executor, require_workers
from eqsat_opt.common.codecs import write_document

__all__ = ["counts_of", "main", "rows_of"]

_COLUMNS = ("where", "what", "paper", "ours", "verdict", "seconds")


def rows_of(figures: Sequence[Figure]) -> Iterator[tuple[str, ...]]:
    """The cells of the rows of a table."""
    for one in figures:
        whys = filter(None, (one.why, one.spread and f"seeds: {one.spread}"))
        why = "; ".join(whys)
        verdict = f"{one.verdict} ({why})" if why else one.verdict
        seconds = f"{one.cpu_s:g}" if one.cpu_s and one.ours else ""
        if seconds and one.since_s < one.cpu_s:
            seconds += f", from {one.since_s:g}"
        yield one.where, one.what, one.paper, one.ours, verdict, seconds


def counts_of(figures: Sequence[Figure]) -> str:
    """How many figures have each verdict, in words."""
    counts = {name: sum(one.verdict == name for one in figures) for name in VERDICTS}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def main() -> None:
    """The command line of this package."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=", ".join(tables()))
    parser.add_argument("--cpu", type=float, nargs="+", default=[None], help="budgets in seconds")
    parser.add_argument("--save", type=Path, default=None, help="folder of the figures")
    parser.add_argument("--workers", type=int, default=1, help="figures side by side")
    parser.add_argument("--cluster", default="", help="a dask scheduler")
    parser.add_argument("--results", type=Path, default=None, help="folder of tables")
    parser.add_argument("--json", default=None, help="write all figures to a file")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.tables if name not in tables()]:
        raise SystemExit(f"there is no table {unknown[0]!r}; choose from {', '.join(tables())}")
    names = arguments.tables or tables()
    budgets = sorted(arguments.cpu) if arguments.cpu != [None] else arguments.cpu
    if arguments.save is not None:
        arguments.save.mkdir(parents=True, exist_ok=True)
    cells = [cell for name in names for cell in cells_of(name, budgets)]
    require_workers(arguments.workers, arguments.cluster)
    with open_executor(arguments.workers, arguments.cluster) as executor:
        known = computed(cells, arguments.save, executor)
    found: dict[str, list[Figure]] = {}
    for name in names:
        own = [cell for cell in cells if cell.table == name]
        numbers = sorted({cell.number for cell in own})
        found[name] = [
            settled([known[cell] for cell in own if cell.number == number]) for number in numbers
        ]
        given = table_of(name)
        print(f"## {given['title']}\n\n{given['source']}\n")
        print(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}")
        rows = list(rows_of(found[name]))
        print("\n".join(f"| {' | '.join(row)} |" for row in rows))
        print(f"\n{counts_of(found[name])}\n")
        if arguments.results is not None:
            command = f"python -m benchmarks.papers {name}"
            if arguments.cpu != [None]:
                command += f" --cpu {' '.join(f'{one:g}' for one in budgets)}"
            table = {
                "command": command,
                "machine": "two cores of a shared virtual machine, AMD EPYC",
                "columns": [*_COLUMNS[:-1], f">{_COLUMNS[-1]}"],
                "rows": [list(row) for row in rows],
            }
            write_document(str(arguments.results / f"papers_{name}.json"), table)
    if arguments.json is not None:
        value = {name: [asdict(one) for one in figures] for name, figures in found.items()}
        Path(arguments.json).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
