"""The benchmark of low precision prints each way with its error, and writes the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from benchmarks import low_precision
from eqsat_opt.approximation import survey
from eqsat_opt.approximation.prices import Prices, Shape
from eqsat_opt.approximation.static.region import TimedRegion

_PRICES = Prices(
    {Shape(4, 64, 64): 100.0},
    {Shape(4, 64, 64): {"uint8": 20.0, "uint8 per column": 30.0}},
    {(4, 64): 5.0},
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """Write a model of one product."""
    matrix = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in "xy"]
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(matrix)),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ],
        "one",
        ends[:1],
        ends[1:],
    )
    opsets = [helper.make_opsetid("", 17)]
    path = tmp_path / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return str(path)


def test_the_front(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "measure_prices", lambda *_: _PRICES)
    monkeypatch.setattr(survey, "static_region", lambda *_, **__: TimedRegion())
    monkeypatch.setattr(low_precision, "uniform_ways", lambda _: {})
    path = tmp_path / "rows.json"
    arguments = ["front", model, "--errors", "1e-6,0.05", "--json", str(path)]
    found = CliRunner().invoke(low_precision.app, arguments, catch_exceptions=False)
    assert found.exit_code == 0
    rows = json.loads(path.read_text())
    assert [(one["way"], one["bound"], one["products"]) for one in rows] == [
        ("floats", None, 0), ("ours", 0.05, 1), ("greedy", 0.05, 1),
    ]  # fmt: skip
    assert [one["gap"] is not None for one in rows] == [False, True, False]
    assert rows[1]["gap"] < 0.01
    assert [one["error"] > 0 for one in rows] == [False, True, True]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_uniform_recipes_run(model: str) -> None:
    with low_precision.subject_of(model, "random", 1, 5.0) as subject:
        ways = low_precision.uniform_ways(subject)
        assert [way for way, _ in ways if "static" in way] == [
            f"quantize_static {method}{bits}"
            for method in ("MinMax", "Entropy", "Percentile")
            for bits in ("", " 7 bits")
        ]  # fmt: skip
        assert all(one.products == 1 for one in ways.values())
        # Signed weights of 8 bits saturate without VNNI.
        for way in ("quantize_dynamic QUInt8", "quantize_static MinMax 7 bits"):
            made = ways[way, None].model
            assert 0 < low_precision.error_of(made, subject.held_back, subject.options) < 0.2


def test_agreement(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "measure_prices", lambda *_: _PRICES)
    arguments = ["agreement", model, "--errors", "1e-6,0.05"]
    found = CliRunner().invoke(low_precision.app, arguments, catch_exceptions=False)
    assert found.exit_code == 0
    assert "none keeps it" in found.output
    assert " of 8" in found.output
