"""Quantise twenty networks, and see that optimising them loses nothing.

Run from the repository root:

    python -m benchmarks.quantised build FOLDER
    python -m benchmarks.quantised compare FOLDER --json results.json

`build` writes the models of `benchmarks.quantised_models`, the same bytes for the same seed.
`compare` optimises each file and prints bytes, integer kernels that onnxruntime finds, time of one
run in a race of its own, and the largest difference of an output in quantisation steps, each as
`eqsat_opt.session` opens the file. It ends with exit code 1 where a result has grown, lost a
kernel, is slower beyond noise, or moved by more than one step, and where there is none. With
`--tuned` the form for this machine is run, which holds the portable result too, so that one's bytes
count.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.quantised_models import RECIPES
from benchmarks.quantised_models import build as build_model
from eqsat_opt.api import run
from eqsat_opt.errors import EqsatError
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.race import race
from eqsat_opt.runtime.backends.ort.config import level_in
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.backends.tuned_file import is_tuned, open_as_raced
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.source import OpenRunner, RaceRunner

app = typer.Typer(add_completion=False, help=__doc__)
# A pipe has no width of its own, and the default cuts the tables.
console = Console(width=None if sys.stdout.isatty() else 160)

_METADATA_SHARE = 0.01
_METADATA_BYTES = 1024
"""A result may be larger by this: names of rules, of nodes and of values."""

_INTEGER_KERNELS = ("Linear", "Integer", "Quant", "QGemm", "NBits")
_OURS = "eqsat_opt"
_CHECKED_INPUTS = 4
_SEED_OF_CHECK = 1000
_EIGHT_BIT_STEPS = 255


@dataclass(frozen=True)
class Row:
    """What became of one model.

    Attributes:
        status: that of the report, or the error, with which the other fields stay empty.
        seconds: for the whole optimisation.
        bytes_before, bytes_after: of the files.
        kernels_before, kernels_after: nodes that compute on integers or convert, in the graph that
            onnxruntime makes of the file.
        time_before_us, time_after_us: best time of one run.
        ratio: time of the result over that of the original, median over fresh sessions.
        threshold: difference in time that means something.
        steps: largest difference of an output.
    """

    status: str
    seconds: float = 0.0
    bytes_before: int = 0
    bytes_after: int = 0
    kernels_before: int = 0
    kernels_after: int = 0
    time_before_us: float = 0.0
    time_after_us: float = 0.0
    ratio: float = 1.0
    threshold: float = 0.0
    steps: float = 0.0

    @property
    def losses(self) -> list[str]:
        """What is worse than before."""
        room = max(_METADATA_BYTES, _METADATA_SHARE * self.bytes_before)
        found = {
            self.status: not self.bytes_before,
            "grown": self.bytes_after > self.bytes_before + room,
            "fewer integer kernels": self.kernels_after < self.kernels_before,
            "slower": self.ratio > 1.0 + self.threshold,
            "beyond one step": self.steps > 1.0,
        }
        return [what for what, is_so in found.items() if is_so]


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(help="Where the .onnx files go.")],
    seed: Annotated[int, typer.Option(help="Of weights and calibration inputs.")] = 0,
) -> None:
    """Write every quantised model."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, recipe in RECIPES.items():
        target = folder / f"{name}.onnx"
        onnx.save(build_model(recipe, seed), target)
        console.print(f"{name}: {target.stat().st_size / 1e3:.0f} kB", markup=False)


@app.command()
def compare(
    folder: Annotated[Path, typer.Argument(help="A folder of .onnx files.", exists=True)],
    only: Annotated[
        list[str] | None, typer.Option(help="Only files whose name starts so; may be repeated.")
    ] = None,
    budget: Annotated[float, typer.Option(help="Of an optimisation, seconds.")] = 20.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads of onnxruntime.")] = 1,
    builds: Annotated[int, typer.Option(min=2, help="Fresh sessions per candidate.")] = 5,
    race_s: Annotated[float, typer.Option(help="Longest race per model, seconds.")] = 10.0,
    seed: Annotated[int, typer.Option(help="Seed of inputs and running order.")] = 0,
    tuned: Annotated[bool, typer.Option("--tuned", help="Run the form for this machine.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all figures.")] = None,
) -> None:
    """Optimise every model and set it beside the original."""
    paths = sorted(
        path
        for path in folder.glob("*.onnx")
        if not only or any(path.name.startswith(prefix) for prefix in only)
    )
    if not paths:
        raise typer.BadParameter(f"no such .onnx file in {folder}; run the command build first")
    rows: dict[str, Row] = {}
    for path in paths:
        with console.status(path.stem):
            rows[path.stem] = _compare_one(
                path,
                Options(budget_s=budget, threads=threads, seed=seed),
                builds,
                race_s,
                tuned=tuned,
            )
        console.print(f"{path.stem}: {rows[path.stem].status}", markup=False)
        if json_path:
            text = json.dumps({name: asdict(row) for name, row in rows.items()}, indent=1)
            json_path.write_text(text + "\n", encoding="utf-8")
    console.print(_table(rows))
    if any(row.losses for row in rows.values()):
        raise typer.Exit(1)


