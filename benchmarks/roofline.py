"""Where the time of a model goes, layer by layer, beside the least that the machine allows.

    python -m benchmarks.roofline squeezenet bert [--threads 1] [--runs 12] [--least 0.01]

A NAME is as in benchmarks/given.py: `bert`, `lstm:128`, `torch:resnet18`, `model.onnx`. A file with
a form for this machine is run in it, all others as onnxruntime optimises them. Nodes of one kind
and shape are one row, in the order of their time.

GF/s counts the direct arithmetic of convolutions and products, whatever computes them; so
Winograd's algorithm may be above the peak. The floor of a row is its arithmetic at the peak, or its
data at the bandwidth, whichever takes longer, and the column "bound" names that one; the bandwidth
is that of the cache that all cores share, so data from memory take longer still. Peak and bandwidth
are measured first: a product of large matrices, and a copy of 4 MB. Times are the least of some
runs, by onnxruntime's profiler, which adds to small nodes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from benchmarks.given import given, title
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.native.library import missing, with_kernels
from eqsat_opt.runtime.backends.native.region_library import with_regions
from eqsat_opt.runtime.backends.native.sites import with_names
from eqsat_opt.runtime.backends.ort.profiling import node_events
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.backends.tuned_file import is_tuned
from eqsat_opt.runtime.inputs import random_inputs

_CONVOLUTIONS = {"Conv", "FusedConv", "WinogradConv", "GroupedConv"}
_PRODUCTS = {"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "PackedProduct"}
_ROWS, _SIZE, _COPIED = 256, 512, 1 << 22


@dataclass(frozen=True)
class Machine:
    """What was measured here: GF/s of a large product, GB/s of a copy in the caches."""

    peak: float
    bandwidth: float


def machine(threads: int) -> Machine:
    """Measure it, as the best of some runs."""
    shape = [_ROWS, _SIZE]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "peak",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [onnx.numpy_helper.from_array(np.ones((_SIZE, _SIZE), np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    call = OrtSession(model, OrtOptions(threads)).bind({"x": np.ones(shape, np.float32)})
    data, copy = np.ones(_COPIED, np.uint8), np.empty(_COPIED, np.uint8)
    return Machine(
        2 * _ROWS * _SIZE**2 / _best_s(call, 300) / 1e9,
        2 * _COPIED / _best_s(lambda: np.copyto(copy, data), 200) / 1e9,
    )


def _best_s(call: Any, runs: int) -> float:
    best = math.inf
    for _ in range(runs):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


@dataclass(frozen=True)
class Layer:
    """A node in one run."""

    kind: str
    flops: int
    size: int
    time_us: float

    @staticmethod
    def of(events: list[dict[str, Any]]) -> Layer:
        args = events[0]["args"]
        inputs, outputs = (_shapes(args[f"{side}_type_shape"]) for side in ("input", "output"))
        shown = " · ".join("×".join(map(str, shape)) for shape in inputs[:2])
        op, names = args["op_name"], ("activation_size", "parameter_size", "output_size")
        # Weights that onnxruntime packed are no inputs any more; those of a sum are.
        packed = 0
        if op in _PRODUCTS:
            size = inputs[0][-1] * outputs[0][-1]
            if all(len(shape) < 2 or math.prod(shape[-2:]) != size for shape in inputs[1:]):
                packed = 4 * size
        return Layer(
            f"{op} {shown} → {'×'.join(map(str, outputs[0])) if outputs else ''}",
            _flops(op, inputs, outputs),
            sum(int(args[name]) for name in names) + packed,
            min((float(event["dur"]) for event in events[1:]), default=math.inf),
        )

    def floor_us(self, here: Machine) -> float:
        return max(self.flops / here.peak, self.size / here.bandwidth) / 1e3

    def bound(self, here: Machine) -> str:
        return "peak" if self.flops / here.peak > self.size / here.bandwidth else "bandwidth"


def _shapes(typed: list[dict[str, list[int]]]) -> list[tuple[int, ...]]:
    return [tuple(shape) for one in typed for shape in one.values()]


def _flops(op: str, inputs: list[tuple[int, ...]], outputs: list[tuple[int, ...]]) -> int:
    if op in _CONVOLUTIONS:
        return 2 * math.prod(outputs[0]) * math.prod(inputs[1][1:])
    return 2 * math.prod(outputs[0]) * inputs[0][-1] if op in _PRODUCTS else 0


def _opened(name: str, threads: int) -> tuple[onnx.ModelProto, OrtOptions]:
    """A graph to run as it is, and how."""
    model = given(name)
    options = OrtOptions(threads)
    if is_tuned(model):
        return with_names(model), with_regions(with_kernels(options), model.graph.node)
    return with_names(ort_optimized(model, options)), OrtOptions(threads, "disabled")


def show(name: str, here: Machine, arguments: argparse.Namespace) -> None:
    """The table of one model."""
    model, options = _opened(name, arguments.threads)
    feeds = random_inputs(model, 0)
    found = node_events(model, options, feeds, runs=arguments.runs, deadline=Deadline.never())
    rows: dict[tuple[str, int, int], list[Layer]] = defaultdict(list)
    for events in found.values():
        layer = Layer.of(events)
        rows[layer.kind, layer.flops, layer.size].append(layer)
    layers = [layer for row in rows.values() for layer in row]
    total = sum(layer.time_us for layer in layers)
    titles = ("layer", "times", "µs", "share", "GF/s", "GB/s", "bound", "floor, µs", "of floor")
    table = Table(*titles, box=None)
    rest = 0.0
    for row in sorted(rows.values(), key=lambda row: -sum(layer.time_us for layer in row)):
        spent, floor = sum(one.time_us for one in row), sum(one.floor_us(here) for one in row)
        if spent < arguments.least * total:
            rest += spent
            continue
        rate = f"{row[0].flops * len(row) / spent / 1e3:.0f}" if row[0].flops else "–"
        table.add_row(
            row[0].kind, str(len(row)), f"{spent:.0f}", f"{spent / total:.1%}", rate,
            f"{row[0].size * len(row) / spent / 1e3:.1f}", row[0].bound(here), f"{floor:.0f}",
            f"{spent / floor:.2f}",
        )  # fmt: skip
    floor = sum(layer.floor_us(here) for layer in layers)
    table.add_row("others", "", f"{rest:.0f}", f"{rest / total:.1%}")
    table.add_row(
        "all",
        str(len(layers)),
        f"{total:.0f}",
        "",
        "",
        "",
        "",
        f"{floor:.0f}",
        f"{total / floor:.2f}",
    )
    console = Console(width=140)
    console.print(f"{title(name)}: {here.peak:.0f} GF/s, {here.bandwidth:.0f} GB/s")
    console.print(table)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+", help="names, or files")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=12)
    parser.add_argument("--least", type=float, default=0.01, help="share of a row of its own")
    arguments = parser.parse_args()
    if why := missing():
        Console().print(why, markup=False)
    here = machine(arguments.threads)
    for name in arguments.names:
        show(name, here, arguments)


if __name__ == "__main__":
    main()
