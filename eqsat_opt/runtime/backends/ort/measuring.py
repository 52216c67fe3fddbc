"""Price of one kernel as onnxruntime really runs it.

A kernel is measured after graph optimisation, in onnxruntime's blocked layout, without the
conversions at the boundary (they belong to the edge of a chain and not to each kernel), and less
the cost of the call of a session. Sums of such prices predict whole models to 2–10 %.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import onnx
from onnx import TensorProto, helper

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.backends.ort.nchwc import (
    add_neighbours,
    cut_neighbourhood,
    has_blocked_kernels,
    is_layout_sensitive,
)
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession, ort_optimized
from eqsat_opt.runtime.inputs import random_inputs
from eqsat_opt.runtime.measure import SYSTEM_CLOCK, Measurement, clock_kind, measure
from eqsat_opt.runtime.source import Feeds

__all__ = ["MIN_KERNEL_US", "blocked_form", "measure_kernel", "session_overhead_us"]

MIN_KERNEL_US = 0.05
"""Lowest price of a kernel, whatever remains after the overhead is subtracted."""

# Within a graph these operators only give a buffer another shape; alone they would copy it.
_ALIASING_OPS = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))


def measure_kernel(model: onnx.ModelProto, threads: int, *, budget_s: float = 0.3) -> Measurement:
    """Measure a one-kernel model with static input shapes and its weights as initializers.

    `time_us` excludes the call of the session, which includes the dispatch of one operator; add
    the cost of a launch where launches are counted. Where the blocked form cannot be isolated, the
    model is measured as it is.

    Raises:
        RuntimeFailed: onnxruntime cannot run the model at all.
        ModelError: no inputs can be made for it.
    """
    if model.graph.node and all(node.op_type in _ALIASING_OPS for node in model.graph.node):
        return _alias_measurement(threads)
    options = OrtOptions(threads=threads)
    feeds: Feeds = random_inputs(model, 0)
    blocked = blocked_form(model, feeds, options)
    if blocked is None:
        session = OrtSession(model, options)
    else:
        inner, feeds = blocked
        session = OrtSession(inner, replace(options, level="disabled"))
    result = measure(session.bind(feeds), threads=threads, budget_s=budget_s)
    return replace(
        _without(result, session_overhead_us(threads)),
        layout="plain" if blocked is None else "blocked",
    )


@lru_cache(maxsize=8)
def session_overhead_us(threads: int) -> float:
    """Measure the time to call a session that does (almost) nothing, once per process."""
    tensor = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "nothing", [tensor], [output]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = OrtSession(model, OrtOptions(threads=threads, level="disabled"))
    return measure(session.bind(random_inputs(model, 0)), threads=threads).time_us


def blocked_form(
    model: onnx.ModelProto, feeds: Feeds, options: OrtOptions
) -> tuple[onnx.ModelProto, Feeds] | None:
    """Return the kernel alone in blocked layout, with inputs; None if there is no such form.

    The kernel is a graph as onnxruntime optimises it, to be run at the level "disabled".
    """
    if not is_layout_sensitive(model):
        return None
    as_is = replace(options, level="disabled")
    try:
        extended, neighbours = add_neighbours(model)
        optimized = ort_optimized(extended, options)
        if not has_blocked_kernels(optimized):
            return None
        kernel = cut_neighbourhood(optimized, neighbours)
        if kernel is None:
            return None
        inner = [name for name in kernel.input_names if name not in feeds]
        optimized.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in inner)
        whole = OrtSession(optimized, as_is)
        values = dict(zip(whole.output_names, whole.run(feeds), strict=True))
        for name in inner:
            kernel.model.graph.input.append(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, values[name].shape)
            )
        blocked_feeds = {name: feeds.get(name, values.get(name)) for name in kernel.input_names}
        OrtSession(kernel.model, as_is).run(blocked_feeds)
    except RuntimeFailed:
        return None
    return kernel.model, blocked_feeds


def _without(result: Measurement, overhead_us: float) -> Measurement:
    return replace(
        result,
        time_us=max(result.time_us - overhead_us, MIN_KERNEL_US),
        p20_us=max(result.p20_us - overhead_us, MIN_KERNEL_US),
        median_us=max(result.median_us - overhead_us, MIN_KERNEL_US),
        overhead_us=overhead_us,
    )


def _alias_measurement(threads: int) -> Measurement:
    kind = clock_kind(threads, math.inf, SYSTEM_CLOCK)
    floor = MIN_KERNEL_US
    return Measurement(
        time_us=floor,
        p20_us=floor,
        median_us=floor,
        n=0,
        n_preempted=0,
        clock=kind,
        wall_us=floor,
        cpu_us=floor,
        layout="alias",
    )
