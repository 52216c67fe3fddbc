"""What a graph costs: one record for each metric, which everything else reads.

Columns of the extraction problem, what objectives may name and the rows of a report are read here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat_opt.errors import OptionError

if TYPE_CHECKING:  # the command line reads the names; nothing heavy may load for that
    import onnx_ir

    from eqsat_opt.ir.dims import Dim
    from eqsat_opt.ir.kernel import Kernel
    from eqsat_opt.ir.types import TensorType

__all__ = [
    "LAUNCH_US",
    "METRICS",
    "TIME",
    "Metric",
    "metric_name",
    "metric_names",
    "with_ties_broken",
]

LAUNCH_US = 0.29
"""Cost of one more node inside an onnxruntime session, which isolated timings leave out.

Measured with onnxruntime 1.31.1 as the difference between chains of 20 and 220 tiny nodes.
"""

TIME = "time_us"
"""The metric that the pricer gives and that decides races."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number to minimise or to limit; a graph's is the sum over its kernels and constants.

    Attributes:
        name: of the column in an extraction problem.
        alias: another name that users may write.
        title: what a report calls the total.
        unit: of all values: ``µs``, ``B``, ``FLOP``; empty for a count.
        of_kernel: one run of a kernel; ``None`` for what the pricer gives: a measurement, or a
            lower bound until there is one.
        of_constant: a constant of this type, which the model holds; ``None`` if it costs nothing.
        of_opaque: an operator of which nothing is known but that it runs.
        of_file: the total of a whole model, where it can be read off its file; ``None`` where
            there is only the prediction.
    """

    name: str
    alias: str = ""
    title: str
    unit: str = ""
    of_kernel: Callable[[Kernel], Dim] | None
    of_constant: Callable[[TensorType], Dim] | None = None
    of_opaque: float = 0.0
    of_file: Callable[[onnx_ir.Model], float] | None = None


def _constant_bytes(model: onnx_ir.Model) -> float:
    from eqsat_opt.ir.content import constant_bytes

    return float(constant_bytes(model))


_ALL = (
    Metric(name="launches", title="kernel launches", of_kernel=lambda _kernel: 1, of_opaque=1.0),
    Metric(name="flops", title="arithmetic", unit="FLOP", of_kernel=lambda kernel: kernel.flops),
    Metric(name="bytes", title="memory traffic", unit="B", of_kernel=lambda kernel: kernel.bytes),
    Metric(
        name="weight_bytes",
        title="weights",
        unit="B",
        of_kernel=lambda _kernel: 0,
        of_constant=lambda type_: type_.bytes,
        of_file=_constant_bytes,
    ),
    Metric(
        name=TIME,
        alias="time",
        title="predicted time",
        unit="µs",
        of_kernel=None,
        of_opaque=LAUNCH_US,
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""By name, in the order of the columns of an extraction problem and the rows of a report."""


def metric_names() -> tuple[str, ...]:
    """The name of each metric that users may write: its alias, if it has one."""
    return tuple(metric.alias or metric.name for metric in _ALL)


def metric_name(name: str) -> str:
    """The name in :data:`METRICS` of what a user calls a metric; ``time`` is ``time_us``.

    Raises:
        OptionError: there is no such metric.
    """
    for metric in _ALL:
        if name in (metric.name, metric.alias):
            return metric.name
    is_power = name in ("energy", "power")
    hint = " (no energy meter is supported on this target yet)" if is_power else ""
    raise OptionError(f"unknown metric {name!r}{hint}; choose from {', '.join(metric_names())}")


_TIES = {"launches": 1e-3, "bytes": 1e-9}
"""Weights too small to outweigh anything but a tie."""


def with_ties_broken(weights: Mapping[str, float]) -> dict[str, float]:
    """The same weights, with tiny ones for launches and bytes that decide between equal graphs.

    Time needs no help: launches and traffic are part of it.
    """
    return dict(weights) if weights.get(TIME) else {**_TIES, **weights}
