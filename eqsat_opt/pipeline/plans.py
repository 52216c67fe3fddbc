"""Plans for users: making, loading and describing them, and comparing their outputs.

Running a plan needs only NumPy and the backends of its launches.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import OptionError, PlanError, RuntimeFailed
from eqsat_opt.ir.graph.plain_names import plain_kernel
from eqsat_opt.ir.onnx.files.stored_tensors import ModelLike, stored_tensors
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.registry import launcher_names, load_runner
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.devices.profile import HOST_PROFILE, load_profile
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.hosted import hosted
from eqsat_opt.runtime.plan.constants import make_constants
from eqsat_opt.runtime.plan.files import read_plan, write_plan
from eqsat_opt.runtime.plan.joins import concatenations
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.plan.streams import begins_us, makespan_us, schedule_of

if TYPE_CHECKING:  # running a plan needs no graph
    from eqsat_opt.ir.graph.graph import Graph
    from eqsat_opt.runtime.planning.recomputation import RecomputationFront

__all__ = [
    "describe_plan", "differences", "load_plan", "memory_front", "plan_model", "read_plan",
    "write_plan",
]  # fmt: skip


def load_plan(plan: str | os.PathLike[str] | Plan, model: ModelLike) -> Executable:
    """Load a plan, so that it is ready to run.

    Args:
        plan: the plan, or its file.
        model: the model that the plan was made for: a path, serialised bytes, an
            ``onnx.ModelProto``, or the weights by name. Only its weights are read.

    Raises:
        PlanError: the file is no plan, is not safe to run, was made for another device, other
            weights or another version of a backend, or a package is missing.
        ModelError: the model cannot be read.
        RuntimeFailed: a backend refuses a kernel.
    """
    if not isinstance(plan, Plan):
        plan = read_plan(plan)
    if plan.target != HOST:
        return _on_gpu(plan, model)
    return hosted(plan, stored_tensors(model))


def _on_gpu(plan: Plan, model: ModelLike) -> Executable:
    """Load a plan for a GPU, which must be the one of this machine.

    Raises:
        PlanError: it is another GPU, or a component is missing; the message names it.
    """
    profile = load_profile(plan.target)
    try:
        if profile.description is None:
            raise RuntimeFailed(f"nothing runs plans on {profile.title}")
        device = CudaDevice(profile)
        runners = {name: load_runner(name, device) for name in plan.versions}
    except RuntimeFailed as error:
        raise PlanError(
            f"the plan is for {plan.target}, which cannot run here: {error}; or plan again with "
            f"--target {HOST}"
        ) from error
    return Executable(plan, make_constants(plan, stored_tensors(model)), device, runners)


def plan_model(
    model: Any,
    *,
    backend: str = ORT,
    shapes: Mapping[str, tuple[int, ...] | int] | None = None,
    streams: int = 1,
    target: str = HOST,
    memory_limit: float | None = None,
) -> Plan:
    """Make a plan of a model, to which no rule is applied.

    Args:
        model: a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        backend: backend that runs the model: ``ort`` as one session, ``numpy`` operator by
            operator, or ``generated`` or ``native``, with ``numpy`` for operators for which they
            have no kernel.
        shapes: sizes of symbolic dimensions, or shapes of inputs.
        streams: largest number of streams.
        target: ``cpu``, or a device profile; a plan for another device can be shown, not run.
        memory_limit: largest size of the arena in bytes. To keep it, launches run in an order that
            frees memory early, and as few values as possible are computed twice.

    Raises:
        OptionError: a size is not given, or there is no such backend or device.
        PlanError: an operator, element type or constant is not possible in a plan.
        ModelError: the model is not valid.
    """
    if backend not in launcher_names():
        raise OptionError(
            f"no backend {backend!r} runs plans; there are {', '.join(launcher_names())}"
        )
    if memory_limit is not None and (streams > 1 or backend == ORT):
        raise OptionError(
            "a limit on memory needs one stream and a backend that runs operators one by one; "
            "choose --backend numpy, native or generated"
        )
    from eqsat_opt.ir import load_model, model_proto
    from eqsat_opt.runtime.planning.planner import make_plan, static_graph
    from eqsat_opt.runtime.planning.recomputation import recomputation_front, with_recomputation

    loaded = load_model(model)
    graph, given = _graph_at(loaded, shapes)
    stored = model if isinstance(model, str | os.PathLike | bytes) else model_proto(loaded)

    def planned(one: Graph) -> Plan:
        return make_plan(
            one,
            stored_tensors(stored),
            lambda node: backend,
            sizes=given,
            streams=streams,
            target=target,
        )

    if memory_limit is None:
        return planned(graph)
    front = recomputation_front(static_graph(graph, given))
    for choice in front.within(memory_limit):
        plan = planned(with_recomputation(choice))
        if plan.arena_bytes <= memory_limit:  # places in an arena may leave gaps
            return plan
    raise front.failure(memory_limit)


def memory_front(
    model: Any, *, shapes: Mapping[str, tuple[int, ...] | int] | None = None
) -> RecomputationFront:
    """Return the choices between the memory of a model's values and computing some of them twice.

    Args:
        model: a path, an ``onnx.ModelProto`` or an ``onnx_ir.Model``.
        shapes: sizes of symbolic dimensions, or shapes of inputs.

    Raises:
        OptionError: a size is not given.
        ModelError: the model is not valid.
        PlanError: an operator is not known.
    """
    from eqsat_opt.ir import load_model
    from eqsat_opt.runtime.planning.planner import static_graph
    from eqsat_opt.runtime.planning.recomputation import recomputation_front

    graph, given = _graph_at(load_model(model), shapes)
    return recomputation_front(static_graph(graph, given))


def _graph_at(
    loaded: Any, shapes: Mapping[str, tuple[int, ...] | int] | None
) -> tuple[Graph, Mapping[str, int]]:
    """Return the graph of a model without Identity nodes, and the sizes of its symbols."""
    from eqsat_opt.ir import import_model
    from eqsat_opt.ir.passes.normalise import normalise
    from eqsat_opt.ir.sizes.sizes import size_sets

    graph = normalise(import_model(loaded), numerics=Numerics.BITEXACT)
    (sizes,) = size_sets(graph, [shapes] if shapes else [])
    return graph, sizes.given


_SHARE = {"float16": 1e-2, "bfloat16": 5e-2}
_ORDINARY_SHARE = 1e-4
"""Bounds on the error of floating point outputs, relative to their maximum, by element type."""


def differences(
    found: Mapping[str, Any],
    expected: Mapping[str, Any],
    precision: Precision = Precision.STRICT,
) -> list[str]:
    """Describe the outputs that differ from their expected values, one text each.

    Floating point numbers may differ by rounding: by 1e-4 of the maximum of the output, 1e-2 in
    float16 and 5e-2 in bfloat16. Under another precision than ``strict-fp32`` the bound is at least
    that of the precision (`Precision.share`). Infinities, NaN and all other types must be equal.
    """
    result = []
    for name, want in expected.items():
        got = np.asarray(found[name])
        share = max(_SHARE.get(str(want.dtype), _ORDINARY_SHARE), precision.share)
        is_rounded = want.dtype.kind in "fcV"  # V: element types that NumPy lacks
        with np.errstate(all="ignore"):
            if not is_rounded:
                error, same = 0.0, np.array_equal(got, want)
            else:
                wide = np.complex128 if want.dtype.kind == "c" else np.float64
                a, b = got.astype(wide), want.astype(wide)
                finite = np.isfinite(b)
                same = np.array_equal(a[~finite], b[~finite], equal_nan=True)
                largest = float(np.abs(b[finite]).max(initial=0.0))
                error = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
                same = same and error <= share * largest
        if not same:
            what = f"by {error:.2g}, more than rounding explains" if error else "in its values"
            result.append(f"output {name!r} differs {what}")
    return result


def describe_plan(plan: Plan) -> dict[str, Any]:
    """Describe a plan as JSON values; times are analytic, by the profile named among them."""
    profile = load_profile(HOST_PROFILE if plan.target == HOST else plan.target)
    times = profile.launch_times_us(plan.launches)
    placed, event_us = schedule_of(plan), profile.event_us.value
    begins = begins_us(placed, times, event_us)
    launches = []
    for launch, time_us, begin_us in zip(plan.launches, times, begins, strict=True):
        launches.append(
            {
                "name": launch.name,
                "body": plain_kernel(launch.body.name) or "copy",
                "backend": launch.backend,
                "algorithm": launch.algorithm,
                "stream": launch.stream,
                "waits": list(launch.waits),
                "records": list(launch.records),
                "reads": [_place(plan, name) for name in launch.reads],
                "writes": [_place(plan, name) for name in launch.writes],
                "workspace_bytes": launch.workspace.size_bytes,
                "analytic_us": time_us,
                "begin_us": begin_us,
            }
        )
    views = sum(1 for buffer in plan.buffers if buffer.base)
    return {
        "target": plan.target,
        "precision": plan.precision.value,
        "sizes": dict(plan.sizes),
        "versions": dict(plan.versions),
        "inputs": {port.name: _type(plan, port.buffer) for port in plan.inputs},
        "outputs": {port.name: _type(plan, port.buffer) for port in plan.outputs},
        "streams": plan.streams,
        "events": sum(len(launch.records) for launch in plan.launches),
        "buffers": len(plan.buffers),
        "views": views,
        "concatenations": asdict(concatenations(plan)),
        "constants": len(plan.constants),
        "arena_bytes": plan.arena_bytes,
        "lower_bound_bytes": plan.lower_bound_bytes,
        "workspace_bytes": max(
            (launch.workspace.size_bytes for launch in plan.launches), default=0
        ),
        "analytic": {
            "profile": profile.name,
            "sum_us": sum(times),
            "makespan_us": makespan_us(placed, times, event_us),
        },
        "launches": launches,
    }


def _type(plan: Plan, name: str) -> str:
    buffer = plan.buffer_of[name]
    return str(TensorType(buffer.dtype, buffer.dims))


def _place(plan: Plan, name: str) -> dict[str, Any]:
    buffer = plan.buffer_of[name]
    return {
        "name": name,
        "type": _type(plan, name),
        "form": str(buffer.form),
        "strides": list(buffer.strides),
        "base": buffer.base,
        "offset": None if plan.is_constant(name) else plan.start_of(name),
    }
