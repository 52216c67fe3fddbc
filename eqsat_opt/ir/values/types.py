"""Value types: element type and shape, as ONNX has them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from eqsat_opt.errors import SymbolicSizes
from eqsat_opt.ir.values.dims import Dim, SymDim, dim_product

__all__ = [
    "DTYPE_CODES",
    "DTYPE_NAMES",
    "FLOATS",
    "WHOLE_RANGES",
    "OtherType",
    "StaticType",
    "TensorType",
    "ValueType",
    "has_element",
    "numpy_dtype",
    "require_static",
    "static_types",
]

DTYPE_CODES: dict[str, int] = {
    "float32": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7,
    "string": 8, "bool": 9, "float16": 10, "float64": 11, "uint32": 12, "uint64": 13,
    "complex64": 14, "complex128": 15, "bfloat16": 16,
}  # fmt: skip
"""Element type names to ``onnx.TensorProto.DataType`` codes; other types make a value opaque."""

DTYPE_NAMES: dict[int, str] = {code: name for name, code in DTYPE_CODES.items()}

WHOLE_RANGES: dict[str, tuple[float, float]] = {
    "bool": (0.0, 2.0),
    **{
        f"{sign}int{bits}": (0.0, 2.0**bits) if sign else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1))
        for sign in ("u", "")
        for bits in (8, 16, 32, 64)
    },
}
"""Integer element types to their least value and the first value beyond their greatest."""

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Floating point element types."""


INTEGERS = frozenset(WHOLE_RANGES) - {"bool"}
"""Integer element types without truth values."""


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy element type; strings are objects."""
    if dtype == "bfloat16":
        bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return bfloat16
    return np.dtype(object) if dtype == "string" else np.dtype(dtype)


def has_element(dtype: str, value: float) -> bool:
    """Return whether an element type can hold this number; floating point may round it."""
    if dtype in FLOATS or dtype.startswith("complex"):
        return True
    low, end = WHOLE_RANGES.get(dtype, (0.0, 0.0))
    return low <= value < end and float(value).is_integer()


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape of a tensor; ``shape`` has one :data:`Dim` per axis."""

    dtype: str
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """Number of elements."""
        return dim_product(self.shape)

    @property
    def bytes(self) -> Dim:
        """Number of bytes of the elements."""
        return self.size * numpy_dtype(self.dtype).itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class OtherType:
    """The type of values that no rule handles: sequences, optionals, unknown ranks, rare types."""

    text: str = "unknown"

    def __str__(self) -> str:
        return self.text


class _LiteralSizes(type):
    """The metaclass of :class:`StaticType`, through which ``isinstance`` checks the sizes.

    Static types are ordinary tensor types, so equal ones are equal however they were made.
    """

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, TensorType) and not any(
            isinstance(dim, SymDim) for dim in value.shape
        )

    def __call__(cls, dtype: str, shape: tuple[int, ...]) -> TensorType:
        return TensorType(dtype, shape)


if TYPE_CHECKING:

    class StaticType(TensorType):
        """The type of a tensor whose dimensions are all literal: its sizes are plain integers.

        A :class:`TensorType` that may be symbolic is narrowed to it by ``isinstance``, or by
        :func:`require_static` where sizes were fixed before.
        """

        shape: tuple[int, ...]

        def __init__(self, dtype: str, shape: tuple[int, ...]) -> None: ...

        @property
        def size(self) -> int: ...

        @property
        def bytes(self) -> int: ...

else:

    class StaticType(metaclass=_LiteralSizes):
        """The type of a tensor whose dimensions are all literal: its sizes are plain integers."""


def require_static(type_: ValueType) -> StaticType:
    """Return the type of a value whose sizes must have been fixed before.

    Raises:
        SymbolicSizes: a dimension is symbolic, or the value is not a tensor.
    """
    if isinstance(type_, StaticType):
        return type_
    raise SymbolicSizes(f"{type_} has no literal sizes; give them with --input-shape")


def static_types(types: Iterable[ValueType | None]) -> tuple[StaticType, ...] | None:
    """Return all of ``types`` if each is static, else ``None``."""
    found = tuple(types)
    known = tuple([type_ for type_ in found if isinstance(type_, StaticType)])
    return known if len(known) == len(found) else None


ValueType = TensorType | OtherType