def _compare_one(path: Path, options: Options, builds: int, race_s: float, *, tuned: bool) -> Row:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="quantised-") as scratch:
        target = portable = Path(scratch) / "result.onnx"
        if tuned:
            target = Path(scratch) / "tuned.onnx"
            options = replace(options, tuned=str(target))
        try:
            report = run(path, options, output=portable).report
        except EqsatError as error:
            return Row(f"{type(error).__name__}: {error}")
        seconds = time.perf_counter() - start
        opened = {
            "before": partial(_opened, path, options.threads),
            "after": partial(_opened, target, options.threads),
        }
        result = race(
            opened,
            "before",
            random_inputs(path, options.seed),
            threads=options.threads,
            builds=builds,
            seed=options.seed,
            time_limit_s=race_s,
        )
        entries = result.entries
        return Row(
            report.status,
            seconds,
            path.stat().st_size,
            portable.stat().st_size,
            _integer_kernels(path, options.threads),
            _integer_kernels(target, options.threads),
            entries["before"].time_us,
            entries["after"].time_us,
            entries["after"].ratio,
            max(result.threshold, result.noise),
            _steps(path, **opened),
        )


def _opened(path: Path, threads: int) -> RaceRunner:
    """As `eqsat_opt.session` opens it."""
    options = OrtOptions(threads, level_in(path))
    return open_as_raced(path, options) if is_tuned(path) else OrtSession(path, options)


def _integer_kernels(path: Path, threads: int) -> int:
    """In the graph that is run; one with kernels of ours is what onnxruntime made already."""
    model = onnx.load(path)
    if not any(node.domain == _OURS for node in model.graph.node):
        model = ort_optimized(path, OrtOptions(threads, level_in(path)))
    return sum(any(part in n.op_type for part in _INTEGER_KERNELS) for n in model.graph.node)


def _steps(path: Path, before: OpenRunner, after: OpenRunner) -> float:
    """Largest difference of an output in steps: of its quantisation, else of eight bits."""
    first, second = before(), after()
    scales = _output_scales(onnx.load(path).graph)
    worst = 0.0
    for seed in range(_SEED_OF_CHECK, _SEED_OF_CHECK + _CHECKED_INPUTS):
        feeds = random_inputs(path, seed)
        pairs = zip(first.output_names, first.run(feeds), second.run(feeds), strict=True)
        for name, expected, actual in pairs:
            wide = expected.astype(np.float64)
            step = scales.get(name) or float(np.ptp(wide)) / _EIGHT_BIT_STEPS or 1.0
            worst = max(worst, float(np.abs(actual - wide).max(initial=0.0)) / step)
    return worst


def _output_scales(graph: onnx.GraphProto) -> dict[str, float]:
    """Outputs that one scale dequantises."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    return {
        node.output[0]: float(numpy_helper.to_array(constants[node.input[1]]).max())
        for node in graph.node
        if node.op_type == "DequantizeLinear" and node.input[1] in constants
    }


def _table(rows: Mapping[str, Row]) -> Table:
    table = Table("model", "kB", "integer kernels", "µs", "ratio", "noise", "steps", "s", "status")
    for column in table.columns[1:-1]:
        column.justify = "right"
    for name, row in rows.items():
        table.add_row(name, *_cells(row))
    return table


def _cells(row: Row) -> Sequence[Any]:
    if not row.bytes_before:
        return [*["–"] * 7, row.status]
    return [
        f"{row.bytes_before / 1e3:.1f} → {row.bytes_after / 1e3:.1f}",
        f"{row.kernels_before} → {row.kernels_after}",
        f"{row.time_before_us:.0f} → {row.time_after_us:.0f}",
        f"{row.ratio:.3f}",
        f"{row.threshold:.1%}",
        f"{row.steps:.2g}",
        f"{row.seconds:.1f}",
        ", ".join(dict.fromkeys([row.status, *row.losses])),
    ]


if __name__ == "__main__":
    app()
