"""Integer inputs whose values choose between the branches of a model.

A model for two sampling rates, for example, is two models behind one condition. Any other rate may
take a branch that the other inputs do not fit.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["choosing_values"]

_MOVING = frozenset({"Cast", "Gather", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that pass on the values of their first operand."""

_READING = frozenset({"And", "Cast", "Identity", "Not", "Or", "Reshape", "Squeeze"})
"""Operators between a comparison and the condition of an If."""

_FEW = 16
"""Largest number of elements of a constant that an input is compared with."""


def choosing_values(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Return, by input that is only compared with integers to choose a branch, these integers."""
    constants = dict(_constants(graph))
    alias = {value.name: value.name for value in graph.input}
    compared: dict[str, set[str]] = {}  # inputs by comparison, and by value derived from it
    values: dict[str, set[int]] = {}
    chosen: set[str] = set()
    other_uses: set[str] = set()
    for node in graph.node:
        sources = [alias[name] for name in node.input if name in alias]
        number = next((constants[name] for name in node.input if name in constants), None)
        if node.op_type in _MOVING and sources and node.input[0] in alias:
            alias[node.output[0]] = alias[node.input[0]]
        elif node.op_type == "Equal" and len(sources) == 1 and number is not None:
            values.setdefault(sources[0], set()).update(number)
            compared[node.output[0]] = set(sources)
        else:
            other_uses.update(sources)
        known = [name for name in node.input if name in compared]
        if node.op_type == "If":
            chosen.update(*(compared[name] for name in known))
        elif node.op_type in _READING and known:
            compared[node.output[0]] = set().union(*(compared[name] for name in known))
        for attribute in node.attribute:
            if attribute.HasField("g"):
                other_uses.update(alias[name] for name in _reads(attribute.g) if name in alias)
    return {name: tuple(sorted(values[name])) for name in values if name in chosen - other_uses}


def _constants(graph: onnx.GraphProto) -> Iterator[tuple[str, list[int]]]:
    """Yield the names and values of small integer tensors."""
    made = (
        (node.output[0], attribute.t)
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    )
    for name, tensor in (*((one.name, one) for one in graph.initializer), *made):
        if tensor.data_type not in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            continue
        if tensor.data_location != onnx.TensorProto.EXTERNAL and np.prod(tensor.dims) <= _FEW:
            yield name, numpy_helper.to_array(tensor).reshape(-1).tolist()


def _reads(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield from node.input
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _reads(attribute.g)
