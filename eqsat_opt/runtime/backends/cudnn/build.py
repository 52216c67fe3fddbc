"""Construction of cuDNN graphs from specs, for the handle of a GPU or the description of one.

The calls are the same with and without a GPU; only execution differs. `cudnn` is the module of the
wheel ``nvidia-cudnn-frontend``, passed as an argument so that nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eqsat_opt.common.precision import Precision
from eqsat_opt.runtime.backends.cudnn.spec import AnySpec, CudnnSpec
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor

__all__ = ["BARRED", "ENGINES", "NEEDED", "built", "plans", "uids_of"]

ENGINES = "A", "FALLBACK"
"""Heuristics that cuDNN is asked for plans, in order of rank."""

BARRED = {
    Precision.STRICT: "TENSOR_CORE",
    Precision.TF32: "DOWN_CONVERT_INPUTS",
    Precision.FP16: "REDUCED_PRECISION_REDUCTION",
}
"""Numerical note of cuDNN that bars a kernel under each policy."""

NEEDED = {
    "": (
        "backend_version", "behavior_note", "build_plan_policy", "create_device_properties",
        "create_handle", "data_type", "destroy_handle", "heur_mode", "numerical_note", "pygraph",
        "set_stream",
    ),
    "data_type": ("FLOAT", "HALF"),
    "heur_mode": ENGINES,
    "numerical_note.TENSOR_CORE": (),
    "pygraph": (
        "add", "bias", "build_operation_graph", "build_plan_at_index", "conv_fprop",
        "create_execution_plans", "deselect_behavior_notes", "deselect_numeric_notes",
        "execute_plan_at_index",
        "get_behavior_notes_for_plan_at_index", "get_execution_plan_count",
        "gelu", "gelu_approx_tanh", "get_plan_name_at_index", "get_workspace_size_plan_at_index",
        "matmul", "relu", "sigmoid", "tanh", "tensor", "validate",
    ),
    "behavior_note": ("RUNTIME_COMPILATION",),
    "numerical_note": tuple(BARRED.values()),
    "tensor": ("set_data_type", "set_dim", "set_output", "set_stride", "set_uid"),
}  # fmt: skip
"""Names of the wheel that this module and the device use, by class."""


def uids_of(spec: AnySpec) -> tuple[int, ...]:
    """Return the ids of a graph's tensors: factors, operands of the epilogue, then the result."""
    return tuple(range(1, 4 + sum(kind in ("add", "bias") for kind in spec.epilogue)))


def built(cudnn: Any, spec: AnySpec, **where: Any) -> Any:
    """Build a graph with all plans that its precision allows.

    Plans of convolutions are limited to precompiled kernels.

    Args:
        cudnn: the module.
        spec: the spec of the graph.
        where: ``handle`` or ``device_property``.

    Raises:
        Exception: cuDNN does not support the graph; the type is that of cuDNN's error.
    """
    kinds = {"float32": cudnn.data_type.FLOAT, "float16": cudnn.data_type.HALF}
    kind, uids = kinds[spec.dtype], iter(uids_of(spec))
    graph = cudnn.pygraph(
        io_data_type=kind,
        intermediate_data_type=cudnn.data_type.FLOAT,
        compute_data_type=cudnn.data_type.FLOAT,
        **where,
    )

    def tensor(one: StridedTensor) -> Any:
        made = graph.tensor(dim=list(one.dims), stride=list(one.strides), data_type=kind)
        made.set_uid(next(uids))
        return made

    if isinstance(spec, CudnnSpec):
        value = graph.conv_fprop(
            image=tensor(spec.x),
            weight=tensor(spec.w),
            pre_padding=list(spec.pads[:2]),
            post_padding=list(spec.pads[2:]),
            stride=list(spec.strides),
            dilation=list(spec.dilations),
        )
    else:
        value = graph.matmul(A=tensor(spec.a), B=tensor(spec.b))
    for one in spec.epilogue:
        if one == "add":
            assert isinstance(spec, CudnnSpec)
            assert spec.residual is not None
            value = graph.add(a=value, b=tensor(spec.residual))
        elif one == "bias":
            value = graph.bias(input=value, bias=tensor(spec.bias))
        else:
            value = getattr(graph, one)(input=value)
    value.set_output(True).set_data_type(kind)
    value.set_dim(list(spec.y.dims)).set_stride(list(spec.y.strides)).set_uid(next(uids))
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([getattr(cudnn.heur_mode, name) for name in ENGINES])
    graph.deselect_numeric_notes([getattr(cudnn.numerical_note, BARRED[spec.precision])])
    if isinstance(spec, CudnnSpec):  # all kernels for products are compiled at run time
        graph.deselect_behavior_notes([cudnn.behavior_note.RUNTIME_COMPILATION])
    return graph


def plans(graph: Any, most: int) -> Iterator[tuple[str, int, bool]]:
    """Yield the plans that can be built, best ranked first.

    Each is a name, its workspace in bytes, and whether its kernel is compiled at run time. The name
    consists of engine and knobs, and is stable within a version of cuDNN.
    """
    found = 0
    for number in range(graph.get_execution_plan_count()):
        if found == most:
            return
        try:
            graph.build_plan_at_index(number)
        except Exception:
            continue  # barred by the precision, or not for this device
        notes = graph.get_behavior_notes_for_plan_at_index(number)
        is_compiled = any("RUNTIME_COMPILATION" in str(note) for note in notes)
        size_bytes = int(graph.get_workspace_size_plan_at_index(number))
        yield str(graph.get_plan_name_at_index(number)), size_bytes, is_compiled
        found += 1
