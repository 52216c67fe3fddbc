"""Generated kernels of plans beside those of onnxruntime, one operator at a time.

    python -m benchmarks.generated [NAME …] [--budget 0.2] [--rounds 3]

A NAME is that of a row. Times are those that extraction is given: of a launch by itself, and of a
node in a session of onnxruntime without what the session adds, on one thread, hot. Each is the
least of some rounds in which all take turns. The last column is the ratio of the generated kernel
to the fastest of the others: where it is above 1, another one is chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.runtime.backends.registry import load_backend

BACKENDS = ("launched:generated", "launched:native", "launched:numpy", "ort")

_ONES: Mapping[str, Any] = {"strides": (1, 1), "dilations": (1, 1)}
_SAME: Mapping[str, Any] = {**_ONES, "pads": (1, 1, 1, 1)}

ROWS: Mapping[str, tuple[str, Sequence[tuple[int, ...]], Mapping[str, Any]]] = {
    "softmax 128x128": ("Softmax", [(128, 128)], {"axis": 1}),
    "softmax 12x128x128": ("Softmax", [(12, 128, 128)], {"axis": 2}),
    "softmax 1x10": ("Softmax", [(1, 10)], {"axis": 1}),
    "layer norm 128x768": (
        "LayerNormalization", [(128, 768), (768,), (768,)], {"axis": 1, "epsilon": 1e-5},
    ),
    "rms norm 1x512": ("RMSNormalization", [(1, 512), (512,)], {"axis": 1, "epsilon": 1e-5}),
    "instance norm 1x32x28x28": (
        "InstanceNormalization", [(1, 32, 28, 28), (32,), (32,)], {"epsilon": 1e-5},
    ),
    "reduce mean 64x1024": ("ReduceMean", [(64, 1024)], {"axes": (1,), "keepdims": 1}),
    "reduce sum of columns 256x256": ("ReduceSum", [(256, 256)], {"axes": (0,), "keepdims": 1}),
    "global average pool 1x512x7x7": ("GlobalAveragePool", [(1, 512, 7, 7)], {}),
    "max pool 3x3 1x64x56x56": (
        "MaxPool", [(1, 64, 56, 56)], {"kernel": (3, 3), **_SAME, "strides": (2, 2), "ceil": 0},
    ),
    "average pool 3x3 1x64x28x28": (
        "AveragePool",
        [(1, 64, 28, 28)],
        {"kernel": (3, 3), **_SAME, "ceil": 0, "count_include_pad": 0},
    ),
    "depthwise 3x3 1x64x28x28": (
        "Conv", [(1, 64, 28, 28), (64, 1, 3, 3), (64,)], {**_SAME, "group": 64},
    ),
    "grouped 3x3 1x64x14x14 g16": (
        "Conv", [(1, 64, 14, 14), (64, 4, 3, 3), (64,)], {**_SAME, "group": 16},
    ),
    "LRN 1x64x28x28": (
        "LRN", [(1, 64, 28, 28)], {"size": 5, "alpha": 1e-4, "beta": 0.75, "bias": 1.0},
    ),
    "matmul 1x64 64x64": ("MatMul", [(1, 64), (64, 64)], {}),
    "matmul 32x64 64x64": ("MatMul", [(32, 64), (64, 64)], {}),
    "matmul 8 of 16x16": ("MatMul", [(8, 16, 16), (8, 16, 16)], {}),
}  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--budget", type=float, default=0.2, help="seconds for each time")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    table = Table("kernel", *(f"{name} us" for name in BACKENDS), "of the best other")
    for name in options.names or ROWS:
        times: dict[str, float] = {}
        for _ in range(options.rounds):
            for backend in BACKENDS:
                time_us = _time_us(_kernel(name), backend, options.budget)
                if time_us is not None:
                    times[backend] = min(time_us, times.get(backend, time_us))
        own, *others = (times.get(backend) for backend in BACKENDS)
        known = [time_us for time_us in others if time_us is not None]
        ratio = f"{own / min(known):.2f}" if own and known else "-"
        cells = (f"{times[one]:.2f}" if one in times else "-" for one in BACKENDS)
        table.add_row(name, *cells, ratio)
    Console(width=140).print(table)


def _kernel(name: str) -> Kernel:
    op, shapes, attrs = ROWS[name]
    # What follows the data of a convolution or normalisation are weights.
    operands = tuple(
        Operand(TensorType("float32", shape), const=i > 0 and op != "MatMul")
        for i, shape in enumerate(shapes)
    )
    step = Step(op, attributes(**attrs), tuple(range(len(operands))))
    return Kernel(operands, (step,), (len(operands),))


def _time_us(kernel: Kernel, name: str, budget_s: float) -> float | None:
    backend = load_backend(name)
    times = []
    for implementation in backend.implementations(kernel):
        try:
            request = backend.request(Offer(kernel, name, implementation))
            times.append(backend.measure(request, 1, budget_s).time_us)
        except EqsatError:
            continue
    return min(times, default=None)


if __name__ == "__main__":
    main()
