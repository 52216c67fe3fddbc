"""Measured times of implementations, one for each shape of a product.

Several products with weights of their own run one after another, so that their weights come from
memory, as in a model.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf

import numpy as np
import onnx_ir

from eqsat_opt.approximation.drafts import ReplacementDraft
from eqsat_opt.approximation.implementations import ProductImplementation, quantise_rows
from eqsat_opt.approximation.rewriting import site_model, with_choice
from eqsat_opt.approximation.sites import ProductSite, find_sites
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.measure import measure

__all__ = ["Prices", "Shape", "measure_prices"]

_COLD_BYTES = 16 << 20
"""Weights of all products in one measurement, which are more than a core's own caches hold."""

_MOST_COPIES = 8

_BUDGET_S = 0.05
"""Seconds of one measurement."""

_HOPELESS = 1.3
"""Share of the time in floats from which two runs of an implementation are all that is measured."""


@dataclass(frozen=True, order=True)
class Shape:
    """A shape of a product: `[rows, k]` by `[k, n]`."""

    rows: int
    k: int
    n: int


@dataclass(frozen=True)
class Prices:
    """Measured times, µs.

    Attributes:
        floats: shape to the time of the product in floats.
        implementations: shape to the times by the name of an implementation, without the
            conversion of the rows; those that onnxruntime refuses are missing.
        conversions: rows and `k` to the time of the conversion to integers.
    """

    floats: Mapping[Shape, float] = field(default_factory=dict)
    implementations: Mapping[Shape, Mapping[str, float]] = field(default_factory=dict)
    conversions: Mapping[tuple[int, int], float] = field(default_factory=dict)


def measure_prices(
    sites: Mapping[Shape, ProductSite],
    implementations: Iterable[ProductImplementation],
    options: OrtOptions,
    deadline: Deadline,
) -> Prices:
    """Measure all implementations of some shapes, the largest first, until the deadline.

    Args:
        sites: a site of each shape, whose weights are used.
        implementations: the implementations to measure.
        options: options of the sessions.
        deadline: time after which no further shape is measured.
    """
    floats: dict[Shape, float] = {}
    others: dict[Shape, dict[str, float]] = {}
    conversions: dict[tuple[int, int], float] = {}
    implementations = tuple(implementations)
    for shape in sorted(sites, key=lambda one: -one.rows * one.k * one.n):
        if deadline.expired:
            break
        key = (shape.rows, shape.k)
        rows = np.random.default_rng(0).standard_normal(key).astype(np.float32)
        if key not in conversions:
            conversions[key] = _time_us(_conversion_model(), rows, options)
        copies = max(2, min(_MOST_COPIES, _COLD_BYTES // (4 * shape.k * shape.n)))
        model = site_model(sites[shape], copies)
        names = [site.name for site in find_sites(model)]
        timed = partial(_time_us, rows=rows, options=options)
        floats_us = timed(model)
        floats[shape] = floats_us / copies
        kernels: dict[str, float] = {}
        for one in implementations:
            if one.kernel in kernels:
                continue
            try:
                made = with_choice(model, dict.fromkeys(names, one))
                total_us = timed(made, most_us=_HOPELESS * floats_us)
            except RuntimeFailed:
                continue
            shared_us = conversions[key] if one.reads_integers else 0.0
            kernels[one.kernel] = max(0.0, total_us - shared_us) / copies
        others[shape] = {
            one.name: kernels[one.kernel] for one in implementations if one.kernel in kernels
        }
    return Prices(floats, others, conversions)


def _time_us(
    model: onnx_ir.Model, rows: np.ndarray, options: OrtOptions, most_us: float = inf
) -> float:
    """Measure a model; where two runs take longer than ``most_us`` each, these are enough."""
    call = OrtSession(model_proto(model), options).bind({"rows": rows})
    call()
    least_us = inf
    for _ in range(2):
        began = time.perf_counter()
        call()
        least_us = min(least_us, 1e6 * (time.perf_counter() - began))
    if least_us > most_us:
        return least_us
    return measure(call, threads=options.threads, budget_s=_BUDGET_S).time_us


def _conversion_model() -> onnx_ir.Model:
    rows = onnx_ir.Value(name="rows", type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT))
    draft = ReplacementDraft("")
    outputs = quantise_rows(draft, rows)
    graph = onnx_ir.Graph(
        [rows], outputs, nodes=draft.nodes, opset_imports={"": 17}, name="conversion"
    )
    integers, scale, zero = outputs
    scale.type = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    for value in (integers, zero):
        value.type = onnx_ir.TensorType(onnx_ir.DataType.UINT8)
    return onnx_ir.Model(graph, ir_version=9)
