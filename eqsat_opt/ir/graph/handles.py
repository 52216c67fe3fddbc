"""Handles on constants: their identity, and the way to load their bytes."""

from __future__ import annotations

import hashlib
import math
import os
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.ir.graph.graph import Attrs, Constant, attributes
from eqsat_opt.ir.values.types import DTYPE_NAMES, FLOATS, INTEGERS, StaticType, numpy_dtype

__all__ = [
    "Computed",
    "Expression",
    "Splat",
    "array_constant",
    "derived_constant",
    "folding_room",
    "folding_s",
    "held_bytes",
    "is_expensive",
    "reshaped",
    "shaped",
    "splat_constant",
    "splat_value",
    "tensor_constant",
    "uniform_value",
]

Array = npt.NDArray[Any]

_EXTERNAL_HASHED_BYTES = 1 << 16
"""External tensors above this are identified by their place in the file: no page is touched."""

_KEPT_BYTES = 1 << 20
"""Computed arrays up to this are kept; larger arrays live only as long as they are referred to."""

_EXPENSIVE_FLOPS = 1e9
"""Constants that take more to compute are kept, and never computed only for inspection."""

_FLOPS_PER_S = 5e9
"""Speed at which a slow machine computes constants."""

_UNIFORM_LIMIT = 1 << 14
"""Constants up to this many elements are checked for being uniform; no larger one is read."""

_FOLDING_ROOM_BYTES = 64 << 20
"""Bytes to which constants may always grow; beyond it, to the size of the model's own weights."""


@dataclass(frozen=True, slots=True)
class Splat:
    """The source of a constant whose elements are all equal; it is exported as a ConstantOfShape.

    Attributes:
        value: the scalar, of the constant's element type.
    """

    value: Any


@dataclass(frozen=True, slots=True)
class Expression:
    """The source of a constant that an operator of the registry computes from other constants.

    Its value may be rounded differently from the constant, which may be computed by a runtime or in
    wider numbers.

    Attributes:
        op, attrs: the operator.
        operands: the other constants.
    """

    op: str
    attrs: Attrs
    operands: tuple[Constant, ...]


def _digest(*parts: bytes | str) -> str:
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def array_constant(array: Array) -> Constant:
    """Return a handle on an array that is already in memory."""
    array = np.asarray(array)
    type_ = StaticType(DTYPE_NAMES[onnx_ir.DataType.from_numpy(array.dtype).value], array.shape)
    return Constant(type_, _digest(str(type_), array.tobytes()), lambda: array)


def splat_constant(value: Array, shape: tuple[int, ...]) -> Constant:
    """Return a constant of which every element is the scalar ``value``; it takes no memory."""
    scalar = np.asarray(value).reshape(())
    dtype = DTYPE_NAMES[onnx_ir.DataType.from_numpy(scalar.dtype).value]
    type_ = StaticType(dtype, shape)
    return Constant(
        type_,
        _digest("splat", str(type_), scalar.tobytes()),
        lambda: np.broadcast_to(scalar, shape),
        Splat(scalar),
    )


def tensor_constant(tensor: Any) -> Constant | None:
    """Return the handle on an onnx-ir tensor, ``None`` if its element type is not supported."""
    dtype = DTYPE_NAMES.get(tensor.dtype.value)
    if dtype is None:
        return None
    type_ = StaticType(dtype, tuple(int(d) for d in tensor.shape))
    if dtype == "string":
        return Constant(type_, _digest(str(type_), *tensor.string_data()), tensor.numpy, tensor)
    if isinstance(tensor, onnx_ir.ExternalTensor) and type_.bytes > _EXTERNAL_HASHED_BYTES:
        place = (os.path.realpath(tensor.path), str(tensor.offset or 0), str(tensor.length or ""))
        return Constant(type_, _digest("external", str(type_), *place), tensor.numpy, tensor)
    return Constant(type_, _digest(str(type_), _content(tensor)), tensor.numpy, tensor)


def _content(tensor: Any) -> bytes:
    if isinstance(tensor, onnx_ir.TensorProtoTensor) and tensor.raw.HasField("raw_data"):
        return tensor.raw.raw_data
    return np.ascontiguousarray(tensor.numpy()).tobytes()


