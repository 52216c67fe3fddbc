"""Times of a choice on several streams, which a sum over its kernels cannot express."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.extract import Problem
from eqsat_opt.extract.extraction import Choice, active_order
from eqsat_opt.runtime.plan.streams import makespan_us, schedule

__all__ = ["PATH", "SIMULATED", "stream_times"]

PATH, SIMULATED = "critical_path_us", "simulated_us"
"""Metrics that `stream_times` returns."""


def stream_times(
    problem: Problem, choice: Choice, streams: int, event_us: float
) -> Mapping[str, float]:
    """Return the longest chain of kernels and the end of the last one on several streams, µs.

    Kernels are put on streams as in a plan. A node that takes no time is no kernel; its readers
    wait for the kernels that it waits for.

    Args:
        problem: the problem of the choice.
        choice: class to (e-node, implementation).
        streams: greatest number of streams.
        event_us: time that waiting for a kernel on another stream adds, µs.
    """
    column = problem.metrics.index(TIME)
    times: list[float] = []
    edges: list[tuple[int, int]] = []
    ends: dict[int, float] = {}
    behind: dict[int, tuple[int, ...]] = {}  # the kernels that a class waits for
    for cls in active_order(problem, choice):
        node, implementation = choice[cls]
        children = problem.children(node)
        needed = tuple(dict.fromkeys(kernel for child in children for kernel in behind[child]))
        own_us = float(problem.impl_cost[problem.row(node, implementation), column])
        ends[cls] = own_us + max((ends[child] for child in children), default=0.0)
        if own_us:
            edges += [(kernel, len(times)) for kernel in needed]
            needed = (len(times),)
            times.append(own_us)
        behind[cls] = needed
    placed = schedule(times, edges, streams, event_us)
    return {
        PATH: max(ends[root] for root in problem.roots),
        SIMULATED: makespan_us(placed, times, event_us),
    }
