"""The contract of the Python API: types, untouched arguments, reports, and errors that say why."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.api import Result, run
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.egraph import Budget
from eqsat_opt.egraph.saturation.worker import saturate_isolated
from eqsat_opt.errors import CheckFailed, OptionError, RuleRefuted, SaturationError
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.pipeline import optimise as optimising
from eqsat_opt.pipeline.options import Options
from eqsat_opt.proving import selection
from eqsat_opt.proving.selection import default_rules
from eqsat_opt.racing import finding
from eqsat_opt.rules.rule import Rule
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs
from tests.unit.zoo_models import each_model

FAST = Options(measure=False, race=False, check=1, store="", threads=1, budget_s=600.0)
KEYWORDS: dict[str, Any] = {
    "measure": False, "race": False, "check": 1, "store": "", "threads": 1, "budget_s": 600.0
}  # fmt: skip
FLOAT = TensorProto.FLOAT

TinyModel = Callable[[str], ModelProto]
TinyResult = Callable[[str], Result]


def weight(name: str, *shape: int) -> TensorProto:
    rng = np.random.default_rng(len(name) + sum(shape))
    return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)


def build(
    nodes: list[NodeProto],
    weights: list[TensorProto],
    shape: list[int | str],
    *,
    output: list[int | str] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
    opsets: dict[str, int] | None = None,
) -> ModelProto:
    """A model of one input x and one output y."""
    graph = helper.make_graph(
        nodes, "contract",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, output or shape)],
        weights,
    )  # fmt: skip
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(*item) for item in {"": 17, **(opsets or {})}.items()],
        functions=functions or [],
        ir_version=8,
    )


def chain(shape: list[int | str], *more: NodeProto) -> ModelProto:
    """A chain x A B, which folds into one product, and more nodes from c to y."""
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["b"]),
        helper.make_node("MatMul", ["b", "B"], ["c"]),
    ]
    rest = list(more) or [helper.make_node("Relu", ["c"], ["y"])]
    return build([*nodes, *rest], [weight("A", 4, 6), weight("B", 6, 4)], shape)


def outputs(model: ModelProto, feeds: dict[str, Any]) -> list[npt.NDArray[Any]]:
    return OrtSession(model, OrtOptions(threads=1)).run(feeds)


def assert_agree(first: ModelProto, second: ModelProto, dims: dict[str, int] | None = None) -> None:
    feeds = random_inputs(first, 5, dims)
    for a, b in zip(outputs(first, feeds), outputs(second, feeds), strict=True):
        np.testing.assert_allclose(
            b, a, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(a).max(initial=0)))
        )


# What goes in comes out --------------------------------------------------------------------------


def test_a_proto_gives_a_proto_and_stays_as_it_is() -> None:
    model = chain([3, 4])
    before = model.SerializeToString()
    optimised = eqsat_opt.optimize(model, **KEYWORDS)
    assert isinstance(optimised, ModelProto)
    assert model.SerializeToString() == before
    assert [node.op_type for node in optimised.graph.node] == ["MatMul", "Relu"]
    assert_agree(model, optimised)


def test_an_ir_model_gives_an_ir_model_and_stays_as_it_is() -> None:
    proto = chain([3, 4])
    model = onnx_ir.serde.deserialize_model(proto)
    before = onnx_ir.serde.serialize_model(model).SerializeToString()
    optimised = eqsat_opt.optimize(model, **KEYWORDS)
    assert isinstance(optimised, onnx_ir.Model)
    assert onnx_ir.serde.serialize_model(model).SerializeToString() == before
    assert_agree(proto, onnx_ir.serde.serialize_model(optimised))


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_gives_a_path(kind: Callable[[Path], str | Path], tmp_path: Path) -> None:
    model, path = chain([3, 4]), tmp_path / "chain.onnx"
    onnx.save(model, path)
    before = path.read_bytes()
    written = eqsat_opt.optimize(kind(path), **KEYWORDS)
    assert written == kind(tmp_path / "chain.opt.onnx")
    assert type(written) is type(kind(path))
    assert path.read_bytes() == before
    assert_agree(model, onnx.load(written))


def test_a_path_may_be_written_over(tmp_path: Path) -> None:
    model, path = chain([3, 4]), tmp_path / "chain.onnx"
    onnx.save(model, path)
    assert eqsat_opt.optimize(path, output=path, overwrite=True, **KEYWORDS) == path
    assert_agree(model, onnx.load(path))
    assert [p.name for p in tmp_path.iterdir()] == ["chain.onnx"]


def test_the_report_comes_on_request() -> None:
    result = eqsat_opt.optimize(chain([3, 4]), report=True, **KEYWORDS)
    assert isinstance(result.model, ModelProto)
    assert result.report.status == "unmeasured"
    assert result.report.rules == {"matmul/assoc": 1}


def test_unknown_options_are_named() -> None:
    with pytest.raises(OptionError, match="speed"):
        eqsat_opt.optimize(chain([3, 4]), speed="high")


# Nothing to do -----------------------------------------------------------------------------------


def test_a_model_with_nothing_to_optimise_comes_back() -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], [], [3, 4])
    result = run(model, FAST)
    assert result.model is model
    assert result.report.status == "unchanged"
    assert result.report.winner == "original"
    assert "no improvement found" in str(result.report)
    assert not result.report.rules
    as_ir = onnx_ir.serde.deserialize_model(model)
    assert run(as_ir, FAST).model is as_ir


def test_what_does_not_change_is_written_all_the_same(tmp_path: Path) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], [], [3, 4])
    result = run(model, FAST, output=tmp_path / "same.onnx")
    assert result.model == tmp_path / "same.onnx"
    assert_agree(model, onnx.load(tmp_path / "same.onnx"))


# A wrong rule ------------------------------------------------------------------------------------

WRONG_RULES = '''
from eqsat_opt.rules.rule import Phase, Sides, Tensor, rule
from eqsat_opt.rules.term import ops


@rule("mine/abs-of-relu", phase=Phase.SIMPLIFY)
def right(x: Tensor) -> Sides:
    """Sound."""
    return ops.Abs(ops.Relu(x)), ops.Relu(x)


@rule("mine/drop-relu", phase=Phase.SIMPLIFY)
def wrong(x: Tensor) -> Sides:
    """Unsound."""
    return ops.Relu(x), x
'''


@pytest.fixture
def wrong_rules(tmp_path: Path) -> Path:
    path = tmp_path / "wrong_rules.py"
    path.write_text(WRONG_RULES)
    return path


@pytest.fixture
def open_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let unverified rules in, as a defect of the verifier would."""
    monkeypatch.setattr(selection, "admit", lambda _rules, _beside=None: "")


