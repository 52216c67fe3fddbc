"""Interfaces that runtimes accept: unknown, empty or computed sizes, and names of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

import eqsat_opt
from eqsat_opt.validation.tolerances import Scale, compare_values

NAMES = (
    "x", "input:0", "a/b.c", "größe", "two words", "?c.0", "eqsat_opt", "x__0", "1", "past + seq",
    "floor(h/2)", "-", "(",
)  # fmt: skip
DIMS: tuple[int | str, ...] = (
    0, 1, 3, -1, "", "?", "?x.0", "n", "past + seq", "floor(h/2)", "2*", "batch size", "x", "-1",
)  # fmt: skip
DTYPES = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.INT64, TensorProto.FLOAT16)


def value(name: str, dtype: int, dims: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    """A declaration whose dimensions may be what helpers of onnx would refuse."""
    made = helper.make_tensor_value_info(name, dtype, None)
    if dims is not None:
        made.type.tensor_type.shape.SetInParent()
        for dim in dims:
            entry = made.type.tensor_type.shape.dim.add()
            if isinstance(dim, int):
                entry.dim_value = dim
            elif dim:
                entry.dim_param = dim
    return made


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Elementwise work on a few inputs with odd declarations."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=4, max_size=4, unique=True))
    dtype = draw(st.sampled_from(DTYPES))
    dims = draw(st.lists(st.sampled_from(DIMS), max_size=4))
    first, second, middle, last = names
    nodes = [
        helper.make_node("Add", [first, first], [middle]),
        helper.make_node("Mul", [middle, second], [last]),
    ]
    declared = draw(st.sampled_from([dims, None, ["" for _ in dims]]))
    graph = helper.make_graph(
        nodes,
        draw(st.sampled_from(["", "main graph"])),
        [value(first, dtype, dims), value(second, dtype, [])],
        [value(last, dtype, declared)],
        value_info=[value(middle, dtype, dims)] if draw(st.booleans()) else [],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def feeds_of(model: onnx.ModelProto) -> dict[str, Any]:
    feeds = {}
    for one in model.graph.input:
        tensor = one.type.tensor_type
        sizes: dict[str, int] = {}
        shape = [
            dim.dim_value
            if dim.HasField("dim_value") and dim.dim_value >= 0
            else sizes.setdefault(dim.dim_param or str(axis), 2)
            for axis, dim in enumerate(tensor.shape.dim)
        ]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        feeds[one.name] = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    return feeds


def outputs_of(model: onnx.ModelProto) -> list[Any]:
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, feeds_of(model)))


@given(models())
def test_what_a_runtime_runs_is_optimised_with_its_interface(model: onnx.ModelProto) -> None:
    expected = outputs_of(model)
    result = eqsat_opt.optimize(
        model, report=True, effort="quick", race=False, measure=False, check=1, store="", threads=1
    )
    assert not result.report.warnings
    assert "does not run" not in " ".join(result.report.notes)
    written = result.model
    assert list(written.graph.input) == list(model.graph.input)
    assert list(written.graph.output) == list(model.graph.output)
    for one, other in zip(outputs_of(written), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def classifier(key: int) -> onnx.ModelProto:
    """A classifier as converters write it by default: its output is a sequence of maps."""
    labels: dict[str, Any] = (
        {"classlabels_strings": ["a", "b"]}
        if key == TensorProto.STRING
        else {"classlabels_int64s": [3, 5]}
    )
    probability = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(key, probability))
    nodes = [
        helper.make_node("Add", ["x", "x"], ["y"]),
        helper.make_node("Add", ["y", "x"], ["z"]),
        helper.make_node("ZipMap", ["z"], ["maps"], domain="ai.onnx.ml", **labels),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [value("x", TensorProto.FLOAT, [-1, 2])],
        [helper.make_value_info("maps", maps, "probabilities by label")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def vectorizer(key: int) -> onnx.ModelProto:
    """A model whose input is a map."""
    words: dict[str, Any] = (
        {"string_vocabulary": ["a", "bc", "z"]}
        if key == TensorProto.STRING
        else {"int64_vocabulary": [0, 2, 9]}
    )
    number = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    nodes = [
        helper.make_node("DictVectorizer", ["m"], ["v"], domain="ai.onnx.ml", **words),
        helper.make_node("Add", ["v", "v"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "vectorizer",
        [helper.make_value_info("m", helper.make_map_type_proto(key, number))],
        [value("y", TensorProto.FLOAT, [-1, 3])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


@pytest.mark.parametrize("key", [TensorProto.STRING, TensorProto.INT64])
@pytest.mark.parametrize("build", [classifier, vectorizer])
def test_maps_are_checked_and_keep_their_types(
    key: int, build: Callable[[int], onnx.ModelProto]
) -> None:
    model = build(key)
    result = eqsat_opt.optimize(
        model, report=True, effort="quick", race=False, measure=False, check=2, store="", threads=1
    )
    assert not result.report.warnings
    assert not any("does not run" in note for note in result.report.notes)
    assert list(result.model.graph.input) == list(model.graph.input)
    assert list(result.model.graph.output) == list(model.graph.output)


def test_another_value_in_a_map_is_noticed() -> None:
    expected = [{"a": np.float32(0.25), "b": np.float32(0.75)}]
    other = [{"a": np.float32(0.25), "b": np.float32(0.5)}]
    scale = Scale.of([expected])
    for actual, is_same in ((expected, True), (other, False), ([{"a": np.float32(0.25)}], False)):
        found = compare_values("maps", expected, actual, scale, 1e-4, exact=False)
        assert (found.why == "") is is_same
