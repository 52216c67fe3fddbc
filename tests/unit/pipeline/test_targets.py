"""Optimising for a device that is not here: analytic prices, no race, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

import eqsat_opt.api
from eqsat_opt.errors import OptionError
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline.options import Options
from eqsat_opt.runtime.devices.energy import EnergyModel
from eqsat_opt.runtime.devices.figures import Figure
from eqsat_opt.runtime.devices.profile import load_profile, profile_text

QUICK = Options(effort="quick", budget_s=60.0, check=1, store="", threads=1, target="v100")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    return zoo.build("squeezenet", scale="tiny")


def test_a_result_for_a_device_is_checked_here_and_not_raced(model: onnx.ModelProto) -> None:
    options = replace(QUICK, limits=("workspace<=1e5",), rules="none")
    report = eqsat_opt.api.run(model, options).report
    assert report.latency == {}
    assert report.kernels_measured == 0
    assert report.status in ("planned", "unchanged")
    assert report.target == report.to_json()["target"] == "v100"
    assert 0 < report.metrics_after["workspace_bytes"] <= 1e5
    assert report.errors or report.winner == "original"


def test_what_is_cheaper_for_the_device_is_written(tmp_path: Path) -> None:
    """Two products of one input as one: half the launches, of which this device has dear ones."""
    from tests.unit.pipeline.test_optimize_objectives import narrow_then_wide

    slow = replace(load_profile("v100"), launch_us=Figure(100.0, "assumed: for a test"))
    path = tmp_path / "slow.json"
    path.write_text(profile_text(slow))
    options = replace(QUICK, target=str(path))
    report = eqsat_opt.api.run(narrow_then_wide(), options).report
    assert report.status == "planned"
    assert report.metrics_after["launches"] < report.metrics_before["launches"]
    assert report.metrics_after["time_us"] < report.metrics_before["time_us"]
    assert f"planned for {path}" in report.headline


def test_energy_where_the_profile_has_a_model_of_it(model: onnx.ModelProto, tmp_path: Path) -> None:
    options = replace(QUICK, objective="energy", rules="none", check=0)
    with pytest.raises(OptionError, match="'energy' has no prices"):
        eqsat_opt.api.run(model, options)
    made_up = EnergyModel(Figure(50.0, "x"), {"fp32": Figure(8.0, "x")}, Figure(40.0, "x"))
    path = tmp_path / "mine.json"
    path.write_text(profile_text(replace(load_profile("v100"), energy=made_up)))
    report = eqsat_opt.api.run(model, replace(options, target=str(path))).report
    assert report.cost == pytest.approx(report.metrics_after["energy_uj"], rel=1e-3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "cray"}, "unknown device 'cray'; there are a100"),
        ({"target": "missing.json"}, "cannot read"),
        ({"tuned": "x.onnx"}, "the tuned form is for this machine, and the target is v100"),
        ({"backends": ("ort", "toy")}, "the kernels of v100 are those of its profile"),
        ({"target": "k80", "streams": 33}, "k80 has streams up to 32, not 33; give fewer"),
        (
            {"target": "xeon", "objective": "time+critical_path(time)"},
            "xeon runs one kernel after another",
        ),
        ({"objective": "workspace"}, "'workspace' is the largest of all kernels"),
        ({"objective": "time*workspace"}, "'workspace' is the largest of all kernels"),
    ],
)
def test_what_a_target_cannot_do(
    changes: dict[str, Any], message: str, model: onnx.ModelProto
) -> None:
    with pytest.raises(OptionError, match=message) as caught:
        eqsat_opt.api.run(model, replace(QUICK, **changes))
    assert "\n" not in str(caught.value)


def test_stages_show_forms_and_algorithms(model: onnx.ModelProto) -> None:
    options = replace(QUICK, target="h200", rules="none")
    text = str(eqsat_opt.api.stage(model, "selection", options))
    assert "gpu:cudnn eng" in text
    assert "from cuda/plain to cuda/nhwc" in text
    text = str(eqsat_opt.api.stage(model, "selection", replace(options, target="v100")))
    assert "analytic:winograd nhwc" in text
    assert "energy" not in text


def test_conversions_are_among_the_kernels_that_are_explained(model: onnx.ModelProto) -> None:
    explained = eqsat_opt.api.explain(model, replace(QUICK, rules="none"))
    converted = [use for use in explained.kernels if " to cuda/nhwc" in use.kernel]
    assert [(use.before, use.after, use.source) for use in converted] == [(1, 1, "analytic")]
