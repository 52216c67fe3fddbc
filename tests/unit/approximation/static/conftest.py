"""A model with convolutions, for the tests of static quantisation."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest
from onnx import TensorProto, helper, numpy_helper

SHAPE = (2, 4, 8, 8)


@pytest.fixture
def images() -> onnx_ir.Model:
    """Return a model with each kind of unit, and operators between that are none."""
    return image_model()


def image_model(opset: int = 17) -> onnx_ir.Model:
    """Return the model; its outputs are a value in the middle, and the last one."""
    rng = np.random.default_rng(0)
    weights = {
        name: (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        for name, shape in {
            "w0": (6, 4, 3, 3), "w1": (6, 1, 3, 3), "w2": (6, 6, 1, 1), "w3": (24, 64),
            "b3": (24,), "b0": (6,), "w4": (24, 24),
        }.items()
    }  # fmt: skip
    weights["least"], weights["most"] = np.zeros((), np.float32), np.full((), 6, np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=6),
        helper.make_node("Clip", ["c1", "least", "most"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"]),
        helper.make_node("Add", ["c2", "r0"], ["a"]),
        helper.make_node("Relu", ["a"], ["r2"]),
        helper.make_node("Sigmoid", ["r2"], ["s"]),
        helper.make_node("Mul", ["r2", "s"], ["m"]),
        helper.make_node("MaxPool", ["m"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("AveragePool", ["m"], ["q"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Concat", ["p", "q"], ["k"], axis=1),
        helper.make_node("Tanh", ["k"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["g"]),
        helper.make_node("Add", ["t", "g"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("Transpose", ["f"], ["ft"]),
        helper.make_node("Reshape", ["ft", "shape"], ["rows"]),
        helper.make_node("Gemm", ["rows", "w3", "b3"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["hr"]),
        helper.make_node("MatMul", ["hr", "w4"], ["y"]),
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([-1, 64]), "shape"))
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE),
        helper.make_tensor_value_info("r2", TensorProto.FLOAT, [2, 6, 8, 8]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph(nodes, "images", ends[:1], ends[1:], tensors)
    return onnx_ir.from_proto(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    )
