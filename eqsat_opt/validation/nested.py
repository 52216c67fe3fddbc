"""Values in sequences and maps: outputs of classifiers, of loops that append, of optionals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["float_leaves"]

_FLOATS = frozenset(("float16", "float32", "float64", "bfloat16"))
_Floats = npt.NDArray[np.float64]


def float_leaves(a: Any, b: Any) -> tuple[_Floats, _Floats, tuple[str, ...]] | None:
    """Return the floats in two nested values, in one order.

    Args:
        a: a tensor, a number, a text, None, or a sequence or mapping of such values.
        b: another.

    Returns:
        The floats of each as one vector, and the element types that occur, a number's being that of
        onnxruntime's maps, float32; ``None`` if the values differ in anything but floats.
    """
    mine, others = list(_leaves(a)), list(_leaves(b))
    if [place for place, _ in mine] != [place for place, _ in others]:
        return None
    floats: tuple[list[_Floats], list[_Floats]] = [np.zeros(0)], [np.zeros(0)]
    dtypes = set()
    for (_, one), (_, other) in zip(mine, others, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        if (one.shape, one.dtype.kind) != (other.shape, other.dtype.kind):
            return None
        if str(one.dtype) not in _FLOATS:
            if not np.array_equal(one, other):
                return None
            continue
        if one.dtype != other.dtype:
            return None
        dtypes.add(str(one.dtype))
        for found, value in zip(floats, (one, other), strict=True):
            found.append(value.astype(np.float64).ravel())
    return np.concatenate(floats[0]), np.concatenate(floats[1]), tuple(sorted(dtypes))


def _leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield each value that holds no others, with its place; an empty container is one."""
    if isinstance(value, list | tuple):
        yield (*place, "sequence", len(value)), None
        for i, inner in enumerate(value):
            yield from _leaves(inner, (*place, i))
    elif isinstance(value, dict):
        yield (*place, "map", len(value)), None
        for key in sorted(value, key=repr):
            yield from _leaves(value[key], (*place, key))
    else:
        yield place, np.float32(value) if isinstance(value, float) else value
