"""Metrics of the cost of a graph, one record each, which all other modules read.

The columns of the extraction problem, the names allowed in objectives and the rows of a report are
derived from these records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from eqsat_opt.errors import OptionError

if TYPE_CHECKING:  # the command line imports this for the names, so nothing heavy may load
    import onnx_ir

    from eqsat_opt.extract.objective import Limited
    from eqsat_opt.ir.graph.kernel import Kernel
    from eqsat_opt.ir.values.dims import Dim
    from eqsat_opt.ir.values.types import TensorType

AimT = TypeVar("AimT", bound="Limited")

__all__ = [
    "ENERGY",
    "LAUNCH_US",
    "METRICS",
    "PEAK",
    "SHAPE_US",
    "TIME",
    "WEIGHT_BYTES",
    "WORKSPACE",
    "Metric",
    "columns",
    "metric_name",
    "metric_names",
    "peaks_capped",
    "require_priced",
    "with_ties_broken",
]

LAUNCH_US = 0.29
"""Cost of one more node inside an onnxruntime session, which isolated timings leave out, µs.

Measured with onnxruntime 1.31.1 as the difference between chains of 20 and 220 tiny nodes.
"""

SHAPE_US = 1.5
"""Cost of computing a shape at run time, by Shape, Gather and Concat outside all kernels, µs.

Measured with onnxruntime 1.32 as the difference between reshapes to constant and computed shapes.
"""

TIME = "time_us"
"""The metric that every pricer gives and that decides comparisons of kernels."""

WEIGHT_BYTES = "weight_bytes"
"""The metric of the size of the constants that a model holds."""

ENERGY, WORKSPACE = "energy_uj", "workspace_bytes"
"""Metrics that only some pricers give."""


PEAK = "peak_bytes"
"""The metric of the memory of values, which depends on the order of the kernels as well."""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A number to minimise or to limit; that of a graph is the sum over its kernels and constants.

    Attributes:
        name: the name of the column in an extraction problem.
        alias: another name that users may write.
        is_peak: whether the value of a graph is instead the largest over its kernels: memory that
            one kernel releases before the next one runs. It can be limited, but not be part of a
            sum. That of :data:`PEAK` is only a lower bound, since values live longer than that.
        title: the name of the total in a report.
        unit: the unit of all values: ``µs``, ``B``, ``FLOP``; empty for a count.
        of_kernel: the value of one run of a kernel; ``None`` if a pricer gives it: a measurement,
            or a lower bound until there is one.
        of_constant: the value of a constant of this type, which the model holds; ``None`` if it
            costs nothing.
        of_opaque: the value of an operator of which nothing is known except that it runs.
        of_file: the total of a whole model, where it can be read from its file; ``None`` where
            there is only the prediction.
    """

    name: str
    alias: str = ""
    title: str
    unit: str = ""
    is_peak: bool = False
    of_kernel: Callable[[Kernel], Dim] | None
    of_constant: Callable[[TensorType], Dim] | None = None
    of_opaque: float = 0.0
    of_file: Callable[[onnx_ir.Model], float] | None = None


def _constant_bytes(model: onnx_ir.Model) -> float:
    from eqsat_opt.ir.onnx.files.content import constant_bytes

    return float(constant_bytes(model))


_ALL = (
    Metric(name="launches", title="kernel launches", of_kernel=lambda _kernel: 1, of_opaque=1.0),
    Metric(name="flops", title="arithmetic", unit="FLOP", of_kernel=lambda kernel: kernel.flops),
    Metric(name="bytes", title="memory traffic", unit="B", of_kernel=lambda kernel: kernel.bytes),
    Metric(
        name=WEIGHT_BYTES,
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
    Metric(name=ENERGY, alias="energy", title="predicted energy", unit="µJ", of_kernel=None),
    Metric(
        name=WORKSPACE,
        alias="workspace",
        title="largest workspace",
        unit="B",
        is_peak=True,
        of_kernel=None,
    ),
    Metric(
        name=PEAK,
        title="peak memory",
        unit="B",
        is_peak=True,
        of_kernel=lambda kernel: kernel.held_bytes,
    ),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""All metrics by name, in the order of an extraction problem's columns and of a report's rows."""


def metric_names() -> tuple[str, ...]:
    """Return the name of each metric that users may write: its alias, if it has one."""
    return tuple(metric.alias or metric.name for metric in _ALL)


def metric_name(name: str) -> str:
    """Return the name in :data:`METRICS` of a metric that a user names; ``time`` is ``time_us``.

    Raises:
        OptionError: there is no such metric.
    """
    for metric in _ALL:
        if name in (metric.name, metric.alias):
            return metric.name
    raise OptionError(f"unknown metric {name!r}; choose from {', '.join(metric_names())}")


def columns(given: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics of an extraction problem whose quotes give these, in column order."""
    return tuple(name for name, one in METRICS.items() if one.of_kernel or name in given)


_UNPRICED = {
    ENERGY: "nothing tells that of this target; give a model with --energy-model FILE",
    WORKSPACE: "the backends of this target do not tell it",
}


def require_priced(objective: Limited, given: Sequence[str]) -> None:
    """Raise an error if an objective or a limit uses a metric that no quote gives.

    Raises:
        OptionError: it uses a metric that quotes do not give.
    """
    priced = columns(given)
    for name in METRICS:
        if name not in priced and objective.uses(name):
            alias = METRICS[name].alias or name
            raise OptionError(f"{alias!r} has no prices: {_UNPRICED[name]}")


def peaks_capped(objective: AimT) -> AimT:
    """Return the objective with each limit on a peak turned into a cap on every single kernel.

    That on :data:`PEAK` stays, since no kernel decides whether a graph keeps it.

    Raises:
        OptionError: a peak is part of the sum that is minimised.
    """
    caps = dict(objective.caps)
    limits = dict(objective.limits)
    for metric in METRICS.values():
        name = metric.name
        if not metric.is_peak:
            continue
        if name == PEAK and _is_alone(objective, name):
            continue  # which is searched for by itself
        if objective.weighs(name) or objective.path.get(name):
            called = metric.alias or name
            raise OptionError(
                f"{called!r} is the largest of all kernels and no sum, so it cannot be minimised"
                f"{' together with others' * (name == PEAK)}; limit it: {called}<=1e6"
            )
        if name in limits and name != PEAK:
            caps[name] = min(limits.pop(name), caps.get(name, math.inf))
    return replace(objective, limits=limits, caps=caps)


def _is_alone(objective: Limited, name: str) -> bool:
    """Return whether one metric alone is minimised, without a limit of its own."""
    weights = getattr(objective, "weights", {})
    alone = {key for key, weight in weights.items() if weight} == {name}
    return alone and not objective.needs_path and not objective.bounds(name)


_TIES = {"launches": 1e-3, "bytes": 1e-9}
"""Weights so small that they only decide between equal graphs."""


def with_ties_broken(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the weights with tiny ones for launches and bytes, which decide between equal graphs.

    Weights of time or energy are returned unchanged: launches and traffic are part of both.
    """
    is_settled = weights.get(TIME) or weights.get(ENERGY)
    return dict(weights) if is_settled else {**_TIES, **weights}
