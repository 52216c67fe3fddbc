"""The step `compare`: the plans of each model in turn, and what other runtimes take for it.

A unit of another runtime returns ``model``, ``peer`` (its name) and what `Timed.to_json` says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.gpu.measuring import bad_units
from benchmarks.gpu.prepared import Prepared, loaded, model_inputs, read_prepared
from benchmarks.gpu.timing import by_turns, runs_for
from benchmarks.gpu.unit import FIRST, Bench, Sampler, Task, Unit
from eqsat_opt.errors import EqsatError, RuntimeFailed

__all__ = ["run", "units"]

STEP = "compare"

_DEADLINE_S = 90.0
_BUDGET_S = 4.0


def units(task: Task) -> Sequence[Unit]:
    """One for each model: all its plans of full size that are not known to be wrong."""
    prepared, bad = read_prepared(task.folder).of(task.models), bad_units(task.folder)
    scale = "full" if any(one.scale == "full" for one in prepared.plans) else "tiny"
    names: dict[str, list[str]] = {}
    for entry in prepared.plans:
        if entry.scale == scale and entry.name not in bad:
            names.setdefault(entry.model, []).append(entry.name)
    return tuple(
        Unit(
            STEP,
            f"{model}: plans",
            __name__,
            value=3.0 if model in FIRST else 1.0,
            deadline_s=_DEADLINE_S,
            request={"folder": str(task.folder), "model": model, "plans": plans},
        )
        for model, plans in names.items()
    )


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    """The times of all plans, and what was predicted of each."""
    prepared: Prepared = read_prepared(unit.request["folder"])
    wanted = set(unit.request["plans"])
    entries = {one.title: one for one in prepared.plans if one.name in wanted}
    found: dict[str, Any] = {}
    samplers: dict[str, Sampler] = {}
    for title, entry in entries.items():
        try:
            plan, constants = loaded(entry)
            executable = bench.load(plan, constants)
        except EqsatError as error:
            found[title] = {"why": str(error)}
            continue
        executable.bind(model_inputs(entry.model, entry.scale))
        once = bench.sampler(executable)
        samplers[title] = bench.sampler(executable, runs_for([once() for _ in range(3)]))
    for title, timed in by_turns(samplers, _BUDGET_S).items():
        found[title] = timed.to_json()
    if not samplers:
        raise RuntimeFailed(next(iter(found.values()))["why"])
    for title, entry in entries.items():
        found[title].update(
            predicted_us=entry.predicted_us,
            streams=entry.plan.streams,
            launches=len(entry.plan.launches),
            arena_bytes=entry.plan.arena_bytes,
        )
    return {"model": unit.request["model"], "plans": found}
