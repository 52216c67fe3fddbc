"""Export PyTorch models to ONNX, and compare what optimisers make of them for onnxruntime.

Run from the repository root, with the extra `bench` installed:

    python -m benchmarks.torch_exports build FOLDER
    python -m benchmarks.torch_exports compare FOLDER --markdown table.md

`build` exports each model by both of PyTorch's exporters, the newer one with and without its own
optimiser. `compare` gives each file to each optimiser, checks that the result still computes the
same, and races the results in onnxruntime.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import onnx
import typer
from rich.console import Console
from rich.table import Table

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime import OrtOptions, OrtSession, race, random_inputs

app = typer.Typer(add_completion=False, help=__doc__)
# A pipe has no width of its own, and the default cuts the tables.
console = Console(width=None if sys.stdout.isatty() else 140)

# Exporter and its arguments, by the name in the file's name.
VARIANTS: dict[str, dict[str, Any]] = {
    "dynamo": {"dynamo": True, "optimize": True, "external_data": False},
    "dynamo-raw": {"dynamo": True, "optimize": False, "external_data": False},
    "legacy": {"dynamo": False},
}
BASELINE = "onnxruntime"
OURS = "eqsat-opt"

_EXPORT_RECORD = "exports.json"
_EXPORT_LIMIT_S = 600.0
_EXIT_LIMIT_S = 5.0
# Largest |difference| of an output relative to its largest value: ten times what folding
# normalisations costs in float32, a hundredth of what a wrong rewrite does.
_TOLERANCE = 1e-4
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_MAX_REASON = 160


# ---------------------------------------------------------------------------- child processes


@dataclass(frozen=True)
class Attempt:
    """What became of a task in a process of its own: its value, or why there is none."""

    value: Any = None
    failure: str = ""


def attempt(task: Callable[..., Any], *args: Any, limit_s: float) -> Attempt:
    """Run `task(*args)` in a fresh silent process, so that a crash or a hang is only a result."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(sender, task, args))
    process.start()
    sender.close()
    grace_s = 0.0
    try:
        if not receiver.poll(limit_s):
            return Attempt(failure=f"stopped after {limit_s:.0f} s")
        grace_s = _EXIT_LIMIT_S
        outcome = receiver.recv()
    except EOFError:
        process.join(grace_s)
        outcome = Attempt(failure=f"crashed ({_exit_reason(process.exitcode)})")
    finally:
        process.join(grace_s)
        if process.is_alive():
            _kill(process)
    return outcome if isinstance(outcome, Attempt) else Attempt(failure="sent no result")


def _kill(process: BaseProcess) -> None:
    """End a process and those that it started."""
    try:
        if process.pid:
            os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, OSError):  # no process groups here, or its own is not made yet
        process.kill()
    process.join()


def _run_and_send(sender: Connection, task: Callable[..., Any], args: Sequence[Any]) -> None:
    if hasattr(os, "setsid"):
        os.setsid()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    try:
        outcome = Attempt(task(*args))
    except Exception as error:
        outcome = Attempt(failure=_reason(error))
    sender.send(outcome)


def _exit_reason(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}"


def _reason(error: BaseException) -> str:
    """One line about the innermost cause; exporters wrap it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = _ANSI.sub("", str(error)).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0].strip()}" if lines else type(error).__name__
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"


# --------------------------------------------------------------------------------------- build


def _export(name: str, variant: str, path: str) -> dict[str, Any]:
    """Write one export and compare its outputs with PyTorch's."""
    import torch

    from benchmarks.torch_models import build as build_model

    model = build_model(name)
    start = time.perf_counter()
    torch.onnx.export(
        model.module,
        tuple(model.inputs.values()),
        path,
        input_names=list(model.inputs),
        output_names=["output"],
        verbose=False,
        **VARIANTS[variant],
    )
    seconds = time.perf_counter() - start
    with torch.no_grad():
        expected = [model.module(*model.inputs.values()).numpy()]
    feeds = {key: value.numpy() for key, value in model.inputs.items()}
    actual = OrtSession(path, OrtOptions(threads=_cores())).run(feeds)
    return {
        "seconds": seconds,
        "bytes": os.path.getsize(path),
        "nodes": _node_count(path),
        "max_rel_error": _relative_error(expected, actual),
    }


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
            _write_text(folder / _EXPORT_RECORD, json.dumps(record, indent=1) + "\n")
    console.print(table)
    for line in _missing(record):
        console.print(line, markup=False)