def test_a_wrong_rule_does_not_get_in(wrong_rules: Path, tmp_path: Path) -> None:
    output = tmp_path / "never.onnx"
    with pytest.raises(RuleRefuted, match="rule mine/drop-relu is wrong"):
        run(chain([3, 4]), replace(FAST, rules=f"default,{wrong_rules}"), output=output)
    assert not output.exists()


RELU_THEN_ABS = [
    helper.make_node("Relu", ["c"], ["d"]),
    helper.make_node("Abs", ["d"], ["y"]),
]
UNHURRIED = replace(FAST, budget_s=600.0)


@pytest.mark.usefixtures("open_gate")
def test_a_wrong_rule_is_dropped_with_a_warning(wrong_rules: Path, tmp_path: Path) -> None:
    """The search is repeated without it, so that the right rules still have their effect."""
    output = tmp_path / "right.onnx"
    model = chain([3, 4], *RELU_THEN_ABS)
    result = run(model, replace(UNHURRIED, rules=f"default,{wrong_rules}"), output=output)
    (warning,) = result.report.warnings
    assert "candidate 'best' is wrong: output 'y': values differ" in warning
    assert "rule mine/drop-relu is at fault: Relu(x) => x; leave it out with --rules" in warning
    assert warning.endswith("dropped, and the search is repeated without it")
    assert result.report.to_json()["warnings"] == [warning]
    assert result.report.status == "unmeasured"
    assert [node.op_type for node in onnx.load(output).graph.node] == ["MatMul", "Relu"]
    assert_agree(model, onnx.load(output))


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time be over when the candidates have been examined."""
    find = finding.find_candidates
    monkeypatch.setattr(
        optimising, "find_candidates", lambda job, rules, _: find(job, rules, Deadline(-1.0))
    )


@pytest.mark.usefixtures("open_gate", "late")
def test_without_time_to_search_again_the_next_candidate_wins(wrong_rules: Path) -> None:
    more = helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Relu", ["d"], ["y"])
    report = run(chain([3, 4], *more), replace(UNHURRIED, rules=str(wrong_rules))).report
    (warning,) = report.warnings
    assert "there was no time to find the rule at fault" in warning
    assert "repeated" not in warning
    assert report.winner == "clean"


@pytest.mark.usefixtures("open_gate", "late")
def test_the_original_stands_where_all_candidates_are_wrong(wrong_rules: Path) -> None:
    model = chain([3, 4], helper.make_node("Relu", ["c"], ["y"]))
    result = run(model, replace(UNHURRIED, rules=f"{wrong_rules},-mine/abs-of-relu"))
    assert result.report.status == "unchanged"
    assert result.model is model
    (warning,) = result.report.warnings
    assert "there was no time to find the rule at fault" in warning


@pytest.mark.usefixtures("open_gate")
def test_who_is_strict_gets_an_error_and_no_file(wrong_rules: Path, tmp_path: Path) -> None:
    output = tmp_path / "never.onnx"
    options = replace(UNHURRIED, rules=f"default,{wrong_rules}", strict=True)
    with pytest.raises(CheckFailed, match="rule mine/drop-relu is at fault") as caught:
        run(chain([3, 4], *RELU_THEN_ABS), options, output=output)
    assert caught.value.exit_code == 2
    assert "nothing is written" in str(caught.value)
    assert list(tmp_path.glob("*.onnx*")) == []


WRONG_RECOGNITION = '''
from eqsat_opt.rules.rule import Phase, Sides, Tensor, rule
from eqsat_opt.rules.term import ops


@rule("mine/swish", phase=Phase.RECOGNISE)
def wrong(x: Tensor) -> Sides:
    """Unsound."""
    return x * ops.Tanh(x), ops.Swish(x, alpha=1.0)


@rule("mine/tanh-is-sigmoid", phase=Phase.RECOGNISE)
def wrong_inside(x: Tensor) -> Sides:
    """Unsound, and seen only where another rule makes an operator of it."""
    return ops.Tanh(x), ops.Sigmoid(x)
'''


@pytest.mark.usefixtures("open_gate")
@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("{},activation", "rule mine/swish is at fault: (x * Tanh(x)) => Swish(x, alpha=1.0); "
                          "leave it out with --rules {},activation,-mine/swish"),
        ("activation,{},-mine/swish", "rules activation/swish, mine/tanh-is-sigmoid are at fault "
                          "together; leave one out with --rules activation,{},-mine/swish,-NAME"),
        ("{},-mine/swish,activation", "rules mine/tanh-is-sigmoid, activation/swish are at fault "
                          "together; leave one out with --rules {},-mine/swish,activation,-NAME"),
    ],
)  # fmt: skip
def test_wrong_rules_of_recognition_are_found_at_fault(
    selection: str, expected: str, tmp_path: Path
) -> None:
    """They match in windows of their own, and a right rule after them is not blamed alone."""
    path = tmp_path / "wrong_recognition.py"
    path.write_text(WRONG_RECOGNITION)
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Mul", ["x", "t"], ["y"])]
    options = replace(UNHURRIED, rules=selection.format(path), objective="launches")
    (warning, *_) = run(build(nodes, [], [3, 4]), options).report.warnings
    assert expected.format(path) in warning


@pytest.mark.usefixtures("open_gate", "late")
def test_without_time_the_rules_that_are_involved_are_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong_recognition.py"
    path.write_text(WRONG_RECOGNITION)
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Mul", ["x", "t"], ["y"])]
    options = replace(UNHURRIED, rules=str(path), objective="launches")
    (warning, *_) = run(build(nodes, [], [3, 4]), options).report.warnings
    named = f"not tried one by one: mine/swish; leave one out with --rules {path},-NAME"
    assert named in warning


@pytest.mark.usefixtures("open_gate")
def test_a_wrong_rule_that_nothing_uses_does_no_harm(wrong_rules: Path) -> None:
    model = chain([3, 4], helper.make_node("Tanh", ["c"], ["y"]))
    assert_agree(model, run(model, replace(FAST, rules=f"default,{wrong_rules}")).model)


@pytest.mark.usefixtures("open_gate")
def test_without_check_the_rules_are_trusted(wrong_rules: Path) -> None:
    result = run(chain([3, 4]), replace(FAST, rules=f"default,{wrong_rules}", check=0))
    assert [node.op_type for node in result.model.graph.node] == ["MatMul"]
    assert not result.report.errors


# Objective, rules, numerics ----------------------------------------------------------------------


def narrow_then_wide() -> ModelProto:
    """Folding A B makes one launch of two and many more FLOPs."""
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["b"]),
        helper.make_node("MatMul", ["b", "B"], ["y"]),
    ]
    return build(nodes, [weight("A", 32, 2), weight("B", 2, 32)], [8, 32])


@pytest.mark.parametrize(
    ("objective", "n_products"),
    [
        ("launches", 1),
        ("flops", 2),
        ({"launches": 1.0}, 1),
        ("launches+1e-30*flops", 1),
        ("1e-30*launches+flops", 2),
    ],
)
def test_the_objective_decides(objective: Any, n_products: int) -> None:
    model = narrow_then_wide()
    result = run(model, replace(FAST, objective=objective))
    assert len(result.model.graph.node) == n_products
    metric = "launches" if n_products == 1 else "flops"
    assert result.report.metrics_after[metric] <= result.report.metrics_before[metric]
    assert result.report.cost <= result.report.original_cost
    assert_agree(model, result.model)


@pytest.mark.parametrize(
    ("rules", "is_folded"),
    [
        ("default", True),
        ("matmul", True),
        ("matmul/assoc", True),
        ("none", False),
        ("-matmul/assoc", False),
        ("conv,pool", False),
    ],
)
def test_rules_may_be_selected(rules: str, is_folded: bool) -> None:
    result = run(chain([3, 4]), replace(FAST, rules=rules))
    assert result.report.rules == ({"matmul/assoc": 1} if is_folded else {})


def test_bitexact_gives_equal_bits() -> None:
    """Siblings merge without changing a sum; a product of weights would change them all."""
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["a"]),
        helper.make_node("MatMul", ["x", "C"], ["c"]),
        helper.make_node("Relu", ["a"], ["ra"]),
        helper.make_node("Relu", ["c"], ["rc"]),
        helper.make_node("Concat", ["ra", "rc"], ["d"], axis=1),
        helper.make_node("MatMul", ["d", "D"], ["e"]),
        helper.make_node("MatMul", ["e", "B"], ["y"]),
    ]
    weights = [weight("A", 4, 3), weight("C", 4, 5), weight("D", 8, 6), weight("B", 6, 4)]
    model = build(nodes, weights, [3, 4])
    result = run(model, replace(FAST, numerics="bitexact", objective="launches"))
    assert result.report.rules
    assert "matmul/assoc" not in result.report.matches
    assert sum(node.op_type == "MatMul" for node in result.model.graph.node) == 3
    feeds = random_inputs(model, 5)
    np.testing.assert_array_equal(outputs(result.model, feeds), outputs(model, feeds))


# Models of every kind ----------------------------------------------------------------------------


@pytest.mark.parametrize("shapes", [{}, {"N": 7}, {"x": (7, 4)}])
def test_a_symbolic_batch_stays_symbolic(shapes: dict[str, Any]) -> None:
    model = chain(["N", 4])
    result = run(model, replace(FAST, shapes=shapes))
    assert result.report.rules == {"matmul/assoc": 1}
    assert [v.type for v in result.model.graph.input] == [v.type for v in model.graph.input]
    assert [v.type for v in result.model.graph.output] == [v.type for v in model.graph.output]
    for size in (1, 7, 12):
        assert_agree(model, result.model, {"N": size})


def test_what_no_rule_knows_passes_through() -> None:
    """Control flow that captures values, and a function of other operators, between two chains."""
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["c"], [f"{name}_out"])],
            name,
            [],
            [helper.make_tensor_value_info(f"{name}_out", FLOAT, [3, 4])],
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    double = helper.make_function(
        "own",
        "Double",
        ["v"],
        ["w"],
        [helper.make_node("Add", ["v", "v"], ["w"])],
        [helper.make_opsetid("", 16)],
    )
    nodes = [
        helper.make_node("MatMul", ["x", "A"], ["b"]),
        helper.make_node("MatMul", ["b", "B"], ["c"]),
        helper.make_node("ReduceMax", ["c"], ["m"], keepdims=0),
        helper.make_node("Greater", ["m", "zero"], ["p"]),
        helper.make_node("If", ["p"], ["d"], **branches),
        helper.make_node("Double", ["d"], ["e"], domain="own"),
        helper.make_node("MatMul", ["e", "A"], ["f"]),
        helper.make_node("MatMul", ["f", "B"], ["y"]),
    ]
    weights = [
        weight("A", 4, 6),
        weight("B", 6, 4),
        numpy_helper.from_array(np.zeros((), np.float32), "zero"),
    ]
    model = build(nodes, weights, [3, 4], functions=[double], opsets={"own": 1})
    result = run(model, FAST)
    assert result.report.rules == {"matmul/assoc": 2}
    counts = result.report.operators_after
    assert counts["If"] == counts["Double"] == 1
    assert [f.name for f in result.model.functions] == ["Double"]
    assert_agree(model, result.model)


def custom() -> ModelProto:
    """An operator that only somebody else's runtime knows, behind a weight chain."""
    more = helper.make_node("Mystery", ["c"], ["y"], domain="com.example")
    model = chain([3, 4], more)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return model


