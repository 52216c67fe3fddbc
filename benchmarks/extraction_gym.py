"""The extractor on a folder of e-graphs in egraph-serialize JSON, such as the extraction-gym.

    python benchmarks/extraction_gym.py FOLDER
    python benchmarks/extraction_gym.py FOLDER --time-limit 20 --only tensat --markdown gym.md

For each file: e-nodes, the better of the two customary greedies, ours, its lower bound, the status
and the seconds of each stage. Where the folder has an `optima.json` {path: least DAG cost}, costs
are compared with it; the exit code is 1 if one of them is missed, if a bound is above an optimum,
or if a result is worse than greedy.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # run as a file, the package may be beside it

from rich.console import Console
from rich.table import Table

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import EXTRACTORS, GymFile, Objective, read_json
from eqsat_opt.extract.extractors import best_greedy
from eqsat_opt.extract.gym.files import METRIC, NoEGraph

_OPTIMA = "optima.json"
_TOLERANCE = 1e-6  # relative: sums of floats in another order, and the solvers' integers
_TITLES = (
    "file",
    "nodes",
    "best greedy",
    "ours",
    "bound",
    "gap",
    "status",
    "optimum",
    "s",
    "stages",
)


@dataclass(frozen=True)
class Entry:
    """What became of one file.

    Attributes:
        nodes: e-nodes.
        classes: e-classes.
        greedy: cost of the better greedy.
        cost: of our solution; infinite if there is none.
        lower_bound: that we claim.
        gap: between the two, relative to the cost.
        status: that we claim.
        optimum: known from elsewhere, if it is.
        time_s: wall-clock seconds without reading the file.
        stages_s: seconds of each stage.
        error: why there is no result.
    """

    nodes: int = 0
    classes: int = 0
    greedy: float | None = None
    cost: float = math.inf
    lower_bound: float = 0.0
    gap: float = 0.0
    status: str = "error"
    optimum: float | None = None
    time_s: float = 0.0
    stages_s: Mapping[str, float] = field(default_factory=dict)
    error: str = ""

    @property
    def faults(self) -> list[str]:
        """What must not be, empty if all is well."""
        if self.error:
            return [self.error]
        found = []
        if self.optimum is not None:
            if self.cost > self.optimum * (1 + _TOLERANCE):
                found.append(f"misses the optimum {self.optimum:.10g}: {self.cost:.10g}")
            if min(self.cost, self.optimum) < self.lower_bound * (1 - _TOLERANCE):
                found.append(f"claims a bound above {min(self.cost, self.optimum):.10g}")
            if self.cost < self.optimum * (1 - _TOLERANCE):
                found.append("is below the optimum of the list, so one of the two is wrong")
        if self.greedy is not None and self.cost > self.greedy * (1 + _TOLERANCE):
            found.append("is worse than greedy")
        return found


def run(
    folder: Path, *, time_limit_s: float, only: str, method: str, deterministic: bool
) -> Iterator[tuple[str, Entry]]:
    """Path and entry of each e-graph in the folder, in the order of the paths.

    Args:
        folder: searched recursively.
        time_limit_s: limit of the search in each file.
        only: what a path must contain to be taken.
        method: name of the extractor.
        deterministic: whether choices repeat from run to run.
    """
    optima = {}
    if (folder / _OPTIMA).is_file():
        optima = json.loads((folder / _OPTIMA).read_text(encoding="utf-8"))
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        if only not in name:
            continue
        try:
            file = read_json(path)
        except NoEGraph:
            continue
        except ExtractionError as error:
            yield name, Entry(error=str(error))
            continue
        yield name, _entry(file, optima.get(name), time_limit_s, method, deterministic)


def _entry(
    file: GymFile, optimum: float | None, time_limit_s: float, method: str, deterministic: bool
) -> Entry:
    problem, objective = file.problem, Objective({METRIC: 1.0})
    greedy = best_greedy(problem, objective)
    start_s = time.perf_counter()
    try:
        found = EXTRACTORS[method].run(
            problem, objective, time_limit_s=time_limit_s, deterministic=deterministic
        )
        found.check(problem)
    except ExtractionError as error:
        return Entry(problem.n_nodes, problem.n_classes, greedy, error=str(error))
    time_s = time.perf_counter() - start_s
    stages_s = dict(found.stages_s)
    return Entry(
        nodes=problem.n_nodes,
        classes=problem.n_classes,
        greedy=greedy,
        cost=found.cost,
        lower_bound=found.lower_bound,
        gap=found.gap,
        status=found.status,
        optimum=optimum,
        time_s=time_s,
        stages_s={**stages_s, "rest": max(0.0, time_s - sum(stages_s.values()))},
    )


def verdict(entries: Mapping[str, Entry]) -> list[str]:
    """What the table says, in lines; the last one is the sum of it."""
    lines = [f"{name}: {fault}" for name, entry in entries.items() for fault in entry.faults]
    known = [entry for entry in entries.values() if entry.optimum is not None]
    reached = [entry for entry in known if not entry.faults]
    proven = sum(entry.status == "optimal" for entry in reached)
    slowest = max(entries.values(), key=lambda entry: entry.time_s)
    total_s = sum(entry.time_s for entry in entries.values())
    lines.append(
        f"{len(reached)} of {len(known)} known optima reached, {proven} of them proven; "
        f"{len(entries) - len(known)} files without a known optimum; "
        f"{total_s:.1f} s in all, {slowest.time_s:.1f} s for the slowest"
    )
    return lines


def table_rows(entries: Mapping[str, Entry]) -> list[list[str]]:
    """The cells under `_TITLES`."""
    return [
        [
            name,
            str(entry.nodes),
            _number(entry.greedy),
            _number(entry.cost),
            _number(entry.lower_bound),
            f"{entry.gap:.2%}",
            entry.status,
            _number(entry.optimum)
            + (" missed" if entry.optimum is not None and entry.faults else ""),
            f"{entry.time_s:.2f}",
            ", ".join(f"{stage} {s:.2f}" for stage, s in entry.stages_s.items()),
        ]
        for name, entry in entries.items()
    ]


def _number(x: float | None) -> str:
    return "–" if x is None else f"{x:.7g}"


def as_markdown(entries: Mapping[str, Entry], notes: Sequence[str]) -> str:
    """The table and the verdict."""
    lines = [_TITLES, ["---", *["--:"] * 5, "---", "--:", "--:", "---"], *table_rows(entries)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return text + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def as_json(entries: Mapping[str, Entry], settings: Mapping[str, Any]) -> str:
    """All numbers; infinities are null."""
    files = {
        name: {k: None if v == math.inf else v for k, v in asdict(entry).items()}
        for name, entry in entries.items()
    }
    where = {"machine": platform.machine(), "python": platform.python_version()}
    return json.dumps({"settings": {**settings, **where}, "files": files}, indent=1) + "\n"


def main() -> int:
    """Command line; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each file")
    parser.add_argument("--only", default="", help="part of the path of the files to take")
    parser.add_argument("--method", default="auto", choices=sorted(EXTRACTORS))
    parser.add_argument("--deterministic", action="store_true")
    parser.add_argument("--json", type=Path, help="file for all numbers")
    parser.add_argument("--markdown", type=Path, help="file for the table")
    arguments = parser.parse_args()
    if not arguments.folder.is_dir():
        parser.error(f"{arguments.folder} is no folder")
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = 200
    settings = {
        "time_limit_s": arguments.time_limit,
        "only": arguments.only,
        "method": arguments.method,
        "deterministic": arguments.deterministic,
    }
    entries: dict[str, Entry] = {}
    with console.status("read") as status:
        for name, entry in run(arguments.folder, **settings):
            entries[name] = entry
            status.update(f"{len(entries)} files, the last was {name}")
    if not entries:
        parser.error(f"no e-graph in {arguments.folder} has {arguments.only!r} in its path")
    table = Table(*_TITLES, box=None, pad_edge=False, header_style="dim")
    for number in (1, 2, 3, 4, 5, 7, 8):
        table.columns[number].justify = "right"
        table.columns[number].no_wrap = True
    for row in table_rows(entries):
        table.add_row(*row)
    console.print(table, markup=False)
    notes = verdict(entries)
    for line in notes:
        console.print(line, markup=False)
    if arguments.json:
        arguments.json.write_text(as_json(entries, settings), encoding="utf-8")
    if arguments.markdown:
        arguments.markdown.write_text(as_markdown(entries, notes), encoding="utf-8")
    return int(any(entry.faults for entry in entries.values()))


if __name__ == "__main__":
    sys.exit(main())
