"""Checks of the values that a user gives for the inputs of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.values.types import TensorType, numpy_dtype
from eqsat_opt.runtime.plan.constants import dtype_name
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["checked_feeds"]


def checked_feeds(plan: Plan, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """Return the values by input buffer.

    Raises:
        RuntimeFailed: an input is missing or unknown, or has another element type or extent.
    """
    values = {}
    for port in plan.inputs:
        if port.name not in feeds:
            raise RuntimeFailed(f"no value is given for input {port.name!r}")
        buffer = plan.buffer_of[port.buffer]
        dtype = numpy_dtype(buffer.dtype)
        value = _as_type(np.asarray(feeds[port.name]), dtype)
        if value.shape != buffer.dims or value.dtype != dtype:
            given = TensorType(dtype_name(value), value.shape)
            wanted = TensorType(buffer.dtype, buffer.dims)
            raise RuntimeFailed(
                f"input {port.name!r} is {wanted} in this plan; {given} was given: a plan is made "
                "for fixed types and sizes"
            )
        values[port.buffer] = value
    if len(feeds) > len(plan.inputs):
        known = {port.name for port in plan.inputs}
        other = next(name for name in feeds if name not in known)
        raise RuntimeFailed(f"the plan has no input {other!r}; it has {', '.join(sorted(known))}")
    return values


def _as_type(value: Array, dtype: np.dtype[Any]) -> Array:
    """Return the value in the byte order of this machine.

    Files store bfloat16 as two opaque bytes; such an array is viewed as the element type.
    """
    if value.dtype.kind == dtype.kind == "V" and value.dtype.itemsize == dtype.itemsize:
        return np.ascontiguousarray(value).view(dtype)
    is_swapped = value.dtype != dtype and value.dtype.newbyteorder("=") == dtype
    return value.astype(dtype) if is_swapped else value
