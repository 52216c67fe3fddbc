"""Operators that move data and compute nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    IllTyped,
    broadcast_shapes,
    define,
    padded,
    require,
    traits,
)
from eqsat_opt.ir.ops.cuts import cut_length
from eqsat_opt.ir.ops.index import movement as index_movement
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import TensorType, has_element, numpy_dtype

__all__: list[str] = []


_moving = partial(define, "movement", flops=0)


def _concat_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    first, axis = inputs[0], attrs["axis"]
    require(0 <= axis < first.rank, "axis {} of {}", axis, first)
    total: Dim = 0
    for operand in inputs:
        same = operand.rank == first.rank and operand.dtype == first.dtype
        require(
            same and all(i == axis or d == first.shape[i] for i, d in enumerate(operand.shape)),
            "concat of {} and {}",
            first,
            operand,  # to print all of them would take quadratic time
        )
        total = total + operand.shape[axis]
    return TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


_moving(
    "Concat",
    {"axis": "int"},
    _concat_type,
    lambda _d, x, a: np.concatenate(list(x), axis=a["axis"]),
    index_movement.concat,
    arity=(1, 1 << 20),
    traits=traits("along"),
)


def _slice_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    axis, lo, hi = attrs["axis"], attrs["lo"], attrs["hi"]
    require(isinstance(lo, int) and isinstance(hi, int), "a slice at symbolic bounds")
    require(0 <= axis < x.rank and 0 <= lo < hi, "slice {}: {}:{} of {}", axis, lo, hi, x)
    size = x.shape[axis]
    require(isinstance(size, int) and hi <= size, "slice {}:{} of {}", lo, hi, x)
    return TensorType(x.dtype, (*x.shape[:axis], hi - lo, *x.shape[axis + 1 :]))


def _slice(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    index = [slice(None)] * operands[0].ndim
    index[attrs["axis"]] = slice(attrs["lo"], attrs["hi"])
    return operands[0][tuple(index)]


_moving(
    "Slice",
    {"axis": "int", "lo": "int", "hi": "int"},
    _slice_type,
    _slice,
    index_movement.slice_,
    traits=traits("along"),
)


def _cut_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), axis = inputs, attrs["axis"]
    require(0 <= axis < x.rank, "axis {} of {}", axis, x)
    length = cut_length(x.shape[axis], *attrs["cut"])
    return TensorType(x.dtype, (*x.shape[:axis], length, *x.shape[axis + 1 :]))


def _cut(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    index = [slice(None)] * operands[0].ndim
    index[attrs["axis"]] = slice(*attrs["cut"])
    return operands[0][tuple(index)]


_moving(
    "StridedSlice",
    {"axis": "int", "cut": "ints"},
    _cut_type,
    _cut,
    index_movement.strided_slice,
    traits=traits("along"),
    doc="ONNX's Slice along one axis where it has a step, may be empty or has symbolic bounds: cut "
    "is begin, end and step, which count from the end where they are negative, and are "
    "brought to the nearest border where they are outside",
)


def _transpose_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    require(sorted(attrs["perm"]) == list(range(x.rank)), "permutation {} of {}", attrs["perm"], x)
    return TensorType(x.dtype, tuple(x.shape[p] for p in attrs["perm"]))


_moving(
    "Transpose",
    {"perm": "ints"},
    _transpose_type,
    lambda _d, x, a: x[0].transpose(a["perm"]),
    index_movement.transpose,
)


def _reshape_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    result = TensorType(inputs[0].dtype, tuple(attrs["shape"]))
    require(result.size == inputs[0].size, "reshape of {} to {}", inputs[0], result)
    return result


_moving(
    "Reshape",
    {"shape": "ints"},
    _reshape_type,
    lambda _d, x, a: x[0].reshape(a["shape"]),
    index_movement.reshape,
)


def _expand_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    shape = tuple(attrs["shape"])
    try:
        fits = broadcast_shapes(x.shape, shape) == shape
    except IllTyped:
        fits = False
    require(fits, "{} does not expand to {}", x, shape)
    return TensorType(x.dtype, shape)


_moving(
    "Expand",
    {"shape": "ints"},
    _expand_type,
    lambda _d, x, a: np.broadcast_to(x[0], a["shape"]),
    index_movement.expand,
)


def _pad_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    pads = attrs["pads"]
    require(len(pads) == 2 * x.rank, "{} pads for {}", len(pads), x)
    require(has_element(x.dtype, attrs["value"]), "{} beside {}", attrs["value"], x)
    shape = tuple(d + pads[i] + pads[x.rank + i] for i, d in enumerate(x.shape))
    require(all(not isinstance(d, int) or d > 0 for d in shape), "padding removes everything")
    return TensorType(x.dtype, shape)


def _pad(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    pads, rank = attrs["pads"], x.ndim
    if rank == 0:
        return x
    cropped = x[
        tuple(slice(max(-pads[i], 0), x.shape[i] - max(-pads[rank + i], 0)) for i in range(rank))
    ]
    widths = [(max(pads[i], 0), max(pads[rank + i], 0)) for i in range(rank)]
    return padded(cropped, widths, domain.constant(attrs["value"], x))


_moving("Pad", {"pads": "ints", "value": "float"}, _pad_type, _pad, index_movement.pad)


def _gather_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    data, indices = inputs
    axis = attrs["axis"]
    named = 0 <= axis < data.rank and indices.dtype in ("int32", "int64")
    require(named, "gather {} from {}", indices, data)
    require(data.shape[axis] != 0, "a gather from nothing")
    return TensorType(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))


def _gather(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Take elements at indices; those out of range, undefined in ONNX, count modulo the extent."""
    data, indices = operands
    axis = attrs["axis"]
    return np.take(data, _whole(indices) % data.shape[axis], axis=axis)  # type: ignore[no-any-return]


