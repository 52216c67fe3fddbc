"""An NVIDIA GPU through CuPy: one arena, static pointers, streams, and a captured CUDA graph.

Nothing is allocated while the graph is captured: all kernels are built and run once before.
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.runtime.devices.profile import DeviceProfile
from eqsat_opt.runtime.devices.protocol import Event, Launched, Memory, Stream
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["CudaDevice"]


class CudaDevice:
    """The first GPU of this machine.

    Args:
        profile: profile of the device that a plan is for.

    Attributes:
        cupy: the module ``cupy``.
        name: name of the device in plans.

    Raises:
        RuntimeFailed: there is no CuPy, no driver or no GPU, or the GPU has another architecture.
    """

    def __init__(self, profile: DeviceProfile) -> None:
        self.name = profile.name
        try:
            self.cupy: Any = importlib.import_module("cupy")
        except ImportError as error:
            raise RuntimeFailed(f"{error}; run pip install 'eqsat-opt[gpu]'") from error
        self._runtime = self.cupy.cuda.runtime
        try:
            self._runtime.getDeviceCount()
            found = self._runtime.getDeviceProperties(0)
        except self._runtime.CUDARuntimeError as error:
            raise RuntimeFailed(f"there is no GPU: {error}") from error
        here = f"sm_{found['major']}{found['minor']}"
        if profile.description is None or here != profile.description.architecture:
            title = found["name"].decode(errors="replace")
            raise RuntimeFailed(f"the GPU here is {title} ({here})")
        self._streams: dict[Stream, Any] = {}
        self._events: dict[Event, Any] = {}
        self.stream(0)

    def alloc(self, size_bytes: int) -> Memory:
        """Allocate memory of zeros, so that the run before a capture reads ordinary numbers.

        Raises:
            RuntimeFailed: memory does not suffice; the message has the number of free bytes.
        """
        make = partial(self.cupy.zeros, max(size_bytes, 1), np.uint8)
        return self._fitting("an arena", size_bytes, make)

    def _fitting(self, what: str, size_bytes: int, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            free_bytes, _ = self._runtime.memGetInfo()
            raise RuntimeFailed(
                f"the plan needs {what} of {size_bytes} bytes; {free_bytes} are free"
            ) from error

    def views(
        self, plan: Plan, arena: Memory, constants: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Return the buffers of a plan in device memory, and upload its constants.

        Raises:
            RuntimeFailed: an input or output is of a type that CuPy lacks, or memory is short.
        """
        cupy = self.cupy
        for port in (*plan.inputs, *plan.outputs):
            if plan.buffer_of[port.buffer].dtype in _BITS:
                raise RuntimeFailed(f"{port.name!r} is bfloat16, which CuPy does not have")
        memory = {}
        for name, value in constants.items():
            flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            if flat.size:
                make = partial(cupy.asarray, flat)
                memory[name] = self._fitting("a constant", flat.size, make).data
        found = {}
        for buffer in plan.buffers:
            head = memory.get(plan.root_of(buffer.name).name, arena.data)
            strides = tuple(stride * buffer.itemsize for stride in buffer.strides)
            found[buffer.name] = cupy.ndarray(
                buffer.dims, _plain(buffer.dtype), head + plan.start_of(buffer.name), strides
            )
        return found

    def upload(self, target: Array, value: Array) -> None:
        """Copy a value to the device, on stream 0."""
        with self._streams[0]:
            self.cupy.copyto(target, self.cupy.asarray(np.asarray(value, order="C")))

    def download(self, source: Array) -> Array:
        """Wait until all work is done, then return a dense copy in host memory."""
        self.synchronize()
        found: Array = self.cupy.asnumpy(source, order="C")
        return found

    def stream(self, number: Stream) -> Stream:
        """Open a stream that does not synchronise with the default stream."""
        if number not in self._streams:
            self._streams[number] = self.cupy.cuda.Stream(non_blocking=True)
        return number

    def stream_pointer(self, number: Stream) -> int:
        """Return the ``cudaStream_t`` of a stream, for libraries."""
        return int(self._streams[self.stream(number)].ptr)

    def compiled(self, source: str) -> Callable[..., Launched]:
        """Compile a CUDA source; CuPy caches machine code by text, architecture and NVRTC version.

        Returns:
            A function that takes the name of a kernel, the numbers of blocks and of threads, and
            arguments, and returns a callable that launches the kernel.
        """
        module = self.cupy.RawModule(code=source, options=("-std=c++17",), backend="nvrtc")

        def bound(name: str, blocks: int, threads: int, arguments: Sequence[Array]) -> Launched:
            return partial(module.get_function(name), (blocks,), (threads,), tuple(arguments))

        return bound

    def on_stream(self, number: Stream) -> Any:
        """Return a context manager in which CuPy queues its work on a stream."""
        return self._streams[self.stream(number)]

    def event(self) -> Event:
        """Create an event and return its number."""
        number = len(self._events)
        self._events[number] = self.cupy.cuda.Event(disable_timing=True)
        return number

    def record(self, event: Event, stream: Stream) -> None:
        """Record an event after all work queued on the stream so far."""
        self._streams[stream].record(self._events[event])

    def wait(self, event: Event, stream: Stream) -> None:
        """Make all work that is queued on the stream from now on wait for an event."""
        self._streams[stream].wait_event(self._events[event])

    def launch(self, work: Launched, stream: Stream) -> None:
        """Queue a kernel."""
        with self._streams[stream]:
            work()

    def capture(self, queue: Callable[[], None]) -> Any:
        """Run the work once, so that libraries allocate what they need, then capture it."""
        # Constants and zeros were written on the default stream, for which others do not wait.
        self._runtime.deviceSynchronize()
        queue()
        self.synchronize()
        first, was_collecting = self._streams[0], gc.isenabled()
        gc.disable()  # finalisers that run during a capture may make calls that break it
        try:
            first.begin_capture(self._runtime.streamCaptureModeThreadLocal)
            queue()
        except BaseException:
            with suppress(self._runtime.CUDARuntimeError):  # the capture is broken already
                first.end_capture()
            raise
        else:
            return first.end_capture()
        finally:
            if was_collecting:
                gc.enable()

    def replay(self, captured: Any) -> None:
        """Queue a captured graph on stream 0."""
        captured.launch(self._streams[0])

    def synchronize(self) -> None:
        """Wait until the work of all streams is done."""
        for stream in self._streams.values():
            stream.synchronize()

    def elapsed_us(self, queue: Callable[[], None]) -> float:
        """Return the time that the queued work takes on stream 0, by events on the device, µs."""
        first, made = self._streams[0], self.cupy.cuda.Event
        begin, end = made(), made()
        begin.record(first)
        queue()
        end.record(first)
        end.synchronize()
        return 1e3 * float(self.cupy.cuda.get_elapsed_time(begin, end))

    def clock(self) -> float:
        """Wait until all work is done and return the time of the host's clock, µs."""
        self.synchronize()
        return time.perf_counter_ns() / 1e3


_BITS = {"bfloat16": "uint16"}
"""Substitutes of the same size for types that CuPy lacks; kernels only receive pointers."""


def _plain(dtype: str) -> np.dtype[Any]:
    return np.dtype(_BITS.get(dtype, dtype))
