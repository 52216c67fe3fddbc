"""Products of several matrices as one batched product that a library computes at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from eqsat_opt.runtime.backends.shared.tensors import StridedTensor

__all__ = ["one_product"]


def one_product(
    a: StridedTensor, b: StridedTensor, y: StridedTensor
) -> tuple[StridedTensor, StridedTensor, StridedTensor] | None:
    """Return factors and result of several products as one, of batches, rows and columns.

    If b has one batch, the rows of all batches become rows of one batch. ``None`` if no single
    stride covers the batches, or if the factors and the result have different batches.
    """
    if prod(b.dims[:-2]) == 1:
        one = StridedTensor((1, *b.dims[-2:]), (prod(b.dims), *b.strides[-2:]))
        rows = [_rows(a), _rows(y)]
        if rows[0] is not None and rows[1] is not None:
            return rows[0], one, rows[1]
    if not (len(a.dims) == len(b.dims) == len(y.dims) and a.dims[:-2] == b.dims[:-2]):
        return None
    first, second, result = map(_one_batch_axis, (a, b, y))
    if first is None or second is None or result is None:
        return None
    return first, second, result


def _rows(tensor: StridedTensor) -> StridedTensor | None:
    """Return all rows of all batches as one batch, if a single stride covers them."""
    joined = _joined(tensor.dims[:-1], tensor.strides[:-1])
    if joined is None:
        return None
    count, stride = joined
    columns = tensor.dims[-1]
    return StridedTensor((1, count, columns), (count * max(stride, 1), stride, tensor.strides[-1]))


def _one_batch_axis(tensor: StridedTensor) -> StridedTensor | None:
    joined = _joined(tensor.dims[:-2], tensor.strides[:-2])
    if joined is None:
        return None
    count, stride = joined
    stride = stride if count > 1 else prod(tensor.dims[-2:])
    return StridedTensor((count, *tensor.dims[-2:]), (stride, *tensor.strides[-2:]))


def _joined(dims: Sequence[int], strides: Sequence[int]) -> tuple[int, int] | None:
    """Return extent and stride of one axis that replaces several; ``None`` if none can."""
    count, stride = 1, 0
    for dim, step in zip(reversed(dims), reversed(strides), strict=True):
        if dim == 1:
            continue
        if count > 1 and step != count * stride:
            return None
        if count == 1:
            stride = step
        count *= dim
    return count, stride
