"""Internal errors cost their stage: whatever fails, the best so far or the original is written."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat_opt import api
from eqsat_opt.cli import main
from eqsat_opt.common import child_processes
from eqsat_opt.common.faults import Faults
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.egraph.saturation import saturate as saturation
from eqsat_opt.errors import InternalError, OptionError, SaturationError
from eqsat_opt.ir.passes import conditions
from eqsat_opt.lab import zoo
from eqsat_opt.pipeline import conclusion, reading
from eqsat_opt.pipeline.forms import plan as plan_form
from eqsat_opt.pipeline.forms import tuned as tuned_form
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing import examination, finding
from eqsat_opt.runtime.backends import sandbox
from eqsat_opt.select import proposal
from tests.sampling import sampled


class Bug(Exception):
    """What nobody expects."""


def broken(*_: Any, **__: Any) -> NoReturn:
    raise Bug("a bug")


def broken_by_rules(original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a graph and rules that fails where there are rules."""

    def run(graph: Any, rules: Any, *rest: Any, **named: Any) -> Any:
        if rules:
            raise Bug("a bug of a rule")
        return original(graph, rules, *rest, **named)

    return run


STAGES: dict[str, tuple[Any, str]] = {
    "import": (conditions, "import_model"),
    "normalise": (reading, "normalised"),
    "sizes": (reading, "size_sets"),
    "calibrate": (Pricer, "calibrate"),
    "saturate": (proposal, "saturate"),
    "tile": (proposal, "tile"),
    "price": (Pricer, "price"),
    "recall": (Pricer, "recall"),
    "measure": (Pricer, "measure"),
    "extract": (proposal, "choose"),
    "raise": (proposal, "raised"),
    "entrants": (finding, "entrants_of"),
    "export": (finding, "export_model"),
    "check": (finding, "observe"),
    "race": (examination, "race"),
    "verdict": (conclusion, "race_candidates"),
    "record": (conclusion, "record_of"),
    "report": (conclusion, "report_of"),
}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(zoo.build("linear_attention", scale="tiny"), str(path))
    return path


UNSTORED = ("--store", "")
"""Options under which kernels are measured anew, by a child process."""
MEASURING = {"calibrate", "recall", "measure"}


def optimised(model: Path, *further: str) -> tuple[int, Path]:
    output = model.with_name("out.onnx")
    arguments = ["--output", str(output), "--threads", "1", "--quiet"]
    return main(["optimize", str(model), *arguments, "--budget", "10", *further]), output


def needs(stage: str) -> tuple[str, ...]:
    """Options under which a stage is sure to run, on a busy machine too.

    Without measuring, operations and bytes decide that there is a candidate, and with a count as
    objective that it is the result.
    """
    if stage == "record":
        return ("--objective", "flops")
    return UNSTORED if stage in MEASURING else ("--no-measure",)


def outputs_of(path: Path) -> list[Any]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feeds = {
        one.name: generator.standard_normal(one.shape, dtype=np.float32)
        for one in session.get_inputs()
    }
    return list(session.run(None, feeds))


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_fails_costs_no_run(
    stage: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(*STAGES[stage], broken)
    code, output = optimised(model, *needs(stage))
    told = capsys.readouterr().err
    assert code == 0, told
    assert told.count("internal error in stage") == 1
    assert "Bug: a bug" in told
    assert "Traceback" not in told
    for one, other in zip(outputs_of(output), outputs_of(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stage", sampled(STAGES, 3))
def test_strict_users_get_an_error_and_no_file(
    stage: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(*STAGES[stage], broken)
    code, output = optimised(model, "--strict", *needs(stage))
    assert code == 1
    assert "nothing is written; please report" in capsys.readouterr().err
    assert not output.exists()


def test_a_bug_behind_rules_leaves_the_simplified_graph(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(proposal, "saturate", broken_by_rules(saturation.saturate))
    with caplog.at_level(logging.INFO):
        result = api.run(str(model), Options(store="", race=False, measure=False, check=1))
    (warning,) = result.report.warnings
    assert "the search is repeated without rules" in warning
    assert result.proposal is not None
    assert any(record.exc_info for record in caplog.records)  # what --debug prints


def test_the_traceback_is_shown_on_request(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proposal, "tile", broken)
    root = logging.getLogger()
    before = list(root.handlers), root.level
    try:
        root.handlers.clear()
        code, _ = optimised(model, "--debug", "--no-measure")
        told = capsys.readouterr().err
    finally:
        root.handlers[:], root.level = before[0], before[1]
    assert code == 0
    assert "Traceback" in told
    assert "in broken" in told


def test_a_tuning_that_fails_leaves_the_portable_result(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tuned_form, "race_tuned_forms", broken)
    tuned = model.with_name("tuned.onnx")
    code, output = optimised(model, "--tuned", str(tuned), "--no-measure")
    assert code == 0
    assert "internal error in stage 'tune'" in capsys.readouterr().err
    assert output.exists()
    outputs_of(tuned)


def test_a_plan_that_fails_leaves_the_result(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plan_form, "_for_host", broken)
    plan = model.with_name("plan.json")
    code, output = optimised(model, "--plan", str(plan), "--no-measure")
    assert code == 0
    told = capsys.readouterr().err
    assert f"{plan} is not written" in told
    assert output.exists()
    assert not plan.exists()


def dies(*_: Any, **__: Any) -> None:
    """As a child process that gives no answer."""
    return


@pytest.mark.parametrize("method", ["ask", "is_ready", "__init__"])
@pytest.mark.parametrize("how", [broken, dies])
def test_child_processes_that_fail_cost_no_run(
    method: str, how: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if method == "__init__" and how is dies:
        pytest.skip("a constructor gives no answer in any case")
    idle: list[sandbox.Sandbox] = []
    monkeypatch.setattr(sandbox, "_idle", idle)
    with monkeypatch.context() as patch:
        patch.setattr(child_processes.Child, method, how)
        code, output = optimised(model, *UNSTORED)
    for box in idle:
        box.close()
    assert code == 0
    for one, other in zip(outputs_of(output), outputs_of(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_an_engine_that_stops_costs_no_run(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stops(*_: Any, **__: Any) -> NoReturn:
        raise SaturationError("the e-graph engine stopped")

    monkeypatch.setattr(saturation, "saturate_terms", stops)
    code, _ = optimised(model, "--no-measure")
    assert code == 0
    assert "stage 'saturate' failed: the e-graph engine stopped" in capsys.readouterr().err


def test_errors_for_the_user_keep_their_way() -> None:
    def refuses() -> NoReturn:
        raise OptionError("no such thing")

    faults = Faults()
    with pytest.raises(OptionError, match="no such thing"):
        faults.contain("options", refuses, "nothing")
    assert faults.contain("work", lambda: 3, "nothing") == 3
    assert faults.warnings == ()
    with pytest.raises(InternalError, match="internal error in stage 'late'"):
        Faults(is_strict=True).contain(lambda: "late", broken, "nothing")


@pytest.mark.parametrize("command", ["explain"])
def test_commands_without_a_result_end_with_a_sentence(
    command: str, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(proposal, "tile", broken)
    assert main([command, str(model), "--store", "", "--quiet"]) == 1
    told = capsys.readouterr().err
    assert "internal error in stage 'tile'" in told
    assert "Traceback" not in told
