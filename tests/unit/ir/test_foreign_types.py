"""Operators of onnxruntime's own have types, so that what is behind them is understood."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.foreign_types import IN_DEFAULT_DOMAIN
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.passes.coverage import coverage_of
from eqsat_opt.ir.values.dims import evaluate_dim, sym
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

FLOAT = np.float32
Case = tuple[str, Mapping[str, Any], Sequence[np.ndarray[Any, Any] | None], int]


def _random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(FLOAT)


def _bytes(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).integers(0, 255, shape, np.uint8)


CASES: list[Case] = [
    ("MatMulNBits", {"K": 64, "N": 6, "bits": 4, "block_size": 32},
     [_random(2, 3, 64), _bytes(6, 2, 16), _random(12)], 1),
    ("FusedMatMul", {"transA": 1, "alpha": 2.0}, [_random(2, 5, 3), _random(5, 4)], 1),
    ("FusedMatMul", {"transB": 1}, [_random(1, 3, 5), _random(2, 4, 5)], 1),
    ("FusedConv", {"activation": "Relu", "pads": [1, 1, 1, 1], "kernel_shape": [3, 3]},
     [_random(2, 3, 8, 8), _random(4, 3, 3, 3), _random(4)], 1),
    ("FusedGemm", {"activation": "Relu", "transB": 1}, [_random(2, 3), _random(4, 3)], 1),
    ("CDist", {"metric": "euclidean"}, [_random(3, 4), _random(2, 4)], 1),
    ("SkipLayerNormalization", {}, [_random(2, 3, 8), _random(2, 3, 8), _random(8), _random(8)], 4),
    ("SkipSimplifiedLayerNormalization", {}, [_random(2, 3, 8), _random(2, 3, 8), _random(8)], 4),
    ("BiasGelu", {}, [_random(2, 3, 8), _random(8)], 1),
    ("FastGelu", {}, [_random(2, 3, 8)], 1),
    ("QuickGelu", {}, [_random(2, 3, 8)], 1),
    ("Attention", {"num_heads": 2}, [_random(2, 3, 8), _random(8, 24), _random(24)], 1),
    ("MultiHeadAttention", {"num_heads": 2}, [_random(2, 3, 8), _random(2, 5, 8),
                                              _random(2, 5, 8)], 1),
    ("MultiHeadAttention", {"num_heads": 2}, [_random(2, 3, 8), _random(2, 2, 5, 4),
                                              _random(2, 2, 5, 4)], 1),
    ("EmbedLayerNormalization", {},
     [np.ones((2, 3), np.int32), None, _random(9, 8), _random(5, 8), None, _random(8),
      _random(8)], 2),
    ("SimplifiedLayerNormalization", {"axis": -1}, [_random(2, 3, 8), _random(8)], 1),
    ("LayerNormalization", {"axis": -1}, [_random(2, 3, 8), _random(8), _random(8)], 1),
]  # fmt: skip


def _model(case: Case, symbolic: bool) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The operator, and a Relu behind its first result."""
    op_type, attributes, operands, n_outputs = case
    domain = "" if op_type in IN_DEFAULT_DOMAIN else "com.microsoft"
    feeds = {f"x{i}": value for i, value in enumerate(operands) if value is not None}
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(operands)]
    results = [f"y{i}" for i in range(n_outputs)]
    nodes = [
        helper.make_node(op_type, names, results, domain=domain, **attributes),
        helper.make_node("Relu", ["y0"], ["z"]),
    ]
    # The first axis of the data is open; weights are not.
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(value.dtype),
            ["n", *value.shape[1:]] if symbolic and name == "x0" else value.shape,
        )
        for name, value in feeds.items()
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y0", "z")]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 16), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), feeds


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_the_type_is_that_of_what_the_runtime_computes(case: Case) -> None:
    model, feeds = _model(case, symbolic=False)
    graph = import_model(load_model(model))
    computed = OrtSession(model, OrtOptions(threads=1)).run(feeds)
    type_ = graph.types["y0"]
    assert isinstance(type_, TensorType)
    assert type_ == TensorType("float32", computed[0].shape)
    coverage = coverage_of(graph)
    is_read = case[0] in READERS and case[0] in IN_DEFAULT_DOMAIN
    assert coverage.inside == 1 + is_read, "the Relu behind it is understood"
    assert set(coverage.passing) == (set() if is_read else {case[0]})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_open_sizes_stay_open(case: Case) -> None:
    model, _ = _model(case, symbolic=True)
    type_ = import_model(load_model(model)).types["y0"]
    if isinstance(type_, TensorType):
        assert any(not isinstance(dim, int) for dim in type_.shape) or case[0] == "FusedMatMul"


