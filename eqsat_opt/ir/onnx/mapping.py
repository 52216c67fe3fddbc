"""The mapping between registry operators and ONNX, in both directions.

A *reader* turns an ONNX node into registry nodes, a *writer* does the reverse; the modules of
:mod:`eqsat_opt.ir.onnx.mappings` define them side by side, one family of operators each. A reader
that raises :class:`Untranslatable` leaves its node opaque, which is always correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import DTYPE_NAMES

__all__ = [
    "READERS",
    "WRITERS",
    "Array",
    "Call",
    "Reader",
    "Untranslatable",
    "Writer",
    "expect",
    "literal_ints",
    "normal_axis",
    "reads",
    "refuse",
    "writes",
]

Array = npt.NDArray[Any]
F = TypeVar("F")


class Untranslatable(Exception):
    """No composition of registry operators is known to be equivalent to this ONNX node."""


@dataclass(frozen=True, slots=True)
class Call:
    """An ONNX node as readers see it.

    Attributes:
        op_type: the operator of the default domain.
        inputs, outputs: value names, ``""`` for absent ones; trailing absent ones are cut off, and
            so are results that are not read.
        attrs: attribute values: int, float, str, tuples of them, or an array for a tensor.
        name: the node's name.
        n_outputs: number of results of the node, read or not.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    n_outputs: int = 1

    def input(self, index: int) -> str | None:
        """Return an optional input, ``None`` if it is absent."""
        if index < len(self.inputs) and self.inputs[index]:
            return self.inputs[index]
        return None

    def get(self, name: str, default: Any) -> Any:
        """Return an attribute, or ``default`` if the node does not have it."""
        return self.attrs.get(name, default)


Reader = Callable[[Call, Any], object]
"""A function of a call and the :class:`~eqsat_opt.ir.onnx.import_context.ImportContext`."""

Writer = Callable[[Node, Any], object]
"""A function of a node and the :class:`~eqsat_opt.ir.onnx.export_context.ExportContext`."""

READERS: dict[str, Reader] = {}
"""ONNX operator (default domain, opset 7 and later) to reader."""

WRITERS: dict[str, Writer] = {}
"""Registry operator to writer."""


def _registered(table: dict[str, F], names: Iterable[str], what: str) -> Callable[[F], F]:
    def add(function: F) -> F:
        for name in names:
            if name in table:
                raise ValueError(f"{what} {name} has two functions")
            table[name] = function
        return function

    return add


def reads(*op_types: str) -> Callable[[Reader], Reader]:
    """Register a reader for ONNX operators."""
    return _registered(READERS, op_types, "the reader of")


def writes(*ops: str) -> Callable[[Writer], Writer]:
    """Register a writer for registry operators."""
    return _registered(WRITERS, ops, "the writer of")


def expect(condition: bool) -> None:
    """Leave the node opaque unless ``condition`` holds."""
    if not condition:
        raise Untranslatable


def refuse(node: Node, opset: int) -> NoReturn:
    """Raise an error for a node that the model's opset cannot express."""
    raise ModelError(
        f"operator {node.op} cannot be written in operator set {opset}; "
        "convert the model to a newer one"
    )


def normal_axis(axis: int, rank: int) -> int:
    """Return an axis as a non-negative number."""
    expect(-rank <= axis < rank)
    return axis % rank if rank else 0


def literal_ints(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Return dimensions that must all be literals."""
    result = []
    for dim in dims:
        if not isinstance(dim, int):
            raise Untranslatable
        result.append(dim)
    return tuple(result)


def dtype_name(code: int) -> str:
    """Return the name of an ONNX element type that the registry knows."""
    if code not in DTYPE_NAMES:
        raise Untranslatable
    return DTYPE_NAMES[code]


def scalar(array: Array) -> float | int:
    """Return the only element of an array."""
    expect(array.size == 1)
    value = np.asarray(array).reshape(()).item()
    expect(isinstance(value, (int, float)))
    return value  # type: ignore[no-any-return]
