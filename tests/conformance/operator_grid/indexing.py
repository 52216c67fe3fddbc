"""The comparison of an index function with the evaluation that it must agree with."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FieldDomain
from eqsat_opt.ir.ops.index.evaluation import evaluate
from eqsat_opt.ir.ops.index.integers import poly
from eqsat_opt.ir.ops.index.scalars import Constant, IndexTensor, Premises, Read
from eqsat_opt.ir.values.types import StaticType
from tests.conformance.operator_grid.configuration import Imported
from tests.conformance.operator_grid.generation import configurations

__all__ = ["compared", "index_difference"]

_SAMPLE = 12
"""Nodes per operator."""
_LARGE = 300
"""Elements of an operand that are too many."""


def compared(op: str) -> list[tuple[Node, tuple[StaticType, ...]]]:
    """Some nodes of the grid with the types of their operands, which are not empty nor large."""
    return list(itertools.islice(_nodes(op), _SAMPLE))


def _nodes(op: str) -> Iterator[tuple[Node, tuple[StaticType, ...]]]:
    found = [one for one in configurations(op) if isinstance(one, Imported)]
    seen = set()
    for one in found[:: max(1, len(found) // (2 * _SAMPLE))]:
        graph = import_model(load_model(one.model()))
        for node in graph.nodes:
            types = tuple(graph.types[name] for name in node.inputs)
            key = (node.attrs, *(getattr(type_, "shape", None) for type_ in types))
            if node.op == op and key not in seen and all(map(_is_small, types)):
                seen.add(key)
                yield node, types  # type: ignore[misc]


def _is_small(type_: Any) -> bool:
    return isinstance(type_, StaticType) and 0 < type_.size <= _LARGE


def index_difference(node: Node, types: tuple[StaticType, ...]) -> str:
    """How index function and evaluation differ on random numbers of a prime field, if they do."""
    op, field = get_op(node.op), FieldDomain(seed=1)
    rng = np.random.default_rng(0)
    arrays = {f"x{i}": field.random(rng, t.shape) for i, t in enumerate(types)}
    operands = [_tensor(name, array.shape) for name, array in arrays.items()]
    attrs = {key: _attribute(value, op.attrs[key]) for key, value in node.attrs}
    assert op.index_fn is not None
    indexed = op.index_fn(operands, attrs, Premises())
    ours = evaluate(indexed, field, arrays, {})
    theirs = np.asarray(op.eval_fn(field, list(arrays.values()), dict(node.attrs)))
    if ours.shape != theirs.shape:
        return f"the index function makes {ours.shape}, the evaluation {theirs.shape}"
    wrong = int((ours != theirs).sum())
    return f"{wrong} of {theirs.size} elements differ" if wrong else ""


def _tensor(name: str, shape: tuple[int, ...]) -> IndexTensor:
    return IndexTensor(tuple(map(poly, shape)), lambda index: Read(name, tuple(index)))


def _attribute(value: Any, kind: str) -> Any:
    if kind == "float":
        return Constant(Fraction(float(value)))
    if kind == "ints":
        return tuple(map(poly, value))
    return poly(value) if kind == "int" else value
