"""What a report tells of the operators that pass through, and what a proof speaks of."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt import api
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.coverage import coverage_of
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.opaque_share import time_share
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.validation.compare import Reference

OPTIONS = OrtOptions(threads=1)


def _model(named: bool = True, foreign: bool = True) -> onnx.ModelProto:
    """Two transpositions that cancel, and a NonZero, of which no equation speaks."""
    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 0]),
        helper.make_node("Transpose", ["a"], ["b"], perm=[1, 0]),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (64, 64))]
    if foreign:
        nodes.append(helper.make_node("NonZero", ["y"], ["z"]))
        outputs.append(helper.make_tensor_value_info("z", TensorProto.INT64, (2, None)))
    for index, node in enumerate(nodes if named else ()):
        node.name = f"node{index}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (64, 64))],
        outputs,
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _share(model: onnx.ModelProto, deadline: Deadline) -> float | None:
    loaded = load_model(model)
    reference = Reference.of(model, OPTIONS, [0], {})
    return time_share(
        coverage_of(import_model(loaded)),
        loaded,
        model,
        reference=reference,
        options=OPTIONS,
        deadline=deadline,
    )


def test_the_share_of_the_time_is_profiled() -> None:
    share = _share(_model(), Deadline.never())
    assert share is not None
    assert 0.0 < share < 1.0


def test_the_share_is_left_out_where_it_cannot_be_told() -> None:
    assert _share(_model(named=False), Deadline.never()) is None, "nodes have no names"
    assert _share(_model(), Deadline.after(0.0)) is None, "there is no time"
    assert _share(_model(foreign=False), Deadline.never()) == 0.0


def test_nodes_inside_of_a_body_count_once() -> None:
    """The time of an If holds that of its branches, so that its share is never above one."""
    branches = {
        f"{kind}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [op], name=op)],
            kind,
            [],
            [helper.make_tensor_value_info(op, TensorProto.FLOAT, (512, 512))],
        )
        for kind, op in (("then", "Sin"), ("else", "Cos"))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0, name="sum"),
        helper.make_node("Cast", ["sum"], ["c"], to=TensorProto.BOOL, name="cast"),
        helper.make_node("If", ["c"], ["y"], name="if", **branches),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (512, 512))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (512, 512))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    share = _share(model, Deadline.never())
    assert share is not None
    assert share > 0.5, "nearly all of the time is in the branch"


@pytest.mark.parametrize("foreign", [False, True])
def test_the_report_and_its_json_tell_the_coverage(foreign: bool) -> None:
    options = Options(effort="quick", budget_s=60, threads=1, race=False)
    report = api.run(_model(foreign=foreign), options).report
    inside = report.operators_inside
    assert inside is not None
    value = report.to_json()["coverage"]
    if foreign:
        assert value == {"inside": inside, "passing": {"NonZero": 1}, "passing_time_share": None}
        assert "NonZero ×1 passes through (share of the time" in report.coverage
        assert f"{inside} of {inside + 1} operators in the e-graph" in report.coverage
    else:
        assert value == {"inside": inside, "passing": {}, "passing_time_share": 0.0}
        assert report.coverage == f"all {inside} operators in the e-graph" or inside == 1
    if "proven" in report.optimality:
        assert report.optimality.endswith("proven") != foreign


def test_proven_speaks_of_what_is_in_the_e_graph() -> None:
    options = Options(effort="quick", budget_s=60, threads=1, race=False, gap=0.0)
    whole = api.run(_model(foreign=False), options).report
    part = api.run(_model(foreign=True), options).report
    assert whole.optimality.endswith(": proven")
    assert part.optimality.endswith(
        f": proven for the {part.operators_inside} operators in it"
    ) or (
        part.operators_inside == 1 and part.optimality.endswith("proven for the 1 operator in it")
    )
