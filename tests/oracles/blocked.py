"""Convolutions in float64, and the blocked buffers that onnxruntime's kernels read and write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from eqsat_opt.runtime.backends.native.groups import of_groups

__all__ = [
    "blocked", "blocked_weights", "convolved", "convolved_in_groups", "grouped_model", "plain",
    "winograd_model",
]  # fmt: skip

Array = NDArray[Any]


def blocked(x: Array, block: int) -> Array:
    """Plain to blocked; the shape says nothing of it."""
    n, c, h, w = x.shape
    moved = x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)
    return np.ascontiguousarray(moved).reshape(n, c, h, w)


def plain(x: Array, block: int) -> Array:
    """Blocked to plain."""
    n, c, h, w = x.shape
    return x.reshape(n, c // block, h, w, block).transpose(0, 1, 4, 2, 3).reshape(n, c, h, w)


def blocked_weights(w: Array, block: int) -> Array:
    """Weights as blocked kernels want them."""
    o, i, r, s = w.shape
    moved = w.reshape(o // block, block, i // block, block, r, s).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(moved).reshape(o, i, r, s)


def convolved(x: Array, w: Array, pads: Sequence[int]) -> Array:
    """The convolution in float64; pads are top, left, bottom, right."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    r, s = w.shape[2:]
    height, width = padded.shape[2] - r + 1, padded.shape[3] - s + 1
    result = np.zeros((x.shape[0], w.shape[0], height, width))
    for a in range(r):
        for b in range(s):
            part = padded[:, :, a : a + height, b : b + width]
            result += np.einsum("nchw,oc->nohw", part, w[:, :, a, b].astype(np.float64))
    return result


def convolved_in_groups(
    x: Array, w: Array, pads: Sequence[int], groups: int, strides: Sequence[int] = (1, 1)
) -> Array:
    """The convolution of each group by itself, in float64."""
    parts = [
        convolved(*both, pads)
        for both in zip(np.split(x, groups, 1), np.split(w, groups), strict=True)
    ]
    result: Array = np.concatenate(parts, axis=1)[:, :, :: strides[0], :: strides[1]]
    return result


def winograd_model(
    w: Array,
    bias: Array | None,
    *,
    has_residual: bool = False,
    is_constant: bool = True,
    **attrs: Any,
) -> onnx.ModelProto:
    """One operator of our library; ``attrs`` override those of a plain F(2, 3)."""
    values = {"block": 16, "pads": [1, 1, 1, 1], "tile": [2, 2], "transform_in_run": 0, **attrs}
    constants = {"w": blocked_weights(w, values["block"]), "b": bias}
    return _model("WinogradConv", constants, values, has_residual, is_constant=is_constant)


def grouped_model(
    w: Array,
    bias: Array | None,
    *,
    has_residual: bool = False,
    is_constant: bool = True,
    **attrs: Any,
) -> onnx.ModelProto:
    """One operator of our library; ``attrs`` override those without strides."""
    values = {"block": 16, "pads": [1, 1, 1, 1], "strides": [1, 1], "input_activation": 0, **attrs}
    constants = {"w": of_groups(w, values["block"]), "b": bias}
    return _model("GroupedConv", constants, values, has_residual, is_constant=is_constant)


def _model(
    kind: str,
    constants: dict[str, Array | None],
    attrs: dict[str, Any],
    has_residual: bool,
    *,
    is_constant: bool,
) -> onnx.ModelProto:
    float32, weights, bias = TensorProto.FLOAT, constants["w"], constants["b"]
    assert weights is not None
    initializers = [numpy_helper.from_array(weights, "w")] if is_constant else []
    inputs = [helper.make_tensor_value_info("x", float32, ["n", "c", "h", "v"])]
    if not is_constant:
        inputs.append(helper.make_tensor_value_info("w", float32, weights.shape))
    if bias is not None:
        initializers.append(numpy_helper.from_array(bias, "b"))
    if has_residual:
        inputs.append(helper.make_tensor_value_info("z", float32, ["n", "d", "p", "q"]))
    names = ["x", "w", "b" if bias is not None else "", *["z"] * has_residual]
    values = {"activation": 0, "alpha": 0.0, "beta": 0.0, **attrs}
    node = helper.make_node(kind, names, ["y"], domain="eqsat_opt", **values)
    output = helper.make_tensor_value_info("y", float32, ["n", weights.shape[0], "p", "q"])
    graph = helper.make_graph([node], "convolution", inputs, [output], initializers)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("eqsat_opt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
