"""Arguments and answers of nvmath-python for products, in terms of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from eqsat_opt.common.precision import Precision
from eqsat_opt.runtime.backends.cublaslt.recorded import Algorithm
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from eqsat_opt.runtime.plan.plan import Launch

__all__ = ["NEEDED", "Space", "calls", "compute_type", "name_of"]

Dims = tuple[int, ...]

NEEDED = {
    "linalg": ("ComputeType",),
    "linalg.ComputeType": ("COMPUTE_32F", "COMPUTE_32F_FAST_TF32"),
    "linalg.advanced": ("Algorithm", "Matmul", "MatmulEpilog"),
    "linalg.advanced.Algorithm": (
        "algorithm_id", "cta_swizzling", "custom_option", "reduction_scheme", "split_k", "stages",
        "tile",
    ),
    "linalg.advanced.Matmul": ("execute", "plan"),
    "linalg.advanced.MatmulEpilog": (
        "BIAS", "GELU", "GELU_BIAS", "RELU", "RELU_BIAS",
    ),
    "memory": ("MemoryPointer",),
}  # fmt: skip
"""Names that are used of nvmath-python, by owner."""


class Space:
    """Allocator that gives products the workspace of their launch.

    Nothing may be allocated later, and nvmath-python requires an allocator
    (`BaseCUDAMemoryManager`).

    Args:
        pointer: the class `MemoryPointer` of nvmath-python.
        workspace: memory of the device.
    """

    def __init__(self, pointer: Any, workspace: Any) -> None:
        self._pointer = pointer
        self._workspace = workspace
        self.device_id = 0

    def memalloc(self, size: int) -> Any:
        """Return the workspace, which is the same memory at each call.

        Raises:
            MemoryError: the workspace is smaller than `size`.
        """
        if size > self._workspace.size:
            raise MemoryError(f"a product wants {size} bytes of {self._workspace.size}")
        return self._pointer(int(self._workspace.data.ptr), size, None)


def compute_type(launch: Launch) -> str:
    """Return the type in which cuBLASLt multiplies and adds; float16 is always added in float32."""
    return "COMPUTE_32F_FAST_TF32" if launch.precision is Precision.TF32 else "COMPUTE_32F"


def name_of(algorithm: Any) -> str:
    """Return the name that plans use for an algorithm of nvmath-python."""
    tile = _told(algorithm, "tile")
    return Algorithm(
        algorithm.algorithm_id,
        tile if isinstance(tile, str) else "x".join(map(str, tile)),
        stages="".join(str(_told(algorithm, "stages")).split()),
        split_k=algorithm.split_k,
        scheme=algorithm.reduction_scheme,
        swizzling=int(algorithm.cta_swizzling),
        option=algorithm.custom_option,
    ).name


def calls(
    arrays: Sequence[Any],
    batches: Sequence[StridedTensor] | None,
    ndarray: Callable[[Dims, Any, Any, Dims], Any],
) -> Iterator[Sequence[Any]]:
    """Yield both factors and the result of each call.

    There is one call if `batches` is given, otherwise one for each matrix of the result.

    Args:
        arrays: the factors and the result.
        batches: the same as batches, rows and columns, if a single stride covers the batches of
            each.
        ndarray: makes an array from extents, element type, pointer and strides in bytes.
    """
    if batches is None:
        a, b, y = arrays
        for n in np.ndindex(*y.shape[:-2]):
            yield a[_batch_at(n, a.shape[:-2])], b[_batch_at(n, b.shape[:-2])], y[n]
        return
    views = []
    for array, one in zip(arrays, batches, strict=True):
        begin = int(one.dims[0] == 1)  # a single matrix is passed without a batch axis
        strides = tuple(step * array.dtype.itemsize for step in one.strides[begin:])
        views.append(ndarray(one.dims[begin:], array.dtype, array.data, strides))
    yield views


def _batch_at(number: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """Return the index at which a batch of the result reads an operand, which may be broadcast.

    Args:
        number: the index of the batch of the result, by axis.
        extents: the extents of the operand's batch axes.
    """
    own = number[len(number) - len(extents) :]
    return tuple(0 if extent == 1 else n for n, extent in zip(own, extents, strict=True))


def _told(algorithm: Any, attribute: str) -> Any:
    """Return an attribute as nvmath-python writes it, or its number in cuBLASLt if it has no name.

    A newer cuBLASLt has tiles that nvmath-python cannot name (13.1 has 4x1 to 256x1).
    """
    try:
        return getattr(algorithm, attribute)
    except KeyError as error:
        return str(int(error.args[0]))
