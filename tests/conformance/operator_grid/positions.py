"""Configurations of elements that are read from named places, or written there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import Array
from tests.conformance.operator_grid.configuration import Configuration, Imported
from tests.conformance.operator_grid.generation import (
    Values,
    covering,
    has_attribute,
    on_grid,
    opsets,
)

__all__: list[str] = []

_DTYPES = ("float32", "float64", "int64", "int32", "bool", "uint8")


def _places(extent: int, *shape: int) -> Array:
    """Of both signs; along each axis there are none twice where there is room."""
    count = int(np.prod(shape))
    return np.asarray((np.arange(count) * 7) % (2 * extent) - extent).reshape(shape)


@on_grid("GatherElements")
def elements(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        axis=(None, 0, 1, 2, -1, -3), shape=((3, 4, 2), (2, 2, 5), (1, 4, 1)), opset=opsets(op),
        dtype=_DTYPES, whole=("int64", "int32"),
    )  # fmt: skip
    for row in rows:
        axis = row["axis"] or 0
        shape, size = [3, 4, 5], [3, 4, 5][axis]
        wanted = [min(a, b) for a, b in zip(row["shape"], shape, strict=True)]
        wanted[axis] = row["shape"][axis]
        attrs = {} if row["axis"] is None else {"axis": axis}
        places = _places(size, *wanted).astype(row["whole"])
        yield Imported(op, op, [values(*shape, dtype=row["dtype"]), places], attrs, row["opset"])
    yield Imported(op, op, [values(5), np.array([3, 3, 0, 1, 1, 2])], {"axis": 0}, 13)


@on_grid("GatherND")
def slices(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        batch=(None, 0, 1, 2), depth=(1, 2), more=((), (3,), (2, 2)), opset=opsets(op),
        dtype=_DTYPES, where=lambda r: r["batch"] is None or r["opset"] >= 12,
    )  # fmt: skip
    for row in rows:
        batch = row["batch"] or 0
        x = values(2, 3, 4, 5, dtype=row["dtype"])
        shape = (*x.shape[:batch], *row["more"])
        columns = [_places(x.shape[batch + i], *shape, 1) for i in range(row["depth"])]
        attrs = {} if row["batch"] is None else {"batch_dims": batch}
        places = np.concatenate(columns, -1).astype(np.int64)
        yield Imported(op, op, [x, places], attrs, row["opset"])


def _reductions(op: str, opset: int) -> tuple[str | None, ...]:
    if not has_attribute(op, opset, "reduction"):
        return (None,)
    return (None, "none", "add", "mul", *(("max", "min") if opset >= 18 else ()))


@on_grid("ScatterElements")
def written_elements(op: str, values: Values) -> Iterator[Configuration]:
    """No place twice where only the last write counts, as the order is up to the runtime."""
    for opset in (9, *opsets(op)):
        node = op if opset >= 11 else "Scatter"
        for axis, reduction in itertools.product((None, 0, 1, -1), _reductions(node, opset)):
            if opset < 11 and axis is not None and axis < 0:
                continue
            for dtype in ("float32", "int64", "float64", "int32"):
                x = values(4, 3, dtype=dtype)
                places = np.array([[1, 0, -1], [0, 2, 0]])
                places = places if (axis or 0) == 0 else np.array([[1, 0], [-1, 0], [2, 1], [0, 1]])
                places = np.abs(places) if opset < 11 else places
                if reduction in ("add", "mul", "max", "min"):
                    places = np.where(places > 1, 1, places)
                attrs: dict[str, Any] = {} if axis is None else {"axis": axis}
                attrs |= {} if reduction is None else {"reduction": reduction}
                updates = values(*places.shape, dtype=dtype)
                yield Imported(op, node, [x, places.astype(np.int64), updates], attrs, opset)


@on_grid("ScatterND")
def written_slices(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        for reduction, depth in itertools.product(_reductions(op, opset), (1, 2)):
            for dtype in ("float32", "int64", "float64"):
                places = np.array([[0, 2], [3, -1], [-2, 0]], np.int64)[:, :depth]
                x, rest = values(4, 3, 2, dtype=dtype), (3, 2)[depth - 1 :]
                attrs = {} if reduction is None else {"reduction": reduction}
                updates = values(3, *rest, dtype=dtype)
                yield Imported(op, op, [x, places, updates], attrs, opset)


@on_grid("ReverseSequence")
def turned(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        batch=(None, 0, 1), rest=((), (2,), (2, 3)), dtype=("float32", "int64", "bool"),
        lengths=((4, 2, 1), (3, 3, 4)), opset=opsets(op),
    )  # fmt: skip
    for row in rows:
        batch = 1 if row["batch"] is None else row["batch"]
        attrs = {} if row["batch"] is None else {"batch_axis": batch, "time_axis": 1 - batch}
        shape = (4, 3) if batch else (3, 4)
        x = values(*shape, *row["rest"], dtype=row["dtype"])
        yield Imported(op, op, [x, np.array(row["lengths"])], attrs, row["opset"])
