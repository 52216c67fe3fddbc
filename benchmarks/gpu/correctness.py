"""The step `correctness`: kernels against float64, plans against the model as it is defined.

A plan that computes something else is compared with its interpreter, which tells whether the plan
is wrong or what runs it. That takes seconds for each plan of full size, the outputs of a model are
the same for all of its plans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.gpu.kernels import by_algorithm
from benchmarks.gpu.prepared import (
    KernelPlan,
    ModelPlan,
    Prepared,
    kernel_constants,
    kernel_feeds,
    loaded,
    model_inputs,
    model_outputs,
    read_prepared,
)
from benchmarks.gpu.unit import FIRST, Bench, Task, Unit
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.precision import Precision
from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.evaluation import evaluate_kernel
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.runtime.executor import Executable
from eqsat_opt.runtime.plan.interpreter import interpret
from eqsat_opt.runtime.plan.places import Array

__all__ = ["BOUNDS", "exact", "largest_error", "run", "units"]

STEP = "correctness"

BOUNDS = {"float64": 1e-12, "float32": 2e-5, "float16": 5e-3, "bfloat16": 4e-2}
"""Of the error of a kernel relative to the largest value of the output; all else is equal."""

PLAN_BOUND = 1e-4
"""The same of a whole plan, where errors of kernels add up."""

_FLOATS = tuple(BOUNDS)
_RUNS = 20
_RUNNING_S = 2.0
"""So many runs are compared bit by bit, or as many as there is time for."""

_KERNEL_S, _PLAN_S = 20.0, 90.0
_WAY, _OTHER_WAY, _CASE = 5.0, 3.5, 3.0
_PLANS = {("tiny", True): 6.0, ("full", True): 5.5, ("tiny", False): 3.2, ("full", False): 1.0}
"""What units are worth; of plans by scale, and whether their model is of those that come first.

