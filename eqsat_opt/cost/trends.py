"""Expected times of kernels that were not measured yet.

A lower bound is right for a proof and wrong for a choice: a merged kernel that nobody measured
looks faster than the measured kernels that it would replace. The expected time of a kernel
follows from its bound by the trend of its kind, `overhead + slowdown * bound`, which a table gives
for each backend. The bound is that of this device, so the table holds for others. Kernels of the
kind that were measured here correct it, those of similar size most.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from types import MappingProxyType

from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.ir.ops import get_op, is_known
from eqsat_opt.ir.values.dims import literal

__all__ = ["TABLE_FORMAT", "Expectation", "Trend", "class_of", "kind_of", "load_trends"]

TABLE_FORMAT = "eqsat-opt trends 1"

_TABLE = "trends.json"

_LEAST_US = 0.3
"""Time that is added to two times before they are compared, µs; shorter ones are noise."""

_TABLE_WEIGHT = 0.5
"""Weight of the table next to that of a measured kernel of the same size, which is 1."""

_REACH = 2.0
"""Difference of sizes, in doublings, at which the weight of a measured kernel falls to 1/e."""


@dataclass(frozen=True)
class Trend:
    """The usual time of the kernels of one kind.

    Attributes:
        overhead_us: time of a kernel that does nothing, µs.
        slowdown: growth of the time over that of the bound.
    """

    overhead_us: float
    slowdown: float

    def time_us(self, bound_us: float) -> float:
        """Return the usual time of a kernel whose time is at least ``bound_us``, µs."""
        return self.overhead_us + self.slowdown * bound_us


_ANY = Trend(1.0, 2.5)
"""The trend of kinds that the table lacks, with all that they belong to."""


def kind_of(kernel: Kernel) -> str:
    """Return the operator that takes the time of a kernel, and the shape of a convolution."""
    step = next((one for one in kernel.steps if _is_contraction(one)), None)
    if step is None:
        return kernel.steps[0].op if kernel.steps else ""
    if "spatial" not in get_op(step.op).traits:
        return step.op
    types = kernel.types
    weight = [literal(size) for size in types[step.operands[1]].shape]
    kinds = [step.op]
    if dict(step.attrs)["group"] != 1:
        kinds.append("depthwise" if weight[1] == 1 else "grouped")
    elif math.prod(weight[2:]) == 1:
        kinds.append("pointwise")
    if len(weight) == 3:
        kinds.append("1-D")
    return " ".join(kinds)


def class_of(kind: str) -> str:
    """Return the class of the operator of a kind; empty where there is none."""
    op = kind.partition(" ")[0]
    return get_op(op).kind if is_known(op) else ""


def _is_contraction(step: Step) -> bool:
    return get_op(step.op).kind == "contraction"


@cache
def load_trends() -> Mapping[str, Mapping[str, Trend]]:
    """Return the table that ships: trends by kind, by backend."""
    text = resources.files("eqsat_opt.cost").joinpath(_TABLE).read_text(encoding="utf-8")
    return MappingProxyType(
        {
            backend: MappingProxyType({kind: Trend(*row) for kind, row in rows.items()})
            for backend, rows in json.loads(text)["trends"].items()
        }
    )


@dataclass
class Expectation:
    """Expected times of kernels, by a table and by the kernels that were added.

    Attributes:
        trends: trends by kind, by backend.
    """

    trends: Mapping[str, Mapping[str, Trend]] = field(default_factory=load_trends)
    _measured: dict[tuple[str, str], list[tuple[Sequence[float], float]]] = field(
        default_factory=lambda: defaultdict(list), repr=False
    )

    def add(self, backend: str, kernel: Kernel, bound_us: float, time_us: float) -> None:
        """Add a measured kernel: its lower bound and its time, µs."""
        kind = kind_of(kernel)
        usual_us = self._trend(backend, kind).time_us(bound_us)
        error = math.log((time_us + _LEAST_US) / (usual_us + _LEAST_US))
        self._measured[backend, kind].append((_sizes(kernel), error))

    def time_us(self, backend: str, kernel: Kernel, bound_us: float) -> float:
        """Return the expected time of a kernel, µs; never below ``bound_us``."""
        kind = kind_of(kernel)
        usual_us = self._trend(backend, kind).time_us(bound_us)
        total, weights = 0.0, _TABLE_WEIGHT
        sizes = _sizes(kernel)
        for others, error in self._measured.get((backend, kind), ()):
            away = sum(abs(one - other) for one, other in zip(sizes, others, strict=True))
            weight = math.exp(-away / _REACH)
            total += weight * error
            weights += weight
        corrected_us = (usual_us + _LEAST_US) * math.exp(total / weights) - _LEAST_US
        return max(bound_us, corrected_us)

    def _trend(self, backend: str, kind: str) -> Trend:
        """Return the trend of a kind, else of its operator, else of its class of operators."""
        trends = self.trends.get(backend, {})
        op = kind.partition(" ")[0]
        names = (kind, op, class_of(kind), "")
        return next((trends[name] for name in names if name in trends), _ANY)


def _sizes(kernel: Kernel) -> tuple[float, float]:
    """Return the doublings of a kernel's operations and bytes."""
    return (
        math.log2(64 + float(literal(kernel.flops))),
        math.log2(64 + float(literal(kernel.bytes))),
    )
