"""Places of the buffers of a plan: the bytes they cover, and arrays over a block of memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.runtime.plan.byte_regions import ByteRegion, region
from eqsat_opt.runtime.plan.plan import ALIGNMENT_BYTES, Plan

__all__ = ["Array", "aligned_memory", "array_of", "region_of"]

Array = npt.NDArray[Any]


def region_of(plan: Plan, name: str) -> ByteRegion:
    """Return the bytes that a buffer covers in the arena, or in its constant."""
    buffer = plan.buffer_of[name]
    strides = [stride * buffer.itemsize for stride in buffer.strides]
    return region(plan.start_of(name), buffer.dims, strides, buffer.itemsize)


def aligned_memory(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return uninitialised memory that begins at a multiple of `ALIGNMENT_BYTES`."""
    block = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8)
    skipped = -block.ctypes.data % ALIGNMENT_BYTES
    return block[skipped : skipped + size_bytes]


def array_of(
    plan: Plan, name: str, arena: npt.NDArray[np.uint8], constants: Mapping[str, Array]
) -> Array:
    """Return a buffer as an array that shares memory with the arena, or with its constant.

    The plan must have been checked: strides are not validated here.
    """
    buffer = plan.buffer_of[name]
    root = plan.root_of(name).name
    memory = constants[root].reshape(-1).view(np.uint8) if root in constants else arena
    strides = tuple(stride * buffer.itemsize for stride in buffer.strides)
    start, span, dtype = plan.start_of(name), buffer.span_bytes, numpy_dtype(buffer.dtype)
    flat = memory[start : start + span].view(dtype)
    return np.lib.stride_tricks.as_strided(
        flat, buffer.dims, strides, writeable=flat.flags.writeable
    )
