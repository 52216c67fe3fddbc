"""What the methods of a comparison find on each device by its profile, digit for digit.

``EQSAT_OPT_WRITE_GOLDEN=1 pytest tests/golden/test_golden_searches.py`` writes the tables anew;
read the difference before you commit it: a change is one of prices, rules or searches.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.lab import zoo
from eqsat_opt.lab.comparison import CompareSettings, MethodResult, Original, Subject, run_method
from eqsat_opt.lab.search import Budget
from eqsat_opt.proving.selection import load_rules

FOLDER = Path(__file__).parent / "searches"

DEVICES = ("v100", "p100", "k80", "rtx2080ti", "h200", "xeon")

METHODS: dict[str, dict[str, float]] = {
    "eqsat": {},
    "metaflow": {"alpha": 1.12, "part": 0},
    "sampling": {"length": 5},
}
"""With parameters."""

BUDGET = Budget(10)


@cache
def inception_e() -> Subject:
    """One block E of Inception-v3 under MetaFlow's rules, where its Figure 7 is reached."""
    imported = import_model(load_model(zoo.build_named("inception_e")))
    graph = normalise(imported, numerics=Numerics.REFACTOR)
    return Subject(graph, load_rules("metaflow", Numerics.REFACTOR))


def row(name: str, found: Original | MethodResult, ended: str = "") -> str:
    metrics = found.metrics
    numbers = f"{metrics['bytes'] / 1e6:.2f} | {metrics['flops'] / 1e9:.4f}"
    return f"| {name} | {found.cost:.2f} | {found.kernels} | {numbers} | {ended} |\n"


def table(device: str) -> str:
    lines: list[str] = []
    for method, parameters in METHODS.items():
        settings = CompareSettings(
            (method,), {method: parameters}, BUDGET, device=device, level="kernels"
        )
        original, found = run_method(method, inception_e(), settings, seed=0)
        if not lines:
            lines.append(row("original", original))
        lines.append(row(method, found, found.stopped_by))
    head = "| method | cost, µs | kernels | MB | GFLOP | ended |\n|---|--:|--:|--:|--:|---|\n"
    return f"{head}{''.join(lines)}"


@pytest.mark.parametrize("device", DEVICES)
def test_the_table_of_a_device(device: str) -> None:
    path = FOLDER / f"{device}.md"
    found = table(device)
    if os.environ.get("EQSAT_OPT_WRITE_GOLDEN"):
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")
