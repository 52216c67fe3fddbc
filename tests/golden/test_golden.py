"""Models as text, and what must become of them.

A case is a model in ONNX's text form with comment lines in front: ``# RUN:`` names options,
``# EXPECT:`` the operators of the result in order, ``# RULES:`` the rules that must have made them.
Prices are analytic, so the outcome is the same everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from eqsat_opt.api import run
from eqsat_opt.pipeline.options import Options

CASES = sorted((Path(__file__).parent / "cases").glob("*.onnxtxt"))


def header(text: str, key: str) -> list[str]:
    """The words after ``# KEY:``, all such lines together."""
    start = f"# {key}:"
    lines = [line.removeprefix(start) for line in text.splitlines() if line.startswith(start)]
    return [word for line in lines for word in line.split()]


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_golden(path: Path) -> None:
    text = path.read_text()
    source = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    model = onnx.parser.parse_model(source)
    given: dict[str, Any] = dict(word.split("=", 1) for word in header(text, "RUN"))
    options = Options(**given, threads=1, measure=False, race=False, check=2, strict=True, store="")
    result = run(model, options)
    assert [node.op_type for node in result.model.graph.node] == header(text, "EXPECT")
    assert set(header(text, "RULES")) <= set(result.report.rules)
    onnx.checker.check_model(result.model)


def test_there_are_cases() -> None:
    assert len(CASES) >= 8
