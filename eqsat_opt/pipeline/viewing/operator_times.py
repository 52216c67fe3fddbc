"""Times of the operators inside a model, by onnxruntime's profiler.

The profiler sees what runs after onnxruntime's own fusions, and costs a little time itself, so the
sum is a bit above the time of a run without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.runtime.backends.ort.profiling import node_events
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["OperatorTime", "operator_times", "times_of_events"]

_RUNS = 11
"""Runs of the profile, of which the first only warms up."""

_AROUND_BODIES = frozenset({"If", "Loop", "Scan"})
"""Operators whose time is that of the operators in their bodies, which are listed themselves."""


@dataclass(frozen=True)
class OperatorTime:
    """All kernels of one operator in a run of a model.

    Attributes:
        operator: its name, as onnxruntime runs it.
        nodes: number of kernels; one in the body of a loop is one kernel.
        time_us: least time of all of them in a run, µs.
        share: share of the time of all operators.
        slowest: name of the kernel that takes most.
    """

    operator: str
    nodes: int
    time_us: float
    share: float
    slowest: str


def operator_times(
    model: ModelSource, options: OrtOptions, feeds: Feeds, *, deadline: Deadline
) -> tuple[OperatorTime, ...]:
    """Return the times of the operators of a model, the largest first.

    Raises:
        RuntimeFailed: the model does not run, or the profile cannot be read.
    """
    return times_of_events(node_events(model, options, feeds, runs=_RUNS, deadline=deadline))


def times_of_events(events: Mapping[str, Sequence[Mapping[str, Any]]]) -> tuple[OperatorTime, ...]:
    """Return the times of operators from the profiler's events of each node, run after run."""
    runs = max((len(of_node) for of_node in events.values()), default=0)
    runs = min(runs, _RUNS)
    found: dict[str, list[tuple[float, str]]] = {}
    for name, of_node in events.items():
        operator = str(of_node[0].get("args", {}).get("op_name", ""))
        if operator not in _AROUND_BODIES:
            time_us = _least_us([float(event["dur"]) for event in of_node], runs)
            found.setdefault(operator, []).append((time_us, name))
    total_us = sum(time_us for kernels in found.values() for time_us, _ in kernels)
    rows = [
        OperatorTime(
            operator=operator,
            nodes=len(kernels),
            time_us=(own_us := _sum_us(kernels)),
            share=own_us / total_us if total_us else 0.0,
            slowest=max(kernels)[1],
        )
        for operator, kernels in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.time_us, row.operator)))


def _sum_us(kernels: Iterable[tuple[float, str]]) -> float:
    return sum(time_us for time_us, _ in kernels)


def _least_us(durations_us: Sequence[float], runs: int) -> float:
    """Return the least time of a node in a run; in the body of a loop it runs several times."""
    each = max(1, round(len(durations_us) / max(1, runs)))
    sums = [sum(durations_us[i : i + each]) for i in range(0, len(durations_us), each)]
    return min(sums[1:] or sums)
