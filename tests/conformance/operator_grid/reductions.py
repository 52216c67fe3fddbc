"""Configurations of reductions, softmax and normalisations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.conformance.operator_grid.configuration import (
    Configuration,
    Exported,
    Fixed,
    Imported,
    Operand,
    ints,
)
from tests.conformance.operator_grid.generation import (
    LAST_OPSET,
    Values,
    covering,
    dtypes,
    has_attribute,
    on_grid,
    opsets,
)

__all__: list[str] = []

_REDUCTIONS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")
_AXES: list[tuple[int, ...] | None] = [
    None, (0,), (1,), (2,), (-1,), (-3,), (0, 2), (2, 0), (-1, 1), (0, 1, 2), (-1, -2, -3),
]  # fmt: skip


@on_grid(*_REDUCTIONS)
def reductions(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        optional = has_attribute(op, opset, "noop_with_empty_axes")
        rows = covering(
            axes=_AXES, keepdims=(None, 0, 1), noop=(None, 0) if optional else (None,),
            shape=((2, 3, 4), (1, 3, 1)),
            dtype=dtypes(op, opset, ("float32", "float64", "int32", "int64", "int8", "uint8")),
        )  # fmt: skip
        for row in rows:
            attrs = {"keepdims": row["keepdims"]} if row["keepdims"] is not None else {}
            attrs |= {"noop_with_empty_axes": row["noop"]} if row["noop"] is not None else {}
            x = values(*row["shape"], dtype=row["dtype"])
            if op == "ReduceProd":
                x = np.clip(x, 1, 2) if row["dtype"] in ("int32", "int64") else x
            operands: list[Operand] = [x]
            if row["axes"] is not None and has_attribute(op, opset, "axes"):
                attrs["axes"] = row["axes"]
            elif row["axes"] is not None:
                operands.append(ints(row["axes"]))
            yield Imported(op, op, operands, attrs, opset)
        for shape in ((5,), (1,), (1, 1, 1, 2)):
            yield Imported(op, op, [values(*shape)], {"keepdims": 0}, opset)
        for keepdims, dtype in itertools.product((0, 1), ("float32", "float64", "int64")):
            attrs = {"axes": (2, 3), "keepdims": keepdims}
            yield Exported(op, [values(1, 2, 3, 2, dtype=dtype)], attrs, opset)


@on_grid("Softmax", "LogSoftmax")
def softmaxes(op: str, values: Values) -> Iterator[Configuration]:
    """Before opset 13 the default axis is 1 and all axes behind it are one."""
    for opset, axis in itertools.product(opsets(op), (None, 0, 1, 2, -1, -2, -3)):
        for shape in ((2, 3, 4), (1, 5, 1), (3, 1, 1)):
            where = (1 if opset < 13 else -1) if axis is None else axis
            if opset < 13 and sum(d != 1 for d in shape[where:]) > 1:
                continue  # several axes are one: no registry operator says that, it stays opaque
            if opset < 11 and where < 0:
                continue
            for dtype in ("float32", "float64"):
                attrs = {} if axis is None else {"axis": axis}
                yield Imported(op, op, [values(*shape, dtype=dtype) * 5], attrs, opset)
    for opset, axis in itertools.product((7, 11, 13, LAST_OPSET), (0, 1, 2)):
        yield Exported(op, [values(2, 3, 4) * 5], {"axis": axis}, opset)
    yield Imported(op, op, [values(2, 6) * 200], {"axis": 1}, 13)
    yield Imported(op, op, [values(7)], {"axis": 0}, 13)


@on_grid("TopK")
def tops(op: str, values: Values) -> Iterator[Configuration]:
    """Small whole elements have ties, of which the first comes first."""
    for opset in opsets(op):
        newer = opset >= 11
        rows = covering(
            axis=(None, 0, 1, 2, -1, -3), k=(1, 2, 3), shape=((3, 4, 3), (3, 3, 5)),
            largest=(None, 0, 1) if newer else (None,), order=(None, 1) if newer else (None,),
            dtype=dtypes(op, opset, ("float32", "float64", "int32", "int64")),
        )  # fmt: skip
        for row in rows:
            attrs = {"axis": row["axis"], "largest": row["largest"], "sorted": row["order"]}
            attrs = {name: value for name, value in attrs.items() if value is not None}
            k: list[Operand] = [ints([row["k"]])] if opset >= 10 else []
            attrs |= {"k": row["k"]} if opset < 10 else {}
            for x in (values(*row["shape"], dtype=row["dtype"]), values(*row["shape"])):
                whole = np.rint(x).astype(row["dtype"])
                yield Imported(op, op, [whole, *k], attrs, opset, outputs=2)
        for output, largest in itertools.product((0, 1), (0, 1) if newer else (1,)):
            attrs = {"axis": 1, "k": 2, "largest": largest, "output": output}
            yield Exported(op, [values(2, 5)], attrs, opset)


@on_grid("ArgMax", "ArgMin")
def places(op: str, values: Values) -> Iterator[Configuration]:
    """Small whole elements have ties, of which the first counts, or the last."""
    for opset in opsets(op):
        rows = covering(
            axis=(None, 0, 1, 2, -1, -3), keepdims=(None, 0, 1), shape=((3, 4, 3), (3, 1, 5)),
            select_last_index=(None, 0, 1) if opset >= 12 else (None,), ties=(False, True),
            dtype=dtypes(op, opset, ("float32", "float64", "int32", "int64", "int8", "uint8")),
        )  # fmt: skip
        for row in rows:
            names = ("axis", "keepdims", "select_last_index")
            attrs = {name: row[name] for name in names if row[name] is not None}
            x = values(*row["shape"], dtype=row["dtype"])
            x = np.rint(x).astype(row["dtype"]) if row["ties"] else x
            yield Imported(op, op, [x], attrs, opset)


@on_grid("CumSum")
def sums(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        axis=(0, 1, 2, -1, -3), exclusive=(None, 0, 1), reverse=(None, 0, 1),
        shape=((2, 3, 4), (1, 5, 1)), dtype=("float32", "float64", "int32", "int64"),
        whole=("int32", "int64"), opset=opsets(op),
    )  # fmt: skip
    for row in rows:
        attrs = {name: row[name] for name in ("exclusive", "reverse") if row[name] is not None}
        axis = Fixed(np.asarray(row["axis"], row["whole"]))
        x = values(*row["shape"], dtype=row["dtype"])
        yield Imported(op, op, [x, axis], attrs, row["opset"])
    yield Imported(op, op, [values(7), Fixed(np.asarray(0))], {}, 14)


@on_grid("Range")
def ranges(op: str, values: Values) -> Iterator[Configuration]:
    """Also downwards, of no number, and of floats that are no multiples of the step."""
    bounds = [(0, 5, 1), (2, 9, 3), (2, 8, 3), (7, -2, -2), (3, 3, 1), (4, 1, 2), (-3, 4, 1)]
    for opset, (first, limit, step) in itertools.product(opsets(op), bounds):
        for dtype in ("int32", "int64", "float32", "float64"):
            part = 0.1 if dtype.startswith("float") else 1
            operands = [np.asarray(value * part, dtype) for value in (first, limit, step)]
            distance = float(operands[1] - operands[0])
            size = max(0, math.ceil(distance / float(operands[2])))
            yield Exported(op, operands, {"shape": (size,)}, opset)
            if part < 1 and size:
                yield Imported(op, op, list(map(Fixed, operands)), {}, opset)


@on_grid("LayerNormalization", "RMSNormalization")
def layers(op: str, values: Values) -> Iterator[Configuration]:
    layer = op == "LayerNormalization"
    rows = covering(
        axis=(None, 0, 1, 2, -1, -2, -3), epsilon=(None, 1e-3), shift=(False, True),
        stash=(None, 1), scale=("full", "last", "ones"), shape=((2, 3, 4), (1, 3, 5), (2, 1, 6)),
        dtype=("float32", "float16"), opset=opsets(op),
        where=lambda r: layer or not r["shift"],
    )  # fmt: skip
    for row in rows:
        shape = row["shape"]
        axis = -1 if row["axis"] is None else row["axis"]
        trailing = shape[axis:]
        parameter = {"full": trailing, "last": trailing[-1:], "ones": (1,)}[row["scale"]]
        attrs = {n: row[n] for n in ("axis", "epsilon") if row[n] is not None}
        attrs |= {"stash_type": row["stash"]} if row["stash"] is not None else {}
        operands: list[Operand] = [values(*shape, dtype=row["dtype"]) * 2]
        operands += [values(*parameter, dtype=row["dtype"]) for _ in range(1 + row["shift"])]
        yield Imported(op, op, operands, attrs, row["opset"])
    for opset, axis, dtype in itertools.product((7, 13, 18, LAST_OPSET), (0, 1, 2), ("float32",)):
        shape = (2, 3, 4)
        parameters = [values(*shape[axis:], dtype=dtype) for _ in range(2 if layer else 1)]
        attrs = {"axis": axis, "epsilon": 1e-3}
        yield Exported(op, [values(*shape, dtype=dtype) * 2, *parameters], attrs, opset)


@on_grid("BatchNormalization")
def batches(op: str, values: Values) -> Iterator[Configuration]:
    rows = covering(
        3,
        shape=((2, 3), (2, 3, 4), (2, 3, 4, 5), (1, 1, 1, 1), (1, 3, 2, 2, 2)),
        epsilon=(None, 1e-3, 0.5), momentum=(None, 0.8), training=(None, 0),
        opset=opsets(op), dtype=("float32", "float64"),
        where=lambda r: r["training"] is None or r["opset"] >= 14,
    )  # fmt: skip
    for row in rows:
        channels, dtype = row["shape"][1], row["dtype"]
        attrs = {n: row[n] for n in ("epsilon", "momentum") if row[n] is not None}
        attrs |= {"training_mode": 0} if row["training"] is not None else {}
        attrs |= {"spatial": 1} if has_attribute(op, row["opset"], "spatial") else {}
        operands = [values(*row["shape"], dtype=dtype)]
        operands += [values(channels, dtype=dtype) for _ in range(3)]
        operands.append(values.positive(channels, dtype=dtype))
        yield Imported(op, op, operands, attrs, row["opset"])


@on_grid("InstanceNormalization")
def instances(op: str, values: Values) -> Iterator[Configuration]:
    for opset, shape, epsilon in itertools.product(
        opsets(op), ((2, 3, 4), (2, 3, 4, 5), (1, 1, 3), (1, 2, 3, 2, 2)), (None, 1e-3, 0.5)
    ):
        for dtype in ("float32", "float64"):
            attrs: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
            parameters = [values(shape[1], dtype=dtype) for _ in range(2)]
            yield Imported(op, op, [values(*shape, dtype=dtype), *parameters], attrs, opset)
