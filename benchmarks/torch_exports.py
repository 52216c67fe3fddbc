"""Export PyTorch models to ONNX, and compare what optimisers make of them for onnxruntime.

Run from the repository root, with the extra `bench` installed:

    python -m benchmarks.torch_exports build FOLDER
    python -m benchmarks.torch_exports compare FOLDER --markdown table.md
    python -m benchmarks.torch_exports corpus FOLDER
    python -m benchmarks.torch_exports check FOLDER --json found.json

`build` exports each model by both of PyTorch's exporters, the newer one with and without its own
optimiser. `compare` gives each file to each optimiser, checks that the result still computes the
same, and races the results in onnxruntime; a verdict other than equal counts only as a second race
gives it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import onnx
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.comparison import (
    BASELINE,
    Candidate,
    Comparison,
    as_json,
    as_markdown,
    footnotes,
    summary,
    table_rows,
)
from benchmarks.exporting import VARIANTS, export, node_count, relative_error
from benchmarks.isolated import attempt
from benchmarks.optimisers import OPTIMISERS
from eqsat_opt.common.files import write_whole
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.racing.race import RaceResult, race
from eqsat_opt.runtime.backends.ort.config import level_in
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs

app = typer.Typer(add_completion=False, help=__doc__)
# A pipe has no width of its own, and the default cuts the tables.
console = Console(width=None if sys.stdout.isatty() else 140)

_EXPORT_RECORD = "exports.json"
_EXPORT_LIMIT_S = 600.0
# Largest |difference| of an output relative to its largest value; folding normalisations in float32
# costs up to 2e-5 on these models.
_TOLERANCE = 1e-4


# --------------------------------------------------------------------------------------- build


@app.command()
def build(
    folder: Annotated[Path, typer.Argument(help="Where the .onnx files go.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Export only this model; may be repeated.")
    ] = None,
) -> None:
    """Export every model by every exporter; what cannot be exported is listed with the reason."""
    from benchmarks.torch_models import MODELS

    unknown = sorted(set(only or ()) - set(MODELS))
    if unknown:
        raise typer.BadParameter(f"no model {unknown[0]!r}; there are {', '.join(MODELS)}")
    folder.mkdir(parents=True, exist_ok=True)
    record = _read_record(folder)
    table = Table("export", "operators", "MB", "error against PyTorch", "seconds")
    for name in only or MODELS:
        for variant in VARIANTS:
            key = f"{name}.{variant}"
            record[key] = _build_one(folder, name, variant)
            table.add_row(*_build_row(key, record[key]))
            console.print(f"{key}: {record[key].get('failure', 'done')}", markup=False)
            write_whole(folder / _EXPORT_RECORD, json.dumps(record, indent=1) + "\n")
    console.print(table)
    for line in _missing(record):
        console.print(line, markup=False)


def _build_one(folder: Path, name: str, variant: str) -> dict[str, Any]:
    target = folder / f"{name}.{variant}.onnx"
    partial = folder / f".{name}.{variant}.partial"
    try:
        outcome = attempt(export, name, variant, str(partial), limit_s=_EXPORT_LIMIT_S)
        if outcome.failure:
            target.unlink(missing_ok=True)
            return {"failure": outcome.failure}
        partial.replace(target)
        return dict(outcome.value)
    finally:
        partial.unlink(missing_ok=True)


def _build_row(key: str, entry: Mapping[str, Any]) -> list[str]:
    if "failure" in entry:
        return [key, "–", "–", "–", "–"]
    sizes = [str(entry["nodes"]), f"{entry['bytes'] / 1e6:.0f}"]
    return [key, *sizes, f"{entry['max_rel_error']:.1e}", f"{entry['seconds']:.1f}"]


def _missing(record: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{name} is missing, PyTorch cannot export it: {entry['failure']}"
        for name, entry in record.items()
        if "failure" in entry
    ]


def _read_record(folder: Path) -> dict[str, dict[str, Any]]:
    path = folder / _EXPORT_RECORD
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


@app.command()
def corpus(
    folder: Annotated[Path, typer.Argument(help="Where the .onnx files go.")],
    only: Annotated[
        list[str] | None, typer.Option(help="Only models whose name starts so; may be repeated.")
    ] = None,
    limit_s: Annotated[float, typer.Option(help="Longest export of a model, seconds.")] = 180.0,
    again: Annotated[bool, typer.Option(help="Try again what failed.")] = False,
) -> None:
    """Export some hundred small models in all their forms; a second call goes on where one ended.

    The forms: both exporters, symbolic sizes, opsets in turn, half precision, integers, 4 bits,
    and what onnxruntime's own tools fuse.
    """
    from benchmarks.exported.building import build, missing_libraries, read_record

    if missing := missing_libraries():
        raise typer.BadParameter(f"not installed: {', '.join(missing)}; pip install them first")
    folder.mkdir(parents=True, exist_ok=True)
    for key, entry in build(folder, only or (), limit_s=limit_s, again=again):
        remarks = "; ".join(entry.get("remarks", ()))
        names = ", ".join(entry.get("files", ()))
        text = entry.get("failure") or names + (f" ({remarks})" if remarks else "")
        console.print(f"{key}: {text}", markup=False, soft_wrap=True)
    entries = read_record(folder).values()
    files = sum(len(entry.get("files", ())) for entry in entries)
    failed = sum("failure" in entry for entry in entries)
    console.print(f"{files} files; {failed} exports failed")


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A folder of .onnx files.", exists=True)],
    only: Annotated[
        list[str] | None, typer.Option(help="Only files whose name starts so; may be repeated.")
    ] = None,
    coverage: Annotated[bool, typer.Option(help="Only count what passes through.")] = False,
    effort: Annotated[str, typer.Option(help="quick, normal or max.")] = "quick",
    budget_s: Annotated[float | None, typer.Option("--budget", help="Seconds for ours.")] = None,
    race_s: Annotated[float, typer.Option("--race", help="Seconds for a race.")] = 0.0,
    fixed: Annotated[bool, typer.Option(help="Make all sizes literal first.")] = False,
    again: Annotated[bool, typer.Option(help="Examine again what failed.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Keep all outcomes.")] = None,
) -> None:
    """Tell what becomes of each export, as benchmarks.shipped does of trained models."""
    from benchmarks.outcomes import Settings, gather, line_of, summary_lines

    models = {
        path.name: path
        for path in sorted(folder.glob("*.onnx"))
        if not only or path.name.startswith(tuple(only))
    }
    if not models:
        raise typer.BadParameter(f"no such .onnx file in {folder}; run the command corpus first")
    settings = Settings(coverage, effort, budget_s, race_s=race_s, fixed=fixed)
    outcomes = {}
    for name, outcome in gather(models, settings, json_path, again=again):
        outcomes[name] = outcome
        console.print(line_of(name, outcome), markup=False, highlight=False, soft_wrap=True)
    for line in summary_lines(outcomes):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


# ---------------------------------------------------------------------------------- optimisers


def _optimise(optimiser: str, source: str, target: str, threads: int) -> float:
    """Write the optimised model; seconds that the optimiser took, loading and saving excluded."""
    if hasattr(os, "sched_setaffinity"):
        # One that measures should do so on as many cores as its result will run on.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    model = onnx.load(source)
    start = time.perf_counter()
    result = OPTIMISERS[optimiser](model)
    seconds = time.perf_counter() - start
    onnx.save(result, target)
    return seconds


# ------------------------------------------------------------------------------------- compare


@app.command()
def compare(
    folder: Annotated[Path, typer.Argument(help="A folder of .onnx files.", exists=True)],
    only: Annotated[
        list[str] | None, typer.Option(help="Only files whose name starts so; may be repeated.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of onnxruntime.")] = 1,
    builds: Annotated[int, typer.Option(min=2, help="Fresh sessions per candidate.")] = 5,
    race_s: Annotated[float, typer.Option(help="Longest race per model, seconds.")] = 30.0,
    limit_s: Annotated[float, typer.Option(help="Longest run of an optimiser, seconds.")] = 600.0,
    seed: Annotated[int, typer.Option(help="Seed of inputs and running order.")] = 0,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write all figures.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
) -> None:
    """Race the results of all optimisers in onnxruntime, model by model."""
    paths = sorted(
        path
        for path in folder.glob("*.onnx")
        if not only or any(path.name.startswith(prefix) for prefix in only)
    )
    if not paths:
        raise typer.BadParameter(f"no such .onnx file in {folder}; run the command build first")
    comparisons: dict[str, Comparison] = {}
    for path in paths:
        with console.status(path.stem):
            comparison = _compare_one(path, threads, builds, race_s, limit_s, seed)
        comparisons[path.stem] = comparison
        console.print(f"{path.stem}: {summary(comparison)}", markup=False)
        if json_path:
            write_whole(json_path, json.dumps(as_json(comparisons, threads), indent=1) + "\n")
    header, rows = table_rows(comparisons)
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    notes = footnotes(comparisons, threads) + _missing(_read_record(folder))
    for line in notes:
        console.print(line, markup=False)
    if markdown:
        write_whole(markdown, as_markdown(header, rows, notes))


def _compare_one(
    path: Path, threads: int, builds: int, race_s: float, limit_s: float, seed: int
) -> Comparison:
    options = OrtOptions(threads=threads)
    feeds = random_inputs(path, seed)
    comparison = Comparison({BASELINE: Candidate(nodes=node_count(path), max_rel_error=0.0)})
    with tempfile.TemporaryDirectory(prefix="torch-exports-") as scratch:
        expected = OrtSession(path, options).run(feeds)
        runnable = {BASELINE: path}
        for name in OPTIMISERS:
            target = Path(scratch) / f"{name}.onnx"
            outcome = attempt(_optimise, name, str(path), str(target), threads, limit_s=limit_s)
            candidate = Candidate(failure=outcome.failure)
            comparison.candidates[name] = candidate
            if outcome.failure:
                continue
            candidate.seconds = outcome.value
            candidate.nodes = node_count(target)
            _check(candidate, target, options, feeds, expected)
            if not candidate.failure:
                runnable[name] = target
        # Ours may ask for another optimisation level of the runtime, in the metadata that the
        # runtime defines for it.
        entrants = {
            name: partial(OrtSession, file, OrtOptions(threads, level_in(file)))
            for name, file in runnable.items()
        }
        start_race = partial(
            race,
            entrants,
            BASELINE,
            feeds,
            threads=threads,
            builds=builds,
            time_limit_s=race_s,
        )
        _enter(comparison, start_race(seed=seed))
        if comparison.verdict in ("faster", "slower"):
            # The best of several is partly luck: what is not equal is raced again, and that counts.
            _enter(comparison, start_race(seed=seed + 1))
    return comparison


def _enter(comparison: Comparison, result: RaceResult) -> None:
    """Fill in what a race measured."""
    comparison.noise = result.noise
    comparison.threshold = result.threshold
    for name, entry in result.entries.items():
        candidate = comparison.candidates[name]
        candidate.failure = entry.note
        if math.isfinite(entry.ratio):
            candidate.time_us = entry.time_us
            candidate.median_us = entry.median_us
            candidate.speedup = 1.0 / entry.ratio


def _check(
    candidate: Candidate,
    path: Path,
    options: OrtOptions,
    feeds: Mapping[str, Any],
    expected: Sequence[Any],
) -> None:
    """Fill in the candidate's error, and its failure if that is too large."""
    try:
        actual = OrtSession(path, options).run(feeds)
    except RuntimeFailed as failure:
        candidate.failure = str(failure)
        return
    error = relative_error(expected, actual)
    candidate.max_rel_error = error if math.isfinite(error) else None
    if error > _TOLERANCE:
        candidate.failure = f"wrong outputs (relative error {error:.1e})"


if __name__ == "__main__":
    app()