def _build_one(folder: Path, name: str, variant: str) -> dict[str, Any]:
    target = folder / f"{name}.{variant}.onnx"
    partial = folder / f".{name}.{variant}.partial"
    try:
        outcome = attempt(_export, name, variant, str(partial), limit_s=_EXPORT_LIMIT_S)
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


# ---------------------------------------------------------------------------------- optimisers


def _onnxsim(model: onnx.ModelProto) -> Any:
    import onnxsim

    simplified, valid = onnxsim.simplify(model)
    if not valid:
        raise RuntimeFailed("onnxsim's own check failed")
    return simplified


def _onnxoptimizer(model: onnx.ModelProto) -> Any:
    import onnxoptimizer

    return onnxoptimizer.optimize(model, onnxoptimizer.get_fuse_and_elimination_passes())


def _onnxscript(model: onnx.ModelProto) -> Any:
    import onnxscript.optimizer

    return onnxscript.optimizer.optimize(model)


def _eqsat_opt(model: onnx.ModelProto) -> Any:
    import eqsat_opt

    return eqsat_opt.optimize(model)


OPTIMISERS: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "onnxsim": _onnxsim,
    "onnxoptimizer": _onnxoptimizer,
    "onnxscript": _onnxscript,
    OURS: _eqsat_opt,
}


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


@dataclass
class Candidate:
    """What one optimiser made of a model.

    Attributes:
        seconds: How long it took.
        nodes: Operators in its result.
        max_rel_error: Largest output difference relative to the output's largest value.
        time_us: Best time of one run.
        median_us: Median over fresh sessions of the best time in each.
        speedup: Over onnxruntime running the original, median over fresh sessions.
        failure: Why there is no result, or why it did not take part in the race.
    """

    seconds: float = 0.0
    nodes: int = 0
    max_rel_error: float | None = None
    time_us: float | None = None
    median_us: float | None = None
    speedup: float | None = None
    failure: str = ""


@dataclass
class Comparison:
    """All candidates for one model, the original among them.

    Attributes:
        noise: Relative difference between two sessions of the original.
        threshold: Difference in speed that means something: 3 %, or the noise.
    """

    candidates: dict[str, Candidate] = field(default_factory=dict)
    noise: float = 0.0
    threshold: float = 0.0

    @property
    def best_other(self) -> tuple[str, float]:
        """The fastest but ours, and its speedup."""
        others = [
            (name, candidate.speedup)
            for name, candidate in self.candidates.items()
            if name != OURS and candidate.speedup is not None
        ]
        return max(others, key=lambda item: item[1])

    @property
    def against_best(self) -> float | None:
        """How many times faster ours is than the fastest other."""
        ours = self.candidates[OURS].speedup
        return None if ours is None else ours / self.best_other[1]

    @property
    def verdict(self) -> str:
        """Whether ours is "faster", "equal" within the threshold, "slower", or "failed"."""
        gain = self.against_best
        if gain is None:
            return "failed"
        if gain > 1 + self.threshold:
            return "faster"
        return "equal" if gain >= 1 / (1 + self.threshold) else "slower"


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
        console.print(f"{path.stem}: {_summary(comparison)}", markup=False)
        if json_path:
            _write_text(json_path, json.dumps(_as_json(comparisons, threads), indent=1) + "\n")
    header, rows = _table(comparisons)
    table = Table(*header)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    footnotes = _footnotes(comparisons, threads) + _missing(_read_record(folder))
    for line in footnotes:
        console.print(line, markup=False)
    if markdown:
        _write_text(markdown, _as_markdown(header, rows, footnotes))


def _compare_one(
    path: Path, threads: int, builds: int, race_s: float, limit_s: float, seed: int
) -> Comparison:
    options = OrtOptions(threads=threads)
    feeds = random_inputs(path, seed)
    comparison = Comparison({BASELINE: Candidate(nodes=_node_count(path), max_rel_error=0.0)})
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
            candidate.nodes = _node_count(target)
            _check(candidate, target, options, feeds, expected)
            if not candidate.failure:
                runnable[name] = target
        result = race(
            runnable,
            BASELINE,
            feeds,
            options=dict.fromkeys(runnable, options),
            builds=builds,
            seed=seed,
            time_limit_s=race_s,
        )
    comparison.noise = result.noise
    comparison.threshold = result.threshold
    for name, entry in result.entries.items():
        candidate = comparison.candidates[name]
        candidate.failure = entry.note
        if math.isfinite(entry.ratio):
            candidate.time_us = entry.time_us
            candidate.median_us = entry.median_us
            candidate.speedup = 1.0 / entry.ratio
    return comparison


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
    except RuntimeFailed as error:
        candidate.failure = str(error)
        return
    candidate.max_rel_error = _relative_error(expected, actual)
    if not candidate.max_rel_error <= _TOLERANCE:
        candidate.failure = f"wrong outputs (relative error {candidate.max_rel_error:.1e})"


