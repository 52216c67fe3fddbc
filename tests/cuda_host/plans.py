"""Runs the CUDA launches of a plan on a CPU, in the memory and the order that the plan says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.runtime.backends.generated.gpu import NAME as CUDA
from eqsat_opt.runtime.backends.generated.gpu.cuda_launcher import (
    CudaKernel,
    CudaLauncher,
    cuda_kernel,
)
from eqsat_opt.runtime.backends.generated.program import KernelProgram, Memory
from eqsat_opt.runtime.backends.launching import Bound
from eqsat_opt.runtime.plan.plan import Buffer, Launch, Plan
from eqsat_opt.runtime.planning.planner import make_plan
from tests.cuda_host.harness import Compiled, Kernel, compiled

__all__ = ["HostCudaLauncher", "gpu_plan"]

_LIBRARIES = ("Conv", "ConvTranspose", "MatMul")


def gpu_plan(graph: Graph, sizes: Mapping[str, int], streams: int) -> Plan:
    """A plan whose convolutions and products are NumPy's, and all else CUDA kernels.

    All images that the plan computes have their channels innermost.
    """
    outside = {*graph.inputs, *graph.outputs}
    return make_plan(
        graph,
        {name: one.load for name, one in graph.constants.items()},
        lambda node: "numpy" if node.op in _LIBRARIES else CUDA,
        form_of=lambda name: Form("cuda", "plain" if name in outside else "nhwc"),
        sizes=sizes,
        streams=streams,
        target="h200",
    )


@dataclass
class HostCudaLauncher:
    """A `CudaLauncher` whose kernels run on NumPy memory, a fiber for each thread."""

    folder: Path
    seed: int = 1
    name: str = CUDA
    _library: Compiled | None = field(default=None, init=False)
    _buffers: Mapping[str, Buffer] = field(default_factory=dict, init=False)

    def version(self) -> str:
        return CudaLauncher().version()

    def workspace_bytes(self, launch: Launch, buffers: Mapping[str, Buffer]) -> int:
        return 0

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        self._buffers = buffers
        kernels = {cuda_kernel(one, buffers): None for one in launches}
        self._library = compiled([_kernel(one) for one in kernels], self.folder)

    def build(self, launch: Launch, bound: Bound) -> Callable[[], None]:
        made, library = cuda_kernel(launch, self._buffers), self._library
        assert library is not None
        arrays = (*bound.reads, *bound.writes)
        pointers = [arrays[number].ctypes.data for number in made.arguments]

        def run() -> None:
            fault = library.run(_kernel(made), pointers, self.seed)
            assert not fault, f"{launch.name}: {fault}"

        return run


def _kernel(made: CudaKernel) -> Kernel:
    memories = tuple(Memory(f"m{i}", "float32") for i in range(len(made.arguments)))
    return Kernel(KernelProgram((), memories, ()), made.text, made.grids)