def _whole(numbers: Array) -> Array:
    """Convert indices to integers, whatever numbers they were computed in."""
    if numbers.dtype.kind in "iu":
        return numbers
    if numbers.dtype == object:
        return np.asarray(np.frompyfunc(math.floor, 1, 1)(numbers)).astype(np.int64)
    return np.nan_to_num(np.floor(numbers.astype(np.float64)), posinf=0, neginf=0).astype(np.int64)


_moving(
    "Gather",
    {"axis": "int"},
    _gather_type,
    _gather,
    index_movement.gather,
    arity=2,
    element_types={1: "int64"},
)


def _scalar_type(_inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    dtype, value = attrs["dtype"], attrs["value"]
    require(has_element(dtype, value), "{} as {}", value, dtype)
    return TensorType(dtype, ())


def _scalar(domain: Domain, _operands: Sequence[Array], attrs: AttrMap) -> Array:
    like = np.zeros((), dtype=numpy_dtype(attrs["dtype"]) if domain.name == "float" else np.int64)
    return domain.constant(attrs["value"], like)


_moving(
    "Scalar",
    {"value": "float", "dtype": "str"},
    _scalar_type,
    _scalar,
    index_movement.scalar,
    arity=0,
    doc="a constant of rank 0; on a left side also any constant with this one value",
)


def _identity_type(_inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    channels = attrs["channels"]
    require(attrs["height"] % 2 == 1 and attrs["width"] % 2 == 1, "an even kernel has no centre")
    return TensorType(attrs["dtype"], (channels, channels, attrs["height"], attrs["width"]))


def _identity_kernel(domain: Domain, _operands: Sequence[Array], attrs: AttrMap) -> Array:
    channels, height, width = attrs["channels"], attrs["height"], attrs["width"]
    dtype = numpy_dtype(attrs["dtype"]) if domain.name == "float" else np.dtype(np.int64)
    kernel = np.zeros((channels, channels, height, width), dtype=dtype)
    kernel[range(channels), range(channels), height // 2, width // 2] = 1
    return kernel


_moving(
    "IdentityKernel",
    {"channels": "int", "height": "int", "width": "int", "dtype": "str"},
    _identity_type,
    _identity_kernel,
    index_movement.identity_kernel,
    arity=0,
    doc="the kernel [channels, channels, height, width] of a convolution that returns its "
    "input: a 1 in the centre, where both channels are the same, else 0",
)
