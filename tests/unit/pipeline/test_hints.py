"""What a further run might add is told by this run, with a command that can be run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.cli.app import run as run_line
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.report.hints import more_time_hint
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.values import Hint
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.select.proposal import Proposal, propose

node = helper.make_node
OPTIONS = Options(
    race=False, measure=False, check=0, threads=1, store="", budget_s=600.0, alternatives=0
)
REQUEST = request_of(OPTIONS)
"""So long a budget that a search for a hint is a small share of it on any machine."""


@pytest.fixture(autouse=True)
def _time_for_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine has time for hints, too."""
    for name, most in (("_MOST_S", 600.0), ("_SHARE", 1.0)):
        monkeypatch.setattr(f"eqsat_opt.pipeline.report.hints.{name}", most)


def model(nodes: Sequence[Any], shape: Sequence[Any], **weights: Any) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def drawn(*shape: int) -> Any:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def flattened() -> ModelProto:
    """Two axes of which neither can be left open, by a shape that is computed."""
    nodes = [
        node("Relu", ["x"], ["r"]),
        node("Shape", ["r"], ["s"]),
        node("Gather", ["s", "two"], ["w"]),
        node("Mul", ["w", "two"], ["columns"]),
        node("Concat", ["open", "columns", "six"], ["target"], axis=0),
        node("Reshape", ["r", "target"], ["y"]),
    ]
    return model(nodes, ["N", 4, "W", 6], two=np.array([2]), six=np.array([6]), open=np.array([-1]))


def scaled() -> ModelProto:
    """A factor that could be in the weights, if rounding otherwise were allowed."""
    nodes = [node("Mul", ["x", "k"], ["t"]), node("MatMul", ["t", "w"], ["y"])]
    return model(nodes, [32, 64], w=drawn(64, 64), k=drawn(64))


def hints_of(one: ModelProto, **options: Any) -> Mapping[str, Hint]:
    found = run(one, replace(OPTIONS, **options)).report.hints
    return {hint.kind: hint for hint in found}


def test_sizes_that_keep_operators_from_being_folded() -> None:
    hint = hints_of(flattened())["fixed_sizes"]
    assert hint.flags == ("--fix-shape", "N:2", "--fix-shape", "W:32")
    fixed = run(flattened(), replace(OPTIONS, fixed={"N": 2, "W": 32})).report
    open_ = run(flattened(), OPTIONS).report
    fewer = sum(open_.operators_after.values()) - sum(fixed.operators_after.values())
    assert 0 < int(hint.why.split(" of ")[0].split()[-1]) <= fewer
    assert fixed.hints == ()


def test_nothing_to_fold_is_no_hint() -> None:
    one = model([node("Relu", ["x"], ["y"])], ["N", 4])
    assert "fixed_sizes" not in hints_of(one)


def test_a_weaker_class_whose_rules_lead_to_less() -> None:
    hint = hints_of(scaled())["numerics"]
    assert hint.flags[0] == "--numerics"
    assert hint.gain is not None
    assert hint.gain > 0
    assert hint.flags[1] == "refactor"  # not relaxed, which leads to as little
    assert "numerics" not in hints_of(scaled(), numerics=hint.flags[1])


def test_rules_that_cannot_match_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[Sequence[Any]] = []

    def counted(graph: Any, rules: Sequence[Any], *rest: Any) -> Proposal:
        searched.append(rules)
        return propose(graph, rules, *rest)

    monkeypatch.setattr("eqsat_opt.pipeline.report.hints.propose", counted)
    monkeypatch.setattr("eqsat_opt.pipeline.report.hints._MOST_S", 60.0)
    one = model([node("Relu", ["x"], ["y"])], [2, 4])
    assert "numerics" not in hints_of(one)
    assert not searched
    assert "numerics" in hints_of(scaled())
    assert searched


def siblings() -> ModelProto:
    """Kernels of 1 x 1 and 3 x 3 on one value: by operations and bytes they stay apart."""
    small, large = drawn(256, 256, 1, 1), drawn(256, 256, 3, 3)
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Conv", ["x", "v"], ["b"], pads=[1] * 4),
        node("Concat", ["a", "b"], ["y"], axis=1),
    ]
    return model(nodes, [1, 256, 14, 14], w=small, v=large)


