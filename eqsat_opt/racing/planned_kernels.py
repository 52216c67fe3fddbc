"""Our kernels inside the sessions of a plan: each segment is tuned like a model of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.native.segments import NAME as SEGMENTS
from eqsat_opt.runtime.backends.native.segments.launcher import algorithm_of
from eqsat_opt.runtime.backends.native.tuning import NotTuned, tune
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.ort.launcher import segment_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions
from eqsat_opt.runtime.backends.registry import load_launcher
from eqsat_opt.runtime.devices.host import processor_us
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.plan import Launch
from eqsat_opt.runtime.source import Feeds
from eqsat_opt.select.rebuilding.planning import PlanDraft

__all__ = ["with_own_kernels"]

_SHARE = 0.1
"""Share of a plan's time that a segment takes at least to be worth tuning."""

_OPTIONS = OrtOptions(threads=1, spinning=False)


def with_own_kernels(
    draft: PlanDraft,
    opened: Callable[[PlanDraft], Executable],
    trials: Sequence[Feeds],
    *,
    max_error: float,
    deadline: Deadline,
) -> PlanDraft | None:
    """Put kernels of our own inside the sessions of a plan; return ``None`` where none gains.

    Args:
        draft: the plan; its sessions run on one thread.
        opened: makes a plan ready to run.
        trials: inputs of the model; the first are those that are timed.
        max_error: bound on the error of each result of a segment, relative to its maximum.
        deadline: segments that are not tuned by then stay as they are.

    Raises:
        RuntimeFailed: the plan does not run.
    """
    if missing() or deadline.expired:
        return None
    executable = opened(draft)
    spent = executable.launch_times_us(trials[0], rounds=3, clock=processor_us)
    times = dict(zip(draft.plan.launches, spent, strict=True))
    least_us = _SHARE * sum(times.values())
    chosen = sorted(
        (one for one in times if _is_session(one) and times[one] >= least_us),
        key=lambda one: -times[one],
    )
    names = {launch.name for launch in chosen}
    values = [executable.values_of(feeds, names) for feeds in trials] if chosen else []
    algorithms: dict[str, str] = {}
    for number, launch in enumerate(chosen):
        share = deadline.share(1 / (len(chosen) - number))
        try:
            ways = _ways(launch, [one[launch.name] for one in values], max_error, share)
        except (NotTuned, RuntimeFailed):
            continue
        algorithms[launch.name] = algorithm_of(ways)
    if not algorithms:
        return None
    plan = replace(
        draft.plan,
        launches=tuple(
            replace(one, backend=SEGMENTS, algorithm=algorithms[one.name])
            if one.name in algorithms
            else one
            for one in draft.plan.launches
        ),
    )
    backends = {launch.backend for launch in plan.launches}
    versions = {one: load_launcher(one).version() for one in sorted(backends)}
    placement = f"{draft.placement} with own kernels inside"
    return PlanDraft(draft.graph, placement, replace(plan, versions=versions))


def _is_session(launch: Launch) -> bool:
    return launch.backend == ORT and launch.algorithm == "default"


def _ways(
    launch: Launch,
    values: Sequence[tuple[list[Any], list[Any]]],
    max_error: float,
    deadline: Deadline,
) -> tuple[str, ...]:
    """Find the fastest way to compute each site of a segment."""
    model = segment_model(launch, values[0][0])
    names = [value.name for value in model.graph.input]
    outputs = launch.body.to_graph().outputs
    # Results that share an output are one output of the session.
    numbers = [outputs.index(name) for name in dict.fromkeys(outputs)]
    trials = [
        (_feeds(read, names), [written[number] for number in numbers]) for read, written in values
    ]
    return tune(model, _OPTIONS, trials, max_error=max_error, deadline=deadline).ways


def _feeds(read: Sequence[Any], names: Sequence[str]) -> Mapping[str, Any]:
    """Return the operands that are inputs of a session, by its names for them."""
    return {name: read[int(name[1:])] for name in names}
