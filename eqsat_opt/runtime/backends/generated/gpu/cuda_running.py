"""Generated CUDA kernels on a GPU: all kernels of a plan are compiled together by NVRTC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from eqsat_opt.runtime.backends.generated.gpu.cuda import cuda_source
from eqsat_opt.runtime.backends.generated.gpu.cuda_launcher import CudaLauncher, cuda_kernel
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CudaRunner"]


class CudaRunner(CudaLauncher):
    """A launcher that compiles and launches the kernels of one plan.

    Args:
        device: the device that runs them.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._buffers: Mapping[str, Buffer] = {}
        self._functions: Callable[..., Callable[[], object]] | None = None

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Compile the kernels of all launches together."""
        self._buffers = buffers
        texts = dict.fromkeys(cuda_kernel(launch, buffers).text for launch in launches)
        self._functions = self._device.compiled(cuda_source(list(texts)))

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        """Return a callable that launches a kernel's functions on this memory.

        Functions with empty grids are left out.
        """
        assert self._functions is not None, "launches are prepared before one is built"
        kernel = cuda_kernel(launch, self._buffers)
        arrays = (*bound.reads, *bound.writes)
        arguments = [arrays[number] for number in kernel.arguments]
        calls = [
            self._functions(one.name, one.blocks, one.threads, arguments)
            for one in kernel.grids
            if one.blocks
        ]

        def run() -> None:
            for call in calls:
                call()

        return run
