"""Configurations of elementwise operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import Array
from eqsat_opt.ir.values.types import DTYPE_CODES
from tests.conformance.operator_grid.configuration import Configuration, Exported, Fixed, Imported
from tests.conformance.operator_grid.generation import (
    LAST_OPSET,
    Values,
    covering,
    dtypes,
    on_grid,
    opsets,
)

__all__: list[str] = []

SHAPES: list[tuple[int, ...]] = [(2, 3, 4), (64,), (), (1,), (1, 5, 1)]
PAIRS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 3), (2, 3)), ((2, 3), (3,)), ((3,), (2, 3)), ((2, 1), (1, 4)), ((), (2, 2)), ((2, 2), ()),
    ((4, 1, 3), (2, 1)), ((1,), ()), ((), ()), ((1, 1), (1,)), ((2, 3, 4, 5), (3, 1, 1)),
    ((1, 3, 1, 5), (2, 1, 4, 1)),
]  # fmt: skip
"""Equal shapes, ranks that differ, rank 0, extents of 1 on either side and on both."""

FLOATS = ("float32", "float64", "float16")
NUMBERS = (*FLOATS, "int32", "int64")
EDGES = np.array([0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e30, -1e30])
"""Signs of zero, ties of rounding, infinities, no number."""

_UNARY = (
    "Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Neg", "Abs", "Reciprocal", "Floor",
    "Ceil", "Round", "Sign", "Sin", "Cos", "Softsign", "Softplus", "HardSwish", "Mish", "IsNaN",
)  # fmt: skip
_AT_EDGES = ("Relu", "Neg", "Abs", "Floor", "Ceil", "Round", "Sign", "IsNaN", "Sqrt", "Reciprocal")
"""Functions whose value at the edges is a matter of definition and not of an approximation."""


def _operand(op: str, values: Values, shape: tuple[int, ...], dtype: str) -> Array:
    if op in ("Log", "Sqrt"):
        return values.positive(*shape, dtype=dtype)
    if op == "Reciprocal":
        return np.asarray(
            values.positive(*shape, dtype=dtype) * np.sign(values(*shape) + 0.1)
        ).astype(dtype)
    return np.asarray(values(*shape, dtype=dtype) * 3).astype(dtype)


@on_grid(*_UNARY)
def unary(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        for dtype in dtypes(op, opset, NUMBERS):
            for shape in SHAPES:
                yield Imported(op, op, [_operand(op, values, shape, dtype)], {}, opset)
            if op in _AT_EDGES and dtype in ("float32", "float64"):
                yield Imported(op, op, [EDGES.astype(dtype)], {}, opset)


@on_grid("Not")
def negations(op: str, values: Values) -> Iterator[Configuration]:
    for shape in SHAPES:
        yield Imported(op, op, [values(*shape, dtype="bool")], {}, LAST_OPSET)


_WITH_ATTRIBUTES: dict[str, list[dict[str, Any]]] = {
    "HardSigmoid": [{}, {"alpha": 0.3}, {"beta": 0.25}, {"alpha": 1.5, "beta": -0.5}],
    "Elu": [{}, {"alpha": 0.7}, {"alpha": 2.0}],
    "Celu": [{}, {"alpha": 0.7}, {"alpha": 3.0}],
    "LeakyRelu": [{}, {"alpha": 0.25}, {"alpha": -0.5}, {"alpha": 0.0}],
    "ThresholdedRelu": [{}, {"alpha": 0.5}, {"alpha": 0.0}],
    "Selu": [{}, {"alpha": 1.5}, {"gamma": 0.5}, {"alpha": 0.5, "gamma": 2.0}],
    "Gelu": [{}, {"approximate": "none"}, {"approximate": "tanh"}],
}


@on_grid(*_WITH_ATTRIBUTES)
def parametric(op: str, values: Values) -> Iterator[Configuration]:
    for opset, attrs in itertools.product(opsets(op), _WITH_ATTRIBUTES[op]):
        for dtype in dtypes(op, opset, FLOATS):
            for shape in ((3, 7), (), (1,)):
                x = np.asarray(values(*shape, dtype=dtype) * 3).astype(dtype)
                yield Imported(op, op, [x], attrs, opset)


_FULL: dict[str, list[dict[str, Any]]] = {
    "Gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "Celu": [{"alpha": 0.7}],
    "HardSwish": [{}],
    "Mish": [{}],
}


@on_grid(*_FULL)
def written_for_older_opsets(op: str, values: Values) -> Iterator[Configuration]:
    """Where the operator is newer than the model, the export spells it out."""
    for opset, attrs in itertools.product((9, 11, 13, 17, 20), _FULL[op]):
        for dtype in ("float32", "float64"):
            yield Exported(op, [np.asarray(values(4, 5, dtype=dtype) * 3)], attrs, opset)


@on_grid("Clip")
def clips(op: str, values: Values) -> Iterator[Configuration]:
    bounds: list[tuple[float | None, float | None]] = [(-1, 2), (None, 1), (-2, None), (0, 6)]
    bounds += [(None, None), (1, 1), (-100, 100)]
    for opset, (low, high) in itertools.product(opsets(op), bounds):
        for dtype in dtypes(op, opset, (*NUMBERS, "int8", "uint8")):
            if dtype == "uint8" and low is not None and low < 0:
                continue
            for shape in ((3, 7), ()):
                x = np.asarray(values(*shape, dtype=dtype))
                if opset < 11:
                    given = {"min": low, "max": high}
                    attrs = {k: float(v) for k, v in given.items() if v is not None}
                    yield Imported(op, op, [x], attrs, opset)
                    continue
                operands = [None if b is None else Fixed(np.asarray(b, dtype)) for b in (low, high)]
                while operands and operands[-1] is None:
                    operands.pop()
                yield Imported(op, op, [x, *operands], {}, opset)


@on_grid("Clamp")
def clips_at_computed_bounds(op: str, values: Values) -> Iterator[Configuration]:
    bounds: list[tuple[float | None, float | None]] = [(-1, 2), (2, -1), (None, 1), (-2, None)]
    for opset, (low, high) in itertools.product((11, 12, 13, LAST_OPSET), bounds):
        for dtype in dtypes("Clip", opset, ("float32", "float64", "float16")):
            if dtype != "float32" and opset < 12:
                continue
            for shape in ((3, 7), (), (0, 2)):
                x = np.asarray(values(*shape, dtype=dtype))
                operands = [None if b is None else np.asarray(b, dtype) for b in (low, high)]
                while operands[-1] is None:
                    operands.pop()
                yield Imported(op, "Clip", [x, *operands], {}, opset)


@on_grid("Cast")
def casts(op: str, values: Values) -> Iterator[Configuration]:
    names = ("float32", "float64", "float16", "int32", "int64", "uint8", "int8", "bool")
    for opset, source, target in itertools.product((9, 13, LAST_OPSET), names, names):
        x = np.asarray(values.positive(3, 4, dtype="float32") * 10).astype(source)
        if source[0] == "f" and target[0] != "u":
            x = np.asarray(x * np.sign(values(3, 4))).astype(source)
        yield Imported(op, "Cast", [x], {"to": DTYPE_CODES[target]}, opset)
        if opset >= 15:
            yield Imported(op, "CastLike", [x, np.zeros((2,), target)], {}, opset)
    yield Imported(op, "Cast", [np.asarray(2.5, np.float32)], {"to": DTYPE_CODES["int64"]}, 21)


@on_grid("Add", "Sub", "Mul", "Div", "Min", "Max")
def arithmetic(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        for dtype in dtypes(op, opset, (*NUMBERS, "int8", "uint8")):
            pairs = PAIRS[:5] if dtype in ("int8", "uint8", "float16") else PAIRS
            if opset < 8 and op in ("Min", "Max"):
                pairs = [(left, left) for left, _ in PAIRS[:3]]  # no broadcasting yet
            for left, right in pairs:
                a, b = values(*left, dtype=dtype), values(*right, dtype=dtype)
                if op == "Div":
                    b = values.positive(*right, dtype=dtype)
                    b = b if dtype == "uint8" else b * np.where(values(*right) > 0, 1, -1)
                    b = np.asarray(b).astype(dtype)
                yield Imported(op, op, [a, b], {}, opset)
    if op in ("Min", "Max"):
        for dtype in ("float32", "float64"):
            edges = EDGES.astype(dtype)
            yield Imported(op, op, [edges[:, None], edges[None, :]], {}, LAST_OPSET)


@on_grid("Add", "Mul", "Min", "Max")
def variadic(op: str, values: Values) -> Iterator[Configuration]:
    """Sum, Mean, Min and Max of three operands and more, broadcasting each."""
    node = {"Add": "Sum", "Mul": "Mean"}.get(op, op)
    shapes: list[list[tuple[int, ...]]] = [
        [(2, 3)] * 3,
        [(2, 1), (3,), ()],
        [(1,), (4, 1), (2, 1, 3), (4, 3)],
    ]
    for opset, operands in itertools.product(opsets(node), shapes):
        if opset < 8 and operands is not shapes[0]:
            continue  # no broadcasting yet
        for dtype in dtypes(node, opset, ("float32", "float64", "int64")):
            arrays = [values(*shape, dtype=dtype) for shape in operands]
            yield Imported(op, node, arrays, {}, opset)


@on_grid("Mod")
def rests(op: str, values: Values) -> Iterator[Configuration]:
    """Of all signs; the divisor is never 0, at which processors trap."""
    rows = covering(
        dtype=("int8", "uint8", "int32", "int64", "float32", "float64"), fmod=(None, 0, 1),
        shapes=(((2, 3), (2, 3)), ((2, 3), (3,)), ((), (4,)), ((5, 1), (1, 3))), opset=opsets(op),
        where=lambda r: r["fmod"] == 1 or not r["dtype"].startswith("float"),
    )  # fmt: skip
    for row in rows:
        left, right = (values(*shape, dtype=row["dtype"]) for shape in row["shapes"])
        divisor = np.where(right == 0, right.dtype.type(3), right)
        attrs = {} if row["fmod"] is None else {"fmod": row["fmod"]}
        yield Imported(op, op, [left, divisor], attrs, row["opset"])


@on_grid("Pow")
def powers(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        for (left, right), dtype in itertools.product(PAIRS, dtypes(op, opset, NUMBERS)):
            base = values.positive(*left, dtype=dtype)
            if dtype[0] == "i":
                exponent = np.asarray(np.abs(values(*right, dtype=dtype)) % 4).astype(dtype)
            else:
                exponent = values(*right, dtype=dtype)
            yield Imported(op, op, [base, exponent], {}, opset)
        if opset >= 12:
            for a, b in itertools.permutations(("float32", "float64", "int32", "int64"), 2):
                exponent = np.asarray(
                    np.abs(values(3, dtype=b)) % 4 if b[0] == "i" else np.array([0, 1, 2], b)
                ).astype(b)
                yield Imported(op, op, [values.positive(2, 3, dtype=a), exponent], {}, opset)
    whole_base, negative = np.array([1, -1, -1, 2, -3]), np.array([-3, -2, -1, -1, -2])
    yield Imported(op, op, [whole_base, negative], {}, LAST_OPSET)
    yield Imported(op, op, [whole_base.astype(np.int32), negative], {}, LAST_OPSET)
    signed = np.array([-2.0, -0.5, 0.0, 3.0], np.float32)
    whole = np.array([-1.0, 2.0, 3.0, 0.0], np.float32)
    yield Imported(op, op, [signed, whole], {}, LAST_OPSET)


@on_grid("PRelu")
def slopes(op: str, values: Values) -> Iterator[Configuration]:
    for opset, shape in itertools.product(opsets(op), ((1,), (), (4,), (3, 1, 1), (2, 3, 4, 4))):
        for dtype in dtypes(op, opset):
            x = values(2, 3, 4, 4, dtype=dtype)
            yield Imported(op, op, [x, values(*shape, dtype=dtype)], {}, opset)


@on_grid("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor")
def comparisons(op: str, values: Values) -> Iterator[Configuration]:
    for opset in opsets(op):
        for dtype in dtypes(op, opset, (*NUMBERS, "bool")):
            for left, right in PAIRS:
                operands = [values(*shape, dtype=dtype) for shape in (left, right)]
                if dtype in FLOATS:
                    operands = [np.asarray(np.rint(a)) for a in operands]
                yield Imported(op, op, operands, {}, opset)
            if dtype in ("float32", "float64"):
                edges = EDGES.astype(dtype)
                yield Imported(op, op, [edges[:, None], edges[None, :]], {}, opset)


@on_grid("GreaterOrEqual", "LessOrEqual")
def weak_comparisons(op: str, _values: Values) -> Iterator[Configuration]:
    """Before opset 12 a disjunction; no number compares with nothing."""
    for opset, dtype in itertools.product((11, 12), ("float32", "float64")):
        edges = EDGES.astype(dtype)
        yield Exported(op, [edges[:, None], edges[None, :]], {}, opset)


@on_grid("Where")
def selections(op: str, values: Values) -> Iterator[Configuration]:
    condition = [(2, 3), (), (3,), (2, 1, 1)]
    rows = covering(
        condition=condition, left=[(2, 3), (), (1, 3), (2, 1)], right=[(2, 3), (1,), (2, 1)],
        dtype=["float32", "float64", "int64", "int32", "bool", "uint8"], opset=opsets(op),
    )  # fmt: skip
    for row in rows:
        operands = [values(*row["condition"], dtype="bool")]
        operands += [values(*row[side], dtype=row["dtype"]) for side in ("left", "right")]
        yield Imported(op, op, operands, {}, row["opset"])
