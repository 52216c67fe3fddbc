"""Small networks with random weights, and what onnxruntime's quantiser makes of them.

A recipe is a network and a way to quantise it. The same seed gives the same bytes.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue
from eqsat_opt.lab.zoo._encoder import encoder_layer
from eqsat_opt.runtime.inputs import random_inputs

__all__ = ["NETWORKS", "RECIPES", "Recipe", "build", "quantise"]

_CALIBRATION_INPUTS = 4


# ------------------------------------------------------------------------------------- networks


def _cnn(seed: int) -> onnx.ModelProto:
    b = GraphBuilder("cnn", seed)
    x = b.input("x", (1, 3, 64, 64))
    for channels in (32, 64, 128):
        x = b.max_pool(b.relu(b.conv(x, channels, 3)), 2, 2, pad=0)
    return b.model({"logits": b.classifier(x, 100)})


def _residual(seed: int) -> onnx.ModelProto:
    b = GraphBuilder("residual", seed)
    x = b.relu(b.conv(b.input("x", (1, 3, 64, 64)), 64, 3, stride=2))
    for channels, stride in ((64, 1), (128, 2)):
        branch = b.conv(b.relu(b.conv(x, channels, 3, stride=stride)), channels, 3)
        skip = x if stride == 1 else b.conv(x, channels, 1, stride=stride, pad=0)
        x = b.relu(b.add(branch, skip))
    return b.model({"logits": b.classifier(x, 100)})


def _clipped(b: GraphBuilder, x: TracedValue) -> TracedValue:
    return b.op("Clip", x, b.scalar(0.0), b.scalar(6.0))


def _depthwise(seed: int) -> onnx.ModelProto:
    b = GraphBuilder("depthwise", seed)
    x = _clipped(b, b.conv(b.input("x", (1, 3, 64, 64)), 32, 3, stride=2))
    for channels, stride in ((64, 1), (128, 2), (128, 1)):
        x = _clipped(b, b.conv(x, x.shape[1], 3, stride=stride, groups=x.shape[1]))
        x = _clipped(b, b.conv(x, channels, 1))
    return b.model({"logits": b.classifier(x, 100)})


def _branches(seed: int) -> onnx.ModelProto:
    b = GraphBuilder("branches", seed)
    x = b.max_pool(b.relu(b.conv(b.input("x", (1, 3, 64, 64)), 64, 3)), 2, 2, pad=0)
    for _ in range(2):
        narrow = b.relu(b.conv(x, 32, 1))
        wide = b.relu(b.conv(b.relu(b.conv(x, 32, 1)), 64, 3))
        pooled = b.relu(b.conv(b.average_pool(x, 3, 1), 32, 1))
        x = b.concat([narrow, wide, pooled])
    return b.model({"logits": b.classifier(x, 100)})


def _mlp(seed: int) -> onnx.ModelProto:
    b = GraphBuilder("mlp", seed)
    x = b.input("x", (16, 256))
    for features in (1024, 1024, 512):
        x = b.relu(b.gemm(x, features))
    return b.model({"logits": b.gemm(x, 100)})


def _attention(seed: int) -> onnx.ModelProto:
    b = GraphBuilder("attention", seed)
    x = b.input("x", (1, 32, 256))
    for _ in range(2):
        x = encoder_layer(
            b, x, heads=4, feed_forward=1024, activation=b.gelu, linear=b.linear, branch_gain=0.5
        )
    return b.model({"hidden": x})


def _lstm(seed: int) -> onnx.ModelProto:
    hidden = 192
    b = GraphBuilder("lstm", seed)
    x = b.linear(b.input("x", (24, 1, 128)), 256)
    for _ in range(2):
        scale = hidden**-0.5
        weights = (
            b.normal((1, 4 * hidden, x.shape[-1]), scale),
            b.normal((1, 4 * hidden, hidden), scale),
            b.normal((1, 8 * hidden), scale),
        )
        states = b.op("LSTM", x, *(b.initializer(w, "lstm") for w in weights), hidden_size=hidden)
        x = b.op("Squeeze", states, b.initializer(np.array([1], np.int64), "axes"))
    return b.model({"logits": b.linear(x, 64)})


NETWORKS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "cnn": _cnn, "residual": _residual, "depthwise": _depthwise, "branches": _branches,
    "mlp": _mlp, "attention": _attention, "lstm": _lstm,
}  # fmt: skip


# -------------------------------------------------------------------------------------- recipes


@dataclass(frozen=True)
class Recipe:
    """How one quantised model is made.

    Attributes:
        network: a name in :data:`NETWORKS`.
        method: ``qdq`` and ``qoperator`` are static and calibrated on random inputs, ``dynamic``
            computes the scales of activations at run time.
        activations, weights: ``u8`` or ``s8``; dynamic activations are always ``u8``.
        per_channel: whether every output channel of a weight has its own scale.
        symbolic: whether the first dimension of inputs and outputs becomes the symbol ``N``.
        only: operators that are quantised; all that the quantiser knows where empty.
    """

    network: str
    method: str
    activations: str = "u8"
    weights: str = "s8"
    per_channel: bool = False
    symbolic: bool = False
    only: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Network, method, element types, granularity: the stem of the file."""
        types = self.weights if self.method == "dynamic" else self.activations + self.weights
        parts = [self.network, self.method, types]
        parts += ["channel"] * self.per_channel + ["batch"] * self.symbolic
        return "-".join([*parts, *map(str.lower, self.only)])


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe("cnn", "qdq"),
        Recipe("cnn", "qdq", "s8", "s8", per_channel=True, symbolic=True),
        Recipe("cnn", "qoperator", "u8", "u8"),
        Recipe("cnn", "dynamic", weights="u8"),
        Recipe("residual", "qdq", per_channel=True),
        Recipe("residual", "qdq", "s8", "s8", symbolic=True),
        Recipe("residual", "qoperator", per_channel=True),
        Recipe("depthwise", "qdq", per_channel=True),
        Recipe("depthwise", "qoperator", symbolic=True),
        Recipe("branches", "qdq", "u8", "u8"),
        Recipe("branches", "qoperator", "u8", "s8", per_channel=True),
        Recipe("mlp", "qdq", per_channel=True, symbolic=True),
        Recipe("mlp", "qoperator", "u8", "u8"),
        Recipe("mlp", "dynamic", per_channel=True),
        Recipe("attention", "qdq"),
        Recipe("attention", "qdq", "s8", "s8", per_channel=True, only=("MatMul",)),
        Recipe("attention", "dynamic", weights="u8"),
        Recipe("attention", "dynamic", per_channel=True),
        Recipe("lstm", "dynamic"),
        Recipe("lstm", "qdq", per_channel=True),
    )
}
"""All models of the benchmark by name."""


