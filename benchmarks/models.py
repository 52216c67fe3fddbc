"""Optimise the benchmark models and the onnx package's `light` models; print the results table.

    python -m benchmarks.models [NAME…] [--threads 1] [--budget 60] [--json FILE] [--markdown FILE]
                                [--backends all]

With `--backends` a plan of these backends is made of each result as well: who runs it, what its
launches predict, what the race of the original, the result and the plans measured, and the error of
the prediction. `all` are those that are installed.

Times are those of the final race: original and result interleaved in random order, fresh sessions,
minima. The store is the user's own, so a second run only searches and races.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

from eqsat_opt.api import run
from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import EqsatError
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.runtime.backends.generated.compiling import compiler_missing
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.registry import launcher_names, load_runtime


def sources() -> dict[str, str]:
    """Short name to what :func:`eqsat_opt.optimize` takes."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {
        **{name: f"zoo:{name}" for name in zoo.names()},
        **{path.stem: str(path) for path in sorted(light.glob("*.onnx"))},
    }


def row(name: str, report: Report) -> list[str]:
    """One line of the table."""
    original, result = report.latency.get("original"), report.latency.get("result")
    measured = (
        f"{original.median_us / 1e3:.2f} -> {result.median_us / 1e3:.2f}"
        if original and result
        else "-"
    )
    setting = report.session_options.get("graph_optimization_level", "")
    return [
        name,
        f"{sum(report.operators_before.values())} -> {sum(report.operators_after.values())}",
        f"{report.enodes} ({report.stopped_by})",
        measured,
        f"{report.speedup:.2f}"
        + (f" ({report.session_speedup:.2f} with {setting})" if setting else ""),
        f"{report.original_cost / report.cost:.2f}" if report.cost else "-",
        f"{report.gap:.1%}",
        f"{report.max_rel_error:.0e}" if report.errors else "-",
        f"{sum(report.stages_s.values()):.1f}",
    ]


PLANNED = ["plan", "predicted, µs", "measured, µs", "error", "result / plan"]


def planned_row(report: Report) -> list[str]:
    """What a plan adds to the line."""
    told = report.planned
    if told is None or told.measured_us is None:
        return ["-"] * len(PLANNED)
    return [
        f"{told.placement} of {told.graph}",
        f"{told.predicted_us:.1f}",
        f"{told.measured_us:.1f}",
        f"{told.predicted_us / told.measured_us - 1:+.0%}",
        f"{told.speedup / told.portable_speedup:.2f}",
    ]


def plan_backends(text: str | None) -> tuple[str, ...]:
    """The backends of plans that are asked for."""
    if text != "all":
        return tuple(text.split(",")) if text else ()
    lacking = {"openvino": load_runtime("openvino").missing(), "native": missing()}
    lacking["generated"] = compiler_missing()
    return tuple(
        sorted((name for name in launcher_names() if not lacking.get(name)), key="ort".__ne__)
    )


HEADER = ["model", "operators", "e-nodes", "ms", "speedup", "predicted", "gap", "error", "total s"]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--budget", type=float, default=60.0)
    parser.add_argument("--backends", help="of plans that are made as well; all for all here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    backends = plan_backends(arguments.backends)
    header = HEADER + (PLANNED if backends else [])
    console = Console()
    chosen = {k: v for k, v in sources().items() if not arguments.names or k in arguments.names}
    rows: list[list[str]] = []
    data: dict[str, Any] = {}
    for name, source in chosen.items():
        try:
            with Scratch() as folder:
                options = Options(threads=arguments.threads, budget_s=arguments.budget)
                if backends:
                    plan = os.path.join(folder, "plan.json")
                    options = replace(options, plan=plan, backends=backends)
                report = run(source, options).report
        except EqsatError as error:
            console.print(f"[red]{name}: {error}")
            data[name] = {"status": "error", "error": str(error)}
            continue
        rows.append(row(name, report) + (planned_row(report) if backends else []))
        data[name] = report.to_json()
        console.print(" ".join(rows[-1]))
    table = Table(*header)
    for line in rows:
        table.add_row(*line)
    console.print(table)
    if arguments.json:
        arguments.json.write_text(json.dumps(data, indent=1))
    if arguments.markdown:
        lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        arguments.markdown.write_text(
            "\n".join([*lines, *("| " + " | ".join(line) + " |" for line in rows)]) + "\n"
        )


if __name__ == "__main__":
    main()