def test_a_weaker_class_is_priced_as_the_target_is() -> None:
    given = replace(OPTIONS, target="v100")
    strict, finite = (
        run(siblings(), replace(given, numerics=name)).report for name in ("reassociate", "finite")
    )
    assert "numerics" not in {hint.kind for hint in finite.hints}
    (hint,) = (one for one in strict.hints if one.kind == "numerics")
    assert hint.flags == ("--numerics", "finite")
    assert finite.result_cost is not None
    assert strict.result_cost is not None
    assert hint.gain == pytest.approx(1 - finite.result_cost / strict.result_cost)


@pytest.mark.skipif(bool(missing()), reason="no library of our kernels")
def test_kernels_of_our_own_that_match_what_takes_the_time() -> None:
    one = model(
        [node("Conv", ["x", "w"], ["y"], pads=[1] * 4)], [1, 64, 56, 56], w=drawn(64, 64, 3, 3)
    )
    hint = hints_of(one, measure=True, budget_s=60.0, race=False)["tuned"]
    assert hint.flags == ("--tuned", "model.tuned.onnx")
    assert "tuned" not in hints_of(one)


def test_more_time_where_a_bound_leaves_something_open() -> None:
    report = run(scaled(), OPTIONS).report
    settled = replace(report, extraction_status="optimal", stopped_by="saturated")
    assert list(more_time_hint(settled, REQUEST)) == []
    cut = replace(report, extraction_status="feasible", result_cost=10.0, lower_bound=8.0)
    (hint,) = more_time_hint(replace(cut, stopped_by="saturated"), REQUEST)
    assert hint.gain == pytest.approx(0.2)
    assert hint.flags == ("--budget", "2400")
    (hint,) = more_time_hint(replace(settled, stopped_by="time"), REQUEST)
    assert hint.gain is None
    (hint,) = more_time_hint(replace(settled, stopped_by="nodes"), REQUEST)
    assert hint.flags == ("--nodes", str(4 * OPTIONS.nodes))


def test_the_command_is_that_of_this_run_and_more() -> None:
    line = ["eqsat-opt", "optimize", "a b.onnx", "--budget", "30", "--fix-shape", "N:1", "-q"]
    hint = Hint("time", "why", ("--budget", "120"))
    assert hint.text(line) == ("why: eqsat-opt optimize 'a b.onnx' --fix-shape N:1 -q --budget 120")
    assert (
        Hint("time", "why", ("--budget", "9"))
        .text([*line[:3], "--budget=3"])
        .endswith("'a b.onnx' --budget 9")
    )
    more = Hint("fixed_sizes", "why", ("--fix-shape", "W:2")).text(line)
    assert "--fix-shape N:1" in more
    assert more.endswith("--fix-shape W:2")


def test_one_line_is_printed_and_none_where_no_tables_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, report = str(tmp_path / "given.onnx"), str(tmp_path / "report.json")
    onnx.save(flattened(), given)
    line = ["optimize", given, "-o", str(tmp_path / "made.onnx"), "--no-race", "--no-measure"]
    line += ["--store", "", "--threads", "1", "--budget", "600"]
    assert run_line(line) == 0
    (told,) = (text for text in capsys.readouterr().out.splitlines() if text.startswith("next "))
    command = told[told.index("eqsat-opt ") :]
    assert run_line([*shlex.split(command)[1:], "-q"]) == 0
    assert "hint" not in "".join(capsys.readouterr())
    assert run_line([*line, "--json", report]) == 0
    assert "hint:" not in "".join(capsys.readouterr())
    (first, *_) = json.loads(Path(report).read_text(encoding="utf-8"))["hints"]
    assert first["kind"] == "fixed_sizes"
    assert first["command"][:3] == ["eqsat-opt", "optimize", given]


def test_a_report_of_no_search_has_no_hints() -> None:
    report: Report = run(flattened(), replace(OPTIONS, budget_s=1e-3)).report
    assert report.hints == ()
