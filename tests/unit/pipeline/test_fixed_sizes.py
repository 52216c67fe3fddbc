"""Sizes that are fixed become literals of the interface, and what follows from them is folded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat_opt
from eqsat_opt.cli import main
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model

FLOAT = TensorProto.FLOAT
QUICK: dict[str, Any] = {"race": False, "measure": False, "check": 1, "store": "", "threads": 1}


def dims(model: onnx.ModelProto) -> dict[str, list[int | str]]:
    values = (*model.graph.input, *model.graph.output)
    return {
        v.name: [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim] for v in values
    }


def rows() -> onnx.ModelProto:
    """A concatenation of past and new rows, which are then all laid out in one."""
    nodes = [
        helper.make_node("Concat", ["past", "new"], ["all"], axis=1),
        helper.make_node("Shape", ["all"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["all", "target"], ["flat"]),
        helper.make_node("Relu", ["flat"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("past", FLOAT, ["batch", "past", 4]),
            helper.make_tensor_value_info("new", FLOAT, ["batch", "", 4]),
        ],
        [
            helper.make_tensor_value_info("y", FLOAT, ["batch", None]),
            helper.make_tensor_value_info("all", FLOAT, ["batch", "past + seq", 4]),
        ],
        [
            numpy_helper.from_array(np.array([0]), "zero"),
            numpy_helper.from_array(np.array([-1]), "rest"),
        ],
    )  # fmt: skip
    graph.input[1].type.tensor_type.shape.dim[1].dim_param = "seq"
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def outputs_of(model: onnx.ModelProto, **sizes: int) -> list[Any]:
    generator = np.random.default_rng(0)
    feeds = {
        "past": generator.standard_normal((sizes["batch"], sizes["past"], 4), dtype=np.float32),
        "new": generator.standard_normal((sizes["batch"], sizes["seq"], 4), dtype=np.float32),
    }
    return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds))


def test_the_interface_is_literal_and_shapes_are_folded() -> None:
    model = rows()
    sizes = {"batch": 3, "past": 2, "seq": 5}
    result = eqsat_opt.optimize(model, fixed=sizes, report=True, **QUICK)
    assert not result.report.warnings
    written = dims(result.model)
    assert written["past"] == [3, 2, 4]
    assert written["new"] == [3, 5, 4]
    assert written["all"] == [3, 7, 4]
    assert "Shape" not in {node.op_type for node in result.model.graph.node}
    for one, other in zip(
        outputs_of(result.model, **sizes), outputs_of(model, **sizes), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_a_formula_of_which_a_part_is_fixed_is_one_of_the_rest() -> None:
    result = eqsat_opt.optimize(rows(), fixed={"past": 2}, report=True, **QUICK)
    written = dims(result.model)
    assert written["past"] == ["batch", 2, 4]
    assert written["all"] == ["batch", "2 + seq", 4]
    assert not any("not run" in note for note in result.report.notes)
    sizes = {"batch": 2, "past": 2, "seq": 4}
    for one, other in zip(
        outputs_of(result.model, **sizes), outputs_of(rows(), **sizes), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_the_given_model_stays_and_the_type_is_kept() -> None:
    proto = rows()
    before = proto.SerializeToString()
    assert isinstance(eqsat_opt.optimize(proto, fixed={"batch": 1}, **QUICK), onnx.ModelProto)
    assert proto.SerializeToString() == before
    model = load_model(proto)
    assert isinstance(eqsat_opt.optimize(model, fixed={"batch": 1}, **QUICK), onnx_ir.Model)
    assert str(model.graph.inputs[0].shape).startswith("[batch")


def test_inputs_may_be_fixed_by_their_shapes() -> None:
    model = rows()
    model.graph.input[1].type.tensor_type.shape.dim[1].ClearField("dim_param")
    fixed = fixed_model(load_model(model), {"new": (1, 6, 4)})
    assert [list(value.shape or ()) for value in fixed.graph.inputs][1] == [1, 6, 4]
    assert next(iter(fixed.graph.inputs[0].shape or ())) == 1


@pytest.mark.parametrize("unnamed", ["none", "empty", "negative"])
def test_an_axis_without_a_name_has_the_name_that_reports_give_it(unnamed: str) -> None:
    model = rows()
    dim = model.graph.input[1].type.tensor_type.shape.dim[1]
    dim.ClearField("dim_param")
    if unnamed == "negative":
        dim.dim_value = -1
    elif unnamed == "empty":
        dim.dim_param = ""
    fixed = fixed_model(load_model(model), {"new.1": 6})
    assert list(fixed.graph.inputs[1].shape or ())[1] == 6
    with pytest.raises(OptionError, match=r"'new\.2', nor is it an input; there are: .*new\.1"):
        fixed_model(load_model(model), {"new.2": 4})


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ({"nobody": 1}, "no input of the model has a symbolic dimension 'nobody'"),
        ({"past": (1, 2)}, "does not fit the shape"),
        ({"new": (1, 2, 5)}, "does not fit the shape"),
        ({"new": (1, 2, 4), "batch": 2}, "fixed at both 1 and 2"),
        ({"batch": -1}, "negative"),
        (3, "a mapping"),
    ],
)
def test_what_cannot_be_fixed(fixed: Any, message: str) -> None:
    model = rows()
    model.graph.input[0].name, model.graph.node[0].input[0] = "old", "old"
    if isinstance(fixed, dict) and "past" in fixed:
        fixed = {"old": fixed["past"]}
    with pytest.raises(OptionError, match=message):
        eqsat_opt.optimize(model, fixed=fixed, **QUICK)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(rows(), str(source))
    command = ["optimize", str(source), "-o", str(output), "--effort", "quick", "--store", ""]
    fixed = ["--fix-shape", "batch:1", "--fix-shape", "past:3"]
    assert main([*command, *fixed, "--quiet"]) == 0
    assert dims(onnx.load(str(output)))["past"] == [1, 3, 4]
    assert main([*command, "--fix-shape", "batch:1", "--fix-shape", "batch:2"]) == 1
    assert "--fix-shape gives 'batch' twice" in capsys.readouterr().err
