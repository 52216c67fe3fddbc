"""The simplified graph is compared before a search, which may not use up its time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import onnx
import pytest
from onnx import helper

from eqsat_opt.api import run
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing import finding
from eqsat_opt.racing.entrants import CLEAN
from eqsat_opt.racing.examination import Examination

_FLOAT = onnx.TensorProto.FLOAT
_QUICK = Options(effort="quick", budget_s=60.0, store="", threads=1)


@pytest.fixture
def model() -> onnx.ModelProto:
    """A model in which normalisation removes an Identity."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Identity", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, _FLOAT, [4, 4]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "small", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_search_without_time_leaves_the_simplified_graph_to_the_race(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "_START_S", 1e6)
    result = run(model, _QUICK)
    assert result.proposal is None
    assert set(result.report.race["entries"]) == {"original", CLEAN}
    assert result.report.enodes == 0
    assert "only the simplified model was checked and raced" in result.report.notes[0]
    assert result.report.optimality == "no other graph was looked for"


def test_a_candidate_that_could_not_be_compared_ends_the_search(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skipped(before: Examination, candidates: Any, _: Any) -> Examination:
        return Examination(before.reference, {}, {}, before.seconds, skipped=tuple(candidates))

    monkeypatch.setattr(finding, "compared", skipped)
    result = run(model, _QUICK)
    assert result.proposal is None
    assert (result.report.winner, result.report.status) == ("original", "unchanged")


def test_the_original_runs_once_for_all_candidates(
    model: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def counted(name: str) -> Callable[..., Any]:
        called = getattr(finding, name)

        def function(*given: Any, **named: Any) -> Any:
            calls.append(name)
            return called(*given, **named)

        return function

    for name in ("observe", "propose", "compared"):
        monkeypatch.setattr(finding, name, counted(name))
    result = run(model, _QUICK)
    assert calls == ["observe", "compared", "propose", "compared"]
    assert result.proposal is not None


def test_a_search_that_finds_nothing_adds_no_candidate(model: onnx.ModelProto) -> None:
    report = run(model, Options(effort="quick", budget_s=60.0, store="", rules="none")).report
    assert set(report.race["entries"]) == {"original", CLEAN}