Where a whole plan is right, so are its kernels.
"""


def units(task: Task) -> Sequence[Unit]:
    """One for each way to run a kernel, each case of an operator, each plan."""
    prepared = read_prepared(task.folder).of(task.models)
    return tuple(_units(prepared, str(task.folder)))


def _units(prepared: Prepared, folder: str) -> Iterator[Unit]:
    def unit(name: str, value: float, deadline_s: float, **request: Any) -> Unit:
        request["folder"] = folder
        return Unit(STEP, name, __name__, value, deadline_s, request)

    for entry in prepared.plans:
        value = _PLANS[entry.scale, entry.model in FIRST]
        yield unit(entry.name, value, _PLAN_S, plan=entry.name)
    for kernel in prepared.kernels:
        for rank, way in enumerate(kernel.ways):
            value = _OTHER_WAY - rank / 10 if rank else _WAY
            name = f"{kernel.name}: {way.algorithm}"
            yield unit(name, value, _KERNEL_S, kernel=kernel.name, way=rank)
    for number, kernel in enumerate(prepared.cases):  # the usual ones stand first
        value = _CASE - number / len(prepared.cases)
        yield unit(kernel.name, value, _KERNEL_S, case=kernel.name)


def run(unit: Unit, bench: Bench) -> Mapping[str, Any]:
    """The largest error, whether all runs give the same bits, and whether that is good."""
    request, prepared = unit.request, read_prepared(unit.request["folder"])
    if "plan" in request:
        return _checked_plan(_named(prepared.plans, request["plan"]), bench)
    if "case" in request:
        kernel, way = _named(prepared.cases, request["case"]), 0
    else:
        kernel, way = _named(prepared.kernels, request["kernel"]), request["way"]
    return _checked_kernel(kernel, way, bench)


def _named(entries: Sequence[Any], name: str) -> Any:
    return next(one for one in entries if one.name == name)


# ** kernels **


def _checked_kernel(kernel: KernelPlan, number: int, bench: Bench) -> Mapping[str, Any]:
    way = kernel.ways[number]
    plan = by_algorithm(kernel.plan, way.algorithm, way.workspace_bytes)
    constants, feeds = kernel_constants(kernel, plan), kernel_feeds(kernel, plan)
    executable = bench.load(plan, constants)
    found = executable.run(feeds)
    (launch,) = plan.launches
    values = []
    for name in launch.reads:
        if name in feeds:
            values.append(feeds[name])
        else:
            root = constants[plan.root_of(name).name].reshape(-1)
            buffer = plan.buffer_of[name]
            values.append(
                np.lib.stride_tricks.as_strided(
                    root, buffer.dims, [s * root.itemsize for s in buffer.strides]
                )
            )
    wanted = exact(launch.body, values)
    errors = [largest_error(a, b) for a, b in zip(found, wanted, strict=True)]
    less = 0.0 if launch.precision is Precision.STRICT else launch.precision.share
    bounds = [max(b, less) if (b := BOUNDS.get(str(a.dtype), 0.0)) else 0.0 for a in found]
    return {
        "error": max(errors),
        "is_good": all(e <= b for e, b in zip(errors, bounds, strict=True)),
        "equal_runs": _equal_runs(executable, feeds, found),
        "backend": launch.backend,
        "algorithm": way.algorithm,
    }


def exact(body: Kernel, values: Sequence[Array]) -> list[Array]:
    """What a kernel computes, in double precision where there are fractions."""
    operands = tuple(
        replace(one, type=TensorType("float64", one.type.shape))
        if one.type.dtype in _FLOATS
        else one
        for one in body.operands
    )
    wide = [
        x.astype(np.float64) if one.type.dtype in _FLOATS else x
        for x, one in zip(values, body.operands, strict=True)
    ]
    return evaluate_kernel(replace(body, operands=operands), wide)


def largest_error(found: Array, wanted: Array) -> float:
    """The largest difference, as a share of the largest value; infinite where it is no number."""
    if found.shape != wanted.shape:
        return float("inf")
    if found.dtype.kind not in "fV":
        return 0.0 if np.array_equal(found, wanted) else float("inf")
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    finite = np.isfinite(b)
    with np.errstate(all="ignore"):
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return float("inf")
        largest = float(np.abs(b[finite]).max(initial=0.0))
        error = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    if not error <= float("inf"):
        return float("inf")
    return error / largest if largest else error


def _equal_runs(executable: Executable, feeds: Mapping[str, Array], first: list[Array]) -> int:
    """How many runs give the same bits as the first one, itself counted; 0 if one does not."""
    deadline = Deadline.after(_RUNNING_S)
    for number in range(1, _RUNS):
        if deadline.expired:
            return number
        again = executable.run(feeds)
        if any(a.tobytes() != b.tobytes() for a, b in zip(first, again, strict=True)):
            return 0
    return _RUNS


# ** plans **


def _checked_plan(entry: ModelPlan, bench: Bench) -> Mapping[str, Any]:
    plan, constants = loaded(entry)
    feeds = model_inputs(entry.model, entry.scale)
    captured = bench.load(plan, constants)
    found = captured.run(feeds)
    eager = bench.load(plan, constants, is_captured=False).run(feeds)
    names = [port.name for port in plan.outputs]
    if not names:
        raise RuntimeFailed("the plan has no output")
    bound = max(PLAN_BOUND, plan.precision.share)
    against, wanted = "model", model_outputs(entry.model, entry.scale)
    error = max(largest_error(a, wanted[name]) for a, name in zip(found, names, strict=True))
    if not error <= bound:  # is that the plan's fault or the device's?
        against, exact = "plan", interpret(plan, constants, feeds)
        error = max(largest_error(a, exact[name]) for a, name in zip(found, names, strict=True))
    return {
        "error": error,
        "is_good": error <= bound,
        "against": against,
        "is_eager_equal": all(
            a.tobytes() == b.tobytes() for a, b in zip(found, eager, strict=True)
        ),
        "equal_runs": _equal_runs(captured, feeds, found),
        "launches": len(plan.launches),
    }
