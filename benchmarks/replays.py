"""Replay the decisions of models: are the bytes equal, and how long does it take beside loading?

    python -m benchmarks.replays [NAME…] [--scale tiny]

Each model of the zoo, or each one named, is searched without measurements, its result and decisions
are written, and the result is made again by the decisions. A line tells both sizes, the seconds of
the replay by stages, and whether the bytes are equal; the exit code is 1 if any are not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx

from eqsat_opt.api import run
from eqsat_opt.common.text import bytes_text
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options

__all__ = ["replay_of"]

_SEARCH = Options(measure=False, race=False, check=0, threads=1, store="", budget_s=120.0)


def replay_of(model: str, folder: Path) -> tuple[str, bool]:
    """Search, save and replay a model; return a line of figures, and whether bytes are equal."""
    given, first, again, decisions = (
        folder / name for name in ("given.onnx", "first.onnx", "again.onnx", "made.json")
    )
    onnx.save(zoo.build_named(model), given)
    saved = replace(_SEARCH, decisions=str(decisions))
    searched = run(given, saved, output=str(first)).report
    made_again = Options(threads=1, store="", replay=str(decisions))
    begin = time.perf_counter()
    seconds = run(given, made_again, output=str(again)).report.stages_s
    whole = time.perf_counter() - begin
    is_equal = first.read_bytes() == again.read_bytes()
    cells = (
        model,
        searched.status.replace("_", " "),
        bytes_text(first.stat().st_size),
        bytes_text(decisions.stat().st_size),
        *(f"{stage} {seconds[stage]:.2f} s" for stage in ("load", "replay", "write")),
        f"all {whole:.2f} s",
        "equal" if is_equal else "DIFFERENT",
    )
    return "  ".join(cells), is_equal


def _lines(models: list[str]) -> Iterator[bool]:
    for model in models:
        with TemporaryDirectory() as folder:
            line, is_equal = replay_of(model, Path(folder))
        print(line, flush=True)
        yield is_equal


def main() -> int:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    arguments = parser.parse_args()
    suffix = "@tiny" if arguments.scale == "tiny" else ""
    models = [f"{name}{suffix}" for name in arguments.names or zoo.names()]
    return 0 if all(list(_lines(models))) else 1


if __name__ == "__main__":
    sys.exit(main())
