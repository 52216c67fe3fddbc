"""Oracles of our kernels: normalizations in float64, activations, models on rows, odd memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.native.sites import ACTIVATIONS, SILU
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

__all__ = [
    "NUMBERS",
    "activated",
    "normalization_model",
    "normalized",
    "opened",
    "product_model",
    "unaligned",
]

Array = NDArray[Any]

NUMBERS = {name: number for name, (number, _) in ACTIVATIONS.items()} | {"SiLU": SILU}
"""Number of each activation in attributes of our operators."""


def activated(x: Any, name: str, alpha: float, beta: float) -> Any:
    """An activation in NumPy, by the name of its operator."""
    match name:
        case "Relu":
            return np.maximum(x, 0)
        case "LeakyRelu":
            return np.where(x >= 0, x, alpha * x)
        case "Clip":
            return np.clip(x, alpha, beta)
        case "Sigmoid":
            return 1 / (1 + np.exp(-x))
        case "HardSigmoid":
            return np.clip(alpha * x + beta, 0, 1)
        case "SiLU":
            return x / (1 + np.exp(-x))
        case "HardSwish":
            return x * np.clip(x / 6 + 0.5, 0, 1)
    return x


def opened(model: onnx.ModelProto, library: str, threads: int = 1) -> OrtSession:
    """A session with the kernels of one library."""
    return OrtSession(model, OrtOptions(threads, custom_ops=(library,)))


def unaligned(x: Array) -> Array:
    """The same values, one element behind the start of a vector."""
    memory = np.empty(x.size + 32, x.dtype)
    start = (-memory.ctypes.data // x.itemsize) % 16 + 1
    result = memory[start : start + x.size].reshape(x.shape)
    result[...] = x
    return result


def normalized(t: Array, epsilon: float, *, is_centred: bool) -> Array:
    """Rows without their mean, or with it, over their deviation; in float64."""
    wide = t.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if is_centred:
            wide = wide - wide.mean(axis=-1, keepdims=True)
        squares = np.square(wide).mean(axis=-1, keepdims=True)
        result: Array = wide / np.sqrt(squares + float(np.float32(epsilon)))
    return result


def normalization_model(
    vectors: dict[str, Array], has: Sequence[str] = (), **attrs: Any
) -> onnx.ModelProto:
    """One operator of our library.

    Args:
        vectors: constants by name: scale, shift, bias.
        has: of skip and sum.
        attrs: override those of a plain LayerNormalization.
    """
    values = {"centred": 1, "epsilon": 1e-5, **attrs}
    names = [
        name if name in vectors or name in has or name == "x" else ""
        for name in ("x", "scale", "shift", "skip", "bias")
    ]
    outputs = ["y", "sum"] if "sum" in has else ["y"]
    inputs = ["x", "skip"] if "skip" in has else ["x"]
    node = helper.make_node("Normalization", names, outputs, domain="eqsat_opt", **values)
    return _model(node, inputs, outputs, vectors)


def product_model(
    weights: Array,
    bias: Array | None = None,
    *,
    is_constant: bool = True,
    is_sum: bool = False,
    **attrs: Any,
) -> onnx.ModelProto:
    """One operator of our library; ``attrs`` override those of a plain product.

    What a sum adds is the input z.
    """
    values = {
        "transposed": 0, "halved": 0, "factor": 1.0, "bias_factor": 1.0,
        "activation": 0, "alpha": 0.0, "beta": 0.0, **attrs,
    }  # fmt: skip
    constants = ({"w": weights} if is_constant else {}) | ({} if bias is None else {"b": bias})
    node = helper.make_node(
        "PackedProduct", ["x", "w", *["b"] * (bias is not None), *["z"] * is_sum], ["y"],
        domain="eqsat_opt", **values,
    )  # fmt: skip
    inputs = ["x", *["w"] * (not is_constant), *["z"] * is_sum]
    return _model(node, inputs, ["y"], constants)


def _model(
    node: onnx.NodeProto, inputs: Sequence[str], outputs: Sequence[str], constants: dict[str, Array]
) -> onnx.ModelProto:
    """Of values of any shape."""
    graph = helper.make_graph(
        [node],
        "native",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("eqsat_opt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
