"""Launches of cuBLASLt; the product of each follows from its body and its buffers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.runtime.backends.cublaslt import BACKEND
from eqsat_opt.runtime.backends.shared.absent import AbsentLauncher, require_aligned
from eqsat_opt.runtime.backends.shared.batches import one_product
from eqsat_opt.runtime.backends.shared.products import LibraryProduct, product_of
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from eqsat_opt.runtime.plan.plan import Buffer, Launch, dense_strides

__all__ = ["CublasLtLauncher", "are_aligned", "batches_of_launch", "product_of_launch"]

_VERSION = 1
"""Version of the requests in plans; the machine that runs a plan chooses the algorithm."""


class CublasLtLauncher(AbsentLauncher):
    """Launcher that checks whether cuBLASLt can compute the launches of a plan."""

    def version(self) -> str:
        """Return the version of the requests in plans."""
        return f"cublaslt {_VERSION}"

    def prepare(self, launches: Sequence[Launch], buffers: Mapping[str, Buffer]) -> None:
        """Check all launches.

        Raises:
            RuntimeFailed: cuBLASLt cannot compute a launch, or its memory is not aligned.
        """
        for launch in launches:
            require_aligned(launch, buffers)
            product_of_launch(launch, buffers)


def _at_once(
    kernel: Kernel, product: LibraryProduct, strides: Sequence[Sequence[int]] | None = None
) -> tuple[StridedTensor, StridedTensor, StridedTensor] | None:
    """Return factors and result as batches, rows and columns, if one call computes all batches.

    Args:
        kernel: the kernel that computes the product.
        product: the product in terms of the kernel's operands.
        strides: the strides of all operands, then of the result, in elements; dense by default.
    """
    types, count = kernel.required_types(), len(kernel.operands)

    def tensor(number: int) -> StridedTensor:
        dims = types[number].shape
        return StridedTensor(
            dims, dense_strides(dims) if strides is None else tuple(strides[number])
        )

    found = one_product(tensor(product.a), tensor(product.b), tensor(count))
    if found is not None and found[2].dims[0] > 1 and product.bias is not None:
        return None  # a batched call would take a separate bias for each matrix
    return found


def are_aligned(
    kernel: Kernel, product: LibraryProduct, strides: Sequence[Sequence[int]] | None = None
) -> bool:
    """Return whether all matrices of the result are aligned, provided that the first one is.

    A product that is not a single batched call becomes several calls. Each call passes cuBLASLt the
    addresses of its factors, but never that of its result (nvmath-python 1.0).
    """
    if _at_once(kernel, product, strides) is not None:
        return True
    result = kernel.required_types()[kernel.outputs[0]]
    dims = result.shape
    unit = BACKEND.alignment_bytes // numpy_dtype(result.dtype).itemsize
    steps = zip(dims[:-2], dense_strides(dims) if strides is None else strides[-1], strict=False)
    return all(dim == 1 or step % unit == 0 for dim, step in steps)


def product_of_launch(launch: Launch, buffers: Mapping[str, Buffer]) -> LibraryProduct:
    """Return the product that a launch computes, on the memory that the plan gives it.

    Raises:
        RuntimeFailed: cuBLASLt cannot compute it.
    """
    strides = [buffers[name].strides for name in (*launch.reads, *launch.writes)]
    product = product_of(launch.body, strides)
    if product is None or not are_aligned(launch.body, product, strides):
        raise RuntimeFailed(f"cuBLASLt has no kernel for launch {launch.name!r}: plan again")
    return product


def batches_of_launch(
    launch: Launch, buffers: Mapping[str, Buffer]
) -> tuple[StridedTensor, StridedTensor, StridedTensor] | None:
    """Return factors and result of a launch as batches of matrices, if one call computes all."""
    strides = [buffers[name].strides for name in (*launch.reads, *launch.writes)]
    return _at_once(launch.body, product_of_launch(launch, buffers), strides)
