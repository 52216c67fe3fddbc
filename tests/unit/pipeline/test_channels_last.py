"""Convolutions of graphs whose channels lie last: the transposes around them go together."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.api import run
from eqsat_opt.pipeline.options import Options

node = helper.make_node
RNG = np.random.default_rng(0)


class Images:
    """A graph as tf2onnx writes it, transposed to and from each convolution."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def drawn(self, *shape: int) -> str:
        return self.constant(RNG.standard_normal(shape).astype(np.float32))

    def add(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(node(op, list(inputs), [name], **attrs))
        return name

    def conv(self, x: str, before: int, after: int, kernel: int = 3) -> str:
        first = self.add("Transpose", x, perm=[0, 3, 1, 2])
        weights = self.drawn(after, before, kernel, kernel)
        made = self.add("Conv", first, weights, pads=[kernel // 2] * 4)
        last = self.add("Transpose", made, perm=[0, 2, 3, 1])
        return self.add("Add", last, self.drawn(after))


def between(images: Images, kind: str, x: str) -> tuple[str, int]:
    """What stands between two convolutions, and how many channels it leaves of eight."""
    y = images.conv(x, 8, 8)
    match kind:
        case "activation":
            return images.add("Mul", y, images.add("Sigmoid", y)), 8
        case "residual":
            return images.add("Add", x, images.add("Relu", y)), 8
        case "scale":
            scaled = images.add("Mul", y, images.drawn(8))
            return images.add("Add", scaled, images.drawn(1, 1, 8)), 8
        case "gate":
            mean = images.add("ReduceMean", y, axes=[1, 2], keepdims=1)
            return images.add("Mul", y, images.add("Sigmoid", images.conv(mean, 8, 8, 1))), 8
        case "parts":
            return images.add("Concat", x, y, axis=3), 16
        case "border":
            pads = images.constant(np.array([0, 1, 2, 0, 0, 0, 1, 0]))
            return images.add("Pad", y, pads), 8
        case _:
            first = images.add("Transpose", y, perm=[0, 3, 1, 2])
            pooled = images.add("MaxPool", first, kernel_shape=[2, 2], strides=[2, 2])
            return images.add("Transpose", pooled, perm=[0, 2, 3, 1]), 8


@pytest.mark.parametrize(
    "kind", ["activation", "residual", "scale", "gate", "parts", "border", "pool"]
)
def test_only_the_interface_is_transposed(kind: str) -> None:
    images = Images()
    x = images.add("Relu", images.conv("x", 3, 8))
    middle, channels = between(images, kind, x)
    last = images.conv(middle, channels, 4)
    graph = helper.make_graph(
        images.nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 8, 3])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        images.constants,
    )
    given = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = Options(measure=False, store="", threads=1, check=1, budget_s=20.0, race=False)
    result = run(given, options)
    assert [n.op_type for n in result.model.graph.node].count("Transpose") == 2
    feeds = {"x": RNG.standard_normal((2, 8, 8, 3)).astype(np.float32)}
    wanted, found = (
        onnxruntime.InferenceSession(
            one.SerializeToString(), providers=["CPUExecutionProvider"]
        ).run(None, feeds)[0]
        for one in (given, result.model)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
