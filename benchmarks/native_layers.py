"""Layers of trained models by our kernels, relative to onnxruntime's, each alone in a session.

    python -m benchmarks.native_layers recurrences [--rounds 9]   # LSTM and GRU
    python -m benchmarks.native_layers sequences [--rounds 9]     # convolutions of sequences
    python -m benchmarks.native_layers depthwise [--rounds 9]     # with the activations around them
    python -m benchmarks.native_layers products [--rounds 9]      # of 1 to 32 rows

Least times of whole sessions that take turns; A/A is the ratio of two sessions of onnxruntime's
kernel. Weights lie in the caches, as far as they fit, which they may not do inside a model.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console

from benchmarks.rows import Rows, geometric_mean
from eqsat_opt.runtime.backends.native.depthwise import depthwise_convolutions
from eqsat_opt.runtime.backends.native.library import library_path
from eqsat_opt.runtime.backends.native.products import products as row_products
from eqsat_opt.runtime.backends.native.recurrences import recurrences as recurrent_layers
from eqsat_opt.runtime.backends.native.sequences import sequence_convolutions
from eqsat_opt.runtime.backends.native.sites import Site, with_names, with_ways
from eqsat_opt.runtime.backends.ort.block import nchwc_block
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.source import Feeds

RECURRENT = [
    ("silero-vad, sequence", "LSTM", "forward", (16, 1, 128, 128)),
    ("silero-vad, one window", "LSTM", "forward", (1, 1, 128, 128)),
    ("silero-vad, version 4", "LSTM", "forward", (3, 1, 64, 64)),
    ("ddddocr", "LSTM", "bidirectional", (20, 1, 512, 512)),
    ("nakdimon", "LSTM", "bidirectional", (80, 1, 400, 400)),
    ("PP-OCRv2 recogniser", "LSTM", "bidirectional", (80, 1, 64, 64)),
    ("hey_mycroft", "LSTM", "bidirectional", (28, 1, 96, 64)),
    ("brainmaze", "LSTM", "bidirectional", (24, 2, 200, 100)),
    ("piper tashkeel", "GRU", "bidirectional", (40, 1, 56, 112)),
    ("romanizer", "GRU", "bidirectional", (16, 1, 256, 128)),
    ("romanizer, 8 names", "GRU", "bidirectional", (16, 8, 256, 128)),
]
"""Layers of trained models: steps, samples, features and hidden units."""

SEQUENCES = [
    ("silero-vad, transform", 16, 832, (258, 1, 256), 128, 1),
    ("silero-vad, first", 16, 4, (128, 129, 3), 1, 1),
    ("silero-vad, second", 16, 4, (64, 128, 3), 2, 1),
    ("silero-vad, third", 16, 2, (64, 64, 3), 2, 1),
    ("silero-vad, last", 16, 1, (128, 64, 3), 1, 1),
    ("vocoder", 1, 1500, (128, 128, 3), 1, 1),
    ("vocoder, dilated", 1, 1500, (128, 128, 3), 1, 4),
    ("whisper, first", 1, 1000, (384, 80, 3), 1, 1),
]
"""Convolutions of trained models: samples, length, weights, stride and dilation."""

DEPTHWISE = [
    ("mobilenet_v2", 96, 112, (3, 2), ("", "Clip")),
    ("mobilenet_v2", 144, 56, (3, 1), ("", "Clip")),
    ("mobilenet_v2", 384, 14, (3, 1), ("", "Clip")),
    ("mobilenet_v2", 960, 7, (3, 1), ("", "Clip")),
    ("mobilenet_v3", 120, 28, (5, 1), ("", "Relu")),
    ("mobilenet_v3", 200, 14, (3, 1), ("", "HardSwish")),
    ("mobilenet_v3", 960, 7, (5, 1), ("", "HardSwish")),
    ("efficientnet_b0", 32, 112, (3, 1), ("SiLU", "SiLU")),
    ("efficientnet_b0", 144, 56, (5, 2), ("SiLU", "SiLU")),
    ("efficientnet_b0", 240, 28, (5, 1), ("SiLU", "SiLU")),
    ("efficientnet_b0", 672, 14, (5, 1), ("SiLU", "SiLU")),
    ("efficientnet_b0", 1152, 7, (5, 1), ("SiLU", "SiLU")),
    ("shufflenet", 136, 28, (3, 1), ("", "")),
    ("shufflenet", 272, 14, (3, 1), ("", "")),
]
"""Depthwise convolutions of models: channels, extent, window and stride, activations around."""

PRODUCTS = [
    ("mobilenet_v2, last", 1280, 1000, ""),
    ("distilbert, first", 768, 3072, ""),
    ("distilbert, second", 3072, 768, ""),
    ("t5, query", 512, 512, ""),
    ("small transformer", 64, 256, "Relu"),
]
"""Products with weights: depth, columns, and what is computed after them."""

_ROWS = 1, 2, 4, 8, 16, 32


def _recurrent(op: str, direction: str, size: tuple[int, int, int, int]) -> onnx.ModelProto:
    steps, samples, features, hidden = size
    rng = np.random.default_rng(0)
    n, rows = 2 if direction == "bidirectional" else 1, hidden * (4 if op == "LSTM" else 3)
    constants = {
        "w": rng.standard_normal((n, rows, features)) / np.sqrt(features),
        "r": rng.standard_normal((n, rows, hidden)) / np.sqrt(hidden),
        "b": rng.standard_normal((n, 2 * rows)),
    }
    attrs: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    node = helper.make_node(
        op, ["x", *constants], ["y"], hidden_size=hidden, direction=direction, **attrs
    )
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "recurrence",
        [helper.make_tensor_value_info("x", float32, [steps, samples, features])],
        [helper.make_tensor_value_info("y", float32, [steps, n, samples, hidden])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _times_us(model: onnx.ModelProto, site: Site, feeds: Feeds, rounds: int) -> list[float]:
    """Least times of a model, of the model again, and of the model with its site replaced."""
    as_is = OrtOptions(1, "disabled", custom_ops=(library_path(),))
    made = with_ways(model, [(site, site.ways[0])])
    calls = [OrtSession(one, as_is).bind(feeds) for one in (model, model, made)]
    times = [float("inf")] * len(calls)
    for _ in range(rounds):
        for i, call in enumerate(calls):
            for _ in range(20):
                start = time.perf_counter()
                call()
                times[i] = min(times[i], time.perf_counter() - start)
    return [1e6 * one for one in times]


def _against(layers: Sequence[tuple[str, str, onnx.ModelProto, Site, float]], rounds: int) -> None:
    """Print the table of layers: names, sizes, models with their site, and FLOPs."""
    rows = Rows("layer", "sizes", "onnxruntime, µs", "A/A", "ours", "GF/s")
    ratios = []
    for name, sizes, model, site, flops in layers:
        (x,) = model.graph.input
        shape = [one.dim_value for one in x.type.tensor_type.shape.dim]
        data = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        own, again, ours = _times_us(model, site, {x.name: data}, rounds)
        ratios.append(ours / own)
        figures = (
            f"{own:.0f}",
            f"{again / own:.2f}",
            f"{ours / own:.2f}",
            f"{flops / ours / 1e3:.0f}",
        )
        rows.add(name, sizes, *figures)
    rows.show()
    Console().print(f"geometric mean: {geometric_mean(ratios):.3f}")


def recurrences(arguments: argparse.Namespace) -> None:
    """Each recurrent layer by our kernel, relative to onnxruntime's."""
    layers = []
    for name, op, direction, size in RECURRENT:
        model = with_names(_recurrent(op, direction, size))
        steps, samples, features, hidden = size
        n, gates = 2 if direction == "bidirectional" else 1, 4 if op == "LSTM" else 3
        flops = 2 * n * steps * samples * gates * hidden * (features + hidden)
        (site,) = recurrent_layers(model)
        sizes = f"{steps} steps × {samples}, {features} → {hidden}"
        layers.append((f"{name}: {op}, {direction}", sizes, model, site, flops))
    _against(layers, arguments.rounds)


