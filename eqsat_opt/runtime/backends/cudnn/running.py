"""Launches of cuDNN on a GPU: the named plans, on static pointers, with one handle per stream."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from eqsat_opt.errors import RuntimeFailed, reason
from eqsat_opt.runtime.backends.cudnn.build import built, uids_of
from eqsat_opt.runtime.backends.cudnn.launcher import CudnnLauncher, site_of_launch
from eqsat_opt.runtime.backends.cudnn.oracle import HEURISTIC, RECORDED_VERSION, has_engines
from eqsat_opt.runtime.backends.cudnn.spec import ZERO_BIAS, CudnnSpec
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CudnnRunner"]


class CudnnRunner(CudnnLauncher):
    """Launcher that builds and runs the convolutions and products of one plan.

    Args:
        device: the device that runs them.

    Raises:
        RuntimeFailed: cuDNN is missing, or is not the version whose engines plans name.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        try:
            self._cudnn: Any = importlib.import_module("cudnn")
        except ImportError as error:
            raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error
        version = self._cudnn.backend_version()
        if not has_engines(version):
            raise RuntimeFailed(
                f"plans name engines of cuDNN {RECORDED_VERSION}; here is {version}: install "
                "nvidia-cudnn-cu13==9.19.*"
            )
        self._handles: dict[int, Any] = {}
        self._graphs: dict[Any, tuple[Any, int]] = {}
        self._buffers: Mapping[str, Buffer] = {}

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches."""
        super().prepare(launches, buffers)
        self._buffers = buffers

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        """Build cuDNN's plan for a launch on this memory.

        Raises:
            RuntimeFailed: this device does not have the plan, or needs more workspace for it.
        """
        site, cupy = site_of_launch(launch, self._buffers), self._device.cupy
        handle = self._handle(launch.stream)
        key = site.spec, launch.algorithm, launch.workspace.size_bytes, launch.stream
        if key not in self._graphs:
            try:
                graph = built(self._cudnn, site.spec, handle=handle)
            except Exception as error:
                why = f"launch {launch.name!r}: cuDNN refuses it: {reason(error)}"
                raise RuntimeFailed(why) from error
            self._graphs[key] = graph, _index(graph, launch)
        graph, index = self._graphs[key]
        zeros = cupy.zeros(site.spec.y.dims[1], bound.writes[0].dtype)
        arrays: list[Any] = [
            zeros if number == ZERO_BIAS else bound.reads[number] for number in site.operands
        ]
        arrays.append(bound.writes[0])
        pack = None
        if isinstance(site.spec, CudnnSpec):
            weights = arrays[1].transpose(0, 2, 3, 1)
            arrays[1] = packed = cupy.ascontiguousarray(weights)
            if not (packed is weights or launch.body.operands[site.operands[1]].const):
                pack = partial(cupy.copyto, packed, weights)
        pointers = {
            uid: int(array.data.ptr) for uid, array in zip(uids_of(site.spec), arrays, strict=True)
        }
        workspace = int(bound.workspace.data.ptr)  # type: ignore[attr-defined]

        def run(_kept: Any = (arrays, bound)) -> None:  # keeps alive the memory of the pointers
            if pack is not None:
                pack()
            graph.execute_plan_at_index(pointers, workspace, index, handle=handle)

        return run

    def _handle(self, stream: int) -> Any:
        """Return the handle of a stream; a handle cannot serve two streams at once."""
        if stream not in self._handles:
            handle = self._cudnn.create_handle()
            self._cudnn.set_stream(handle=handle, stream=self._device.stream_pointer(stream))
            self._handles[stream] = handle
        return self._handles[stream]


def _index(graph: Any, launch: Launch) -> int:
    """Build the plan of a launch, and return its index in the graph."""
    room = launch.workspace.size_bytes
    for number in range(graph.get_execution_plan_count()):
        if launch.algorithm not in (HEURISTIC, graph.get_plan_name_at_index(number)):
            continue
        try:
            graph.build_plan_at_index(number)
        except Exception:
            continue  # barred by the precision, or not for this device
        if graph.get_workspace_size_plan_at_index(number) <= room:
            return number
    raise RuntimeFailed(
        f"launch {launch.name!r}: cuDNN has no plan {launch.algorithm!r} here that needs at most "
        f"{room} bytes of workspace; plan again"
    )
