"""The values that a user gives for the inputs of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat_opt.errors import RuntimeFailed
from eqsat_opt.ir.types import TensorType, numpy_dtype
from eqsat_opt.runtime.plan.constants import dtype_name
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Plan

__all__ = ["checked_feeds"]


def checked_feeds(plan: Plan, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """Input buffer to value.

    Raises:
        RuntimeFailed: an input is missing or unknown, or has another element type or extent.
    """
    values = {}
    for port in plan.inputs:
        if port.name not in feeds:
            raise RuntimeFailed(f"no value is given for input {port.name!r}")
        value, buffer = np.asarray(feeds[port.name]), plan.buffer_of[port.buffer]
        if value.shape != buffer.dims or value.dtype != numpy_dtype(buffer.dtype):
            given = TensorType(dtype_name(value), value.shape)
            wanted = TensorType(buffer.dtype, buffer.dims)
            raise RuntimeFailed(
                f"input {port.name!r} is {wanted} in this plan; {given} was given: a plan is made "
                "for fixed sizes"
            )
        values[port.buffer] = value
    if len(feeds) > len(plan.inputs):
        known = {port.name for port in plan.inputs}
        other = next(name for name in feeds if name not in known)
        raise RuntimeFailed(f"the plan has no input {other!r}; it has {', '.join(sorted(known))}")
    return values
