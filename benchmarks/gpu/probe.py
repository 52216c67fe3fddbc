"""The step `probe`: what is here, what cuDNN has here, and the figures of the device."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.gpu import energy
from benchmarks.gpu.correctness import BOUNDS, exact, largest_error
from benchmarks.gpu.kernels import crossing, repeated
from benchmarks.gpu.measuring import copies_of, kernel_sampler
from benchmarks.gpu.prepared import (
    KernelPlan,
    Prepared,
    kernel_constants,
    kernel_feeds,
    read_prepared,
)
from benchmarks.gpu.timing import Timed, by_turns
from benchmarks.gpu.unit import Bench, Task, Unit
from eqsat_opt.common.codecs import value_to_json
from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.values.dims import literal
from eqsat_opt.runtime.backends.cudnn.launcher import site_of_launch
from eqsat_opt.runtime.backends.cudnn.oracle import CudnnChoice, recorded
from eqsat_opt.runtime.backends.cudnn.spec import spec_from_json
from eqsat_opt.runtime.devices.profile import load_profile

__all__ = ["run", "units"]

STEP = "probe"

_SPECS = 16
"""Convolutions that one unit asks about: one that cuDNN dies of costs the others of its unit."""

_MOST = 4
"""Recorded of each; only those that are not compiled when they are built."""

_LAUNCHES = 500
_BUDGET_S = 2.0


def units(task: Task) -> Sequence[Unit]:
    """The facts, the figures, and then the convolutions of the plans."""
    return tuple(_units(read_prepared(task.folder).of(task.models), str(task.folder)))


def _units(prepared: Prepared, folder: str) -> Iterator[Unit]:
    def unit(name: str, value: float, **request: Any) -> Unit:
        return Unit(STEP, name, __name__, value, 60.0, {"folder": folder, **request})

    yield unit("facts", 3.0, facts=True)
    for rank, name in enumerate(_FIGURES):
        yield unit(name, 2.0 - rank / 10, probe=name)
    yield Unit(STEP, "ticks", energy.__name__, 2.0, 30.0, {"ticks": True})
    specs = [one for kernel in prepared.kernels if (one := _spec(kernel)) is not None]
    keys = sorted({json.dumps(one, sort_keys=True) for one in specs})
    for number, begin in enumerate(range(0, len(keys), _SPECS), start=1):
        part = [json.loads(key) for key in keys[begin : begin + _SPECS]]
        yield unit(f"support {number}", 1.0, specs=part, target=prepared.target)


def _spec(kernel: KernelPlan) -> Mapping[str, Any] | None:
    if kernel.backend != "cudnn":
        return None
    (launch,) = kernel.plan.launches
    return dict(value_to_json(site_of_launch(launch, kernel.plan.buffer_of).spec))


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    """Facts, a figure, or the answers of cuDNN beside the recorded ones."""
    request = unit.request
    if "facts" in request:
        return bench.facts()
    if "specs" in request:
        return _support(request["specs"], request["target"], bench)
    probes = {one.name: one for one in read_prepared(request["folder"]).probes}
    return _FIGURES[request["probe"]](probes, bench)


# ** support **


def _support(specs: Sequence[Mapping[str, Any]], target: str, bench: Bench) -> Mapping[str, Any]:
    """Live answers, and how many are those that were recorded; by sets, whatever the order."""
    description = load_profile(target).description
    assert description is not None
    answers = []
    counts = {"asked": 0, "recorded": 0, "equal": 0, "same_set": 0}
    for value in specs:
        spec = spec_from_json(value)
        live = [one for one in bench.choices(spec, _MOST) if not one.is_compiled]
        answers.append([value, [[one.name, one.workspace_bytes] for one in live]])
        counts["asked"] += 1
        known = recorded(description.architecture, spec.precision).get(spec.key)
        if known is not None:
            counts["recorded"] += 1
            counts["equal"] += tuple(live) == known
            counts["same_set"] += _names(live) == _names(known)
    return {**counts, "answers": answers}


def _names(choices: Sequence[CudnnChoice]) -> frozenset[str]:
    return frozenset(one.name for one in choices)


# ** figures **


def _copy(probes: Mapping[str, KernelPlan], bench: Bench) -> Mapping[str, Any]:
    """Bytes that are read and written each second, GB/s."""
    kernel = probes["copy"]
    timed = _timed({"copy": kernel}, bench)["copy"]
    size = sum(port_bytes(kernel, port.buffer) for port in _ports(kernel))
    return {"gb_s": size / timed.median_us / 1e3, "bytes": size, **timed.to_json()}


def _product(probes: Mapping[str, KernelPlan], bench: Bench) -> Mapping[str, Any]:
    """Operations of a product of float32 each second, TFLOP/s, two for each multiply-add."""
    kernel = probes["product"]
    timed = _timed({"product": kernel}, bench)["product"]
    flops = literal(kernel.plan.launches[0].body.flops)
    return {"tflops": flops / timed.median_us / 1e6, "flops": flops, **timed.to_json()}


def _launch(probes: Mapping[str, KernelPlan], bench: Bench) -> Mapping[str, Any]:
    """Time from one kernel that does nothing to the next in a captured graph, µs."""
    kernel = probes["empty"]
    plan = repeated(kernel.plan, _LAUNCHES)
    timed = by_turns({"launch": kernel_sampler(kernel, plan, bench)}, _BUDGET_S)["launch"]
    return {"launch_us": timed.median_us, "launches": _LAUNCHES, **timed.to_json()}


def _event(probes: Mapping[str, KernelPlan], bench: Bench) -> Mapping[str, Any]:
    """What waiting for an event of another stream adds to a launch, µs; 0 where it adds nothing."""
    kernel = probes["empty"]
    plan = repeated(kernel.plan, _LAUNCHES)
    timed = by_turns(
        {
            "alone": kernel_sampler(kernel, plan, bench),
            "crossing": kernel_sampler(kernel, crossing(plan), bench),
        },
        _BUDGET_S,
    )
    more_us = timed["crossing"].median_us - timed["alone"].median_us
    found = {name: one.to_json() for name, one in timed.items()}
    return {"event_us": max(more_us, 0.0), "launches": _LAUNCHES, **found}


def _gelu(probes: Mapping[str, KernelPlan], bench: Bench) -> Mapping[str, Any]:
    """Which Gelu cuBLASLt computes behind a product; empty where it is neither."""
    kernel = probes["gelu"]
    feeds = kernel_feeds(kernel, kernel.plan)
    (found,) = bench.load(kernel.plan, kernel_constants(kernel, kernel.plan)).run(feeds)
    (launch,) = kernel.plan.launches
    errors = {}
    for form in ("none", "tanh"):
        last = replace(launch.body.steps[-1], attrs=attributes(approximate=form))
        body = replace(launch.body, steps=(*launch.body.steps[:-1], last))
        (wanted,) = exact(body, [feeds[name] for name in launch.reads])
        errors[form] = largest_error(found, wanted)
    best = min(errors, key=errors.__getitem__)
    return {"gelu": best if errors[best] <= BOUNDS["float32"] else "", "errors": errors}


_FIGURES = {
    "launch": _launch, "event": _event, "gelu": _gelu, "copy": _copy, "product": _product,
}  # fmt: skip
"""What is quick stands first."""


def _timed(kernels: Mapping[str, KernelPlan], bench: Bench) -> dict[str, Timed]:
    samplers = {
        name: kernel_sampler(kernel, repeated(kernel.plan, copies_of(kernel.plan)[0]), bench)
        for name, kernel in kernels.items()
    }
    return by_turns(samplers, _BUDGET_S)


def _ports(kernel: KernelPlan) -> Sequence[Any]:
    return (*kernel.plan.inputs, *kernel.plan.outputs)


def port_bytes(kernel: KernelPlan, name: str) -> int:
    """Bytes of an input or output, without gaps."""
    return kernel.plan.buffer_of[name].span_bytes
