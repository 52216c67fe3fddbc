"""Small models with places for subtle faults, and some of them with their sums in another order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

__all__ = ["MODELS", "REORDERED"]

_node = helper.make_node


def _model(
    nodes: list[Any], shape: list[int], weights: Mapping[str, Any], out: list[int]
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        "subtle",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _random(seed: int) -> Callable[..., Any]:
    generator = np.random.default_rng(seed)

    def draw(*shape: int, scale: float | None = None) -> Any:
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        size = fan**-0.5 if scale is None else scale
        return (generator.standard_normal(shape) * size).astype(np.float32)

    return draw


def _convolutions() -> ModelProto:
    draw = _random(0)
    weights = {
        "w0": draw(8, 3, 3, 3), "b0": draw(8, scale=0.1), "w1": draw(8, 8, 3, 3),
        "b1": draw(8, scale=0.1), "g": 1 + draw(8, scale=0.1), "h": draw(8, scale=0.1),
        "m": draw(8, scale=0.1), "v": 1 + draw(8, scale=0.05) ** 2, "lo": np.float32(0),
        "hi": np.float32(1.5), "w2": draw(6, 8, 1, 1), "b2": draw(6, scale=0.1),
    }  # fmt: skip
    nodes = [
        _node("Conv", ["x", "w0", "b0"], ["a"], pads=[1] * 4),
        _node("BatchNormalization", ["a", "g", "h", "m", "v"], ["n"], epsilon=1e-3),
        _node("Clip", ["n", "lo", "hi"], ["c"]),
        _node("Conv", ["c", "w1", "b1"], ["d"], pads=[1] * 4),
        _node("LeakyRelu", ["d"], ["e"], alpha=0.1),
        _node("Add", ["e", "c"], ["f"]),
        _node("MaxPool", ["f"], ["p"], kernel_shape=[3, 3], pads=[1] * 4),
        _node("AveragePool", ["p"], ["q"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=0),
        _node("Conv", ["q", "w2", "b2"], ["y"]),
    ]
    return _model(nodes, [1, 3, 10, 10], weights, [1, 6, 10, 10])


def _attention() -> ModelProto:
    draw = _random(1)
    weights = {
        "q": draw(16, 16, scale=0.25), "k": draw(16, 16, scale=0.25),
        "v": draw(16, 16, scale=0.25), "o": draw(16, 16, scale=0.25), "ob": draw(16, scale=0.1),
        "s": np.float32(0.25), "g": 1 + draw(16, scale=0.1), "b": draw(16, scale=0.1),
        "i": np.array([0, 3, 5, 2, 7, 1], np.int64),
    }  # fmt: skip
    nodes = [
        _node("LayerNormalization", ["x", "g", "b"], ["n"], axis=-1, epsilon=1e-3),
        _node("MatMul", ["n", "q"], ["Q"]),
        _node("MatMul", ["n", "k"], ["K"]),
        _node("MatMul", ["n", "v"], ["V"]),
        _node("Transpose", ["K"], ["T"], perm=[0, 2, 1]),
        _node("MatMul", ["Q", "T"], ["l"]),
        _node("Mul", ["l", "s"], ["L"]),
        _node("Softmax", ["L"], ["P"], axis=-1),
        _node("MatMul", ["P", "V"], ["w"]),
        _node("MatMul", ["w", "o"], ["z"]),
        _node("Add", ["z", "ob"], ["u"]),
        _node("Sub", ["u", "x"], ["r"]),
        _node("Gather", ["r", "i"], ["y"], axis=1),
    ]
    return _model(nodes, [1, 8, 16], weights, [1, 6, 16])


def _perceptron() -> ModelProto:
    draw = _random(2)
    weights = {
        "w0": draw(24, 32, scale=0.2), "b0": draw(32, scale=0.1), "w1": draw(24, 16, scale=0.25),
        "b1": draw(16, scale=0.1), "d": np.float32(3.0),
        "starts": np.array([2], np.int64), "ends": np.array([26], np.int64),
        "axes": np.array([1], np.int64),
    }  # fmt: skip
    nodes = [
        _node("Gemm", ["x", "w0", "b0"], ["a"]),
        _node("Tanh", ["a"], ["t"]),
        _node("Slice", ["t", "starts", "ends", "axes"], ["s"]),
        _node("Gemm", ["s", "w1", "b1"], ["c"]),
        _node("Sigmoid", ["c"], ["g"]),
        _node("Mul", ["c", "g"], ["m"]),
        _node("Div", ["m", "d"], ["e"]),
        _node("Concat", ["e", "c"], ["y"], axis=1),
    ]
    return _model(nodes, [5, 24], weights, [5, 32])


def _long_sums() -> ModelProto:
    """Longer sums, whose order shows."""
    draw = _random(3)
    weights = {"w0": draw(512, 64, scale=0.05), "w1": draw(64, 64, scale=0.125)}
    nodes = [
        _node("MatMul", ["x", "w0"], ["a"]),
        _node("Relu", ["a"], ["b"]),
        _node("MatMul", ["b", "w1"], ["c"]),
        _node("Softmax", ["c"], ["y"], axis=-1),
    ]
    return _model(nodes, [64, 512], weights, [64, 64])


def _turned_sums() -> ModelProto:
    """The same, with the terms of the first product in the opposite order."""
    model = _long_sums()
    held = model.graph.initializer[0]
    weight = numpy_helper.to_array(held)[::-1].copy()
    held.CopyFrom(numpy_helper.from_array(weight, held.name))
    turn = np.arange(511, -1, -1)
    model.graph.initializer.append(numpy_helper.from_array(turn, "turn"))
    model.graph.node.insert(0, _node("Gather", ["x", "turn"], ["t"], axis=1))
    model.graph.node[1].input[0] = "t"
    return model


MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "convolutions": _convolutions,
    "attention": _attention,
    "perceptron": _perceptron,
    "long sums": _long_sums,
}
REORDERED: Mapping[str, Callable[[], ModelProto]] = {"long sums": _turned_sums}
