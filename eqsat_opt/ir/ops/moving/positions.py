"""Elements that are read from, or written to, indices that other tensors hold.

An index below 0 counts from the end. Runtimes refuse an index beyond either end; here it is taken
modulo the extent, so that all indices have a meaning.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    define,
    per_operand_element,
    require,
)
from eqsat_opt.ir.values.dims import Dim, SymDim
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []

_PLACES = ("int32", "int64")


def _within(inner: Sequence[Dim], outer: Sequence[Dim]) -> bool:
    """Return whether no extent of ``inner`` is known to be larger than that of ``outer``."""
    pairs = zip(inner, outer, strict=True)
    return all(isinstance(i, SymDim) or isinstance(o, SymDim) or i <= o for i, o in pairs)


def _may_equal(one: Sequence[Dim], other: Sequence[Dim]) -> bool:
    """Return whether shapes are equal, or may be equal at some values of their symbols."""
    return len(one) == len(other) and _within(one, other) and _within(other, one)


def _elements_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, places = inputs
    axis = attrs["axis"]
    require(places.dtype in _PLACES and places.rank == x.rank > axis >= 0, "{} of {}", places, x)
    require(x.shape[axis] != 0, "a place in nothing")
    others = [shape[:axis] + shape[axis + 1 :] for shape in (places.shape, x.shape)]
    require(_within(*others), "{} of {}", places, x)
    return TensorType(x.dtype, places.shape)


def _elements(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, places = operands
    return x[_along(places, x, attrs["axis"])]


def _along(places: Array, x: Array, axis: int) -> tuple[Array, ...]:
    """Return the NumPy index of the elements at ``places`` along ``axis``."""
    index = list(np.ogrid[tuple(map(slice, places.shape))])
    index[axis] = places % x.shape[axis]
    return tuple(index)


define(
    "movement",
    "GatherElements",
    {"axis": "int"},
    _elements_type,
    eval_fn=_elements,
    arity=2,
    flops=0,
    element_types={1: "int64"},
)


def _slices(x: TensorType, places: TensorType, batch: int) -> tuple[Dim, ...]:
    """Return the shape of the slice at one index."""
    require(
        places.dtype == "int64" and places.rank > batch and x.rank > batch, "{} of {}", places, x
    )
    depth = places.shape[-1]
    require(isinstance(depth, int) and 1 <= depth <= x.rank - batch, "{} of {}", places, x)
    assert isinstance(depth, int)
    require(0 not in x.shape[batch : batch + depth], "a place in nothing")
    return x.shape[batch + depth :]


def _nd_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, places = inputs
    batch = attrs["batch_dims"]
    rest = _slices(x, places, batch)
    require(_may_equal(x.shape[:batch], places.shape[:batch]), "{} of {}", places, x)
    return TensorType(x.dtype, (*places.shape[:-1], *rest))


def _nd(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, places = operands
    return x[_at(places, x, attrs["batch_dims"])]


def _at(places: Array, x: Array, batch: int) -> tuple[Array, ...]:
    """Return the NumPy index of the slices at ``places``, after the first ``batch`` axes."""
    rank = places.ndim - 1
    own = [
        np.arange(x.shape[axis]).reshape([-1 if i == axis else 1 for i in range(rank)])
        for axis in range(batch)
    ]
    named = [places[..., number] % x.shape[batch + number] for number in range(places.shape[-1])]
    return (*own, *named)


define(
    "movement",
    "GatherND",
    {"batch_dims": "int"},
    _nd_type,
    eval_fn=_nd,
    arity=2,
    flops=0,
    element_types={1: "int64"},
)

_COMBINED = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
"""Functions that combine an element with the one written over it; ``none`` has no function."""
_REDUCTIONS = ("none", *_COMBINED)


def _written(x: Array, index: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """Write elements at indices; several writes to one index are combined, or the last counts."""
    result = x.copy()
    if reduction == "none":
        result[index] = updates
    else:
        _COMBINED[reduction].at(result, index, updates)
    return result


def _scatter_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, places, updates = inputs
    _elements_type([x, places], attrs)
    fits = updates.dtype == x.dtype and _may_equal(updates.shape, places.shape)
    require(fits, "{} over {}", updates, x)
    require(x.dtype not in ("bool", "string") or attrs["reduction"] == "none", "sums of {}", x)
    return x


def _scatter_nd_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, places, updates = inputs
    rest = _slices(x, places, 0)
    fits = updates.dtype == x.dtype and _may_equal(updates.shape, (*places.shape[:-1], *rest))
    require(fits, "{} over {}", updates, x)
    require(x.dtype not in ("bool", "string") or attrs["reduction"] == "none", "sums of {}", x)
    return x


define(
    "reduction",
    "ScatterElements",
    {"axis": "int", "reduction": "str"},
    _scatter_type,
    eval_fn=lambda _d, x, a: _written(x[0], _along(x[1], x[0], a["axis"]), x[2], a["reduction"]),
    arity=3,
    flops=per_operand_element,
    element_types={1: "int64"},
    choices={"reduction": _REDUCTIONS},
)
define(
    "reduction",
    "ScatterND",
    {"reduction": "str"},
    _scatter_nd_type,
    eval_fn=lambda _d, x, a: _written(x[0], _at(x[1], x[0], 0), x[2], a["reduction"]),
    arity=3,
    flops=per_operand_element,
    element_types={1: "int64"},
    choices={"reduction": _REDUCTIONS},
)


def _reversed_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, lengths = inputs
    time, batch = attrs["time_axis"], attrs["batch_axis"]
    require(x.rank >= 2 and {time, batch} == {0, 1}, "axes {} and {} of {}", time, batch, x)
    fits = lengths.dtype == "int64" and _may_equal(lengths.shape, x.shape[batch : batch + 1])
    require(fits, "lengths {} of {}", lengths, x)
    return x


def _reversed(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Reverse the first elements of each row; those after the length stay in place."""
    x, lengths = operands
    parts = np.moveaxis(x, (attrs["batch_axis"], attrs["time_axis"]), (0, 1))
    ends = np.clip(lengths, 0, parts.shape[1])[:, None]
    places = np.arange(parts.shape[1])[None, :]
    places = np.where(places < ends, ends - 1 - places, places)
    turned = parts[np.arange(len(parts))[:, None], places]
    return np.moveaxis(turned, (0, 1), (attrs["batch_axis"], attrs["time_axis"]))


define(
    "movement",
    "ReverseSequence",
    {"batch_axis": "int", "time_axis": "int"},
    _reversed_type,
    eval_fn=_reversed,
    arity=2,
    flops=0,
    element_types={1: "int64"},
)
