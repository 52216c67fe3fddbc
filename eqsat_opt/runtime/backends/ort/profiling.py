"""Times of nodes inside a model, measured by onnxruntime's profiler."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.files import Scratch
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession
from eqsat_opt.runtime.source import Feeds, ModelSource

__all__ = ["node_events", "node_times_us"]

_SUFFIX = "_kernel_time"


def node_times_us(
    model: ModelSource, options: OrtOptions, feeds: Feeds, *, runs: int, deadline: Deadline
) -> dict[str, float]:
    """Return the least time of each node over several runs, µs; the first run only warms up.

    Args:
        model: a model whose nodes have unique names.
        options: the options that run it.
        feeds: the inputs.
        runs: the number of runs, at least two; fewer are made if the deadline passes.
        deadline: the deadline of all runs.

    Raises:
        RuntimeFailed: the model does not run, or the profile cannot be read.
    """
    found = node_events(model, options, feeds, runs=runs, deadline=deadline)
    times = {name: [float(event["dur"]) for event in events[1:]] for name, events in found.items()}
    return {name: min(spent, default=math.inf) for name, spent in times.items()}


def node_events(
    model: ModelSource, options: OrtOptions, feeds: Feeds, *, runs: int, deadline: Deadline
) -> dict[str, list[dict[str, Any]]]:
    """Return the profiler's events of each node, run after run: `dur` in µs, `args` with shapes.

    Arguments and errors are those of :func:`node_times_us`.
    """
    with Scratch() as folder:
        session = OrtSession(model, options, profile_prefix=str(Path(folder, "profile")))
        for run in range(runs):
            session.run(feeds)
            if run and deadline.expired:
                break
        path = session.native.end_profiling()
        try:
            events = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RuntimeFailed(f"cannot read the profile of a run: {error}") from error
    found: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        name = event.get("name", "")
        if event.get("cat") == "Node" and name.endswith(_SUFFIX):
            found.setdefault(name.removesuffix(_SUFFIX), []).append(event)
    return found
