"""Sizes that are values of inputs: how many elements TopK keeps, or where a slice ends.

A value may be negative, and a size that has a name never is. So each value has two names, one for
what it is above zero and one for what it is below, and is their difference.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.values.dims import sym
from eqsat_opt.ir.values.types import StaticType, ValueType

__all__ = ["assumed_value", "given_values", "is_of_value", "value_names"]

_MOST = 8
"""Elements up to which a vector may hold sizes."""

_BELOW = "~"
"""Last character of the name of what a value is below zero."""


def value_names(name: str, type_: ValueType | None) -> tuple[tuple[str, str], ...]:
    """Return the two names of each element of an input, none if it holds no sizes.

    Args:
        name: name of the input.
        type_: its type; sizes are elements of a scalar or of a short vector of integers.
    """
    if not isinstance(type_, StaticType) or type_.dtype not in ("int64", "int32"):
        return ()
    if type_.rank > 1 or not 0 < type_.size <= _MOST:
        return ()
    return tuple((f"?{name}:{i}", f"?{name}:{i}{_BELOW}") for i in range(type_.size))


def given_values(name: str, type_: ValueType) -> npt.NDArray[np.object_] | None:
    """Return the elements of an input as sizes; ``None`` if it holds no sizes.

    Args:
        name: name of the input.
        type_: its type, whose shape the result has.
    """
    names = value_names(name, type_)
    if not names or not isinstance(type_, StaticType):
        return None
    values = np.empty(len(names), dtype=object)
    values[:] = [sym(above) - sym(below) for above, below in names]
    return values.reshape(type_.shape)


def is_of_value(name: str) -> bool:
    """Return whether a name is that of a value of an input."""
    return name.startswith("?") and name.rstrip(_BELOW).rpartition(":")[2].isdigit()


def assumed_value(name: str) -> int:
    """Return the number to assume for a name of a value: the value is 1, as inputs are drawn."""
    return 0 if name.endswith(_BELOW) else 1
