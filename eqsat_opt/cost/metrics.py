"""What a kernel costs, metric by metric, and the objectives a user may name."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.dims import literal
from eqsat_opt.ir.kernel import Kernel

__all__ = [
    "LAUNCH_US",
    "METRICS",
    "kernel_metrics",
    "metric_weights",
    "weighted",
    "with_ties_broken",
]

METRICS = ("time_us", "flops", "bytes", "launches", "weight_bytes")
"""Columns of an extraction problem; ``bytes`` is traffic, ``weight_bytes`` what the model holds."""

LAUNCH_US = 0.29
"""Cost of one more node inside an onnxruntime session, which isolated timings leave out.

Measured with onnxruntime 1.31.1 as the difference between chains of 20 and 220 tiny nodes.
"""

_NAMES = {"time": "time_us", **{name: name for name in METRICS}}


def kernel_metrics(kernel: Kernel, time_us: float) -> tuple[float, ...]:
    """Metrics of one run of ``kernel``, in the order of :data:`METRICS`; sizes must be literal."""
    return time_us, float(literal(kernel.flops)), float(literal(kernel.bytes)), 1.0, 0.0


def metric_weights(given: Mapping[str, float]) -> dict[str, float]:
    """Weights by metric as the columns of :data:`METRICS` are named; ``time`` is ``time_us``.

    Raises:
        OptionError: for an unknown metric, a weight that is negative or not finite, or none at all.
    """
    unknown = [name for name in given if name not in _NAMES]
    if unknown:
        hint = (
            " (no energy meter is supported on this target yet)"
            if unknown[0] in ("energy", "power")
            else ""
        )
        raise OptionError(
            f"unknown objective {unknown[0]!r}{hint}; choose from {', '.join(sorted(_NAMES))}"
        )
    for name, value in given.items():
        if not math.isfinite(value) or value < 0:
            raise OptionError(f"the weight of {name!r} is {value:g}; give a number of at least 0")
    if not any(given.values()):
        raise OptionError("the objective weighs nothing; give a metric a positive weight")
    result: dict[str, float] = {}
    for name, weight in given.items():
        result[_NAMES[name]] = result.get(_NAMES[name], 0.0) + weight
    return result


_TIES = {"launches": 1e-3, "bytes": 1e-9}
"""Weights too small to outweigh anything but a tie."""


def with_ties_broken(weights: Mapping[str, float]) -> dict[str, float]:
    """The same objective, where of graphs that cost the same the one with fewer launches wins.

    Time needs no help: launches and traffic are part of it.
    """
    return dict(weights) if weights.get("time_us") else {**_TIES, **weights}


def weighted(weights: Mapping[str, float], metrics: Mapping[str, float]) -> float:
    """The value of an objective."""
    return sum(weight * metrics[name] for name, weight in weights.items())
