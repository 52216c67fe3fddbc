"""Tensors of types for which onnxruntime's Python binding has no NumPy type, passed as raw bits."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnxruntime
from onnx import TensorProto

__all__ = ["RAW_TYPES", "RawType", "from_ort_value", "to_ort_value"]


@dataclass(frozen=True)
class RawType:
    """An element type that ONNX has and the Python binding of onnxruntime lacks.

    Attributes:
        element: its `TensorProto.DataType`.
        dtype: the NumPy type of its arrays.
        width: bits per element; below 8, several share a byte, the first in the lowest bits.
    """

    element: int
    dtype: Any
    width: int


RAW_TYPES = {
    "tensor(bfloat16)": RawType(TensorProto.BFLOAT16, ml_dtypes.bfloat16, 16),
    "tensor(float8e4m3fn)": RawType(TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, 8),
    "tensor(float8e4m3fnuz)": RawType(TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz, 8),
    "tensor(float8e5m2)": RawType(TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, 8),
    "tensor(float8e5m2fnuz)": RawType(TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz, 8),
    "tensor(int4)": RawType(TensorProto.INT4, ml_dtypes.int4, 4),
    "tensor(uint4)": RawType(TensorProto.UINT4, ml_dtypes.uint4, 4),
    "tensor(int2)": RawType(TensorProto.INT2, ml_dtypes.int2, 2),
    "tensor(uint2)": RawType(TensorProto.UINT2, ml_dtypes.uint2, 2),
}
"""Raw types by onnxruntime's name of the tensor type."""


def to_ort_value(array: npt.NDArray[Any], type_name: str) -> onnxruntime.OrtValue:
    """Return a value for an input of type `type_name`; it may share the memory of `array`."""
    if not array.flags.c_contiguous:
        array = array.copy(order="C")
    raw = RAW_TYPES.get(type_name)
    if raw is None:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    array = array.astype(raw.dtype, copy=False)
    bits = array.view(f"u{raw.width // 8}") if raw.width >= 8 else _packed(array, raw.width)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, raw.element)


def from_ort_value(value: onnxruntime.OrtValue) -> npt.NDArray[Any]:
    """Return the tensor in `value` as a separate array."""
    raw = RAW_TYPES.get(value.data_type())
    if raw is None:
        return np.asarray(value.numpy())
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    shape = tuple(value.shape())
    if raw.width < 8:
        return _unpacked(np.frombuffer(data, np.uint8), raw, shape)
    bits = np.frombuffer(data, f"u{raw.width // 8}").reshape(shape).copy()
    return bits.view(raw.dtype)


def _packed(array: npt.NDArray[Any], width: int) -> npt.NDArray[np.uint8]:
    """Return a buffer of the tensor's shape that begins with the bytes of the packed tensor."""
    per_byte = 8 // width
    elements = array.astype(np.int8).ravel().view(np.uint8) & ((1 << width) - 1)
    padded = np.zeros(-(-elements.size // per_byte) * per_byte, np.uint8)
    padded[: elements.size] = elements
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
    packed = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
    buffer = np.zeros(array.shape, np.uint8)
    buffer.reshape(-1)[: packed.size] = packed
    return buffer


def _unpacked(
    data: npt.NDArray[np.uint8], raw: RawType, shape: tuple[int, ...]
) -> npt.NDArray[Any]:
    shifts = np.arange(8 // raw.width, dtype=np.uint8) * np.uint8(raw.width)
    mask = (1 << raw.width) - 1
    elements = ((data[:, None] >> shifts) & mask).ravel()[: int(np.prod(shape))].astype(np.int8)
    if raw.dtype in (ml_dtypes.int4, ml_dtypes.int2):
        sign = 1 << (raw.width - 1)
        elements = (elements ^ sign) - sign
    return elements.reshape(shape).astype(raw.dtype)
