"""Replay the decisions of models: are the bytes equal, and how long does it take beside loading?

    python -m benchmarks.replays [NAME…] [--scale tiny] [--times N] [--folder FOLDER]

Each model of the zoo, or each one named, is searched without measurements, its result and decisions
are written, and the result is made again by the decisions. A line tells both sizes, the seconds of
the fastest replay by stages, and whether all bytes are equal; the exit code is 1 if any are not.
What is in the folder already is not searched again.
"""

from __future__ import annotations

import argparse
import filecmp
import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import onnx

from benchmarks.rows import examined
from eqsat_opt.api import run
from eqsat_opt.common.text import bytes_text
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options

__all__ = ["replay_of"]

_SEARCH = Options(measure=False, race=False, check=0, threads=1, store="", budget_s=120.0)


def replay_of(model: str, folder: Path, times: int = 1) -> tuple[str, bool]:
    """Search, save and replay a model; return a line of figures, and whether bytes are equal.

    Args:
        model: name of a model of the zoo.
        folder: holds the model, its result and its decisions, or gets them.
        times: number of replays, of which the fastest is told.
    """
    given, first, again, decisions = (
        folder / name for name in ("given.onnx", "first.onnx", "again.onnx", "made.json")
    )
    if not decisions.exists():
        onnx.save(zoo.build_named(model), given)
        run(given, replace(_SEARCH, decisions=str(decisions)), output=str(first))
    made_again = Options(threads=1, store="", replay=str(decisions))
    whole_s, seconds, is_equal = math.inf, dict[str, float](), True
    for _ in range(times):
        begin = time.perf_counter()
        stages_s = run(given, made_again, output=str(again)).report.stages_s
        if (took_s := time.perf_counter() - begin) < whole_s:
            whole_s, seconds = took_s, dict(stages_s)
        is_equal = is_equal and filecmp.cmp(first, again, shallow=False)
    cells = (
        model,
        bytes_text(first.stat().st_size),
        bytes_text(decisions.stat().st_size),
        *(f"{stage} {seconds[stage]:.2f} s" for stage in ("load", "replay", "write")),
        f"all but load {whole_s - seconds['load']:.2f} s",
        "equal" if is_equal else "DIFFERENT",
    )
    return "  ".join(cells), is_equal


def main() -> int:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--scale", choices=("full", "tiny"), default="full")
    parser.add_argument("--times", type=int, default=1, help="replays of each model")
    parser.add_argument("--folder", type=Path, help="where models and decisions are kept")
    arguments = parser.parse_args()
    suffix = "@tiny" if arguments.scale == "tiny" else ""
    models = [f"{name}{suffix}" for name in arguments.names or zoo.names()]
    examine = partial(replay_of, times=arguments.times)
    return 0 if examined(models, arguments.folder, examine) else 1


if __name__ == "__main__":
    sys.exit(main())
