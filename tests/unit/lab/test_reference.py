"""The reference executor agrees with onnxruntime, also beyond the operators of the registry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.gpu.reference import ReferenceSession
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.lab import zoo
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.inputs import random_inputs

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.array([[1, -2, 3], [-4, 5, -6]], dtype=np.float32)
SMALL = ("alexnet", "bert", "linear_attention", "lora", "nasrnn", "resnext50", "sru", "squeezenet")


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: dict[str, Any] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(w), name) for name, w in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


@pytest.mark.parametrize("name", SMALL)
def test_agrees_with_onnxruntime(name: str) -> None:
    model = zoo.build(name, scale="tiny")
    feeds = random_inputs(model, 0)
    session = ReferenceSession(model)
    expected = OrtSession(model, OrtOptions(threads=1))
    assert session.input_names == expected.input_names
    assert session.output_names == expected.output_names
    for found, wanted in zip(session.run(feeds), expected.run(feeds), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4 * np.abs(wanted).max())


def test_symbolic_sizes_are_taken_from_the_values() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], end=1),
        helper.make_node("Concat", ["s", "minus_one"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
        helper.make_node("Expand", ["one", "s"], ["z"]),
    ]
    weights = {"minus_one": np.array([-1]), "one": np.ones(1, np.float32)}
    model = model_of(nodes, {"x": ["n", 3, 2]}, ["y", "z"], weights)
    session = ReferenceSession(model)
    for n in (1, 4):
        x = np.arange(6 * n, dtype=np.float32).reshape(n, 3, 2)
        y, z = session.run({"x": x})
        np.testing.assert_array_equal(y, x.reshape(n, 6))
        np.testing.assert_array_equal(z, np.ones(n))


def test_subgraphs_see_what_they_capture() -> None:
    def branch(op_type: str) -> onnx.GraphProto:
        node = helper.make_node(op_type, ["h", "w"], ["r"])
        return helper.make_graph(
            [node], op_type, [], [helper.make_tensor_value_info("r", FLOAT, None)]
        )

    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Add"), else_branch=branch("Mul")),
    ]
    weights = {"zero": np.float32(0), "w": np.float32(2)}
    session = ReferenceSession(model_of(nodes, {"x": [2, 3]}, ["y"], weights))
    np.testing.assert_array_equal(session.run({"x": X})[0], np.maximum(X, 0) * 2)
    np.testing.assert_array_equal(session.run({"x": -X})[0], np.maximum(-X, 0) + 2)


def test_functions_run() -> None:
    body = [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Exp", ["b"], ["c"])]
    function = helper.make_function(
        "own", "Decay", ["a"], ["c"], body, [helper.make_opsetid("", 21)]
    )
    node = helper.make_node("Decay", ["x"], ["y"], domain="own")
    session = ReferenceSession(model_of([node], {"x": [2, 3]}, ["y"], functions=[function]))
    np.testing.assert_allclose(session.run({"x": X})[0], np.exp(-X), rtol=1e-6)


def test_several_and_absent_outputs() -> None:
    nodes = [
        helper.make_node("TopK", ["x", "k"], ["", "order"], axis=1),
        helper.make_node("Cast", ["order"], ["y"], to=FLOAT),
    ]
    session = ReferenceSession(model_of(nodes, {"x": [2, 3]}, ["y"], {"k": np.array([1])}))
    np.testing.assert_array_equal(session.run({"x": X})[0], [[2], [1]])


def test_a_default_may_be_overridden() -> None:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    model = model_of([node], {"x": [2, 3], "w": []}, ["y"], {"w": np.float32(1)})
    session = ReferenceSession(model)
    assert session.input_names == ("x",)
    np.testing.assert_array_equal(session.run({"x": X})[0], X + 1)
    np.testing.assert_array_equal(session.run({"x": X, "w": np.float32(5)})[0], X + 5)


def test_results_are_fresh() -> None:
    node = helper.make_node("Expand", ["w", "shape"], ["y"])
    weights = {"w": np.ones(1, np.float32), "shape": np.array([4])}
    session = ReferenceSession(model_of([node], {"x": [2]}, ["y", "x"], weights))
    x = np.zeros(2, np.float32)
    for result in session.run({"x": x}):
        result += 1
    np.testing.assert_array_equal(x, 0)
    np.testing.assert_array_equal(session.run({"x": x})[0], 1)


def test_accepts_every_model_source(tmp_path: Path) -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["y"])], {"x": [2, 3]}, ["y"])
    onnx.save(model, tmp_path / "relu.onnx")
    sources = (model, model.SerializeToString(), tmp_path / "relu.onnx")
    for source in sources:
        np.testing.assert_array_equal(ReferenceSession(source).run({"x": X})[0], np.maximum(X, 0))


def test_failures_are_one_line() -> None:
    session = ReferenceSession(
        model_of([helper.make_node("Strange", ["x"], ["y"], domain="own")], {"x": [2, 3]}, ["y"])
    )
    with pytest.raises(RuntimeFailed, match=r"^cannot evaluate Strange 'y': .*$"):
        session.run({"x": X})
    with pytest.raises(RuntimeFailed, match="no value is given for input 'x'"):
        session.run({})
    with pytest.raises(RuntimeFailed, match=r"'x' is float32\[2,3\]; float32\[3,2\] was given"):
        session.run({"x": X.T})
    with pytest.raises(RuntimeFailed, match="int64"):
        session.run({"x": X.astype(np.int64)})
