"""What nvmath-python is told and tells of products, in terms of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from eqsat_opt.common.precision import Precision
from eqsat_opt.runtime.backends.cublaslt.recorded import Algorithm
from eqsat_opt.runtime.backends.shared.tensors import Tensor
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
"""What is used of nvmath-python, by owner."""


class Space:
    """Gives products the workspace of their launch, since nothing may be allocated later.

    As nvmath-python wants an allocator (`BaseCUDAMemoryManager`).

    Args:
        pointer: its `MemoryPointer`.
        workspace: memory of the device.
    """

    def __init__(self, pointer: Any, workspace: Any) -> None:
        self._pointer = pointer
        self._workspace = workspace
        self.device_id = 0

    def memalloc(self, size: int) -> Any:
        """The same memory each time.

        Raises:
            MemoryError: there is not so much.
        """
        if size > self._workspace.size:
            raise MemoryError(f"a product wants {size} bytes of {self._workspace.size}")
        return self._pointer(int(self._workspace.data.ptr), size, None)


def compute_type(launch: Launch) -> str:
    """In which cuBLASLt multiplies and adds; of float16 it always adds in float32."""
    return "COMPUTE_32F_FAST_TF32" if launch.precision is Precision.TF32 else "COMPUTE_32F"


def name_of(algorithm: Any) -> str:
    """What plans call an algorithm of nvmath-python."""
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
    batches: Sequence[Tensor] | None,
    ndarray: Callable[[Dims, Any, Any, Dims], Any],
) -> Iterator[Sequence[Any]]:
    """Both factors and the result of each call: of one, if they are batches of matrices.

    Args:
        arrays: the factors and the result.
        batches: these as batches, rows and columns, if one stride leads through each.
        ndarray: makes an array of extents, element type, pointer and strides in bytes.
    """
    if batches is None:
        a, b, y = arrays
        for n in np.ndindex(*y.shape[:-2]):
            yield a[_batch_at(n, a.shape[:-2])], b[_batch_at(n, b.shape[:-2])], y[n]
        return
    views = []
    for array, one in zip(arrays, batches, strict=True):
        begin = int(one.dims[0] == 1)  # one matrix is not told to be a batch
        strides = tuple(step * array.dtype.itemsize for step in one.strides[begin:])
        views.append(ndarray(one.dims[begin:], array.dtype, array.data, strides))
    yield views


def _batch_at(number: Sequence[int], extents: Sequence[int]) -> tuple[int, ...]:
    """Where a batch of the result reads an operand, which may have fewer of them.

    Args:
        number: of the batch, by axis.
        extents: of the operand's axes of batches.
    """
    own = number[len(number) - len(extents) :]
    return tuple(0 if extent == 1 else n for n, extent in zip(own, extents, strict=True))


def _told(algorithm: Any, attribute: str) -> Any:
    """An attribute as nvmath-python writes it, or as cuBLASLt numbers it.

    A newer cuBLASLt has tiles that nvmath-python has no names for (13.1 has 4x1 to 256x1).
    """
    try:
        return getattr(algorithm, attribute)
    except KeyError as error:
        return str(int(error.args[0]))
