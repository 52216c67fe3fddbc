"""The commands that examine models of others: what a line says, what is kept, what is unpacked."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.testing import CliRunner

from benchmarks import outcomes, shipped, torch_exports
from benchmarks.outcomes import Outcome, Settings, covered, examine, line_of, summary_lines
from eqsat_opt import api
from eqsat_opt.errors import ModelError


def _model(nodes: Sequence[onnx.NodeProto], dims: Sequence[int | str] = (2, 3)) -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _plain() -> onnx.ModelProto:
    return _model(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
        ],
        ("batch", 3),
    )


def _passing() -> onnx.ModelProto:
    """A model of which one operator is of no e-graph."""
    return _model(
        [
            helper.make_node("Relu", ["x"], ["h"]),
            helper.make_node("NonZero", ["h"], ["places"]),
            helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
        ]
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "models"
    place.mkdir()
    onnx.save(_plain(), place / "plain.onnx")
    onnx.save(_passing(), tmp_path / "inner.onnx")
    with zipfile.ZipFile(place / "some-1.0-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "inner.onnx", "some/data/inner.onnx")
        wheel.writestr("some/__init__.py", "")
    return place


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Examine in this process: starting another takes seconds."""

    def attempted(path: Path, settings: Settings) -> Outcome:
        return examine(str(path), settings)

    monkeypatch.setattr(outcomes, "_attempted", attempted)


def test_shipped_examines_files_and_what_archives_hold(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "found.json"
    arguments = [str(folder), "--json", str(record), "--budget", "20"]
    status = shipped.main(arguments)
    text = capsys.readouterr().out
    assert "plain.onnx: 2 of 2 operators in the e-graph" in text
    assert "some-1.0-py3-none-any.whl!some/data/inner.onnx: 2 of 3 operators" in text
    assert "2 models, 2 without a failure, 0 skipped" in text
    assert status == 0
    assert list(json.loads(record.read_text())["models"]) == [
        "plain.onnx",
        "some-1.0-py3-none-any.whl!some/data/inner.onnx",
    ]


def test_a_second_call_goes_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "found.json"
    calls: list[str] = []

    def attempted(path: Path, settings: Settings) -> Outcome:
        calls.append(path.name)
        return Outcome((("dropped", "why"),)) if path.name == "plain.onnx" else Outcome()

    monkeypatch.setattr(outcomes, "_attempted", attempted)
    arguments = [str(folder), "--json", str(record)]
    assert shipped.main(arguments) == 1
    assert shipped.main(arguments) == 1
    assert calls == ["plain.onnx", "inner.onnx"]
    shipped.main([*arguments, "--again"])
    assert calls == ["plain.onnx", "inner.onnx", "plain.onnx"]
    shipped.main([*arguments, "--effort", "normal"])
    assert len(calls) == 5, "what other settings found counts for nothing"


def test_coverage_alone_runs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "run", None)
    shipped.main([str(folder), "--coverage"])
    assert "2 of 3 operators in the e-graph" in capsys.readouterr().out


def test_exports_are_checked_by_the_same_lines(folder: Path) -> None:
    result = CliRunner().invoke(torch_exports.app, ["check", str(folder), "--budget", "20"])
    assert result.exit_code == 0, result.output
    assert "plain.onnx: 2 of 2 operators in the e-graph" in result.output


def test_a_corpus_without_its_libraries_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.exported import building

    monkeypatch.setattr(building, "missing_libraries", lambda: ("torch", "timm"))
    result = CliRunner().invoke(torch_exports.app, ["corpus", str(tmp_path)])
    assert result.exit_code == 2
    assert "not installed: torch, timm" in result.output


def test_an_empty_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        shipped.main([str(tmp_path)])
    assert "no .onnx file" in capsys.readouterr().err


def test_a_known_operator_that_passes_through_is_a_failure(tmp_path: Path) -> None:
    # Nodes of the oldest operator sets are not read, so that a Relu passes through here.
    path = tmp_path / "old.onnx"
    model = _model(
        [helper.make_node("Relu", ["x"], ["h"]), helper.make_node("NonZero", ["h"], ["y"])]
    )
    model.opset_import[0].version = 6
    onnx.save(model, path)
    outcome = covered(str(path))
    assert outcome.inside == 0
    assert outcome.passing == {"Relu": 1, "NonZero": 1}
    assert outcome.failures == (("known operators pass through", "Relu ×1"),)


def test_what_goes_wrong_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plain.onnx"
    onnx.save(_plain(), path)
    run = api.run
    wrong = _plain()
    wrong.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(2 * np.eye(3, dtype=np.float32), "w")
    )

    def tampered(model: str, options: object, *, output: Path) -> object:
        result = run(model, options, output=output)  # type: ignore[arg-type]
        onnx.save(wrong, output)
        return result

    monkeypatch.setattr(api, "run", tampered)
    kinds = dict(examine(str(path), Settings(budget_s=20)).failures)
    assert kinds["wrong"].startswith("differs by")

    def refused(*_: object, **__: object) -> object:
        raise ModelError("no")

    monkeypatch.setattr(api, "run", refused)
    assert examine(str(path), Settings()).failures[0] == ("refused", "no")


def test_a_model_that_the_runtime_refuses_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "bad.onnx"
    onnx.save(_model([helper.make_node("Foreign", ["x"], ["y"], domain="else.where")]), path)
    outcome = examine(str(path), Settings())
    assert outcome.skipped
    assert "1 skipped" in next(summary_lines({"bad": outcome}))
    assert "onnxruntime does not run it" in line_of("bad", outcome)


def test_a_model_that_draws_random_numbers_is_not_called_wrong(tmp_path: Path) -> None:
    path = tmp_path / "random.onnx"
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"]),
        helper.make_node("Add", ["x", "noise"], ["y"]),
    ]
    onnx.save(_model(nodes), path)
    outcome = examine(str(path), Settings(budget_s=20))
    assert outcome.error is None
    assert "wrong" not in dict(outcome.failures)


def test_the_summary_counts_kinds_and_means() -> None:
    one = Outcome((("wrong", "a"), ("wrong", "b")), known={"Add": 2}, ratios={"ours": 0.5})
    other = Outcome(ratios={"ours": 2.0})
    lines = list(summary_lines({"one": one, "other": other}))
    assert lines[0] == "2 models, 1 without a failure, 0 skipped"
    assert "wrong: 1" in lines
    assert "known operators that pass through: 2: Add ×2" in lines
    assert "ours: geometric mean 1.000 over 2 models" in lines


def test_a_table_of_races() -> None:
    raced = {
        "a.whl!a/won.onnx": Outcome(
            ratios={"onnxruntime": 1.0, "openvino": 0.8, "eqsat-opt": 0.9, "tuned": 0.4}
        ),
        "b.onnx": Outcome(ratios={"onnxruntime": 1.0, "eqsat-opt": 0.9}),
        "dropped.onnx": Outcome(ratios={"onnxruntime": 1.0, "onnxslim": 1.1}),
        "not raced.onnx": Outcome(),
    }
    table = shipped.race_table(raced, "command", "machine")
    assert table.rows == (
        ("a/won.onnx", "0.90", "0.40", "openvino, 0.80", "0.50"),
        ("b.onnx", "0.90", "–", "onnxruntime, 1.00", "0.90"),
        ("dropped.onnx", "–", "–", "onnxruntime, 1.00", "1.00"),
        ("geometric mean", "0.932", "0.711", "", "0.766"),
    )
    assert shipped.race_table({}, "", "").rows == ()
