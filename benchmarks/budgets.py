"""Does a run end within its budget? Every zoo model and every explosive graph, cold.

    python -m benchmarks.budgets [NAME…] [--budgets 1,5,30] [--group zoo|explosive] [--tuned]
        [--json FILE]

Each run is a fresh process with an empty store, on a file of the model. Its time is counted from
the call of `optimize` to its return, files read and written; `command` adds the interpreter and its
imports. A run passes if it takes at most 1.2 times its budget and one second more. What no budget
can shorten, reading the model and writing the result, is the floor; a run that is late by its floor
alone says so. The load of the machine counts: where others use the cores, `CPU s` tells what the
run itself used.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.explosive import SIZES, build
from benchmarks.isolated import attempt
from eqsat_opt import api
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options

__all__ = ["Outcome", "verdict"]

_SHARE, _GRACE_S = 1.2, 1.0
"""A budget may be exceeded by a fifth and a second."""

_HANG_S = 60.0


@dataclass(frozen=True)
class Outcome:
    """One run.

    Attributes:
        model, budget_s: what ran.
        wall_s: from the call to the return.
        command_s: of the whole process, imports included.
        cpu_s: of the process and its children.
        floor_s: of reading the model and writing the result.
        stages_s: by stage.
        status, stopped_by, enodes, gap: as in the report.
        error: why there are no figures.
    """

    model: str
    budget_s: float
    wall_s: float = 0.0
    command_s: float = 0.0
    cpu_s: float = 0.0
    peak_mb: float = 0.0
    floor_s: float = 0.0
    stages_s: dict[str, float] | None = None
    status: str = ""
    stopped_by: str = ""
    enodes: int = 0
    gap: float = 0.0
    error: str = ""

    @property
    def allowed_s(self) -> float:
        """What the budget allows."""
        return _SHARE * self.budget_s + _GRACE_S


def verdict(outcome: Outcome) -> str:
    """``ok``, ``floor`` where reading and writing alone are to blame, ``late`` or ``error``."""
    if outcome.error:
        return "error"
    if outcome.wall_s <= outcome.allowed_s:
        return "ok"
    return "floor" if outcome.wall_s - outcome.floor_s <= outcome.allowed_s else "late"


def _optimised(
    path: str, output: str, store: str, budget_s: float, tuned: str | None
) -> dict[str, Any]:
    """Figures of one run, as fields of an outcome."""
    options = Options(budget_s=budget_s, store=store, threads=1, tuned=tuned)
    start = time.perf_counter()
    report = api.run(path, options, output=output).report
    wall_s = time.perf_counter() - start
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "wall_s": wall_s,
        "cpu_s": sum(one.ru_utime + one.ru_stime for one in used),
        "peak_mb": max(one.ru_maxrss for one in used) / 1024,
        "stages_s": report.stages_s,
        "status": report.status,
        "enodes": report.enodes,
        "stopped_by": report.stopped_by,
        "gap": report.gap,
    }


def _run(model: str, path: Path, budget_s: float, folder: Path, is_tuned: bool) -> Outcome:
    """Optimise in a fresh process, with an empty store."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        start = time.perf_counter()
        done = attempt(
            _optimised,
            str(path),
            f"{own}/out.onnx",
            f"{own}/store.db",
            budget_s,
            f"{own}/tuned.onnx" if is_tuned else None,
            limit_s=_HANG_S + budget_s,
        )
        command_s = time.perf_counter() - start
    if done.failure:
        return Outcome(model, budget_s, command_s=command_s, error=done.failure)
    stages = done.value["stages_s"]
    floor_s = stages.get("load", 0.0) + stages.get("write", 0.0)
    return Outcome(model, budget_s, command_s=command_s, floor_s=floor_s, **done.value)


def _names(group: str) -> list[str]:
    explosive = [f"{kind}@{size}" for kind, sizes in SIZES.items() for size in sizes]
    models = [f"zoo:{name}" for name in zoo.names()]
    return {"zoo": models, "explosive": explosive, "all": [*explosive, *models]}[group]


def _outcomes(names: Sequence[str], budgets: Sequence[float], is_tuned: bool) -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        for name in names:
            path = folder / "model.onnx"
            is_zoo = name.startswith("zoo:")
            onnx.save(zoo.build(name.removeprefix("zoo:")) if is_zoo else build(name), path)
            for budget_s in budgets:
                yield _run(name, path, budget_s, folder, is_tuned)


def _row(outcome: Outcome) -> list[str]:
    if outcome.error:
        return [outcome.model, f"{outcome.budget_s:g}", *[""] * 6, "error", outcome.error]
    longest = sorted((outcome.stages_s or {}).items(), key=lambda item: -item[1])[:3]
    return [
        outcome.model,
        f"{outcome.budget_s:g}",
        f"{outcome.wall_s:.1f}",
        f"{max(0.0, outcome.wall_s / outcome.budget_s - 1):.0%}",
        f"{outcome.cpu_s:.1f}",
        f"{outcome.floor_s:.1f}",
        f"{outcome.command_s:.1f}",
        f"{outcome.enodes} ({outcome.stopped_by})",
        verdict(outcome),
        ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in longest),
    ]


_HEADER = ["model", "budget", "wall s", "over", "CPU s", "floor s", "command s", "e-nodes",
           "verdict", "longest stages"]  # fmt: skip


def main() -> None:
    """Command line; the exit code is 1 if a run was late or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="zoo:NAME or KIND@SIZE; all by default")
    parser.add_argument("--budgets", default="1,5,30", help="seconds, separated by commas")
    parser.add_argument("--group", choices=["all", "zoo", "explosive"], default="all")
    parser.add_argument("--tuned", action="store_true", help="make the tuned form as well")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    budgets = [float(text) for text in arguments.budgets.split(",")]
    console = Console(width=None if sys.stdout.isatty() else 200)
    table = Table(*_HEADER)
    done: list[Outcome] = []
    names = arguments.names or _names(arguments.group)
    for outcome in _outcomes(names, budgets, arguments.tuned):
        done.append(outcome)
        console.print(*_row(outcome), sep="  ", markup=False)
        table.add_row(*_row(outcome))
    console.print(table)
    counts = {
        word: sum(verdict(one) == word for one in done) for word in ("ok", "floor", "late", "error")
    }
    console.print(
        ", ".join(f"{count} {word}" for word, count in counts.items()),
        f"(load of the machine {os.getloadavg()[0]:.1f})",
    )
    if arguments.json:
        data: list[dict[str, Any]] = [{**asdict(one), "verdict": verdict(one)} for one in done]
        arguments.json.write_text(json.dumps(data, indent=1))
    sys.exit(1 if counts["late"] or counts["error"] else 0)


if __name__ == "__main__":
    main()
