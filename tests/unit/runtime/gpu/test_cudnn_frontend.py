"""A convolution by the real frontend of cuDNN, up to where it would run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.graph.graph import attributes
from eqsat_opt.ir.graph.kernel import Kernel, Operand, Step
from eqsat_opt.ir.values.types import StaticType
from eqsat_opt.runtime.backends.cudnn.oracle import HEURISTIC, missing_wheels
from eqsat_opt.runtime.backends.cudnn.running import CudnnRunner
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.devices.profile import load_profile
from eqsat_opt.runtime.plan.plan import Buffer, Launch, Workspace, layout_strides
from tests.tools.nvmath_on_host import on_host

cupy: Any = pytest.importorskip("cupy")
pytestmark = pytest.mark.skipif(bool(missing_wheels()), reason=missing_wheels())

STREAM, HANDLE, ROOM = 4711, 1 << 20, 1 << 24
SHAPES = {"x": (1, 64, 28, 28), "w": (32, 64, 3, 3), "b": (32,), "y": (1, 32, 28, 28)}
CONV = attributes(dilations=(1, 1), group=1, pads=(1, 1, 1, 1), strides=(1, 1))


def device() -> Any:
    """Memory of the host, as a device gives it."""
    library = SimpleNamespace(
        ascontiguousarray=cupy.ascontiguousarray,
        zeros=lambda count, dtype: on_host(np.zeros(count, dtype)),
    )
    return SimpleNamespace(cupy=library, stream_pointer=lambda number: STREAM + number)


def described(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Let cuDNN plan for a description, and tell what it would be told to run."""
    cudnn: Any = pytest.importorskip("cudnn")
    description = load_profile("h200").description
    assert description is not None
    ran: list[tuple[Any, ...]] = []
    real, compiled = cudnn.pygraph, cudnn._pybind_module
    monkeypatch.setattr(compiled, "create_handle", lambda: HANDLE)
    monkeypatch.setattr(compiled, "get_stream", lambda _: 0)
    monkeypatch.setattr(compiled, "_raw_set_stream", lambda *told: ran.append(told))
    monkeypatch.setattr(
        compiled.backend_graph, "_execute_plan_at_index", lambda _, *told: ran.append(told)
    )
    known = cudnn.create_device_properties(description.text)

    def graph(handle: Any, **kinds: Any) -> Any:
        assert cudnn._pygraph.to_backend_handle(handle) == HANDLE
        return real(device_property=known, **kinds)

    monkeypatch.setattr(cudnn, "pygraph", graph)
    return ran


def test_the_frontend_takes_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The handle of the stream, a pointer for each tensor and the workspace, as numbers."""
    ran = described(monkeypatch)
    types = {name: StaticType("float32", shape) for name, shape in SHAPES.items()}
    body = Kernel(
        tuple(Operand(types[name], name != "x") for name in "xwb"),
        (Step("Conv", CONV, (0, 1, 2)), Step("Relu", attributes(), (3,))),
        (4,),
    )
    buffers, views = {}, {}
    for name, dims in SHAPES.items():
        strides = layout_strides(dims, "nhwc")
        buffers[name] = Buffer(name, "float32", dims, strides)
        room = np.zeros(types[name].size, np.float32)
        views[name] = on_host(
            np.lib.stride_tricks.as_strided(room, dims, [4 * one for one in strides])
        )
    launch = Launch(
        "one", "cudnn", body, HEURISTIC, ("x", "w", "b"), ("y",), Workspace(0, ROOM), stream=1
    )
    runner = CudnnRunner(device())
    runner.prepare([launch], buffers)
    space = on_host(np.zeros(ROOM, np.uint8))
    reads = tuple(views[name] for name in launch.reads)
    call = runner.build(launch, Bound(reads, (views["y"],), space))
    assert ran == [(HANDLE, STREAM + 1)]
    call()
    pack, workspace, index, handle = ran[-1]
    # Weights lie as cuDNN wants them.
    assert pack == {uid: views[name].data.ptr for uid, name in enumerate("xwby", start=1)}
    assert (workspace, handle) == (space.data.ptr, HANDLE)
    assert index >= 0
