"""Launches of cuBLASLt: what each asks of it follows from its body and its buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.ir.types import numpy_dtype
from eqsat_opt.runtime.backends.absent import AbsentLauncher, require_aligned
from eqsat_opt.runtime.backends.launching import alignment_bytes
from eqsat_opt.runtime.backends.products import Product, product_of
from eqsat_opt.runtime.plan.plan import Buffer, Launch, dense_strides

__all__ = ["CUBLASLT", "CublasLtLauncher", "are_aligned", "product_of_launch"]

CUBLASLT = "cublaslt"
"""What plans call this backend."""

_VERSION = 1
"""Of what plans ask for; which algorithm runs is chosen where it runs."""


class CublasLtLauncher(AbsentLauncher):
    """Says what a launch asks of cuBLASLt."""

    name = CUBLASLT

    def version(self) -> str:
        """Of what plans ask for."""
        return f"cublaslt {_VERSION}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches.

        Raises:
            RuntimeFailed: one is no product as cuBLASLt has it, or its memory is not aligned.
        """
        for launch in launches:
            require_aligned(launch, buffers)
            product_of_launch(launch, buffers)


def are_aligned(kernel: Kernel, strides: Sequence[int] | None = None) -> bool:
    """Whether every matrix of the result begins where it can be written, if the first one does.

    Each is a product of its own, and it is told that of the addresses of factors, but never of the
    result (nvmath-python 1.0).

    Args:
        kernel: a product.
        strides: of its result, in elements; dense by default.
    """
    result = kernel.types[kernel.outputs[0]]
    dims = result.static_shape()
    unit = alignment_bytes(CUBLASLT) // numpy_dtype(result.dtype).itemsize
    steps = zip(dims[:-2], strides or dense_strides(dims), strict=False)
    return all(dim == 1 or step % unit == 0 for dim, step in steps)


def product_of_launch(launch: Launch, buffers: Mapping[str, Buffer]) -> Product:
    """What a launch asks of cuBLASLt, on the memory that the plan gives it.

    Raises:
        RuntimeFailed: it is no product as cuBLASLt has it.
    """
    strides = [buffers[name].strides for name in (*launch.reads, *launch.writes)]
    product = product_of(launch.body, strides)
    if product is None or not are_aligned(launch.body, strides[-1]):
        raise RuntimeFailed(f"cuBLASLt has no kernel for launch {launch.name!r}: plan again")
    return product
