"""What the generators of configurations share: values, covering arrays, the schemas of ONNX."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx.defs

from eqsat_opt.ir.onnx.importer import FIRST_OPSET
from eqsat_opt.ir.ops import OPS, Array
from eqsat_opt.ir.values.types import numpy_dtype
from tests.conformance.operator_grid.configuration import Configuration

__all__ = [
    "LAST_OPSET",
    "Values",
    "configurations",
    "covering",
    "dtypes",
    "generated_ops",
    "has_attribute",
    "on_grid",
    "opsets",
]

LAST_OPSET = 26
"""The newest operator set that the oldest supported onnxruntime runs."""

_ONNX_TYPES = {
    "float16": "tensor(float16)", "float32": "tensor(float)", "float64": "tensor(double)",
    "uint8": "tensor(uint8)", "int8": "tensor(int8)", "int32": "tensor(int32)",
    "int64": "tensor(int64)", "bool": "tensor(bool)",
}  # fmt: skip


class Values:
    """Random elements, the same for the same operator in every run."""

    def __init__(self, op: str) -> None:
        self._rng = np.random.default_rng(zlib.crc32(op.encode()))

    def __call__(self, *shape: int, dtype: str = "float32") -> Array:
        """Normal, small whole or boolean elements."""
        kind = numpy_dtype(dtype).kind
        if kind == "b":
            return np.asarray(self._rng.random(shape) < 0.5)
        if kind in "iu":
            low = 0 if kind == "u" else -9
            return np.asarray(self._rng.integers(low, 10, shape)).astype(dtype)
        return np.asarray(self._rng.standard_normal(shape)).astype(dtype)

    def positive(self, *shape: int, dtype: str = "float32") -> Array:
        """Elements between 1/4 and 4, or from 1 to 9."""
        if numpy_dtype(dtype).kind in "iu":
            return np.asarray(self._rng.integers(1, 10, shape)).astype(dtype)
        return np.asarray(2.0 ** self._rng.uniform(-2, 2, shape)).astype(dtype)


Generator = Callable[[str, Values], Iterator[Configuration]]
_GENERATORS: dict[str, list[Generator]] = {}


def on_grid(*ops: str) -> Callable[[Generator], Generator]:
    """Register a generator for operators; those that the registry lacks are left out."""

    def add(generator: Generator) -> Generator:
        for op in ops:
            if op in OPS:
                _GENERATORS.setdefault(op, []).append(generator)
        return generator

    return add


def generated_ops() -> tuple[str, ...]:
    """The operators that have a generator."""
    return tuple(sorted(_GENERATORS))


@cache
def configurations(op: str) -> tuple[Configuration, ...]:
    """All configurations of an operator."""
    values = Values(op)
    return tuple(c for generator in _GENERATORS[op] for c in generator(op, values))


def covering(
    strength: int = 2,
    where: Callable[[dict[str, Any]], bool] | None = None,
    **choices: Iterable[Any],
) -> list[dict[str, Any]]:
    """Few combinations in which any ``strength`` parameters take all their joint values.

    A covering array, built greedily (Cohen et al. 1997, The AETG System, §3): each new row is one
    that adds the most joint values. ``where`` leaves out rows that make no sense.
    """
    names = list(choices)
    options = [list(values) for values in choices.values()]
    indices = itertools.product(*(range(len(values)) for values in options))
    every = [
        index for index in indices
        if where is None or where(_row(names, options, index))
    ]  # fmt: skip
    if not every:
        return []
    table = np.asarray(every, np.int64).reshape(len(every), len(names))
    sizes = np.asarray([len(values) for values in options], np.int64)
    columns, offset = [], 0
    for group in itertools.combinations(range(len(names)), min(strength, len(names))):
        code = np.zeros(len(every), np.int64)
        for column in group:
            code = code * sizes[column] + table[:, column]
        columns.append(code + offset)
        offset += int(np.prod(sizes[list(group)]))
    joint = np.stack(columns, axis=1)
    missing = np.zeros(offset, bool)
    missing[joint] = True
    chosen, left = [], np.arange(len(every))
    while missing.any():
        gains = missing[joint].sum(axis=1)
        best = int(gains.argmax())
        chosen.append(_row(names, options, every[left[best]]))
        missing[joint[best]] = False
        useful = gains > 0
        joint, left = joint[useful], left[useful]
    return chosen


def _row(names: list[str], options: list[list[Any]], index: Sequence[int]) -> dict[str, Any]:
    return {name: values[i] for name, values, i in zip(names, options, index, strict=True)}


@cache
def opsets(op_type: str) -> tuple[int, ...]:
    """Every operator set from the first supported one on in which the definition changed."""
    return tuple(sorted({max(v, FIRST_OPSET) for v in _versions()[op_type] if v <= LAST_OPSET}))


@cache
def _versions() -> dict[str, list[int]]:
    """Every operator's versions."""
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "" and not schema.deprecated:
            found.setdefault(schema.name, []).append(schema.since_version)
    return found


def _schema(op_type: str, opset: int) -> onnx.defs.OpSchema:
    return onnx.defs.get_schema(op_type, opset, "")


def dtypes(
    op_type: str,
    opset: int,
    among: Sequence[str] = ("float32", "float64", "int32", "int64"),
    operand: int = 0,
) -> list[str]:
    """The element types that an operator set allows for an operand."""
    allowed = _schema(op_type, opset).inputs[operand].types
    return [dtype for dtype in among if _ONNX_TYPES[dtype] in allowed]


def has_attribute(op_type: str, opset: int, name: str) -> bool:
    """Whether ``name`` is an attribute there; newer operator sets make some an input."""
    return name in _schema(op_type, opset).attributes
