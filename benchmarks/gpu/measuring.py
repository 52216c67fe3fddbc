"""The step `measure`: the time of each kernel, by all ways to run it in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.kernels import by_algorithm, repeated
from benchmarks.gpu.prepared import KernelPlan, kernel_constants, kernel_feeds, read_prepared
from benchmarks.gpu.results import read_results, results_path
from benchmarks.gpu.timing import by_turns, runs_for
from benchmarks.gpu.unit import FIRST, Bench, Sampler, Task, Unit
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import EqsatError, RuntimeFailed
from eqsat_opt.ir.graph.commuted_kernels import commuted_key
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["bad_units", "copies_of", "kernel_sampler", "run", "units"]

STEP = "measure"

_DEADLINE_S = 40.0
_BUDGET_S = 0.4
_MOST_COPIES, _MOST_BYTES = 32, 4 << 30
_LATER = 1e9
"""More than any bound, µs."""

_OVER_CACHE = 2.0
"""So many caches full are read before anything is read again."""


def units(task: Task) -> Sequence[Unit]:
    """One for each kernel that was prepared, cheapest bound first: these are chosen first.

    Those of models that come first stand before all others.
    What `correctness` found to be wrong, or to end its process, is left out.
    """
    prepared, bad = read_prepared(task.folder).of(task.models), bad_units(task.folder)
    first = set(FIRST)
    return tuple(
        Unit(
            STEP,
            kernel.name,
            __name__,
            value=-kernel.bound_us - (0.0 if first & kernel.models.keys() else _LATER),
            deadline_s=_DEADLINE_S,
            request={"folder": str(task.folder), "kernel": kernel.name, "ways": ways},
        )
        for kernel in prepared.kernels
        if (
            ways := [
                number
                for number, way in enumerate(kernel.ways)
                if f"{kernel.name}: {way.algorithm}" not in bad
            ]
        )
    )


def bad_units(folder: Path) -> frozenset[str]:
    """The units of `correctness` that gave wrong results here, or ended their process."""
    path = results_path(folder, "correctness")
    if not path.exists():
        return frozenset()
    found = read_results(path)["units"]
    return frozenset(
        name
        for name, entry in found.items()
        if entry["state"] in ("crashed", "stopped")
        or not entry.get("result", {}).get("is_good", True)
    )


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    """The times of all ways; why there is none of some."""
    kernels = read_prepared(unit.request["folder"]).kernels
    kernel = next(one for one in kernels if one.name == unit.request["kernel"])
    ways = {kernel.ways[number].algorithm: kernel.ways[number] for number in unit.request["ways"]}
    count, is_cold = copies_of(kernel.plan)
    found: dict[str, Any] = {}
    samplers: dict[str, Sampler] = {}
    for algorithm, way in ways.items():
        plan = repeated(by_algorithm(kernel.plan, algorithm, way.workspace_bytes), count)
        try:
            samplers[algorithm] = kernel_sampler(kernel, plan, bench)
        except EqsatError as error:
            found[algorithm] = {"why": str(error)}
    for algorithm, timed in by_turns(samplers, _BUDGET_S * len(ways)).items():
        found[algorithm] = timed.to_json()
    if not samplers:
        raise RuntimeFailed(next(iter(found.values()))["why"])
    (launch,) = kernel.plan.launches
    buffer_of = kernel.plan.buffer_of
    signature, forms = commuted_key(
        launch.body,
        tuple(buffer_of[name].form for name in launch.reads),
        tuple(buffer_of[name].form for name in launch.writes),
    )
    return {
        "backend": launch.backend,
        "version": kernel.plan.versions[launch.backend],
        "signature": signature,
        "forms": forms,
        "precision": "" if launch.precision is Precision.STRICT else launch.precision.peak,
        "copies": count,
        "cache": "cold" if is_cold else "warm",
        "ways": found,
    }


def kernel_sampler(kernel: KernelPlan, plan: Plan, bench: Bench) -> Sampler:
    """What times one launch of a plan of some copies of a kernel.

    Raises:
        EqsatError: the plan cannot be loaded.
    """
    executable = bench.load(plan, kernel_constants(kernel, plan))
    executable.bind(kernel_feeds(kernel, plan))
    once, count = bench.sampler(executable), len(plan.launches)
    whole = bench.sampler(executable, runs_for([once() for _ in range(3)]))
    return lambda: whole() / count


def copies_of(plan: Plan) -> tuple[int, bool]:
    """How many copies of a kernel run in turn, and whether nothing of them stays in the cache."""
    size = max(plan.arena_bytes + sum(_constant_bytes(plan)), 1)
    cache = cache_bytes(plan.target)
    wanted = int(_OVER_CACHE * cache // size) + 1
    count = max(1, min(wanted, _MOST_COPIES, _MOST_BYTES // size))
    return count, count >= wanted


def _constant_bytes(plan: Plan) -> Iterator[int]:
    return (plan.buffer_of[name].span_bytes for name in plan.constants)


def cache_bytes(target: str) -> int:
    """Of the second level, by the description of the device."""
    description = load_profile(target).description
    assert description is not None
    return int(json.loads(description.text)["l2CacheSize"])
