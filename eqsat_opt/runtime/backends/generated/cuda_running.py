"""Generated CUDA kernels on a GPU: compiled by NVRTC, all of a plan together, and launched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eqsat_opt.runtime.backends.generated.cuda import cuda_source
from eqsat_opt.runtime.backends.generated.cuda_launcher import CudaLauncher, cuda_kernel
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.devices.cuda import CudaDevice
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CudaRunner"]


class CudaRunner(CudaLauncher):
    """Compiles and launches the kernels of one plan.

    Args:
        device: that runs them.
    """

    def __init__(self, device: CudaDevice) -> None:
        self._cupy = device.cupy
        self._buffers: Mapping[str, Buffer] = {}
        self._module: Any = None

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Compile; CuPy keeps machine code by text, architecture and version of NVRTC."""
        self._buffers = buffers
        texts = dict.fromkeys(cuda_kernel(launch, buffers).text for launch in launches)
        self._module = self._cupy.RawModule(
            code=cuda_source(list(texts)), options=("-std=c++17",), backend="nvrtc"
        )

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        """The launches of a kernel's functions on this memory; those of nothing are left out."""
        kernel = cuda_kernel(launch, self._buffers)
        arrays = (*bound.reads, *bound.writes)
        arguments = tuple(arrays[number] for number in kernel.arguments)
        calls = [
            (self._module.get_function(one.name), (one.blocks,), (one.threads,))
            for one in kernel.grids
            if one.blocks
        ]

        def run() -> None:
            for function, blocks, threads in calls:
                function(blocks, threads, arguments)

        return run