def test_operators_of_other_domains_and_of_the_standard_are_left_alone() -> None:
    case: Case = ("BiasGelu", {}, [_random(2, 3), _random(3)], 1)
    model, _ = _model(case, symbolic=False)
    model.graph.node[0].domain = "else.where"
    model.opset_import[1].domain = "else.where"
    assert not isinstance(import_model(load_model(model)).types["y0"], TensorType)


def test_packed_operands_have_the_type_that_the_runtime_infers() -> None:
    case: Case = ("MultiHeadAttention", {"num_heads": 2}, [_random(2, 3, 2, 3, 4)], 1)
    model, _ = _model(case, symbolic=False)
    assert import_model(load_model(model)).types["y0"] == TensorType("float32", (2, 3, 8))


def _trees(labels: Mapping[str, Any], count: int) -> Mapping[str, Any]:
    """A tree of one split for each class."""
    nodes = [0, 1, 2] * count
    trees = [index for index in range(count) for _ in range(3)]
    leaves = [1, 2] * count
    return {
        "nodes_treeids": trees, "nodes_nodeids": nodes,
        "nodes_featureids": [0] * 3 * count, "nodes_values": [0.0] * 3 * count,
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"] * count,
        "nodes_truenodeids": [1, 0, 0] * count, "nodes_falsenodeids": [2, 0, 0] * count,
        "class_treeids": [index for index in range(count) for _ in range(2)],
        "class_nodeids": leaves, "class_ids": [index for index in range(count) for _ in range(2)],
        "class_weights": [0.5, 1.5] * count, **labels,
    }  # fmt: skip


def _vectors(classes: int, labels: Mapping[str, Any]) -> Mapping[str, Any]:
    """Two support vectors for each class, of four features."""
    pairs, count = classes * (classes - 1) // 2, 2 * classes
    return {
        "coefficients": [0.5] * (classes - 1) * count, "kernel_params": [0.5, 0.0, 3.0],
        "kernel_type": "RBF", "rho": [0.25] * pairs, "vectors_per_class": [2] * classes,
        "support_vectors": np.linspace(-1, 1, 4 * count).tolist(), **labels,
    }  # fmt: skip


_WORDS = np.asarray([["a", "b"], ["c", "a"], ["b", "b"]], object)
_ROWS = _random(3, 4)
_NUMBERS = {"classlabels_ints": [3, 5, 7, 9]}
_STRINGS = {"classlabels_strings": ["u", "v"]}

