"""How registry operators are spelled in ONNX, in both directions.

A *reader* turns an ONNX node into registry nodes, a *writer* does the reverse; the modules of
:mod:`eqsat_opt.ir.mappings` define them side by side, one family of operators each. A reader that
raises :class:`Untranslatable` leaves its node opaque, which is always correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.dims import Dim
from eqsat_opt.ir.graph import Node
from eqsat_opt.ir.types import DTYPE_NAMES, TensorType

__all__ = [
    "READERS",
    "WRITERS",
    "Array",
    "Call",
    "ReadContext",
    "Reader",
    "Untranslatable",
    "WriteContext",
    "Writer",
    "expect",
    "literal_ints",
    "normal_axis",
    "reads",
    "refuse",
    "writes",
]

Array = npt.NDArray[Any]


class Untranslatable(Exception):
    """No composition of registry operators is known to mean the same as this ONNX node."""


@dataclass(frozen=True, slots=True)
class Call:
    """An ONNX node as readers see it.

    Attributes:
        op_type: the operator of the default domain.
        inputs, outputs: value names, ``""`` for absent ones; trailing absent ones are cut off, and
            so are results that nobody reads.
        attrs: attribute values: int, float, str, tuples of them, or an array for a tensor.
        name: the node's name.
        n_outputs: results that the node has, read or not.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    n_outputs: int = 1

    def input(self, index: int) -> str | None:
        """An optional input."""
        if index < len(self.inputs) and self.inputs[index]:
            return self.inputs[index]
        return None

    def get(self, name: str, default: Any) -> Any:
        """An attribute, or ``default`` where the node has none."""
        return self.attrs.get(name, default)


class ReadContext(Protocol):
    """The interface for readers while a model is imported.

    Attributes:
        opset: of the default domain.
        exact: whether every bit counts.
    """

    opset: int
    exact: bool

    def type(self, name: str) -> TensorType:
        """The type of a value; raises :class:`Untranslatable` for what is not a typed tensor."""
        ...

    def array(self, name: str) -> Array:
        """The contents of a small constant; raises :class:`Untranslatable` for anything else."""
        ...

    def dims(self, name: str) -> tuple[Dim, ...]:
        """An integer vector as dimensions; raises :class:`Untranslatable` if one is unknown."""
        ...

    def emit(self, op: str, inputs: Iterable[str], out: str | None = None, **attrs: Any) -> str:
        """Add a registry node and return its output; without ``out`` the output gets a new name."""
        ...

    def emit_outputs(self, op: str, inputs: Iterable[str], **attrs: Any) -> None:
        """Add a registry node for each output of the call that is read, in their order."""
        ...

    def constant(self, array: Array, out: str | None = None) -> str:
        """Add a constant and return its name."""
        ...

    def splat(self, value: Array, shape: tuple[int, ...], out: str) -> str:
        """Add a constant whose elements all equal the scalar ``value``."""
        ...

    def alias(self, value: str, out: str) -> str:
        """Make ``out`` the same value as ``value``."""
        ...

    def sequence(self, name: str) -> Call | None:
        """The call that made a sequence."""
        ...

    def is_expressible(self, source: TensorType, shape: tuple[Dim, ...], op: str) -> bool:
        """Whether a model can compute ``shape`` as the target of ``op`` on ``source``."""
        ...


class WriteContext(Protocol):
    """The interface for writers while a model is exported."""

    opset: int

    def type(self, name: str) -> TensorType:
        """The type of a value, intermediate ones of this export excluded."""
        ...

    def op(self, op_type: str, inputs: Iterable[str], out: str | None = None, **attrs: Any) -> str:
        """Add an ONNX node and return its output; without ``out`` the output gets a new name."""
        ...

    def op_of_several(
        self, op_type: str, inputs: Iterable[str], outputs: Iterable[str], **attrs: Any
    ) -> None:
        """Add an ONNX node with these outputs; one without a name gets a new one."""
        ...

    def constant(self, array: Array) -> str:
        """Add an initializer, shared between equal arrays, and return its name."""
        ...

    def is_original(self, node: Node, op_type: str) -> bool:
        """Whether the model itself has ``node`` as this ONNX operator."""
        ...

    def original_constant(self, node: Node, op_type: str, index: int) -> Array | None:
        """A constant operand of ``node`` in the model, if :meth:`is_original`."""
        ...

    def shape_value(self, shape: tuple[Dim, ...]) -> str:
        """An ``int64`` vector that holds ``shape``, computed from other shapes at run time."""
        ...


Reader = Callable[[Call, ReadContext], object]
Writer = Callable[[Node, WriteContext], object]

READERS: dict[str, Reader] = {}
"""ONNX operator (default domain, opset 7 and later) to reader."""

WRITERS: dict[str, Writer] = {}
"""Registry operator to writer."""


def reads(*op_types: str) -> Callable[[Reader], Reader]:
    """Register a reader for ONNX operators."""

    def add(reader: Reader) -> Reader:
        for op_type in op_types:
            if op_type in READERS:
                raise ValueError(f"ONNX operator {op_type} has two readers")
            READERS[op_type] = reader
        return reader

    return add


def writes(*ops: str) -> Callable[[Writer], Writer]:
    """Register a writer for registry operators."""

    def add(writer: Writer) -> Writer:
        for op in ops:
            if op in WRITERS:
                raise ValueError(f"registry operator {op} has two writers")
            WRITERS[op] = writer
        return writer

    return add


def expect(condition: bool) -> None:
    """Leave the node opaque unless ``condition`` holds."""
    if not condition:
        raise Untranslatable


def refuse(node: Node, opset: int) -> NoReturn:
    """Give up on a node that the model's opset cannot express."""
    raise ModelError(
        f"operator {node.op} cannot be written in operator set {opset}; "
        "convert the model to a newer one"
    )


def normal_axis(axis: int, rank: int) -> int:
    """A non-negative axis."""
    expect(-rank <= axis < rank)
    return axis % rank if rank else 0


def literal_ints(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Dimensions that all are literals."""
    result = []
    for dim in dims:
        if not isinstance(dim, int):
            raise Untranslatable
        result.append(dim)
    return tuple(result)


def dtype_name(code: int) -> str:
    """The name of an ONNX element type that the registry knows."""
    if code not in DTYPE_NAMES:
        raise Untranslatable
    return DTYPE_NAMES[code]


def scalar(array: Array) -> float | int:
    """The only element of an array."""
    expect(array.size == 1)
    value = np.asarray(array).reshape(()).item()
    expect(isinstance(value, (int, float)))
    return value  # type: ignore[no-any-return]
