"""`eqsat-opt bench` on simulated races: default sessions are compared, options are advice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.backends.ort.config import ORT_CONFIG, with_level
from tests.unit.machines import Machine


def relu() -> onnx.ModelProto:
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["":17]>
        g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }
    """)


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """A model, and the same asking for a lower level."""
    paths = [str(tmp_path / "one.onnx"), str(tmp_path / "other.onnx")]
    onnx.save(relu(), paths[0])
    other = relu()
    onnx.helper.set_model_props(other, {ORT_CONFIG: with_level("basic")})
    onnx.save(other, paths[1])
    return paths


@pytest.mark.parametrize(
    ("other_us", "tuned_us", "luck", "verdict", "advice"),
    [
        (1000, 500, 0.0, "no difference beyond noise", "2.000x as fast with graph optimisation"),
        (800, 500, 0.0, "OTHER is 1.250x as fast", "2.000x as fast with graph optimisation"),
        (800, 790, 0.0, "OTHER is 1.250x as fast", ""),
        (1250, 1250, 0.0, "OTHER is slower: it takes 1.250 times as long", ""),
        (1000, 1000, 0.5, "no difference beyond noise", ""),
    ],
)
def test_what_a_bench_says(
    other_us: float,
    tuned_us: float,
    luck: float,
    verdict: str,
    advice: str,
    models: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    times_us: dict[str, Any]
    times_us = {"original": 1000.0, "other": other_us, "other@basic": tuned_us}

    def race(entrants: Mapping[str, Any], *_: object, **__: object) -> RaceResult:
        levels = {name: open_runner.args[1].level for name, open_runner in entrants.items()}
        assert levels == {"original": "all", "other": "all", "other@basic": "basic"}
        return Machine(luck).race(rounds=1, **times_us)

    monkeypatch.setattr(api, "race", race)
    monkeypatch.setenv("COLUMNS", "300")
    json_path = str(Path(models[0]).with_name("b.json"))
    line = ["bench", *models, "--threads", "1", "--per-operator", "--json", json_path]
    assert main(line) == 0
    found = json.loads(Path(json_path).read_text(encoding="utf-8"))
    assert found["verdict"] == verdict
    assert found["advice"].startswith(advice)
    assert bool(found["advice"]) == bool(advice)
    assert [row["operator"] for row in found["operators"]["other"]] == ["Relu"]
    output = capsys.readouterr().out
    assert "by its profiler" in output
    assert verdict in output
    assert advice in output
    assert "at level basic" in output
    assert ("the machine was busy" in output) == (luck > 0) == found["race"]["is_busy"]


@pytest.mark.parametrize("rows", [1, 35])
def test_sizes_that_were_assumed_and_fail(
    rows: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others are tried; where the model runs at none, the sentence says what to give."""
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["":18]>
        g (float[height,width] x) => (float[1,2] y)
            { f = Flatten <axis = 0> (x) y = MatMul (f, w) }
    """)
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [rows, 2], [1.0] * (2 * rows))
    model.graph.initializer.append(weight)
    path = str(tmp_path / "m.onnx")
    onnx.save(model, path)
    code = main(["bench", path, path, "--budget", "1", "--json", "-"])
    told = capsys.readouterr()
    assert code == (0 if rows == 1 else 1)
    if rows == 1:
        assert json.loads(told.out)["agree"]
    else:
        assert "give sizes that belong together, such as --input-shape height:SIZE" in told.err
