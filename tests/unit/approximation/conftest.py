"""Models with products, for the tests of low precision."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.staging import Staging


@pytest.fixture
def layers() -> onnx_ir.Model:
    """Return ``y = relu(x w0) w1 + b``, two products of `[4, 64]` by `[64, 64]`."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((64, 64)).astype(np.float32) / 8 for i in range(2)}
    weights["b"] = rng.standard_normal(64).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Gemm", ["r", "w1", "b"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 64]) for name in "xy"]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 17)]
    return onnx_ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


@pytest.fixture
def staging(layers: onnx_ir.Model) -> Iterator[Staging]:
    """Return a staging of that model."""
    with Staging(layers, layers) as made:
        yield made
