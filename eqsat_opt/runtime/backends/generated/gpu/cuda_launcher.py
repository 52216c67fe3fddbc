"""Launches of generated CUDA kernels: the text and the grids of each, made without a GPU.

The body of a launch and the layouts of its buffers determine its kernel, so a plan holds no text:
the text is generated again before the plan runs, and the versions in the plan ensure that it is the
same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.runtime.backends.generated.building import built
from eqsat_opt.runtime.backends.generated.gpu import NAME
from eqsat_opt.runtime.backends.generated.gpu.cuda import Geometry, cuda_kernels
from eqsat_opt.runtime.backends.generated.launcher import digest, graph_of
from eqsat_opt.runtime.backends.generated.term_translator import Unfit
from eqsat_opt.runtime.backends.shared.absent import AbsentLauncher
from eqsat_opt.runtime.plan.plan import Buffer, Launch

__all__ = ["CudaKernel", "CudaLauncher", "cuda_kernel", "has_cuda_kernel"]

Strides = tuple[tuple[int, ...], ...]

_WIDEST = 16
"""Largest number of bytes that a thread reads or writes at once."""


@dataclass(frozen=True)
class CudaKernel:
    """A launch as CUDA C++.

    Attributes:
        text: source of its functions, whose names no other kernel has.
        grids: geometry of each function; the functions can run in any order.
        arguments: arguments of every function, as numbers of operands; outputs are numbered after
            operands.
    """

    text: str
    grids: tuple[Geometry, ...]
    arguments: tuple[int, ...]


class CudaLauncher(AbsentLauncher):
    """A launcher that generates kernels of bodies whose operators have an index function."""

    def version(self) -> str:
        """Return the version of the generator; another version may round differently."""
        return f"{NAME} {digest()}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Generate the kernels of all launches.

        Raises:
            RuntimeFailed: no kernel can be generated for a launch.
        """
        for launch in launches:
            cuda_kernel(launch, buffers)


def cuda_kernel(launch: Launch, buffers: Mapping[str, Buffer]) -> CudaKernel:
    """Return the kernel of a launch; equal bodies on equal layouts have the same kernel.

    Raises:
        RuntimeFailed: no kernel can be generated.
    """
    touched = [buffers[name] for name in (*launch.reads, *launch.writes)]
    strides = tuple(one.strides for one in touched)
    # A buffer that is no view is aligned for the widest access.
    aligned = tuple(gcd(_WIDEST, one.offset) if one.base else _WIDEST for one in touched)
    try:
        return _generated(launch.body, strides, aligned)
    except Unfit as error:
        raise RuntimeFailed(
            f"no kernel can be generated for launch {launch.name!r}: {error}"
        ) from error


@lru_cache(maxsize=1 << 12)
def _generated(body: Kernel, strides: Strides, aligned: tuple[int, ...]) -> CudaKernel:
    graph = graph_of(body)
    values = (*graph.inputs, *graph.outputs)
    program = built(
        graph,
        graph.nodes,
        graph.outputs,
        dict(zip(values, strides, strict=True)),
        target="gpu",
        aligned_bytes=dict(zip(values, aligned, strict=True)),
    )
    key = hashlib.sha256(f"{body.signature} {strides} {aligned}".encode()).hexdigest()[:16]
    text, grids = cuda_kernels(f"k{key}", program)
    memories = (*program.reads, *program.writes)
    return CudaKernel(text, grids, tuple(values.index(memory.name) for memory in memories))


def has_cuda_kernel(graph: Graph, nodes: Sequence[Node], outputs: Sequence[str]) -> bool:
    """Return whether a kernel can be generated from some nodes of literal sizes."""
    try:
        built(graph, nodes, outputs, target="gpu")
    except Unfit:
        return False
    return True
