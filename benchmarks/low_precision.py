"""Compare our choice of low precision with uniform recipes and a greedy search, at equal error.

    python -m benchmarks.low_precision front zoo:bert --errors 0.01,0.016 --plot front.svg

`front` prints time and error of: our choice at each bound; onnxruntime's `quantize_dynamic` with
signed and unsigned weights, per tensor and per channel; `quantize_static` per channel, with 8 and
7 bits, in ranges by min-max, entropy and percentile; and greedy searches, which order operators by
their sensitivity and compute as many of them in 8 bits as the bound permits (by bisection). Of our
choice it also prints by how much an optimum could be faster than predicted at most, and the seconds
from prices and errors to the model.
All of them are measured on the same data, and run in turns; times are minima.

    python -m benchmarks.low_precision agreement MODEL --calibration FOLDER --errors 0.01

`agreement` counts on how many of the samples held back the largest element along the last axis of
each output is that of the original: labels of a classifier, characters of a text.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import onnx
import onnx_ir
import typer
from onnx_ir.passes.common import LiftConstantsToInitializersPass
from rich.console import Console
from rich.table import Table

from eqsat_opt.api import resolve
from eqsat_opt.approximation.errors import shift_of
from eqsat_opt.approximation.search import Expected, SearchTask, expected_of, fastest_within
from eqsat_opt.approximation.survey import Survey, survey_of
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.calibration import load_calibration
from eqsat_opt.runtime.given_inputs import NO_INPUTS
from eqsat_opt.runtime.source import Feeds, ModelSource
from eqsat_opt.runtime.staging import Staging

app = typer.Typer(add_completion=False, help=__doc__)
console = Console(width=None if sys.stdout.isatty() else 140)

_ROUNDS = 12
_PER_CHANNEL_OPSET = 13
_GREEDY = {
    "greedy": ("uint8 per column",),
    "greedy, static": ("static int8", "static int7", "static"),
}
"""Implementations of the greedy searches, of which the most exact one is taken."""


@dataclass(frozen=True)
class Row:
    """A way to run the model: its error on data held back, and its time relative to floats.

    Attributes:
        way: name of the way.
        bound: bound on the error; ``None`` if the way has none.
        error: largest difference of an output on data held back, as a share of its maximum.
        time_ms, ratio: time of a run, and its share of that in floats.
        products: number of operators in low precision.
        gap: share of the predicted time that an optimum could save at most; ``None`` without proof.
        search_s: seconds of the search for the choice.
    """

    way: str
    bound: float | None
    error: float
    time_ms: float
    ratio: float
    products: int
    gap: float | None = None
    search_s: float | None = None


@dataclass(frozen=True)
class _Found:
    """A model in low precision.

    Attributes:
        model: the model.
        products: number of operators in low precision.
        gap: share of the predicted time that an optimum could save at most; ``None`` without proof.
        search_s: seconds of the search for the choice.
    """

    model: ModelSource
    products: int
    gap: float | None = None
    search_s: float | None = None


@dataclass(frozen=True)
class _Subject:
    """A model with its survey and data."""

    model: onnx_ir.Model
    staging: Staging
    survey: Survey
    ranging: Sequence[Feeds]
    correcting: Expected
    held_back: Expected
    options: OrtOptions


_Ways = dict[tuple[str, float | None], _Found]
"""Models by the name of a way and its bound."""

Model = Annotated[str, typer.Argument(help="An ONNX file or zoo:NAME.")]
Errors = Annotated[str, typer.Option(help="Bounds on the error, with commas.")]
Data = Annotated[str, typer.Option(help="Calibration: a file, a folder, or random.")]
Threads = Annotated[int, typer.Option(help="Threads of each session.")]
Budget = Annotated[float, typer.Option(help="Seconds for prices and errors.")]


@app.command()
def front(
    model: Model,
    errors: Errors = "0.003,0.01,0.03",
    calibration: Data = "random",
    threads: Threads = 1,
    budget: Budget = 120.0,
    plot: Annotated[str | None, typer.Option(help="Write a plot to this file.")] = None,
    json_file: Annotated[str | None, typer.Option("--json", help="Write the rows.")] = None,
) -> None:
    """Print the front of time against error beside uniform recipes and a greedy search."""
    bounds = [float(one) for one in errors.split(",")]
    with subject_of(model, calibration, threads, budget) as subject:
        ways: _Ways = {("floats", None): _Found(subject.staging.original, 0)}
        ways |= uniform_ways(subject)
        for bound in bounds:
            found = _best(subject, bound)
            if found is not None:
                ways["ours", bound] = found
            for way, names in _GREEDY.items():
                made, count = _greedy(subject, bound, names)
                if count:
                    ways[way, bound] = _Found(subject.staging.of(made), count)
        rows = _measured(subject, ways)
    table = Table(title=model)
    for name in (
        "way",
        "bound",
        "error held back",
        "ms",
        "of floats",
        "products",
        "gap",
        "search s",
    ):
        table.add_column(name)
    for row in rows:
        bound_text = "" if row.bound is None else f"{row.bound:.3g}"
        table.add_row(
            row.way, bound_text, f"{row.error:.2e}", f"{row.time_ms:.2f}", f"{row.ratio:.3f}",
            str(row.products), "" if row.gap is None else f"{row.gap:.2%}",
            "" if row.search_s is None else f"{row.search_s:.1f}",
        )  # fmt: skip
    console.print(table)
    if json_file is not None:
        Path(json_file).write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if plot is not None:
        _plot(model, rows, plot)


@app.command()
def agreement(
    model: Model,
    errors: Errors = "0.01,0.03,0.1",
    calibration: Data = "random",
    threads: Threads = 1,
    budget: Budget = 120.0,
) -> None:
    """Count on how many samples held back all largest elements are those of the original."""
    table = Table(title=model)
    for name in ("bound", "error held back", "agreement", "products"):
        table.add_column(name)
    with subject_of(model, calibration, threads, budget) as subject:
        for bound in [float(one) for one in errors.split(",")]:
            found = _best(subject, bound)
            if found is None:
                table.add_row(f"{bound:.3g}", "", "none keeps it", "0")
                continue
            session = OrtSession(found.model, subject.options)
            held = subject.held_back
            agreed, worst = 0, 0.0
            for fed, outputs in zip(held.feeds, held.outputs, strict=True):
                pairs = list(zip(session.run(fed), outputs, strict=True))
                worst = max(worst, *(shift_of(*pair).largest for pair in pairs))
                agreed += all(np.array_equal(a.argmax(-1), b.argmax(-1)) for a, b in pairs)
            table.add_row(
                f"{bound:.3g}",
                f"{worst:.2e}",
                f"{agreed} of {len(held.feeds)}",
                str(found.products),
            )
    console.print(table)


@contextmanager
def subject_of(name: str, calibration: str, threads: int, budget_s: float) -> Iterator[_Subject]:
    given, options = resolve(name), OrtOptions(threads)
    model = load_model(given)
    with Staging(model, given) as staging:
        data = load_calibration(calibration).for_model(staging.original)
        sets = data.sets(staging.original, NO_INPUTS, {}, seed=0)
        correcting, held_back = (
            expected_of(staging.original, one, options) for one in (sets.correcting, sets.held_back)
        )
        survey = survey_of(
            model, sets.fitting, staging, options,
            deadline=Deadline.after(budget_s), progress=lambda _: None, ranging=sets.correcting,
        )  # fmt: skip
        console.print(
            f"{survey.n_sites} operators, {len(survey.kernels)} kernels, "
            f"{survey.n_late} had no time"
        )
        yield _Subject(
            model, staging, survey, (*sets.fitting, *sets.correcting), correcting=correcting,
            held_back=held_back, options=options,
        )  # fmt: skip


def _best(subject: _Subject, bound: float) -> _Found | None:
    if not subject.survey.kernels:
        return None
    task = SearchTask(
        subject.model, subject.survey, subject.correcting, held_back=subject.held_back,
        staging=subject.staging, options=subject.options, deadline=Deadline.never(),
        progress=lambda _: None,
    )  # fmt: skip
    began = time.perf_counter()
    found = fastest_within(bound, task)
    if found is None:
        return None
    selection = found.selection
    return _Found(
        subject.staging.of(found.model),
        len(selection.chosen),
        gap=1 - selection.bound_us / selection.time_us,
        search_s=time.perf_counter() - began,
    )


def _greedy(subject: _Subject, bound: float, names: Sequence[str]) -> tuple[onnx_ir.Model, int]:
    """Return the model with as many of the least sensitive operators as a bound permits."""
    found: dict[str, tuple[float, str]] = {}
    for kernel in subject.survey.kernels:
        rows = [(max(one.squares), one.name) for one in kernel.options if one.name in names]
        if rows:
            found[kernel.makes[0]] = min(rows)
    order = sorted(found, key=found.__getitem__)
    least, most = 0, len(order)

    def made(count: int) -> onnx_ir.Model:
        return subject.survey.applied(
            subject.model, {name: found[name][1] for name in order[:count]}
        )

    while least < most:
        count = (least + most + 1) // 2
        error = error_of(subject.staging.of(made(count)), subject.correcting, subject.options)
        least, most = (count, most) if error <= bound else (least, count - 1)
    return made(least), least


def uniform_ways(subject: _Subject) -> _Ways:
    """Return the models that onnxruntime's own quantisation makes."""
    from onnxruntime.quantization import (
        CalibrationMethod,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    ways: _Ways = {}
    with tempfile.TemporaryDirectory() as folder:
        source, target = (str(Path(folder, f"{name}.onnx")) for name in ("in", "out"))
        # They take weights from initializers alone.
        lifted = LiftConstantsToInitializersPass()(subject.model.clone()).model
        onnx.save(model_proto(lifted), source)
        for kind in (QuantType.QInt8, QuantType.QUInt8):
            for per_channel in (False, True):
                quantize_dynamic(source, target, weight_type=kind, per_channel=per_channel)
                made = onnx.load(target)
                count = sum(node.op_type.startswith("MatMulInt") for node in made.graph.node)
                text = f"quantize_dynamic {kind.name}{' per channel' * per_channel}"
                ways[text, None] = _Found(made, count)
        for method, reduces in product(CalibrationMethod, (False, True)):
            # It needs operator set 13 for scales of channels.
            if subject.model.opset_imports.get("", 0) < _PER_CHANNEL_OPSET:
                continue
            if method is CalibrationMethod.Distribution:  # for weights of 8-bit floats
                continue
            quantize_static(
                source, target, _Reader(subject.ranging), weight_type=QuantType.QInt8,
                activation_type=QuantType.QUInt8, per_channel=True, reduce_range=reduces,
                calibrate_method=method,
            )  # fmt: skip
            made = onnx.load(target)
            rounded = {node.output[0] for node in made.graph.node if node.op_type.startswith("Deq")}
            count = sum(
                bool(node.input) and set(node.input[:2]) <= rounded for node in made.graph.node
            )
            text = f"quantize_static {method.name}{' 7 bits' * reduces}"
            ways[text, None] = _Found(made, count)
    return ways


class _Reader:
    """Calibration data in the form that onnxruntime reads."""

    def __init__(self, feeds: Sequence[Feeds]) -> None:
        self._left = iter(feeds)

    def get_next(self) -> Feeds | None:
        return next(self._left, None)


def error_of(model: ModelSource, expected: Expected, options: OrtOptions) -> float:
    session = OrtSession(model, options)
    return max(
        shift_of(found, right).largest
        for fed, outputs in zip(expected.feeds, expected.outputs, strict=True)
        for found, right in zip(session.run(fed), outputs, strict=True)
    )


def _measured(subject: _Subject, ways: _Ways) -> list[Row]:
    """Measure errors, and times in turns."""
    fed = subject.held_back.feeds[0]
    calls = {way: OrtSession(one.model, subject.options).bind(fed) for way, one in ways.items()}
    best_s = dict.fromkeys(calls, float("inf"))
    for _ in range(_ROUNDS):
        for way, call in calls.items():
            start = time.perf_counter()
            call()
            best_s[way] = min(best_s[way], time.perf_counter() - start)
    floats_s = best_s["floats", None]
    return [
        Row(
            way=way[0],
            bound=way[1],
            error=error_of(one.model, subject.held_back, subject.options),
            time_ms=1e3 * best_s[way],
            ratio=best_s[way] / floats_s,
            products=one.products,
            gap=one.gap,
            search_s=one.search_s,
        )
        for way, one in ways.items()
    ]


def _plot(title: str, rows: Sequence[Row], path: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for way, mark in zip(("ours", *_GREEDY), ("o-", "s--", "^--"), strict=True):
        points = sorted((one.error, one.ratio) for one in rows if one.way == way)
        if points:
            axes.plot(*zip(*points, strict=True), mark, label=way)
    for row in rows:
        if row.way.startswith("quantize"):
            axes.plot([row.error], [row.ratio], "x", label=row.way)
    axes.set(xscale="log", xlabel="error held back, of the maximum", ylabel="time, of floats")
    axes.set_title(title)
    axes.legend(fontsize=7)
    figure.savefig(path, bbox_inches="tight")


if __name__ == "__main__":
    app()