class _Calibration:
    """Random inputs in the form that the quantiser reads."""

    def __init__(self, model: onnx.ModelProto, seed: int) -> None:
        self._feeds: Iterator[dict[str, Any]] = iter(
            [random_inputs(model, seed + i) for i in range(_CALIBRATION_INPUTS)]
        )

    def get_next(self) -> dict[str, Any] | None:
        return next(self._feeds, None)


def build(recipe: Recipe, seed: int) -> onnx.ModelProto:
    """The quantised model of ``recipe``."""
    return quantise(NETWORKS[recipe.network](seed), recipe, seed)


def quantise(model: onnx.ModelProto, recipe: Recipe, seed: int) -> onnx.ModelProto:
    """What onnxruntime's quantiser makes of any float model by ``recipe``."""
    from onnxruntime import quantization as q

    kinds = {"u8": q.QuantType.QUInt8, "s8": q.QuantType.QInt8}
    formats = {"qdq": q.QuantFormat.QDQ, "qoperator": q.QuantFormat.QOperator}
    common = {
        "weight_type": kinds[recipe.weights],
        "per_channel": recipe.per_channel,
        "op_types_to_quantize": list(recipe.only) or None,
    }
    with tempfile.TemporaryDirectory(prefix="quantised-") as folder, _quiet():
        source = onnx.ModelProto()
        source.CopyFrom(model)  # the quantiser moves the weights of what it is given
        target = Path(folder) / "model.onnx"
        if recipe.method == "dynamic":
            q.quantize_dynamic(source, target, **common)
        else:
            q.quantize_static(
                source,
                target,
                _Calibration(model, seed),
                quant_format=formats[recipe.method],
                activation_type=kinds[recipe.activations],
                **common,
            )
        result = onnx.load(target)
    if recipe.symbolic:
        _free_batch(result.graph)
    return result


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The quantiser recommends a preprocessing of the model each time that it is called."""
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _free_batch(graph: onnx.GraphProto) -> None:
    del graph.value_info[:]
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
