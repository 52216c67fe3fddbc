"""Rewritten models keep their interface, share conversions, and compute nearly the same."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.approximation.implementations import IMPLEMENTATIONS, implementations_on
from eqsat_opt.approximation.rewriting import with_choice
from eqsat_opt.approximation.sites import find_sites
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

_KNOWN = {one.name: one for one in IMPLEMENTATIONS}
_X = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)


def _run(model: onnx_ir.Model) -> list[np.ndarray]:
    return OrtSession(model_proto(model), OrtOptions(1)).run({"x": _X})


def _operators(model: onnx_ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def _model(
    nodes: list[onnx.NodeProto], outputs: list[str], opset: int = 17, **weights: np.ndarray
) -> onnx_ir.Model:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 64])
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "made", [given], made, tensors)
    opsets = [helper.make_opsetid("", opset)]
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def _weight(seed: int = 0, *shape: int) -> np.ndarray:
    size = shape or (64, 64)
    return np.random.default_rng(seed).standard_normal(size).astype(np.float32)


@pytest.mark.parametrize("name", _KNOWN)
def test_each_implementation_computes_nearly_the_same(name: str, layers: onnx_ir.Model) -> None:
    before = _operators(layers)
    chosen = {site.name: _KNOWN[name] for site in find_sites(layers)}
    rewritten = with_choice(layers, chosen)
    assert len(chosen) == 2
    assert not {"MatMul", "Gemm"}.intersection(_operators(rewritten))
    assert not {"w0", "w1"}.intersection(rewritten.graph.initializers)
    assert [value.name for value in rewritten.graph.outputs] == ["y"]
    (left,), (right,) = _run(rewritten), _run(layers)
    allowed = 0.2 if "4 bits" in name else 0.03
    assert 0 < np.abs(left - right).max() <= allowed * np.abs(right).max()
    assert _operators(layers) == before


def test_sites_that_read_the_same_rows_share_their_conversion() -> None:
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(2)]
    model = _model(nodes, ["y0", "y1"], w0=_weight(0), w1=_weight(1))
    rewritten = with_choice(model, dict.fromkeys(("y0", "y1"), _KNOWN["uint8"]))
    assert _operators(rewritten)["DynamicQuantizeLinear"] == 1
    assert _operators(rewritten)["MatMulInteger"] == 2
    _run(rewritten)


def test_a_weight_that_another_product_reads_stays() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y0"]),
        helper.make_node("Gemm", ["x", "w"], ["y1"], transB=1),
    ]
    model = _model(nodes, ["y0", "y1"], w=_weight())
    rewritten = with_choice(model, {"y1": _KNOWN["uint8 per column"]})
    assert "w" in rewritten.graph.initializers
    for left, right in zip(_run(rewritten), _run(model), strict=True):
        assert np.abs(left - right).max() <= 0.03 * np.abs(right).max()


@pytest.mark.parametrize("is_read", [True, False])
def test_a_weight_may_be_a_transposed_constant(is_read: bool) -> None:
    """Embeddings that are the last layer as well."""
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y0"]),
        helper.make_node("Gemm", ["x", "t"], ["y1"], transB=1),
        *([helper.make_node("Gather", ["w", "i"], ["y2"])] if is_read else []),
    ]
    outputs = ["y0", "y1", *(["y2"] if is_read else [])]
    model = _model(nodes, outputs, w=_weight(), i=np.array([1]))
    rewritten = with_choice(model, dict.fromkeys(("y0", "y1"), _KNOWN["uint8 per column"]))
    assert ("w" in rewritten.graph.initializers) is is_read
    assert not {"Transpose", "MatMul", "Gemm"}.intersection(_operators(rewritten))
    for left, right in zip(_run(rewritten), _run(model), strict=True):
        assert np.abs(left - right).max() <= 0.03 * np.abs(right).max()


def test_halves_are_for_processors_that_compute_in_them(layers: onnx_ir.Model) -> None:
    (halves,) = set(implementations_on(["asimdhp"])) - set(implementations_on(["avx2", "f16c"]))
    rewritten = with_choice(layers, dict.fromkeys("my", halves))
    assert _operators(rewritten)["Cast"] == 4
    (left,), (right,) = _run(rewritten), _run(layers)
    assert 0 < np.abs(left - right).max() <= 2e-3 * np.abs(right).max()


def test_names_of_the_model_are_not_taken() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["low0_integers"]),
        helper.make_node("MatMul", ["low0_integers", "v"], ["y"]),
    ]
    model = _model(nodes, ["y"], w=_weight(0), v=_weight(1))
    sites = [site.name for site in find_sites(model)]
    rewritten = with_choice(model, dict.fromkeys(sites, _KNOWN["int8"]))
    names = [value.name for node in rewritten.graph for value in node.outputs]
    assert len(names) == len(set(names))
    _run(rewritten)


@pytest.mark.parametrize(
    ("attributes", "weight", "opset"),
    [
        ({"alpha": 2.0}, _weight(), 17),
        ({"transA": 1}, _weight(0, 4, 512), 17),
        ({}, _weight(0, 64, 8), 17),  # too small
        ({}, _weight(), 10),  # no DynamicQuantizeLinear
    ],
)
def test_other_products_are_no_sites(
    attributes: dict[str, Any], weight: np.ndarray, opset: int
) -> None:
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], **attributes)
    model = _model([node], ["y"], opset, w=weight, b=np.zeros(weight.shape[1], np.float32))
    assert not find_sites(model)


def test_a_constant_node_holds_a_weight() -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(_weight()))
    model = _model([constant, helper.make_node("MatMul", ["x", "w"], ["y"])], ["y"])
    rewritten = with_choice(model, {"y": _KNOWN["uint8"]})
    assert "Constant" not in _operators(rewritten)
    _run(rewritten)