def test_an_original_that_does_not_run_stays_with_the_reason() -> None:
    model = custom()
    result = run(model, FAST)
    assert result.model is model
    assert result.report.status == "unchanged"
    (note,) = result.report.notes
    assert "the original does not run in onnxruntime" in note
    assert "Mystery" in note


def test_without_check_and_race_it_is_optimised_all_the_same() -> None:
    result = run(custom(), replace(FAST, check=0))
    assert [node.op_type for node in result.model.graph.node] == ["MatMul", "Mystery"]
    assert [o.domain for o in result.model.opset_import] == ["", "com.example"]


def test_a_fused_kernel_does_not_read_its_own_inner_value() -> None:
    """The residual of a biased convolution is the bare convolution, without the bias."""
    nodes = [
        helper.make_node("Conv", ["x", "W", "b"], ["c"]),
        helper.make_node("Conv", ["x", "W"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    model = build(nodes, [weight("W", 3, 3, 1, 1), weight("b", 3)], [1, 3, 4, 4])
    for objective in ("launches", "flops", "time"):
        assert_agree(model, run(model, replace(FAST, objective=objective, check=0)).model)


def test_a_bias_that_nothing_touched_keeps_its_name() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Relu", ["r"], ["s"]),
        helper.make_node("Conv", ["s", "W", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = build(nodes, [weight("W", 3, 3, 1, 1), weight("b", 3)], [1, 3, 4, 4])
    result = run(model, replace(FAST, objective="launches", check=0)).model
    assert len(result.graph.node) < len(model.graph.node)
    assert {one.name: tuple(one.dims) for one in result.graph.initializer}["b"] == (3,)


# The zoo -----------------------------------------------------------------------------------------


@each_model
def test_every_zoo_model_goes_through(
    name: str, tiny_model: TinyModel, tiny_result: TinyResult
) -> None:
    model, result = tiny_model(name), tiny_result(name)
    report = result.report
    assert report.status in ("unmeasured", "unchanged")
    assert report.cost <= report.original_cost
    assert report.lower_bound <= report.cost
    assert all(error.ok for error in report.errors)
    onnx.checker.check_model(result.model, full_check=True)
    assert_agree(model, result.model)


def test_the_report_as_json(tiny_result: TinyResult) -> None:
    found = json.loads(json.dumps(tiny_result("lora").report.to_json()))
    assert found["status"] == "unmeasured"
    for key in (
        "latency_us",
        "speedup",
        "cost",
        "lower_bound",
        "gap",
        "stages_s",
        "max_abs_error",
        "max_rel_error",
    ):
        assert key in found
    assert found["egraph"]["enodes"] >= found["egraph"]["eclasses"] > 0
    assert found["egraph"]["stopped_by"] in ("saturated", "algebra", "nodes", "iterations", "time")
    assert found["rules"]
    assert {"load", "saturate", "extract", "check"} <= found["stages_s"].keys()
    assert 0 <= found["gap"] < 1


def test_the_race_gives_latencies() -> None:
    result = run(chain([3, 4]), replace(FAST, race=True, budget_s=600.0))
    found = result.report.to_json()
    assert set(found["latency_us"]) == {"original", "result"}
    assert all(value > 0 for value in found["latency_us"].values())
    assert found["status"] in ("improved", "unchanged")
    assert (found["speedup"] > 1) == (found["status"] == "improved")


# Deadline and store ------------------------------------------------------------------------------


def test_saturation_in_a_child_gives_the_same(
    tiny_model: TinyModel, tiny_result: TinyResult
) -> None:
    name = "bert_taso"
    in_child = run(
        tiny_model(name), replace(FAST, objective="launches", nodes=2_500, deadline_s=60.0)
    )
    assert in_child.model.SerializeToString() == tiny_result(name).model.SerializeToString()


def test_the_deadline_is_hard(tiny_model: TinyModel) -> None:
    graph = normalise(import_model(load_model(tiny_model("sru"))))
    with pytest.raises(SaturationError, match=r"did not end within 0\.05 s"):
        saturate_isolated(graph, default_rules(), Budget(), deadline_s=0.05)


class _Deadly:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple[object, tuple[int]]:
        return os._exit, (3,)


def test_the_death_of_the_child_is_an_error(tiny_model: TinyModel) -> None:
    graph = normalise(import_model(load_model(tiny_model("weight_chain"))))
    with pytest.raises(SaturationError, match="the saturating process died"):
        saturate_isolated(graph, [cast(Rule, _Deadly())], Budget(), deadline_s=600)


def test_a_warm_store_measures_nothing(tiny_model: TinyModel, tmp_path: Path) -> None:
    options = replace(FAST, measure=True, store=str(tmp_path / "profile.sqlite"))
    first, second, third = (run(tiny_model("weight_chain"), options) for _ in range(3))
    assert first.report.kernels_measured > 0
    assert second.report.kernels_measured == third.report.kernels_measured == 0
    assert second.report.kernels_unmeasured == 0
    assert second.report.cost == first.report.cost
    assert second.model.SerializeToString() == third.model.SerializeToString()


@pytest.mark.parametrize("opset", [17, 20])
def test_operators_that_the_file_spells_out_are_named(opset: int) -> None:
    """Before opset 20 the file has to spell a Gelu out; the report counts what the file has."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["":{opset}]>
        g (float[8,64] x) => (float[8,64] y)
        <float c = {{1.4142135}}, float one = {{1}}, float half = {{0.5}}>
        {{ a = Div(x, c)  e = Erf(a)  s = Add(e, one)  h = Mul(half, x)  y = Mul(h, s) }}
    """)
    result = run(model, replace(FAST, objective="launches"))
    written = [node.op_type for node in result.model.graph.node]
    assert result.report.operators_after == Counter(written)
    assert result.report.operators_before == {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2}
    if opset == 20:
        assert written == ["Gelu"]
        assert not any("written out" in note for note in result.report.details)
    else:
        assert "Gelu" not in written
        (note,) = (note for note in result.report.details if "written out" in note)
        assert note.startswith("Gelu: ")
        assert note.endswith("opset 17 or because that is faster")