def _relative_error(expected: Sequence[Any], actual: Sequence[Any]) -> float:
    """Largest |difference| over largest |value|, worst output; infinite if shapes differ."""
    worst = 0.0
    for want, got in zip(expected, actual, strict=True):
        if want.shape != got.shape:
            return math.inf
        scale = float(np.abs(want).max(initial=0.0))
        difference = float(np.abs(got.astype(np.float64) - want).max(initial=0.0))
        worst = max(worst, difference / scale if scale else difference)
        if math.isnan(difference):
            return math.inf
    return worst


def _node_count(path: str | os.PathLike[str]) -> int:
    return len(onnx.load_model(os.fspath(path), load_external_data=False).graph.node)


def _cores() -> int:
    return os.cpu_count() or 1


# ------------------------------------------------------------------------------------- reports


def _summary(comparison: Comparison) -> str:
    parts = []
    for name, candidate in comparison.candidates.items():
        if candidate.speedup is not None:
            parts.append(f"{name} {candidate.speedup:.2f}×")
        else:
            parts.append(f"{name} {candidate.failure}")
    return "; ".join(parts)


def _table(comparisons: Mapping[str, Comparison]) -> tuple[list[str], list[list[str]]]:
    header = ["export", "ms", *OPTIMISERS, "best other", f"{OURS} / best", "noise"]
    rows: list[list[str]] = []
    for name, comparison in comparisons.items():
        best, _ = comparison.best_other
        gain = comparison.against_best
        rows.append(
            [
                name,
                f"{(comparison.candidates[BASELINE].time_us or math.nan) / 1e3:.2f}",
                *(_cell(comparison.candidates[optimiser]) for optimiser in OPTIMISERS),
                best,
                "–" if gain is None else f"{gain:.2f}× {comparison.verdict}",
                f"{comparison.noise:.1%}",
            ]
        )
    means = [_geometric_mean(comparisons, optimiser) for optimiser in OPTIMISERS]
    gains = [comparison.against_best for comparison in comparisons.values()]
    rows.append(["geometric mean", "", *means, "", _mean_text(gains), ""])
    return header, rows


def _cell(candidate: Candidate) -> str:
    if candidate.speedup is not None:
        return f"{candidate.speedup:.2f}×"
    return "wrong" if candidate.failure.startswith("wrong") else "failed"


def _geometric_mean(comparisons: Mapping[str, Comparison], optimiser: str) -> str:
    return _mean_text([c.candidates[optimiser].speedup for c in comparisons.values()])


def _mean_text(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.geometric_mean(known):.2f}×" if known else "–"


def _footnotes(comparisons: Mapping[str, Comparison], threads: int) -> list[str]:
    verdicts = [comparison.verdict for comparison in comparisons.values()]
    good = sum(verdict in ("faster", "equal") for verdict in verdicts)
    lines = [
        f"Speedups over onnxruntime {importlib.metadata.version('onnxruntime')} running the "
        f"export as it is, {threads} thread(s); "
        f"{OURS} is at least as fast as the best other, within the noise, on {good} of "
        f"{len(verdicts)}.",
    ]
    for name, comparison in comparisons.items():
        for optimiser, candidate in comparison.candidates.items():
            if candidate.failure:
                lines.append(f"{name}, {optimiser}: {candidate.failure}")
    return lines


def _as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> str:
    lines = [header, ["---", *["--:"] * (len(header) - 1)], *rows]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return table + "\n\n" + "\n".join(f"- {note}" for note in notes) + "\n"


def _as_json(comparisons: Mapping[str, Comparison], threads: int) -> dict[str, Any]:
    models = {
        name: {
            **asdict(comparison),
            "best_other": comparison.best_other[0],
            "against_best": comparison.against_best,
            "verdict": comparison.verdict,
        }
        for name, comparison in comparisons.items()
    }
    return {"environment": _environment(threads), "models": models}


def _environment(threads: int) -> dict[str, Any]:
    packages = ("onnxruntime", "onnxsim", "onnxoptimizer", "onnxscript", "eqsat-opt", "torch")
    versions = {}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "threads": threads,
        "cores": _cores(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": versions,
    }


def _write_text(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


if __name__ == "__main__":
    app()
