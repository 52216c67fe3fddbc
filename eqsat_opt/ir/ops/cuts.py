"""The length of a slice by the rules of ONNX's Slice, at sizes that may be symbolic."""

from __future__ import annotations

from eqsat_opt.ir.ops._base import require
from eqsat_opt.ir.values.dims import Dim, dim_max, dim_min, floor_div, is_size

__all__ = ["cut_length"]


def cut_length(size: Dim, begin: Dim, end: Dim, step: Dim) -> Dim:
    """Count the elements from ``begin`` to before ``end`` of an axis of ``size``.

    Raises:
        IllTyped: the step is not a number other than 0, or it is negative and bounds or sizes are
            symbolic.
    """
    require(isinstance(step, int) and step != 0, "a slice with the step {}", step)
    assert isinstance(step, int)
    if isinstance(size, int) and isinstance(begin, int) and isinstance(end, int):
        return len(range(size)[begin:end:step])
    if step < 0:
        whole = step == -1 and begin == -1 and isinstance(end, int) and end <= -_BEYOND
        require(whole, "a slice {}:{}:{} of {}", begin, end, step, size)
        return size
    length = dim_max(0, _place(size, end) - _place(size, begin))
    return floor_div(length + step - 1, step)


_BEYOND = (1 << 31) - 1
"""A magnitude of bounds that exceeds every axis."""


def _place(size: Dim, bound: Dim) -> Dim:
    """Return a bound as a position from the beginning, at most the size."""
    if bound == 0:  # no axis has a negative size, whatever its formula looks like
        return 0
    if isinstance(bound, int) and bound < 0:
        return dim_max(0, size + bound)
    if isinstance(bound, int) and bound >= _BEYOND:
        return size
    if is_size(bound):
        return dim_min(bound, size)
    is_negative = dim_min(1, dim_max(0, bound * -1))
    return dim_min(dim_max(0, bound), size) + is_negative * dim_max(0, bound + size)
