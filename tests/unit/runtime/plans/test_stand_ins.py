"""Nodes of ONNX without a record that plans hold all the same, as operators that have one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt.errors import OptionError
from eqsat_opt.lab.testing.graphs import GraphMaker
from eqsat_opt.pipeline.plans import load_plan, plan_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.backends.shared.session_models import session_model
from eqsat_opt.runtime.planning.planner import make_plan


def resized(
    scales: list[float],
    shape: list[Any] | None = None,
    *,
    sizes: list[int] | None = None,
    opset: int = 18,
    **attributes: Any,
) -> onnx.ModelProto:
    """Relu(Resize(x))."""
    shape = shape or [1, 2, 3, 5]
    given, names = [], ["x", *([""] if opset > 10 else []), "scales"]
    if sizes is None:
        given.append(onnx.numpy_helper.from_array(np.array(scales, np.float32), "scales"))
    else:
        given.append(onnx.numpy_helper.from_array(np.array(sizes, np.int64), "sizes"))
        names = ["x", "", "", "sizes"]
    op = "Upsample" if opset < 10 else "Resize"
    nodes = [
        helper.make_node(op, names, ["r"], name="it", **attributes),
        helper.make_node("Relu", ["r"], ["y"]),
    ]
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], given)
    imports = [helper.make_opsetid("", opset)]
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=imports, ir_version=8)
    )


NEAREST: dict[str, Any] = {"mode": "nearest"}
ASYMMETRIC: dict[str, Any] = {
    **NEAREST,
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
}
REPEATS = {
    "half a pixel": resized([1, 1, 2, 3], **NEAREST),
    "half a pixel, to the right": resized([1, 1, 2, 2], nearest_mode="round_prefer_ceil"),
    "asymmetric": resized([1, 1, 3, 2], **ASYMMETRIC),
    "by sizes": resized([], sizes=[1, 2, 6, 20], **ASYMMETRIC),
    "some axes": resized([4, 2], axes=[-1, 2], **ASYMMETRIC),
    "channels too": resized([1, 3, 2, 1], **ASYMMETRIC),
    "of any rank": resized([2, 3], [4, 1], **ASYMMETRIC),
    "to itself": resized([1, 1, 1, 1], **NEAREST),
    "opset 10": resized([1, 1, 2, 2], opset=10, **NEAREST),
    "opset 9": resized([1, 1, 2, 2], opset=9, **NEAREST),
}


@pytest.mark.parametrize("model", REPEATS.values(), ids=REPEATS)
@pytest.mark.parametrize("backend", ["ort", "numpy"])
def test_a_resize_that_repeats_pixels(model: onnx.ModelProto, backend: str) -> None:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (expected,) = OrtSession(model, OrtOptions(threads=1)).run({"x": x})
    executable = load_plan(plan_model(model, backend=backend), model)
    np.testing.assert_array_equal(executable.run({"x": x})[0], expected)
    np.testing.assert_array_equal(executable.reference({"x": x})[0], expected)


OTHERS = {
    "between pixels": resized([1, 1, 2, 2], mode="linear"),
    "no whole factor": resized([1, 1, 1.5, 2], **NEAREST),
    "scales that do not say the factor": resized([1, 1, 2.3, 1], **ASYMMETRIC),
    "smaller": resized([1, 1, 0.5, 1], [1, 2, 4, 4], **ASYMMETRIC),
    "rounded where a third lies": resized(
        [1, 1, 3, 3], coordinate_transformation_mode="asymmetric"
    ),
    "with the corners": resized([1, 1, 2, 2], coordinate_transformation_mode="align_corners"),
}


@pytest.mark.parametrize("model", OTHERS.values(), ids=OTHERS)
def test_a_resize_that_does_not(model: onnx.ModelProto) -> None:
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    (expected,) = OrtSession(model, OrtOptions(threads=1)).run({"x": x})
    executable = load_plan(plan_model(model), model)
    np.testing.assert_allclose(executable.run({"x": x})[0], expected, rtol=1e-6, atol=1e-6)


def test_sizes_that_are_not_given_are_asked_for_first() -> None:
    model = resized([1, 1, 2, 2], ["N", 1, "H", "W"], **ASYMMETRIC)
    with pytest.raises(OptionError, match=r"a plan is for fixed sizes; give 'H' one"):
        plan_model(model)


def test_rows_and_columns_are_repeated_by_one_node_of_a_session() -> None:
    """Two Gathers would take several times as long."""
    model = resized([1, 1, 2, 2], **ASYMMETRIC)
    (launch,) = plan_model(model).launches
    made = session_model(launch, [np.zeros((1, 2, 3, 5), np.float32)])
    assert [node.op_type for node in made.graph.node] == ["Resize", "Relu"]


def test_parts_of_a_value_are_one_split_of_a_session() -> None:
    """Where they are all of it, in any order; else they stay slices."""
    g = GraphMaker()
    x = g("Neg", g.input("x", 5, 6))
    y = g("Neg", x)
    wholes = [g("Slice", x, axis=1, lo=lo, hi=hi) for lo, hi in ((4, 6), (0, 1), (1, 4))]
    others = [g("Slice", x, axis=0, lo=lo, hi=hi) for lo, hi in ((0, 2), (2, 4))]
    twice = [g("Slice", y, axis=1, lo=lo, hi=hi) for lo, hi in ((0, 3), (3, 6), (3, 6))]
    outputs = [g("Relu", part) for part in (*wholes, *others, *twice)]
    graph = g.graph(*outputs)
    plan = make_plan(graph, {}, lambda node: "ort")
    (launch,) = plan.launches
    model = session_model(launch, [np.zeros((5, 6), np.float32)])
    counted = Counter(node.op_type for node in model.graph.node)
    assert counted == {"Neg": 2, "Split": 1, "Slice": 5, "Relu": 8}
    feeds = {"x": np.random.default_rng(0).standard_normal((5, 6), np.float32)}
    executable = load_plan(plan, {})
    for got, wanted in zip(executable.run(feeds), executable.reference(feeds), strict=True):
        np.testing.assert_array_equal(got, wanted)
