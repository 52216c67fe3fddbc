"""Recurrent networks as exporters that unroll loops write them: one step after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["build"]

_STEPS = 16


class _Writer:
    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def op(self, name: str, *inputs: str, outputs: int = 1, **attrs: Any) -> list[str]:
        made = [f"v{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(name, inputs, made, **attrs))
        return made

    def one(self, name: str, *inputs: str, **attrs: Any) -> str:
        return self.op(name, *inputs, **attrs)[0]

    def weight(self, *shape: int) -> str:
        values = self.rng.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(values.astype(np.float32))

    def constant(self, values: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def split(self, value: str, sizes: list[int], axis: int) -> list[str]:
        wanted = self.constant(np.array(sizes, np.int64))
        return self.op("Split", value, wanted, outputs=len(sizes), axis=axis)


def build(cell: str, hidden: int) -> onnx.ModelProto:
    """A layer of LSTM (Hochreiter and Schmidhuber 1997) or GRU (Cho et al. 2014), 16 steps.

    Args:
        cell: "lstm" or "gru".
        hidden: size of states and inputs.

    Returns:
        From x of (16, hidden) to the states of (16, hidden); the products of all inputs are one.
    """
    w = _Writer()
    gates = {"lstm": 4, "gru": 3}[cell]
    bias = w.constant(w.rng.standard_normal(gates * hidden).astype(np.float32) / 10)
    inputs = w.one("Add", w.one("MatMul", "x", w.weight(hidden, gates * hidden)), bias)
    recurrent = w.weight(hidden, gates * hidden)
    state = memory = w.constant(np.zeros((1, hidden), np.float32))
    sizes, states = [hidden] * gates, []
    for x in w.split(inputs, [1] * _STEPS, axis=0):
        product = w.one("MatMul", state, recurrent)
        if cell == "lstm":
            i, f, g, o = w.split(w.one("Add", x, product), sizes, axis=1)
            kept = w.one("Mul", w.one("Sigmoid", f), memory)
            new = w.one("Mul", w.one("Sigmoid", i), w.one("Tanh", g))
            memory = w.one("Add", kept, new)
            state = w.one("Mul", w.one("Sigmoid", o), w.one("Tanh", memory))
        else:
            (rx, zx, nx), (rh, zh, nh) = w.split(x, sizes, 1), w.split(product, sizes, 1)
            reset = w.one("Sigmoid", w.one("Add", rx, rh))
            update = w.one("Sigmoid", w.one("Add", zx, zh))
            new = w.one("Tanh", w.one("Add", nx, w.one("Mul", reset, nh)))
            rest = w.one("Sub", w.constant(np.ones((), np.float32)), update)
            state = w.one("Add", w.one("Mul", rest, new), w.one("Mul", update, state))
        states.append(state)
    w.nodes.append(helper.make_node("Concat", states, ["y"], axis=0))
    shape = [_STEPS, hidden]
    graph = helper.make_graph(
        w.nodes,
        f"{cell}{hidden}",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        w.constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
