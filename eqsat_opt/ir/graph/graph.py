"""The immutable graph that every stage reads and writes.

Values are named; a name is defined once: by a graph input, a constant or a node output. Nodes are
in topological order. This module knows no files, e-graphs or devices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy.typing as npt

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.values.dims import Dim, SymDim, evaluate_dim
from eqsat_opt.ir.values.types import StaticType, TensorType, ValueType, require_static

__all__ = [
    "OPAQUE",
    "Attr",
    "Attrs",
    "Constant",
    "Graph",
    "Node",
    "ValueKind",
    "attributes",
    "index_of",
    "number_of",
    "sized",
]

Attr = Dim | float | str | tuple[Dim, ...]
Attrs = tuple[tuple[str, Attr], ...]
"""Attributes sorted by name; always all attributes of the operator, none implicit."""

OPAQUE = "Opaque"
"""The operator name of nodes that the registry does not know; they are exported unchanged."""


class ValueKind(StrEnum):
    """How much is known of the bytes of a value, and when."""

    CONSTANT = "constant"
    """Known at compile time: values computed from constants alone may be folded."""
    PARAMETER = "parameter"
    """Held by the model, as a weight is, but a caller may replace it from one run to the next: it
    may not be folded, and values computed from it are computed in each run.
    """
    ACTIVATION = "activation"
    """Given or computed in each run."""


def attributes(**values: Attr) -> Attrs:
    """Return attributes in canonical order."""
    return tuple(sorted(values.items()))


def sized(attrs: Attrs, sizes: Mapping[str, int]) -> Attrs:
    """Return attributes with sizes substituted for their symbols."""

    def at_sizes(value: Attr) -> Attr:
        if isinstance(value, tuple):
            return tuple(evaluate_dim(d, sizes) if isinstance(d, SymDim) else d for d in value)
        return evaluate_dim(value, sizes) if isinstance(value, SymDim) else value

    return tuple((name, at_sizes(value)) for name, value in attrs)


def number_of(attrs: Attrs, name: str) -> float:
    """Return the value of an attribute that is a number."""
    value = dict(attrs)[name]
    assert isinstance(value, int | float)
    return value


def index_of(attrs: Attrs) -> int:
    """Return the attribute ``index``; terms refer with it to leaves, opaque nodes and outputs."""
    value = dict(attrs)["index"]
    assert isinstance(value, int)
    return value


@dataclass(frozen=True, slots=True)
class Node:
    """One application of an operator.

    Attributes:
        op: a name of the operator registry, or :data:`OPAQUE`.
        inputs: value names; ``""`` is an absent optional input (opaque nodes only).
        outputs: value names; ``""`` is an unused optional output (opaque nodes only).
        attrs: all attributes (empty for opaque nodes, whose ``payload`` holds them).
        name: the ONNX node name, ``""`` for new nodes.
        sources: names of the original ONNX nodes that this one represents.
        rules: names of the rules that made the node; empty for a node of the original model.
        captures: outer values that the subgraphs of an opaque node read; they must keep their
            names.
        payload: the ONNX node of an opaque node.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Attrs = ()
    name: str = ""
    sources: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    captures: tuple[str, ...] = ()
    payload: Any = field(default=None, compare=False, repr=False)

    def attr(self, name: str) -> Any:
        """Return the value of attribute ``name``."""
        for key, value in self.attrs:
            if key == name:
                return value
        raise KeyError(name)

    @property
    def output(self) -> str:
        """The only output."""
        (output,) = self.outputs
        return output

    @property
    def reads(self) -> tuple[str, ...]:
        """All values that the node reads, those that its subgraphs read included."""
        return tuple(name for name in self.inputs + self.captures if name)


@dataclass(frozen=True, slots=True)
class Constant:
    """A handle on a compile-time constant; the bytes are read only when ``load`` is called.

    Attributes:
        type: element type and sizes.
        digest: equal digests mean equal contents (not the other way round).
        load: returns the array, possibly a memory-mapped view; callers must not write to it.
        source: the ONNX tensor it came from, so that an unchanged weight is exported without a
            copy; or a :class:`~eqsat_opt.ir.graph.handles.Splat` or an
            :class:`~eqsat_opt.ir.graph.handles.Expression`.
    """

    type: StaticType
    digest: str
    load: Callable[[], npt.NDArray[Any]] = field(compare=False, repr=False)
    source: Any = field(default=None, compare=False, repr=False)

    @property
    def flops(self) -> float:
        """Floating point operations that loading it still takes; 0 for a stored constant."""
        return getattr(self.load, "flops", 0.0)