LEARNED_CASES: list[Case] = [
    ("ArrayFeatureExtractor", {}, [_ROWS, np.asarray([[1], [3]])], 1),
    ("ArrayFeatureExtractor", {}, [_random(4), np.asarray([[1], [3], [0]])], 1),
    ("Binarizer", {"threshold": 0.5}, [_ROWS], 1),
    ("CategoryMapper", {"cats_strings": ["a", "b"], "cats_int64s": [1, 2]}, [_WORDS], 1),
    ("FeatureVectorizer", {"inputdimensions": [4, 2]}, [_ROWS, _random(3, 2)], 1),
    ("Imputer", {"imputed_value_floats": [0.0]}, [_ROWS], 1),
    ("LabelEncoder", {"keys_strings": ["a", "b"], "values_floats": [1.0, 2.0]}, [_WORDS], 1),
    ("LabelEncoder", {"keys_int64s": [0, 1], "values_strings": ["a", "b"]},
     [np.eye(3, 4, dtype=np.int64)], 1),
    ("LinearClassifier", {"coefficients": [0.5] * 16, "intercepts": [0.0] * 4, **_NUMBERS},
     [_ROWS], 2),
    ("LinearClassifier", {"coefficients": [0.5] * 4, "intercepts": [0.0], **_STRINGS},
     [_ROWS], 2),
    ("LinearRegressor", {"coefficients": [0.5] * 8, "targets": 2}, [_ROWS], 1),
    ("Normalizer", {"norm": "L2"}, [np.ones((3, 4), np.int64)], 1),
    ("OneHotEncoder", {"cats_strings": ["a", "b", "c"]}, [_WORDS], 1),
    ("SVMClassifier", _vectors(4, _NUMBERS), [_ROWS], 2),
    ("SVMClassifier", {**_vectors(4, _NUMBERS), "prob_a": [-1.0] * 6, "prob_b": [0.0] * 6},
     [_ROWS], 2),
    ("SVMClassifier", _vectors(2, _STRINGS), [_ROWS], 2),
    ("SVMRegressor", {"coefficients": [0.5] * 2, "kernel_params": [0.5, 0.0, 3.0],
                      "kernel_type": "RBF", "n_supports": 2, "rho": [0.0],
                      "support_vectors": [0.5] * 8}, [_ROWS], 1),
    ("Scaler", {"offset": [1.0], "scale": [2.0]}, [np.ones((3, 4), np.int64)], 1),
    ("TreeEnsembleClassifier", _trees({"classlabels_int64s": [3, 5, 7]}, 3), [_ROWS], 2),
    ("TreeEnsembleClassifier", _trees(_STRINGS, 1), [_ROWS], 2),
]  # fmt: skip
"""Operators of ai.onnx.ml, as converters of scikit-learn write them, also for vectors."""


@pytest.mark.parametrize("case", LEARNED_CASES, ids=lambda case: case[0])
def test_operators_of_converters_have_the_types_that_the_runtime_computes(case: Case) -> None:
    op_type, attributes, operands, n_outputs = case
    names, results = [f"x{i}" for i in range(len(operands))], [f"y{i}" for i in range(n_outputs)]
    nodes = [helper.make_node(op_type, names, results, domain="ai.onnx.ml", **attributes)]
    codes = [
        helper.np_dtype_to_tensor_dtype(value.dtype) for value in operands if value is not None
    ]
    feeds = dict(zip(names, operands, strict=True))
    computed = OrtSession(_learned(nodes, codes, feeds, results), OrtOptions(threads=1)).run(feeds)
    for is_open in (False, True):
        graph = import_model(load_model(_learned(nodes, codes, feeds, results, is_open)))
        for name, value in zip(results, computed, strict=True):
            type_ = graph.types[name]
            assert isinstance(type_, TensorType)
            assert type_.dtype == (value.dtype.name if value.dtype != object else "string")
            assert [evaluate_dim(dim, {"n": 3}) for dim in type_.shape] == list(value.shape)


def _learned(
    nodes: Sequence[onnx.NodeProto],
    codes: Sequence[int],
    feeds: Mapping[str, Any],
    results: Sequence[str],
    is_open: bool = False,
) -> onnx.ModelProto:
    """A model of one node, with an open number of rows if the operand has three."""
    shapes = [
        ["n" if is_open and size == 3 and axis == 0 else size for axis, size in enumerate(x.shape)]
        for x in feeds.values()
    ]
    shapes[1:] = [list(x.shape) for x in list(feeds.values())[1:]]
    inputs = [
        helper.make_tensor_value_info(name, code, shape)
        for name, code, shape in zip(feeds, codes, shapes, strict=True)
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in results]
    opsets = [helper.make_opsetid("", 16), helper.make_opsetid("ai.onnx.ml", 3)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_what_no_rule_tells_is_asked_of_the_runtime() -> None:
    scale, zero = np.asarray(0.1, FLOAT), np.asarray(7, np.uint8)
    operands = [_bytes(2, 3), scale, zero, _bytes(4, 1, 3), scale, zero, scale, zero]
    names = [f"x{i}" for i in range(8)]
    graph = helper.make_graph(
        [helper.make_node("QLinearAdd", names, ["y"], domain="com.microsoft")],
        "g",
        [helper.make_tensor_value_info("x0", TensorProto.UINT8, ["n", 3])],
        [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(value, f"x{i}") for i, value in enumerate(operands) if i],
    )
    opsets = [helper.make_opsetid("", 16), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    assert import_model(load_model(model)).types["y"] == TensorType("uint8", (4, sym("n"), 3))
