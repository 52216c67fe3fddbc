"""Looks at a GPU in one run: `python -m benchmarks.gpu STEP --out DIR`.

`prepare` plans the models of the zoo, needs the whole package and no GPU. The steps that follow
run where the GPU is, on NumPy, onnx, onnx-ir, ml_dtypes, msgspec and the libraries of the GPU;
`all` does them in turn, and shares the time among them. What one finds lies in one file of `--out`,
and a run that was broken off goes on from there. `merge` makes a device with prices and tables of
the files, and needs the whole package again; `prepare --target DIR/device.json` then plans by these
prices.
With `--dry-run` the processor stands for the GPU and times are invented.

Exit code 1 if nothing was learnt.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.prepared import read_prepared
from benchmarks.gpu.results import Results
from benchmarks.gpu.running import Children, crew_of, run_units
from benchmarks.gpu.steps import SHARES, TOGETHER, units_of
from benchmarks.gpu.unit import STEPS, Task, Unit
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import EqsatError, OptionError, printable

BUDGET_S = 480.0
REHEARSAL_S = 40.0
_REHEARSAL = "host"
_MOST_REASONS = 3
_AGAIN_S = 1.0
"""With so much time left, what steps had no time for is taken up again."""

_PROCESSES, _CORES_EACH = 4, 4
"""At a time, where no times are taken: most of what a unit waits for is a compiler."""


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
    return _do(
        steps, Task(folder, tuple(models)), budget_s, _REHEARSAL if options.dry_run else "gpu"
    )


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
    deadline = Deadline.after(budget_s)
    prepared = read_prepared(task.folder).of(task.models)
    prepared.check_versions()
    head = {"bench": bench, "prepared": prepared.digest}
    opened: dict[str, Results] = {}
    left: dict[str, Sequence[Unit]] = {}
    with crew_of(bench, _processes()) as crew:
        for step, share in _shares(steps):
            opening = _opened(step, task, head)
            if opening is not None:
                opened[step], units = opening
                left[step] = _step(units, opened[step], crew, deadline.share(share))
        for is_shared in (True, False):
            for step, share in _shares([one for one in left if left[one]]):
                if deadline.left_s > _AGAIN_S:
                    until = deadline.share(share) if is_shared else deadline
                    left[step] = _step(left[step], opened[step], crew, until)
    if not any(one.counts()["done"] for one in opened.values() if not one.trouble):
        print("error: nothing was learnt", file=sys.stderr)
        return 1
    return 0


def _shares(steps: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Steps with what each gets of the time that those before it have left."""
    for number, step in enumerate(steps):
        yield step, SHARES[step] / sum(SHARES[one] for one in steps[number:])


def _processes() -> int:
    return max(1, min(_PROCESSES, (os.cpu_count() or 1) // _CORES_EACH))


def _opened(
    step: str, task: Task, head: Mapping[str, str]
) -> tuple[Results, Sequence[Unit]] | None:
    """The file of a step and its units; nothing, and why, if there are none."""
    try:
        results, units = Results(task.folder, step, head), units_of(step, task)
    except Exception as error:  # the steps that follow may do better
        why = str(error) if isinstance(error, EqsatError) else f"{type(error).__name__}: {error}"
        print(f"{step}: {printable(why)}", file=sys.stderr)
        return None
    if not results.can_be_written():
        print(f"{step}: {results.trouble}", file=sys.stderr)
        return None
    if head["bench"] == _REHEARSAL:  # where units take less time than they say
        units = [replace(one, least_s=0.0) for one in units]
    return results, units


def _step(
    units: Sequence[Unit], results: Results, crew: Sequence[Children], deadline: Deadline
) -> Sequence[Unit]:
    """Do units of a step; what is left for want of time."""
    began, step = time.monotonic(), results.path.stem
    members = crew if step in TOGETHER else crew[:1]
    try:
        left = run_units(units, results, members, deadline)
    except EqsatError as error:
        print(f"{step}: {error}", file=sys.stderr)
        left = []
    for children in members[1:]:  # they hold memory of the device
        children.end()
    told = [f"{count} {state}" for state, count in sorted(results.counts().items())]
    told += [f"{len(left)} left for want of time"] if left else []
    print(f"{step}: {', '.join(told) or 'nothing'} in {time.monotonic() - began:.0f} s", flush=True)
    for why, count in results.reasons().most_common(_MOST_REASONS):
        print(f"  {count} because: {why}", flush=True)
    if results.trouble:
        print(f"{step}: {results.trouble}", file=sys.stderr)
    return left


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so `timeout` ends it as Ctrl-C does
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // _processes())))
    sys.exit(main())
