"""Where no race decides, a graph is written that costs less, or as much with fewer operators."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.pipeline.options import Options

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
node = helper.make_node


def constant(name: str, value: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value), name)


def value(name: str, shape: list[str | int | None], dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def options(**changes: Any) -> Options:
    return Options(measure=False, store="", threads=1, check=1, budget_s=15.0, **changes)


def shuffle_unit() -> onnx.ModelProto:
    """Halves of channels by shape arithmetic; its simplified form is all that there is to gain."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "one"], ["c"]),
        node("Unsqueeze", ["c", "zero1"], ["c1"]),
        node("Div", ["c1", "two1"], ["h"]),
        node("Mul", ["h", "two1"], ["e"]),
        node("Slice", ["x", "zero1", "h", "one1"], ["l"]),
        node("Slice", ["x", "h", "e", "one1"], ["r"]),
        node("Conv", ["r", "w"], ["rr"], pads=[1, 1, 1, 1]),
        node("Relu", ["rr"], ["ra"]),
        node("Concat", ["l", "ra"], ["y"], axis=1),
    ]
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    constants = [
        constant("zero1", np.array([0])), constant("one1", np.array([1])),
        constant("two1", np.array([2])), constant("one", np.int64(1)), constant("w", weights),
    ]  # fmt: skip
    shape: list[str | int | None] = ["batch", 8, 6, 6]
    graph = helper.make_graph(nodes, "g", [value("x", shape)], [value("y", shape)], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def scattered(opset: int) -> onnx.ModelProto:
    """Shapes that are computed at run time; nothing is to gain."""
    nodes = [
        node("Shape", ["dst"], ["s"]),
        node("Expand", ["one", "s"], ["ones"]),
        node("ScatterElements", ["degrees", "dst", "ones"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [value("dst", ["edges"], INT64), value("degrees", ["nodes"])],
        [value("y", ["nodes"])],
        [constant("one", np.array([1], np.float32))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    "changes", [{"race": False}, {"objective": "launches"}, {"objective": "bytes"}]
)
def test_the_simplified_graph_is_written(changes: dict[str, Any]) -> None:
    model = shuffle_unit()
    result = run(model, options(**changes))
    assert len(result.model.graph.node) < len(model.graph.node) - 4
    assert result.report.status != "unchanged"
    feed = {"x": np.random.default_rng(1).standard_normal((3, 8, 6, 6)).astype(np.float32)}
    one, other = (
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, feed)[0]
        for m in (model, result.model)
    )
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [13, 17])
def test_what_costs_as_much_with_no_fewer_operators_is_not_written(opset: int) -> None:
    result = run(scattered(opset), options(race=False))
    assert result.report.status == "unchanged"


@pytest.mark.parametrize(("opset", "most"), [(13, 5), (17, 4)])
def test_shapes_stay_whole(opset: int, most: int) -> None:
    """A shape is that of the value that has it; no Concat has a single operand."""
    model = scattered(opset)
    model.graph.node.insert(2, node("Neg", ["ones"], ["less"]))
    model.graph.node.insert(3, node("Neg", ["less"], ["more"]))
    model.graph.node[-1].input[2] = "more"
    result = run(model, options(race=False))
    counts = Counter(one.op_type for one in result.model.graph.node)
    assert counts["Neg"] == 0
    assert counts["Concat"] == 0
    assert counts["Shape"] == 1
    assert counts.total() < most


def test_the_file_never_grows_under_its_bytes() -> None:
    """A weight that is read plain and transposed is stored once, as it came."""
    weights = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    nodes = [
        node("Transpose", ["w"], ["t"]),
        node("MatMul", ["x", "t"], ["a"]),
        node("Relu", ["a"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    shape: list[str | int | None] = [4, 32]
    graph = helper.make_graph(
        nodes, "g", [value("x", shape)], [value("y", shape)], [constant("w", weights)]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    result = run(model, options(objective="weight_bytes"))
    assert result.report.metrics_after["weight_bytes"] <= weights.nbytes
    assert result.model.ByteSize() <= model.ByteSize()
