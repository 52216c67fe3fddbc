"""CuPy, cuDNN and nvmath-python on a CPU: what the device calls, computed by NumPy and g++.

Kernels are compiled by g++ with a fiber for each thread. Streams run what is queued at once, and
write down what they are told.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.runtime.backends.generated.gpu.cuda import Geometry
from eqsat_opt.runtime.backends.generated.program import KernelProgram, Memory
from tests.cuda_host.harness import Kernel, compiled

__all__ = ["FakeArray", "FakeGpu", "FakeGraph"]


class Pointer:
    """A place in memory, as `cupy.cuda.MemoryPointer` is."""

    def __init__(self, ptr: int, keep: object) -> None:
        self.ptr, self.keep = ptr, keep

    def __add__(self, offset: int) -> Pointer:
        return Pointer(self.ptr + offset, self.keep)


class FakeArray(np.ndarray[Any, Any]):
    """An array of the device."""

    @property
    def data(self) -> Pointer:  # type: ignore[override]
        return Pointer(self.ctypes.data, self)


def at(pointer: int, dims: Sequence[int], strides: Sequence[int], dtype: Any) -> NDArray[Any]:
    """An array at an address; strides in elements."""
    kind = np.dtype(dtype)
    if 0 in dims:
        return np.zeros(dims, kind)
    span = sum((d - 1) * s for d, s in zip(dims, strides, strict=True)) + 1
    bytes_ = (ctypes.c_char * (span * kind.itemsize)).from_address(pointer)
    flat = np.frombuffer(bytes_, kind)
    return np.lib.stride_tricks.as_strided(flat, dims, [s * kind.itemsize for s in strides])


class FakeEvent:
    """An event of a device on which each launch takes 1 µs."""

    def __init__(self, number: int) -> None:
        self.number, self.at = number, 0
        self.known: dict[int, int] = {}
        self.capture: list[Any] | None = None

    def record(self, stream: FakeStream) -> None:
        self.at = sum(one[0] == "launch" for one in stream.gpu.log)

    def synchronize(self) -> None:
        pass


class FakeStream:
    """A stream.

    Attributes:
        known: how much was queued on each stream before what is queued here next.
        capture: that it takes part in, as whoever waits for an event of it.
    """

    def __init__(self, gpu: FakeGpu, number: int) -> None:
        self.gpu, self.number, self.ptr = gpu, number, 1000 + number
        self.known: dict[int, int] = {}
        self.capture: list[Any] | None = None
        gpu.streams[number] = self

    def __enter__(self) -> FakeStream:
        self.gpu.current = self.number
        return self

    def __exit__(self, *_: object) -> None:
        self.gpu.current = None

    def begin_capture(self, mode: int) -> None:
        assert not gc.isenabled(), "what ends during a capture may break it"
        self.gpu.note("begin_capture", self.number)
        for stream in self.gpu.streams.values():
            stream.known = {}
        self.gpu.captured = self.capture = []

    def end_capture(self) -> Any:
        captured, self.gpu.captured = self.gpu.captured or [], None
        self.gpu.note("end_capture", self.number)
        for stream in self.gpu.streams.values():
            stream.capture = None
            if stream.known.get(stream.number, 0) > self.known.get(stream.number, 0):
                raise self.gpu.CUDARuntimeError("cudaErrorStreamCaptureUnjoined")

        def launch(stream: FakeStream) -> None:
            for work in captured:
                work()

        return SimpleNamespace(launch=launch)

    def record(self, event: FakeEvent) -> None:
        self.gpu.note("record", self.number, event.number)
        event.known, event.capture = dict(self.known), self.capture

    def wait_event(self, event: FakeEvent) -> None:
        self.gpu.note("wait", self.number, event.number)
        if event.capture is not None:
            self.capture = event.capture
        for number, count in event.known.items():
            self.known[number] = max(count, self.known.get(number, 0))

    def synchronize(self) -> None:
        assert self.gpu.captured is None, "a stream that is captured cannot be waited for"


def algorithm(number: int, workspace_bytes: int) -> Any:
    """One of cuBLASLt, as nvmath-python describes it."""
    return SimpleNamespace(
        algorithm_id=number, tile=(128, 64), stages="AUTO", split_k=1, reduction_scheme=0,
        cta_swizzling=False, custom_option=0, workspace_bytes=workspace_bytes,
    )  # fmt: skip


class FakeGpu:
    """One GPU, and what its libraries were told.

    Args:
        folder: for compiled kernels.
        capability: of the device.
    """

    def __init__(self, folder: Path, capability: tuple[int, int] = (9, 0)) -> None:
        self.folder, self.capability = folder, capability
        self.log: list[tuple[object, ...]] = []
        self.streams: dict[int, FakeStream] = {}
        self.current: int | None = None
        self.captured: list[Any] | None = None
        self.free_bytes = 1 << 40
        self.cudnn_version = 91900
        self.plan_names = ["eng51", "eng0"]
        self.workspace_bytes = 0
        self.algorithms = [algorithm(7, 1 << 10), algorithm(3, 0)]

    class CUDARuntimeError(Exception):
        """Of CuPy."""

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stand where the libraries would."""
        whole = {"cupy": self.cupy, "cudnn": self.cudnn, "nvmath": SimpleNamespace()}
        for name, module in {**whole, **self.nvmath}.items():
            monkeypatch.setitem(sys.modules, name, module)

    def note(self, *entry: object) -> None:
        self.log.append(entry)

    def queue(self, work: Any, stream: int, *entry: object) -> None:
        """Run now, or when the graph is launched."""
        self.note("launch", stream, *entry)
        one = self.streams[stream]
        one.known[stream] = one.known.get(stream, 0) + 1
        assert one.capture is self.captured, "it would not be part of the graph"
        if self.captured is None:
            work()
        else:
            self.captured.append(work)

    # CuPy ----------------------------------------------------------------------------------------

    @property
    def cupy(self) -> Any:
        class OutOfMemoryError(Exception):
            pass

        major, minor = self.capability
        numbers = iter(range(1 << 20))
        streams = iter(range(1 << 20))

        def zeros(count: int, dtype: Any) -> FakeArray:
            if count > self.free_bytes:
                raise OutOfMemoryError
            assert self.captured is None, "nothing may be allocated during a capture"
            return np.zeros(count, dtype).view(FakeArray)

        def asarray(value: Any) -> FakeArray:
            if value.nbytes > self.free_bytes:
                raise OutOfMemoryError
            assert self.captured is None, "nothing may be allocated during a capture"
            return np.array(value).view(FakeArray)

        def ndarray(dims: Any, dtype: Any, memptr: Pointer, strides: Any) -> FakeArray:
            steps = [s // np.dtype(dtype).itemsize for s in strides]
            found = at(memptr.ptr, dims, steps, dtype).view(FakeArray)
            found.keep = memptr  # type: ignore[attr-defined]
            return found

        def copyto(target: FakeArray, value: FakeArray) -> None:
            if self.current is None:
                raise AssertionError("a copy on no stream")
            self.queue(lambda: np.copyto(target, value), self.current, "copy")

        def asnumpy(value: FakeArray, order: str) -> NDArray[Any]:
            assert self.captured is None, "a copy to the host waits"
            return np.array(value, order=order)  # type: ignore[call-overload, no-any-return]

        def ascontiguousarray(value: FakeArray) -> FakeArray:
            if value.flags.c_contiguous:
                return value
            assert self.captured is None, "nothing may be allocated during a capture"
            return np.array(value, order="C").view(FakeArray)

        runtime = SimpleNamespace(
            CUDARuntimeError=self.CUDARuntimeError,
            deviceSynchronize=lambda: self.note("deviceSynchronize"),
            deviceGetPCIBusId=lambda _: "0000:01:00.0",
            driverGetVersion=lambda: 13000,
            getDeviceCount=lambda: 1,
            getDeviceProperties=lambda _: {"major": major, "minor": minor, "name": b"Fake"},
            memGetInfo=lambda: (self.free_bytes, self.free_bytes),
            runtimeGetVersion=lambda: 13000,
            streamCaptureModeThreadLocal=1,
        )
        cuda = SimpleNamespace(
            runtime=runtime,
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
            Stream=lambda non_blocking: FakeStream(self, next(streams)),
            Event=lambda disable_timing=False: FakeEvent(next(numbers)),
            get_elapsed_time=lambda begin, end: 1e-3 * (end.at - begin.at),
        )
        return SimpleNamespace(
            cuda=cuda, zeros=zeros, asarray=asarray, ndarray=ndarray, copyto=copyto,
            asnumpy=asnumpy, ascontiguousarray=ascontiguousarray, RawModule=self.module,
        )  # fmt: skip

    def module(self, code: str, options: tuple[str, ...], backend: str) -> Any:
        """Kernels of a text; all are run with fibers."""
        assert (options, backend) == (("-std=c++17",), "nvrtc")
        found = re.findall(r"__launch_bounds__\(\d+\) (\w+)\(\s*([^)]*)\)", code)
        body = code[code.index('extern "C"') : code.rindex("}  // namespace")]
        kernels: dict[str, Kernel] = {}
        for name, arguments in found:
            count = arguments.count("*")
            # The extents of a grid stand behind its pointers.
            extents: list[Any] = [f"(unsigned)(size_t)data[{count + i}]" for i in range(2)]
            grid = Geometry(name, extents[0], extents[1], is_cooperative=True)
            memories = tuple(Memory(f"m{i}", "float32") for i in range(count))
            kernels[name] = Kernel(
                KernelProgram((), memories, ()), "" if kernels else body, (grid,)
            )
        library = compiled(list(kernels.values()), self.folder)

        def get_function(name: str) -> Any:
            one = kernels[name]

            def call(blocks: tuple[int], threads: tuple[int], arguments: Sequence[Any]) -> None:
                assert self.current is not None, "a kernel on no stream"
                assert len(arguments) == len(one.program.writes)
                assert blocks[0] > 0, "CuPy would launch one block"
                data = [*(array.data.ptr for array in arguments), blocks[0], threads[0]]

                def run() -> None:
                    assert library.run(one, data) == ""

                self.queue(run, self.current, name)

            return call

        return SimpleNamespace(get_function=get_function)

    # cuDNN ---------------------------------------------------------------------------------------

    @property
    def cudnn(self) -> Any:
        def set_stream(handle: Any, stream: int) -> None:
            assert type(stream) is int
            assert self.captured is None
            handle.stream = stream - 1000

        return SimpleNamespace(
            backend_version=lambda: self.cudnn_version,
            create_handle=SimpleNamespace,
            set_stream=set_stream,
            data_type=SimpleNamespace(FLOAT="float32", HALF="float16"),
            heur_mode=SimpleNamespace(A=0, FALLBACK=1),
            behavior_note=SimpleNamespace(RUNTIME_COMPILATION=0),
            numerical_note=SimpleNamespace(
                TENSOR_CORE="strict-fp32",
                DOWN_CONVERT_INPUTS="tf32",
                REDUCED_PRECISION_REDUCTION="fp16",
            ),
            pygraph=lambda **kind: FakeGraph(self, **kind),
        )

    # nvmath --------------------------------------------------------------------------------------

    @property
    def nvmath(self) -> Mapping[str, Any]:
        gpu, gelu = self, get_op("Gelu").eval_fn

        class Matmul:
            """As nvmath-python 1.0 has it; `test_nvmath.py` asks the real one."""

            def __init__(
                self, a: Any, b: Any, /, c: Any, *, beta: float, options: Any, stream: Any
            ) -> None:
                assert sorted(options) == ["allocator", "compute_type", "inplace", "memory_limit"]
                assert (options["inplace"], beta) == (True, 0.0)
                assert type(options["memory_limit"]) is int
                assert stream.gpu is gpu
                gpu.note("compute", options["compute_type"])
                self.space, self.limit = options["allocator"], options["memory_limit"]
                for one in (a, b, c):
                    steps = [step // one.itemsize for step in one.strides]
                    if 1 not in (*steps, *one.shape):
                        raise ValueError("Unsupported layout.")
                self.a, self.b, self.c = a, b, c
                self.found: list[Any] = []
                self.size_bytes, self.has_space = 0, False

            def plan(
                self, *, preferences: Any, epilog: str | None, epilog_inputs: Any, stream: Any
            ) -> Sequence[Any]:
                assert epilog is None or epilog in names[1:], "Not supported."
                self.epilog, self.bias = epilog or "", (epilog_inputs or {}).get("bias")
                assert ("BIAS" in self.epilog) == (self.bias is not None)
                if self.bias is not None:
                    assert self.c.strides[0] == self.c.itemsize, "a bias is one of rows"
                    if self.bias.strides != (self.bias.itemsize,):
                        raise ValueError("The stride of the bias must be 1")
                fitting = [one for one in gpu.algorithms if one.workspace_bytes <= self.limit]
                self.found = fitting[: preferences["limit"]]
                if not self.found:
                    raise RuntimeError("Planning failed to find any suitable algorithm.")
                self.size_bytes = max(one.workspace_bytes for one in self.found)
                if self.size_bytes and epilog:
                    self.size_bytes += 16
                return tuple(self.found)

            def execute(self, *, algorithm: Any, stream: FakeStream) -> None:
                assert any(one is algorithm for one in self.found)
                if self.size_bytes and not self.has_space:
                    assert gpu.captured is None, "it has run before"
                    assert self.space.memalloc(self.size_bytes).device_ptr
                    self.has_space = True

                def run() -> None:
                    value = np.matmul(self.a, self.b)
                    if self.bias is not None:
                        value = value + np.asarray(self.bias)[:, None]  # one for each row
                    if "GELU" in self.epilog:
                        value = gelu(FLOAT, [value], {"approximate": "tanh"})
                    self.c[...] = np.maximum(value, 0) if "RELU" in self.epilog else value

                gpu.queue(run, stream.number, "product", algorithm.algorithm_id)

        # The first one is there as well, and `plan` does not take it.
        names = ("DEFAULT", "BIAS", "RELU", "RELU_BIAS", "GELU", "GELU_BIAS")
        epilogues = SimpleNamespace(**{name: name for name in names})
        return {
            "nvmath.linalg": SimpleNamespace(
                ComputeType=SimpleNamespace(COMPUTE_32F="32F", COMPUTE_32F_FAST_TF32="TF32")
            ),
            "nvmath.memory": SimpleNamespace(
                MemoryPointer=lambda pointer, size, _: SimpleNamespace(device_ptr=pointer)
            ),
            "nvmath.linalg.advanced": SimpleNamespace(Matmul=Matmul, MatmulEpilog=epilogues),
        }


class FakeTensor:
    def __init__(self, dim: Any = None, stride: Any = None, data_type: Any = None) -> None:
        self.dim, self.stride, self.uid = dim, stride, 0

    def set_uid(self, uid: int) -> FakeTensor:
        self.uid = uid
        return self

    def set_dim(self, dim: Any) -> FakeTensor:
        self.dim = dim
        return self

    def set_stride(self, stride: Any) -> FakeTensor:
        self.stride = stride
        return self

    def set_output(self, _: bool) -> FakeTensor:
        return self

    set_data_type = set_output


class FakeGraph:
    """A convolution and its epilogue, computed as the registry defines them."""

    def __init__(self, gpu: FakeGpu, io_data_type: str, handle: Any, **_: Any) -> None:
        self.gpu, self.dtype, self.handle = gpu, io_data_type, handle
        self.steps: list[Any] = []
        self.result = FakeTensor()
        self.is_built: set[int] = set()

    def tensor(self, **kinds: Any) -> FakeTensor:
        return FakeTensor(**kinds)

    def _step(self, function: Any, *tensors: FakeTensor) -> FakeTensor:
        self.steps.append((function, tensors))
        return self.result

    def conv_fprop(self, image: FakeTensor, weight: FakeTensor, **at: Any) -> FakeTensor:
        group = image.dim[1] // weight.dim[1]
        attrs = {
            "pads": (*at["pre_padding"], *at["post_padding"]), "strides": tuple(at["stride"]),
            "dilations": tuple(at["dilation"]), "group": group,
        }  # fmt: skip
        conv = get_op("Conv").eval_fn
        return self._step(lambda _, x, w: conv(FLOAT, [x, w], attrs), image, weight)

    def add(self, a: FakeTensor, b: FakeTensor) -> FakeTensor:
        return self._step(lambda value, z: value + z, b)

    def bias(self, input: FakeTensor, bias: FakeTensor) -> FakeTensor:
        return self._step(lambda value, z: value + z, bias)

    def relu(self, input: FakeTensor) -> FakeTensor:
        return self._step(lambda value: np.maximum(value, 0))

    def gelu(self, input: FakeTensor) -> FakeTensor:
        attrs = {"approximate": "none"}
        return self._step(lambda value: get_op("Gelu").eval_fn(FLOAT, [value], attrs))

    def matmul(self, A: FakeTensor, B: FakeTensor) -> FakeTensor:
        return self._step(lambda _, a, b: np.matmul(a, b), A, B)

    def validate(self) -> None:
        pass

    build_operation_graph = validate

    def create_execution_plans(self, modes: Sequence[int]) -> None:
        assert modes == [0, 1]

    def deselect_numeric_notes(self, notes: Sequence[str]) -> None:
        (self.precision,) = notes
        self.gpu.note("precision", self.precision)

    def deselect_behavior_notes(self, notes: Sequence[int]) -> None:
        assert notes == [0]

    def get_execution_plan_count(self) -> int:
        return len(self.gpu.plan_names)

    def get_plan_name_at_index(self, number: int) -> str:
        return self.gpu.plan_names[number]

    def get_behavior_notes_for_plan_at_index(self, number: int) -> list[object]:
        return []

    def get_workspace_size_plan_at_index(self, number: int) -> int:
        assert number in self.is_built
        return self.gpu.workspace_bytes

    def build_plan_at_index(self, number: int) -> None:
        assert self.precision
        assert self.gpu.captured is None
        if number == 0:
            raise RuntimeError("Deselecting execution plan")
        self.is_built.add(number)

    def execute_plan_at_index(
        self, pack: Mapping[int, int], workspace: int, index: int, handle: Any
    ) -> None:
        assert handle is self.handle
        assert index in self.is_built
        assert {type(one) for one in (*pack, *pack.values(), workspace)} == {int}

        def run() -> None:
            value: Any = None
            for function, tensors in self.steps:
                read = [at(pack[t.uid], t.dim, t.stride, self.dtype) for t in tensors]
                value = function(value, *read)
            y = self.result
            at(pack[y.uid], y.dim, y.stride, self.dtype)[...] = value

        self.gpu.queue(run, handle.stream, "cudnn", self.gpu.plan_names[index])