def _sequence(samples: int, length: int, w: tuple[int, int, int], step: int, gap: int) -> Any:
    """A convolution [samples, channels, length] by w, padded to keep the length at stride 1."""
    pads = [(w[2] - 1) * gap // 2 if w[1] > 1 else 0] * 2
    weights = np.random.default_rng(0).standard_normal(w) / np.sqrt(w[1] * w[2])
    node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[step], dilations=[gap], pads=pads)
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "sequence",
        [helper.make_tensor_value_info("x", float32, [samples, w[1], length])],
        [helper.make_tensor_value_info("y", float32, None)],
        [numpy_helper.from_array(weights.astype(np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def sequences(arguments: argparse.Namespace) -> None:
    """Each convolution of sequences by our kernel, relative to onnxruntime's."""
    layers = []
    for name, samples, length, w, step, gap in SEQUENCES:
        model = with_names(_sequence(samples, length, w, step, gap))
        span, padded = (w[2] - 1) * gap + 1, w[1] > 1
        room = length - span + ((w[2] - 1) * gap // 2 * 2 if padded else 0)
        flops = 2 * samples * (room // step + 1) * w[0] * w[1] * w[2]
        (site,) = sequence_convolutions(model)
        sizes = f"{samples} × {length}, {w[1]} → {w[0]}, {w[2]} taps, stride {step}, dilation {gap}"
        layers.append((name, sizes, model, site, flops))
    _against(layers, arguments.rounds)


def _depthwise(
    channels: int, extent: int, window: int, stride: int, around: tuple[str, str]
) -> onnx.ModelProto:
    """A depthwise convolution with the activations before and after it, if any."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((channels, 1, window, window)) / window,
        "b": rng.standard_normal(channels),
        "low": np.float32(0.0),
        "high": np.float32(6.0),
    }
    nodes: list[onnx.NodeProto] = []

    def activate(kind: str, value: str) -> str:
        if kind == "SiLU":
            nodes.append(helper.make_node("Sigmoid", [value], [f"{value}/sigmoid"]))
            nodes.append(helper.make_node("Mul", [value, f"{value}/sigmoid"], [f"{value}/{kind}"]))
        elif kind:
            bounds = ["low", "high"] if kind == "Clip" else []
            nodes.append(helper.make_node(kind, [value, *bounds], [f"{value}/{kind}"]))
        return f"{value}/{kind}" if kind else value

    data = activate(around[0], "x")
    pads, strides = [window // 2] * 4, [stride] * 2
    conv = helper.make_node(
        "Conv", [data, "w", "b"], ["y"], group=channels, pads=pads, strides=strides
    )
    nodes.append(conv)
    result = activate(around[1], "y")
    float32 = onnx.TensorProto.FLOAT
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        "depthwise",
        [helper.make_tensor_value_info("x", float32, [1, channels, extent, extent])],
        [helper.make_tensor_value_info(result, float32, None)],
        [
            numpy_helper.from_array(np.asarray(value, np.float32), name)
            for name, value in constants.items()
            if name in read
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def depthwise(arguments: argparse.Namespace) -> None:
    """Each depthwise convolution by our kernel, relative to onnxruntime's; reorders included."""
    layers = []
    for name, channels, extent, (window, stride), around in DEPTHWISE:
        model = _depthwise(channels, extent, window, stride, around)
        optimized = with_names(ort_optimized(model, OrtOptions(1)))
        (site,) = depthwise_convolutions(optimized, nchwc_block())
        flops = 2 * channels * (window * -(-extent // stride)) ** 2
        kinds = ", ".join(filter(None, (f"{around[0]} before" if around[0] else "", around[1])))
        sizes = f"{channels} × {extent}², {window} × {window}, stride {stride}; {kinds or 'plain'}"
        layers.append((name, sizes, optimized, site, flops))
    _against(layers, arguments.rounds)


def _product(rows: int, depth: int, columns: int, activation: str) -> onnx.ModelProto:
    """A product with weights and a bias, and an activation if onnxruntime fuses it."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((depth, columns)) / np.sqrt(depth),
        "b": rng.standard_normal(columns),
    }
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"])]
    if activation == "Relu":
        nodes.append(helper.make_node("Relu", ["y"], ["z"]))
    float32 = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", float32, [rows, depth])],
        [helper.make_tensor_value_info(nodes[-1].output[0], float32, [rows, columns])],
        [numpy_helper.from_array(v.astype(np.float32), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def products(arguments: argparse.Namespace) -> None:
    """Each product of few rows by our kernel, relative to onnxruntime's."""
    layers = []
    for name, depth, columns, activation in PRODUCTS:
        for rows in _ROWS:
            model = _product(rows, depth, columns, activation)
            optimized = with_names(ort_optimized(model, OrtOptions(1)))
            (site,) = row_products(optimized)
            sizes = f"{rows} × {depth} → {columns}"
            layers.append((name, sizes, optimized, site, 2 * rows * depth * columns))
    _against(layers, arguments.rounds)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for call in (recurrences, sequences, depthwise, products):
        one = commands.add_parser(call.__name__, help=call.__doc__)
        one.add_argument("--rounds", type=int, default=9)
        one.set_defaults(call=call)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
