"""The extraction objectives beyond the weighted sum, on a folder of e-graphs.

    python benchmarks/extraction_objectives.py FOLDER
    python benchmarks/extraction_objectives.py FOLDER --only resnet50 --json objectives.json

For each file in egraph-serialize JSON, with the file's cost as time:

- `time + critical path`: AutoGraph's mixed objective with alpha = 1;
- `energy, time limited`: least energy within 1.02 times the least time found, where each e-node has
  three implementations with energies drawn from a seed: one that takes about as much energy as
  time, one slower and thriftier, one faster and hungrier.

Every result is checked from the problem's arrays alone; the exit code is 1 if one fails.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # run as a file, the package may be beside it

from rich.console import Console
from rich.table import Table

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import Objective, Problem, ProblemBuilder, extract, read_json
from eqsat_opt.extract.extraction import Choice
from eqsat_opt.extract.gym.files import METRIC, NoEGraph
from eqsat_opt.extract.objective import CRITICAL_PATH

_SLACK = 1.02  # of the least time found, for the limit


@dataclass(frozen=True)
class Entry:
    """One objective on one file.

    Attributes:
        file: path below the folder.
        objective: which one.
        implementations: what there is to choose from.
        cost: value of our solution.
        lower_bound: on the value of every solution.
        gap: between the two, relative to the cost.
        status: that we claim.
        metrics: totals and critical path of our solution.
        time_s: wall-clock seconds, without reading the file and without the least time.
        limits: what was not to be exceeded.
        error: why there is no result.
    """

    file: str
    objective: str
    implementations: int
    cost: float | None
    lower_bound: float
    gap: float
    status: str
    metrics: dict[str, float]
    time_s: float
    limits: dict[str, float]
    error: str = ""


def with_energies(problem: Problem, seed: int) -> Problem:
    """Three implementations with time and energy for each e-node that takes time."""
    rng = random.Random(seed)
    builder = ProblemBuilder(("time", "energy"))
    for _ in range(problem.n_classes):
        builder.add_class()
    for node, cls in enumerate(problem.node_class.tolist()):
        t = float(problem.impl_cost[problem.impl_ptr[node], 0])
        rows = [(t, t * rng.uniform(0.9, 1.1))]
        if t > 0:
            rows.append((t * rng.uniform(1.05, 1.4), t * rng.uniform(0.5, 0.9)))
            rows.append((t * rng.uniform(0.8, 0.97), t * rng.uniform(1.1, 1.6)))
        builder.add_node(cls, problem.children(node), rows)
    return builder.build(problem.roots)


def run(
    folder: Path, *, only: str, mixed_limit_s: float, limited_limit_s: float, seed: int
) -> Iterator[Entry]:
    """Both objectives on each file whose path contains `only`, in the order of the paths."""
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        if only not in name:
            continue
        try:
            problem = read_json(path).problem
        except NoEGraph:
            continue
        mixed = Objective({METRIC: 1.0}, critical_path=1.0)
        yield _entry(name, "time + critical path", problem, mixed, mixed_limit_s)
        priced = with_energies(problem, seed)
        fastest = extract(priced, Objective({"time": 1.0}), time_limit_s=limited_limit_s / 2)
        limit = {"time": _SLACK * fastest.metrics["time"]}
        limited = Objective({"energy": 1.0}, limits=limit)
        yield _entry(name, "energy, time limited", priced, limited, limited_limit_s, fastest.choice)


def _entry(
    name: str,
    title: str,
    problem: Problem,
    objective: Objective,
    time_limit_s: float,
    incumbent: Choice | None = None,
) -> Entry:
    start_s = time.perf_counter()
    try:
        found = extract(problem, objective, incumbent=incumbent, time_limit_s=time_limit_s)
        time_s = time.perf_counter() - start_s
        found.check(problem)
    except ExtractionError as error:
        time_s = time.perf_counter() - start_s
        return Entry(
            name,
            title,
            problem.n_implementations,
            None,
            0.0,
            0.0,
            "error",
            {},
            time_s,
            dict(objective.limits),
            str(error),
        )
    return Entry(
        name,
        title,
        problem.n_implementations,
        found.cost,
        found.lower_bound,
        found.gap,
        found.status,
        dict(found.metrics),
        time_s,
        dict(objective.limits),
    )


def table(entries: list[Entry]) -> Table:
    """One line for each entry."""
    grid = Table("file", "objective", "choices", "value", "bound", "gap", "status", "path", "s")
    for entry in entries:
        path = entry.metrics.get(CRITICAL_PATH)
        grid.add_row(
            entry.file,
            entry.objective,
            str(entry.implementations),
            "–" if entry.cost is None else f"{entry.cost:.7g}",
            f"{entry.lower_bound:.7g}",
            f"{entry.gap:.3%}",
            entry.error or entry.status,
            "–" if path is None else f"{path:.6g}",
            f"{entry.time_s:.1f}",
        )
    return grid


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="searched recursively for *.json")
    parser.add_argument("--only", default="", help="what a path must contain to be taken")
    parser.add_argument("--mixed-limit", type=float, default=40.0, help="seconds, critical path")
    parser.add_argument("--limited-limit", type=float, default=60.0, help="seconds, time limited")
    parser.add_argument("--seed", type=int, default=0, help="of the energies")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args()
    entries: list[Entry] = []
    console = Console(width=None if sys.stdout.isatty() else 120)
    for entry in run(
        options.folder,
        only=options.only,
        mixed_limit_s=options.mixed_limit,
        limited_limit_s=options.limited_limit,
        seed=options.seed,
    ):
        entries.append(entry)
        console.print(f"{entry.file}: {entry.objective}: {entry.status}, {entry.time_s:.1f} s")
    if not entries:
        print(f"no e-graph in {options.folder} has {options.only!r} in its path", file=sys.stderr)
        return 1
    console.print(table(entries))
    if options.json:
        document = {
            "machine": platform.platform(),
            "python": platform.python_version(),
            "entries": [asdict(entry) for entry in entries],
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(any(entry.error for entry in entries))


if __name__ == "__main__":
    raise SystemExit(main())