@dataclass(frozen=True)
class Graph:
    """A typed dataflow graph.

    Attributes:
        inputs, outputs: value names in interface order (an output may be an input or a constant).
        nodes: in topological order.
        constants: value name to handle.
        types: value name to type, for every value.
        parameters: the inputs that have a value of their own, which a caller may replace.
        model: the imported model whose interface, functions and metadata an export must keep;
            ``None`` for a graph that was made by hand.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Constant]
    types: Mapping[str, ValueType]
    parameters: frozenset[str] = frozenset()
    model: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Freeze the mappings."""
        object.__setattr__(self, "constants", MappingProxyType(dict(self.constants)))
        object.__setattr__(self, "types", MappingProxyType(dict(self.types)))

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Value name to the node that defines it."""
        return {name: node for node in self.nodes for name in node.outputs if name}

    @cached_property
    def uses(self) -> Counter[str]:
        """How often each value is read, graph outputs included."""
        return Counter([name for node in self.nodes for name in node.reads]) + Counter(self.outputs)

    @cached_property
    def pinned(self) -> frozenset[str]:
        """Values whose names must not change: interface and captured values."""
        captured = (name for node in self.nodes for name in node.captures)
        return frozenset((*self.inputs, *self.outputs, *captured))

    def tensor_type(self, name: str) -> TensorType | None:
        """Return the tensor type of a value, ``None`` for a value that is not a typed tensor."""
        value = self.types.get(name)
        return value if isinstance(value, TensorType) else None

    def static_type(self, name: str) -> StaticType:
        """Return the type of a tensor of a graph whose sizes were fixed before.

        Raises:
            SymbolicSizes: the value has a symbolic dimension, or no tensor type.
        """
        return require_static(self.types[name])

    def kind(self, name: str) -> ValueKind:
        """Return the kind of a value."""
        if name in self.constants:
            return ValueKind.CONSTANT
        return ValueKind.PARAMETER if name in self.parameters else ValueKind.ACTIVATION

    def operator_counts(self) -> Counter[str]:
        """Count the nodes of each operator."""
        return Counter(
            n.payload.op_type if n.op == OPAQUE and n.payload is not None else n.op
            for n in self.nodes
        )

    def with_nodes(self, nodes: tuple[Node, ...], **changes: Any) -> Graph:
        """Return the same graph with other nodes."""
        return replace(self, nodes=nodes, **changes)

    def live_nodes(self) -> Iterator[Node]:
        """Return the nodes that some output needs, in order."""
        needed = set(self.outputs)
        kept = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.outputs):
                kept.append(node)
                needed.update(node.reads)
        return reversed(kept)

    def check(self) -> None:
        """Verify single definition, topological order and complete types.

        Raises:
            ModelError: a value breaks an invariant; the message names the first one.
        """
        defined = set(self.inputs) | set(self.constants)
        for node in self.nodes:
            for name in node.reads:
                if name not in defined:
                    raise ModelError(
                        f"value {name!r} is read by {node.op} {node.name!r} before it is defined"
                    )
            for name in node.outputs:
                if name and name in defined:
                    raise ModelError(f"value {name!r} is defined twice")
                defined.add(name)
        for name in (*self.outputs,):
            if name not in defined:
                raise ModelError(f"graph output {name!r} is never defined")
        for name in defined - {""}:
            if name not in self.types:
                raise ModelError(f"value {name!r} has no type")

    def __str__(self) -> str:
        lines = [f"inputs  {', '.join(f'{n}: {self.types[n]}' for n in self.inputs)}"]
        for node in self.nodes:
            attrs = ", ".join(f"{k}={v}" for k, v in node.attrs)
            left = ", ".join(f"{n}: {self.types[n]}" for n in node.outputs if n)
            lines.append(
                f"{left} = {node.op}({', '.join(node.inputs)}{'; ' + attrs if attrs else ''})"
            )
        return "\n".join([*lines, f"outputs {', '.join(self.outputs)}"])
