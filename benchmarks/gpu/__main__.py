"""Looks at a GPU in one run: `python -m benchmarks.gpu STEP --out DIR`.

`prepare` plans the models of the zoo, needs the whole package and no GPU. The steps that follow
run where the GPU is, on NumPy, onnx, onnx-ir, ml_dtypes and the libraries of the GPU; `all` does
them in turn, and shares the time among them. What one finds lies in one file of `--out`, and a run
that was broken off goes on from there. `merge` makes a device with prices and tables of the files,
and needs the whole package again; `prepare --target DIR/device.json` then plans by these prices.
With `--dry-run` the processor stands for the GPU and times are invented.

Exit code 1 if nothing was learnt.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.prepared import read_prepared
from benchmarks.gpu.results import Results
from benchmarks.gpu.running import Children, children_of, run_units
from benchmarks.gpu.steps import SHARES, units_of
from benchmarks.gpu.unit import STEPS, Task
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import EqsatError, OptionError
from eqsat_opt.precision import Precision

BUDGET_S = 480.0
REHEARSAL_S = 40.0
_MOST_REASONS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a step; what a user did wrong is one sentence."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except EqsatError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; what is known is written", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("step", choices=["prepare", *STEPS, "all", "merge"])
    parser.add_argument("folder", nargs="?", type=Path, help="the same as --out")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of what is written and read")
    parser.add_argument(
        "--budget", type=_seconds, metavar="SECONDS",
        help=f"of all steps together; {BUDGET_S:.0f}, of a rehearsal {REHEARSAL_S:.0f}",
    )  # fmt: skip
    parser.add_argument("--models", default="", metavar="NAME,…", help="of the zoo; all by default")
    parser.add_argument("--target", default="h200", help="that `prepare` plans for, or its file")
    parser.add_argument(
        "--scale", choices=["full", "tiny", "both"], default="both", help="of what is prepared"
    )
    parser.add_argument(
        "--precision", choices=[*Precision], default=Precision.STRICT, help="of what is prepared"
    )
    parser.add_argument("--dry-run", action="store_true", help="without a GPU, times are invented")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _run(options: argparse.Namespace) -> int:
    folder = options.out or options.folder
    if folder is None or (options.out and options.folder):
        raise OptionError("name one folder: --out DIR")
    models = list(dict.fromkeys(name for name in options.models.split(",") if name))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"cannot make the folder {folder}: {error.strerror}") from error
    if options.step == "prepare":
        scales = ("full", "tiny") if options.scale == "both" else (options.scale,)
        preparing = _with_all("preparing")
        precision = Precision(options.precision)
        told = preparing.prepare(folder, models, options.target, scales=scales, precision=precision)
        print(told)
        return 0
    if options.step == "merge":
        print(_with_all("merging").merge(folder))
        return 0
    budget_s = options.budget or (REHEARSAL_S if options.dry_run else BUDGET_S)
    steps = STEPS if options.step == "all" else (options.step,)
    return _do(steps, Task(folder, tuple(models)), budget_s, "host" if options.dry_run else "gpu")


def _with_all(name: str) -> Any:
    """A module that needs the whole package.

    Raises:
        OptionError: something is missing.
    """
    try:
        return import_module(f"benchmarks.gpu.{name}")
    except ImportError as error:
        raise OptionError(
            f"{error}; this step needs all of the package: pip install -e ."
        ) from error


def _do(steps: Sequence[str], task: Task, budget_s: float, bench: str) -> int:
    """Do steps in turn; 0 if any unit of them is done."""
    deadline, learnt = Deadline.after(budget_s), 0
    prepared = read_prepared(task.folder).of(task.models)
    head = {"bench": bench, "prepared": prepared.digest}
    waiting = {step: SHARES[step] for step in steps}
    with children_of(bench) as children:
        for step in steps:
            share = waiting[step] / sum(waiting.values())
            del waiting[step]
            learnt += _step(step, task, head, children, deadline=deadline.share(share))
    if not learnt:
        print("error: nothing was learnt", file=sys.stderr)
    return 0 if learnt else 1


def _step(
    step: str, task: Task, head: Mapping[str, str], children: Children, *, deadline: Deadline
) -> int:
    """Do a step; how many of its units are done, by now."""
    began = time.monotonic()
    try:
        results, units = Results(task.folder, step, head), units_of(step, task)
    except (EqsatError, ImportError) as error:
        print(f"{step}: {error}", file=sys.stderr)
        return 0
    left = run_units(units, results, children, deadline)
    counts = results.counts()
    told = [f"{count} {state}" for state, count in sorted(counts.items())]
    told += [f"{left} left for want of time"] if left else []
    print(f"{step}: {', '.join(told) or 'nothing'} in {time.monotonic() - began:.0f} s", flush=True)
    for why, count in results.reasons().most_common(_MOST_REASONS):
        print(f"  {count} because: {why}")
    if results.trouble:
        print(f"{step}: {results.trouble}", file=sys.stderr)
        return 0
    return counts["done"]


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))
    sys.exit(main())
