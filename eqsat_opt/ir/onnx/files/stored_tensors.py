"""The tensors that an ONNX file stores, by name, read without the onnx package.

They are the initializers of the main graph and the values of its Constant nodes. No tensor is
loaded before it is used, and data in other files stay mapped. Running a plan needs nothing else of
a model.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from eqsat_opt.common.paths import shown
from eqsat_opt.common.wire_format import Fields, fields_of, message_of
from eqsat_opt.errors import ModelError, reason
from eqsat_opt.ir.values.types import DTYPE_NAMES, numpy_dtype

__all__ = ["ModelLike", "stored_tensors"]

Array = npt.NDArray[Any]
ModelLike: TypeAlias = Any
"""A file, its bytes, a model that can serialise itself, or arrays by name."""

_Loader: TypeAlias = Callable[[], Array]

# Numbers of fields in onnx.proto.
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_OUTPUT, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 2, 4, 5, 7
_ATTRIBUTE_NAME, _F, _I, _T, _FLOATS, _INTS = 1, 2, 3, 5, 7, 8
_DIMS, _DATA_TYPE, _NAME, _RAW, _EXTERNAL, _LOCATION = 1, 2, 8, 9, 13, 14
_FLOAT_DATA, _INT32_DATA, _INT64_DATA, _DOUBLE_DATA, _UINT64_DATA = 4, 5, 7, 10, 11


def stored_tensors(model: ModelLike) -> dict[str, _Loader]:
    """Return a loader for each tensor by name; strings and unsupported types are left out.

    Args:
        model: a path, serialised bytes, anything with ``SerializeToString``, or arrays by name.

    Raises:
        ModelError: the model cannot be read or is not an ONNX model; a loader raises it too, if
            data are missing.
    """
    if isinstance(model, Mapping):
        return {name: partial(np.asarray, value) for name, value in model.items()}
    folder: str | None = None
    if isinstance(model, str | os.PathLike):
        path = os.fspath(model)
        data, what, folder = _mapped(path), shown(path), os.path.dirname(os.path.abspath(path))
    elif isinstance(model, bytes):
        data, what = memoryview(model), "the bytes given"
    elif hasattr(model, "SerializeToString"):
        data, what = memoryview(model.SerializeToString()), "the model given"
    else:
        raise ModelError(
            f"a value of type {type(model).__name__} is not a model; give a path, bytes, an "
            "onnx.ModelProto, or arrays by name"
        )
    try:
        return dict(_tensors(data, folder))
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"not an ONNX model, or cut short: {what}") from error


def _mapped(path: str) -> memoryview:
    try:
        with Path(path).open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return memoryview(b"")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except OSError as error:
        raise ModelError(f"cannot read {shown(path)}: {reason(error)}") from error


def _tensors(data: memoryview, folder: str | None) -> Iterator[tuple[str, _Loader]]:
    graphs = fields_of(data).get(_GRAPH)
    if not graphs:
        raise ValueError("no graph")
    graph = fields_of(message_of(graphs[-1]))
    for item in graph.get(_INITIALIZER, ()):
        tensor = fields_of(message_of(item))
        if _is_numeric(tensor) and tensor.get(_NAME):
            yield _text(tensor[_NAME][-1]), partial(_load, tensor, folder)
    for item in graph.get(_NODE, ()):
        node = fields_of(message_of(item))
        is_constant = _text(_last(node, _OP_TYPE, b"")) == "Constant"
        if is_constant and not _last(node, _DOMAIN, b"") and node.get(_OUTPUT):
            for attribute in node.get(_ATTRIBUTE, ()):
                loader = _attribute(fields_of(message_of(attribute)), folder)
                if loader is not None:
                    yield _text(node[_OUTPUT][0]), loader


def _attribute(fields: Fields, folder: str | None) -> _Loader | None:
    """Return a loader for the value of a Constant node, ``None`` if it is not numeric."""
    match _text(_last(fields, _ATTRIBUTE_NAME, b"")):
        case "value" if fields.get(_T):
            tensor = fields_of(message_of(fields[_T][-1]))
            return partial(_load, tensor, folder) if _is_numeric(tensor) else None
        case "value_float":
            return partial(np.reshape, _numbers(fields, _F, "<f4") if _F in fields else 0, ())
        case "value_floats":
            return partial(np.asarray, _numbers(fields, _FLOATS, "<f4"))
        case "value_int":
            return partial(np.array, _last(fields, _I, 0), np.int64)
        case "value_ints":
            return partial(np.asarray, _integers(fields, _INTS))
        case _:
            return None


def _is_numeric(tensor: Fields) -> bool:
    return DTYPE_NAMES.get(_last(tensor, _DATA_TYPE, 0), "string") != "string"


def _load(tensor: Fields, folder: str | None) -> Array:
    """Return the array of a TensorProto."""
    dtype_name = DTYPE_NAMES[_last(tensor, _DATA_TYPE, 0)]
    dtype = numpy_dtype(dtype_name)
    dims = tuple(int(d) for d in _integers(tensor, _DIMS))
    name = _text(_last(tensor, _NAME, b""))
    if min(dims, default=0) < 0:
        raise ModelError(f"the weight {name!r} has a negative extent")
    size = prod(dims)
    if _last(tensor, _LOCATION, 0):
        flat: Array = _external(tensor, name, folder, size * dtype.itemsize).view(dtype)
    elif _RAW in tensor:
        flat = np.frombuffer(message_of(tensor[_RAW][-1]), np.uint8)
        flat = flat[: size * dtype.itemsize].view(dtype)
    elif dtype_name in ("float32", "complex64"):
        flat = _numbers(tensor, _FLOAT_DATA, "<f4").view(dtype)
    elif dtype_name in ("float64", "complex128"):
        flat = _numbers(tensor, _DOUBLE_DATA, "<f8").view(dtype)
    elif dtype_name == "int64":
        flat = _integers(tensor, _INT64_DATA)
    elif dtype_name in ("uint32", "uint64"):
        flat = _integers(tensor, _UINT64_DATA).view(np.uint64).astype(dtype)
    elif dtype_name in ("float16", "bfloat16"):
        flat = _integers(tensor, _INT32_DATA).astype(np.uint16).view(dtype)
    else:
        flat = _integers(tensor, _INT32_DATA).astype(dtype)
    if flat.size != size:
        raise ModelError(f"the weight {name!r} is cut short: {flat.size} of {size} elements")
    return flat.reshape(dims)


def _external(
    tensor: Fields, name: str, folder: str | None, size_bytes: int
) -> npt.NDArray[np.uint8]:
    """Map the bytes of a file beside the model."""
    pairs = (fields_of(message_of(item)) for item in tensor.get(_EXTERNAL, ()))
    place = {_text(_last(pair, 1, b"")): _text(_last(pair, 2, b"")) for pair in pairs}
    if folder is None:
        raise ModelError(f"the weight {name!r} lies in another file; give the model as a path")
    path = os.path.realpath(os.path.join(folder, place.get("location", "")))
    if os.path.commonpath((os.path.realpath(folder), path)) != os.path.realpath(folder):
        raise ModelError(f"the weight {name!r} lies outside the folder of the model")
    offset = place.get("offset") or "0"
    try:
        if not size_bytes:
            return np.empty(0, np.uint8)
        return np.memmap(path, np.uint8, "r", int(offset), (size_bytes,))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"cannot read the weight {name!r} from {shown(path)}: {reason(error)}"
        ) from error


# ** values of fields **


def _last(fields: Fields, number: int, default: Any) -> Any:
    """Return the last value of a field, which overrides the others."""
    return fields[number][-1] if number in fields else default


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else bytes(message_of(value)).decode()


def _numbers(fields: Fields, number: int, dtype: str) -> Array:
    """Return a repeated field of floating point numbers, packed or one by one."""
    parts = [bytes(message_of(part)) for part in fields.get(number, ())]
    return np.frombuffer(b"".join(parts), dtype)


def _integers(fields: Fields, number: int) -> npt.NDArray[np.int64]:
    """Return a repeated field of integers, packed or one by one."""
    parts = []
    for part in fields.get(number, ()):
        if isinstance(part, int):
            parts.append(np.array([part], np.int64))
            continue
        data = np.frombuffer(part, np.uint8)
        ends = np.flatnonzero(data < 0x80)
        if data.size and (not ends.size or ends[-1] != data.size - 1):
            raise ValueError("an integer does not end")
        if not ends.size:
            continue
        starts = np.concatenate(([0], ends[:-1] + 1))
        shifts = (np.arange(data.size) - np.repeat(starts, ends - starts + 1)) * 7
        if shifts.max() > 63:
            raise ValueError("an integer of more than 64 bits")
        groups = (data & np.uint8(0x7F)).astype(np.uint64) << shifts.astype(np.uint64)
        parts.append(np.add.reduceat(groups, starts).view(np.int64))
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
