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


def test_packed_operands_have_no_type_that_is_made_up() -> None:
    case: Case = ("MultiHeadAttention", {"num_heads": 2}, [_random(2, 3, 2, 3, 4)], 1)
    model, _ = _model(case, symbolic=False)
    assert not isinstance(import_model(load_model(model)).types["y0"], TensorType)
