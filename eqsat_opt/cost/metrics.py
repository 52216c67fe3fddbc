"""What a kernel costs, metric by metric, and what a user may call a metric."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.errors import OptionError
from eqsat_opt.ir.dims import literal
from eqsat_opt.ir.kernel import Kernel

__all__ = [
    "LAUNCH_US",
    "METRICS",
    "kernel_metrics",
    "metric_name",
    "with_ties_broken",
]

METRICS = ("time_us", "flops", "bytes", "launches", "weight_bytes")
"""Columns of an extraction problem: time in µs, counts of operations, bytes and launches.

``bytes`` is traffic, ``weight_bytes`` what the model holds.
"""

LAUNCH_US = 0.29
"""Cost of one more node inside an onnxruntime session, which isolated timings leave out.

Measured with onnxruntime 1.31.1 as the difference between chains of 20 and 220 tiny nodes.
"""

_NAMES = {"time": "time_us", **{name: name for name in METRICS}}


def kernel_metrics(kernel: Kernel, time_us: float) -> tuple[float, ...]:
    """Metrics of one run of ``kernel``, in the order of :data:`METRICS`; sizes must be literal."""
    return time_us, float(literal(kernel.flops)), float(literal(kernel.bytes)), 1.0, 0.0


def metric_name(name: str) -> str:
    """The column of :data:`METRICS` that a user means by a name; ``time`` is ``time_us``.

    Raises:
        OptionError: there is no such metric.
    """
    if name not in _NAMES:
        is_power = name in ("energy", "power")
        hint = " (no energy meter is supported on this target yet)" if is_power else ""
        raise OptionError(f"unknown metric {name!r}{hint}; choose from {', '.join(sorted(_NAMES))}")
    return _NAMES[name]


_TIES = {"launches": 1e-3, "bytes": 1e-9}
"""Weights too small to outweigh anything but a tie."""


def with_ties_broken(weights: Mapping[str, float]) -> dict[str, float]:
    """The same sum, where of graphs that cost the same the one with fewer launches wins.

    Time needs no help: launches and traffic are part of it.
    """
    return dict(weights) if weights.get("time_us") else {**_TIES, **weights}
