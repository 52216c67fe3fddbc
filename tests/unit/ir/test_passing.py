"""Why operators pass through: for what they are, or because something of them is not known."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.coverage import coverage_of
from eqsat_opt.ir.passes.passing import passing_operators
from eqsat_opt.ir.values.types import TensorType

FLOAT = TensorProto.FLOAT
HELD = {
    "zero": np.array([0]),
    "one": np.array([1]),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "sizes": np.array([1, 3, 5, 7]),
}


def _model(*nodes: onnx.NodeProto, sparse: Any = ()) -> onnx.ModelProto:
    """A model of nodes on images ``x``, with a Relu of their last result."""
    last = helper.make_node("Relu", [nodes[-1].output[0]], ["y"])
    graph = helper.make_graph(
        [*nodes, last],
        "g",
        [helper.make_tensor_value_info("x", FLOAT, ["n", 3, 8, 8])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in HELD.items()],
        sparse_initializer=sparse,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def _node(op: str, *inputs: str, out: str = "b", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, [out], **attributes)


FOUND = (
    _node("NonZero", "x", out="places"),
    _node("Transpose", "places", out="rows", perm=[1, 0]),
    _node("Shape", "rows", out="shape"),
    _node("Slice", "shape", "zero", "one", out="end"),
)
COUNT = (
    _node("NonZero", "x", out="places"),
    _node("Shape", "places", out="shape"),
    _node("ReduceMax", "places", out="most", keepdims=0),
    _node("Reshape", "most", "one", out="end"),
)


@pytest.mark.parametrize(
    ("nodes", "op", "why"),
    [
        ([_node("Resize", "x", "", "scales", mode="cubic")], "Resize", "by cubics"),
        (
            [_node("Resize", "x", "", "", "sizes", mode="linear", antialias=1)],
            "Resize",
            "with antialiasing",
        ),
        ([*COUNT, _node("Slice", "x", "zero", "end", "one")], "Slice", "data decide"),
        ([*FOUND, _node("Slice", "x", "zero", "end", "one")], "Slice", "data decide"),
        (
            [
                _node("Cast", "x", out="a", to=TensorProto.FLOAT8E4M3FN),
                _node("Cast", "a", to=FLOAT),
            ],
            "Cast",
            "elements of FLOAT8E4M3FN",
        ),
    ],
)
def test_what_no_equation_is_about_is_explained(
    nodes: list[onnx.NodeProto], op: str, why: str
) -> None:
    graph = import_model(load_model(_model(*nodes)))
    reasons = {one.operator: one.why for one in passing_operators(graph)}
    assert why in reasons[op]
    coverage = coverage_of(graph)
    assert op in coverage.passing
    assert op not in coverage.known
    assert isinstance(graph.types["y"], TensorType)


def test_a_mask_is_read_whatever_its_size() -> None:
    """The attention of a picture of many patches has a mask of many elements."""
    mask = numpy_helper.from_array(np.zeros((300, 300), np.float32), "mask")
    names = ("q", "k", "v")
    graph = helper.make_graph(
        [helper.make_node("Attention", [*names, "mask"], ["y"])],
        "g",
        [helper.make_tensor_value_info(name, FLOAT, ["n", 2, 300, 4]) for name in names],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [mask],
    )
    imports = [helper.make_opsetid("", 23)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=11)
    assert not coverage_of(import_model(load_model(model))).known


@pytest.mark.parametrize("changes", [{"softcap": 5.0}, {"is_causal": 1}, {}])
def test_attention_with_a_cache_or_a_cap_is_explained(changes: dict[str, Any]) -> None:
    names = ["q", "k", "v", *(() if changes else ("", "past_k", "past_v"))]
    results = ["y", *(() if changes else ("all_k", "all_v"))]
    graph = helper.make_graph(
        [helper.make_node("Attention", names, results, **changes)],
        "g",
        [helper.make_tensor_value_info(name, FLOAT, ["n", 2, 3, 4]) for name in names if name],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in results],
    )
    imports = [helper.make_opsetid("", 23)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=11)
    (found,) = passing_operators(import_model(load_model(model)))
    assert "a cache, a cap or a causal mask" in found.why


@pytest.mark.parametrize(
    ("op", "attribute"), [("Attention", "left_window_size"), ("Relu", "of_a_later_opset")]
)
def test_an_operator_with_an_attribute_that_readers_do_not_know_passes_through(
    op: str, attribute: str
) -> None:
    names = ["q", "k", "v"][: 3 if op == "Attention" else 1]
    node = helper.make_node(op, names, ["y"])
    node.attribute.append(helper.make_attribute(attribute, 1))
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(name, FLOAT, [1, 2, 3, 4]) for name in names],
        [helper.make_tensor_value_info("y", FLOAT, [1, 2, 3, 4])],
    )
    imports = [helper.make_opsetid("", 25)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=11)
    assert dict(coverage_of(import_model(load_model(model))).passing) == {op: 1}


def test_what_is_behind_an_unknown_shape_is_not_explained() -> None:
    graph = import_model(load_model(_model(_node("Odd", "x", out="a"), _node("Neg", "a"))))
    assert dict(coverage_of(graph).known) == {"Neg": 1, "Relu": 1}


@pytest.mark.parametrize("is_initializer", [False, True])
def test_sparse_constants_have_a_type(is_initializer: bool) -> None:
    """What reads them was left alone, as their type was not known."""
    values = helper.make_tensor("w", FLOAT, [1], [2.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", 7, [1], [9]), [8, 4])
    nodes = [_node("MatMul", "x", "w")]
    if not is_initializer:
        nodes.insert(0, helper.make_node("Constant", [], ["w"], sparse_value=sparse))
    held = [sparse] if is_initializer else []
    graph = import_model(load_model(_model(*nodes, sparse=held)))
    assert graph.types["w"] == TensorType("float32", (8, 4))
    assert dict(coverage_of(graph).passing) == {}
