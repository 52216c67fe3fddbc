"""Configurations of operators that ONNX has under no name of their own.

Those with a writer are compared through what the export spells them as; the leaves, which every
export turns into constants, beside ONNX nodes that compute the same constant.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.values.types import DTYPE_CODES
from tests.conformance.operator_grid.configuration import (
    Configuration,
    Exported,
    Fixed,
    Imported,
    Operand,
    Spelled,
)
from tests.conformance.operator_grid.generation import LAST_OPSET, Values, covering, on_grid

__all__: list[str] = []

_OPSETS = (9, 13, 18, LAST_OPSET)
_SHAPES: list[tuple[int, ...]] = [(2, 3, 4), (5,), (), (1, 1)]

# Leaves -------------------------------------------------------------------------------------------


@on_grid("Scalar")
def scalars(op: str, _values: Values) -> Iterator[Configuration]:
    for dtype, value in itertools.product(
        ("float32", "float64", "int64", "int32"), (0.0, 1.0, -2.0, 0.1, 3.0)
    ):
        if dtype[0] == "i" and value != int(value):
            continue
        array = numpy_helper.from_array(np.asarray(value, np.float64), "v")
        nodes = [
            helper.make_node("Constant", [], ["v"], value=array),
            helper.make_node("Cast", ["v"], ["y"], to=DTYPE_CODES[dtype]),
        ]
        yield Spelled(op, {"value": value, "dtype": dtype}, nodes)


@on_grid("Fill")
def fills(op: str, _values: Values) -> Iterator[Configuration]:
    for dtype, value, shape in itertools.product(
        ("float32", "float64", "int64"), (0.0, 1.0, -2.0, 0.1), ((3,), (2, 1, 4), ())
    ):
        if dtype[0] == "i" and value != int(value):
            continue
        array = numpy_helper.from_array(np.asarray([value], dtype), "v")
        node = helper.make_node("ConstantOfShape", ["s"], ["y"], value=array)
        attrs = {"shape": shape, "value": value, "dtype": dtype}
        yield Spelled(op, attrs, [node], {"s": np.asarray(shape, np.int64)})


@on_grid("IdentityKernel")
def identity_kernels(op: str, _values: Values) -> Iterator[Configuration]:
    """The unit matrix over the channels, in the middle of zeros."""
    for channels, height, width, dtype in itertools.product(
        (1, 2, 5), (1, 3), (1, 3, 5), ("float32", "float64")
    ):
        rows, columns = height // 2, width // 2
        fixed: dict[str, Array] = {
            "like": np.zeros((channels, channels), dtype),
            "shape": np.asarray((channels, channels, 1, 1), np.int64),
            "pads": np.asarray((0, 0, rows, columns, 0, 0, rows, columns), np.int64),
        }
        nodes = [
            helper.make_node("EyeLike", ["like"], ["e"]),
            helper.make_node("Reshape", ["e", "shape"], ["k"]),
            helper.make_node("Pad", ["k", "pads"], ["y"]),
        ]
        attrs = {"channels": channels, "height": height, "width": width, "dtype": dtype}
        yield Spelled(op, attrs, nodes, fixed)


# Operators with a writer --------------------------------------------------------------------------

_POINTWISE: dict[str, list[dict[str, Any]]] = {
    "Scale": [{"factor": -0.3}, {"factor": 0.0}, {"factor": 8.0}],
    "Shift": [{"offset": 1.7}, {"offset": -0.5}],
    "Square": [{}],
    "Rsqrt": [{}],
    "Swish": [{"alpha": 1.0}, {"alpha": 1.702}, {"alpha": -0.5}],
}


@on_grid(*_POINTWISE)
def pointwise(op: str, values: Values) -> Iterator[Configuration]:
    for attrs, opset, shape, dtype in itertools.product(
        _POINTWISE[op], _OPSETS, _SHAPES, ("float32", "float64")
    ):
        x = values.positive(*shape, dtype=dtype) if op == "Rsqrt" else values(*shape, dtype=dtype)
        yield Exported(op, [x], attrs, opset)


@on_grid("Center", "RmsN")
def along_axes(op: str, values: Values) -> Iterator[Configuration]:
    for axes, opset, shape, dtype in itertools.product(
        ((0,), (2,), (1, 2), (0, 2), (0, 1, 2)), _OPSETS, ((2, 3, 4), (1, 3, 1)),
        ("float32", "float64"),
    ):  # fmt: skip
        for epsilon in (1e-5, 0.5) if op == "RmsN" else (None,):
            attrs: dict[str, Any] = {"axes": axes}
            attrs |= {} if epsilon is None else {"epsilon": epsilon}
            yield Exported(op, [values(*shape, dtype=dtype) * 2], attrs, opset)


@on_grid("Repeat")
def repeats(op: str, values: Values) -> Iterator[Configuration]:
    for axis, count, opset, dtype in itertools.product(
        (0, 1, 2), (1, 2, 3), _OPSETS, ("float32", "int64")
    ):
        attrs = {"axis": axis, "repeats": count}
        yield Exported(op, [values(2, 1, 3, dtype=dtype)], attrs, opset)


_MASKS: dict[str, tuple[int, ...]] = {
    "full": (2, 4, 3, 5), "heads": (1, 1, 3, 5), "keys": (2, 1, 1, 5), "matrix": (3, 5),
    "queries": (2, 4, 3, 1), "row": (1, 5), "vector": (5,), "number": (),
}  # fmt: skip
_ATTENDED = ("full", "heads", "matrix")
"""Masks of the ONNX operator that onnxruntime takes too: every row is spelled out."""


def _attention(op: str, values: Values, heads: int, row: dict[str, Any]) -> list[Array]:
    """Queries, keys, values, and the mask where there is one."""
    dtype = row["dtype"]
    shapes: list[tuple[int, ...]] = [(2, 4, 3, 8), (2, heads, 5, 8), (2, heads, 5, row["size"])]
    operands = [values(*shape, dtype=dtype) for shape in shapes]
    if op == "MaskedAttention":
        mask = values(*_MASKS[row["mask"]], dtype=dtype)
        if mask.ndim and mask.shape[-1] > 1 and row["heads"] > 1:
            mask[..., 0] = -np.inf  # nobody reads the first key
        operands.append(mask)
    return operands


@on_grid("Attention", "MaskedAttention")
def attentions(op: str, values: Values) -> Iterator[Configuration]:
    masks = tuple(_MASKS) if op == "MaskedAttention" else (None,)
    rows = covering(
        heads=(4, 2, 1), size=(8, 6), mask=masks, scale=(0.4, 1 / math.sqrt(8), -1.0),
        dtype=("float32", "float64"), opset=(9, 13, 18, 23, LAST_OPSET),
    )  # fmt: skip
    for row in rows:
        operands = _attention(op, values, row["heads"], row)
        yield Exported(op, operands, {"scale": row["scale"]}, row["opset"])
    if "Attention" not in READERS:
        return
    rows = covering(
        heads=(4, 2, 1), size=(8, 6), mask=_ATTENDED if masks[0] else masks, scale=(None, 0.4),
        dtype=("float32",),
        opset=(23, 24, LAST_OPSET), causal=(None, 0),
    )  # fmt: skip
    for row in rows:
        attrs = {} if row["scale"] is None else {"scale": row["scale"]}
        attrs |= {} if row["causal"] is None else {"is_causal": row["causal"]}
        given: list[Operand] = list(_attention(op, values, row["heads"], row))
        given[3:] = [Fixed(np.asarray(mask)) for mask in given[3:]]  # others stay opaque
        yield Imported(op, "Attention", given, attrs, row["opset"])