def derived_constant(
    type_: StaticType,
    compute: Callable[[], Array],
    recipe: Iterable[str],
    flops: float = 0.0,
    source: Expression | None = None,
) -> Constant:
    """Return a constant that is computed when it is first loaded.

    Args:
        type_: type of the array; the result of ``compute`` is converted to its element type.
        compute: computes the array.
        recipe: operator, attributes and operand digests: everything that determines the contents.
        flops: operations that ``compute`` takes, those of its operands included.
        source: the same value as an operator of the registry, if there is one.
    """
    shape, dtype = type_.shape, numpy_dtype(type_.dtype)

    def computed() -> Array:
        array = np.asarray(compute()).astype(dtype, copy=False).reshape(shape)
        array.flags.writeable = False
        return array

    load = Computed(computed, flops)
    return Constant(type_, _digest("derived", str(type_), *recipe), load, source)


class Computed:
    """An array that is computed on demand, and kept if it is small or took long to compute.

    Args:
        compute: computes the array.
        flops: operations that this takes, those of its operands included.
        is_kept: whether the array is kept in any case.
    """

    def __init__(
        self, compute: Callable[[], Array], flops: float, *, is_kept: bool = False
    ) -> None:
        self._compute = compute
        self._flops = flops
        self._is_kept = is_kept or flops > _EXPENSIVE_FLOPS
        self._kept: Array | None = None
        self._alive: weakref.ref[Array] | None = None

    @property
    def flops(self) -> float:
        """Floating point operations that are still to be done."""
        return self._flops if self._kept is None else 0.0

    def __call__(self) -> Array:
        if self._kept is not None:
            return self._kept
        array = self._alive() if self._alive is not None else None
        if array is None:
            array = self._compute()
            if self._is_kept or array.nbytes <= _KEPT_BYTES:
                self._kept = array
            else:
                self._alive = weakref.ref(array)
        return array


def reshaped(handle: Constant, type_: StaticType, digest: str) -> Constant:
    """Return a constant with the elements of another one in another shape."""
    shape = type_.shape
    load = Computed(lambda: np.asarray(handle.load()).reshape(shape), handle.flops)
    source = Expression("Reshape", attributes(shape=shape), (handle,))
    return Constant(type_, digest, load, source)


def shaped(constant: Constant, shape: tuple[int, ...]) -> Constant:
    """Return a constant with the same elements in another shape; one size may be -1."""
    size = constant.type.size
    rest = -math.prod(shape)
    shape = tuple(size // max(rest, 1) if extent < 0 else extent for extent in shape)
    if constant.type.shape == shape:
        return constant
    type_ = StaticType(constant.type.dtype, shape)
    return reshaped(constant, type_, f"{constant.digest}:{shape}")


def held_bytes(constants: Iterable[Constant]) -> int:
    """Return the bytes of memory that these constants need; a splat needs one element."""
    return sum(
        numpy_dtype(one.type.dtype).itemsize if isinstance(one.source, Splat) else one.type.bytes
        for one in constants
    )


def folding_s(constants: Iterable[Constant]) -> float:
    """Return the seconds that computing these constants takes on a slow machine, each by itself."""
    return sum(one.flops for one in constants) / _FLOPS_PER_S


def is_expensive(*constants: Constant) -> bool:
    """Return whether any takes too long to compute to load them only for inspection."""
    return any(one.flops > _EXPENSIVE_FLOPS for one in constants)


def folding_room(constants: Iterable[Constant]) -> int:
    """Return the limit in bytes of a value that a search folds.

    It is the size of the model's constants, but at least 64 MiB.
    """
    return max(_FOLDING_ROOM_BYTES, held_bytes(constants))


def splat_value(constant: Constant, limit: int = 1024) -> Any:
    """Return the scalar that every element equals; ``None`` if they differ or exceed ``limit``."""
    if isinstance(constant.source, Splat):
        return constant.source.value
    size = constant.type.size
    if not 0 < size <= limit or constant.type.dtype == "string" or is_expensive(constant):
        return None
    array = np.asarray(constant.load())
    first = array.reshape(-1)[0]
    same = array.tobytes() == np.full_like(array, first).tobytes()
    return np.asarray(first) if same else None


def uniform_value(constant: Constant) -> float | None:
    """Return the number that all elements of a small constant equal, as a literal of its type.

    It is ``None`` if they differ, are not finite, or are -0 or whole numbers that no float equals.
    """
    size, dtype = constant.type.size, constant.type.dtype
    if not 0 < size <= _UNIFORM_LIMIT or dtype not in FLOATS | INTEGERS:
        return None
    value = splat_value(constant, _UNIFORM_LIMIT)
    if value is None or not np.isfinite(value):
        return None
    number = float(value)
    is_negative_zero = number == 0 and math.copysign(1.0, number) < 0
    return None if is_negative_zero or value.item() != number else number
