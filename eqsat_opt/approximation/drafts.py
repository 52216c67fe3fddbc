"""Drafts: nodes and constants that are added to a graph together, under names that are free."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

__all__ = ["CONTRIB", "ReplacementDraft", "drop_unread", "free_prefix", "insert_draft", "names_in"]

CONTRIB = "com.microsoft"
"""Domain of onnxruntime's own operators."""

_Array = npt.NDArray[Any]


@dataclass
class ReplacementDraft:
    """Nodes and constants that will take the place of a node.

    Attributes:
        prefix: beginning of all names, which no other value of the model has.
        nodes: the nodes in order.
        constants: the new initializers.
    """

    prefix: str
    nodes: list[onnx_ir.Node] = field(default_factory=list)
    constants: list[onnx_ir.Value] = field(default_factory=list)

    def constant(self, name: str, array: _Array) -> onnx_ir.Value:
        """Add an initializer."""
        array = np.asarray(array)
        name = f"{self.prefix}{name}"
        tensor = onnx_ir.tensor(array, name=name)
        value = onnx_ir.Value(
            name=name,
            shape=onnx_ir.Shape(array.shape),
            type=onnx_ir.TensorType(tensor.dtype),
            const_value=tensor,
        )
        self.constants.append(value)
        return value

    def node(
        self,
        operator: str,
        inputs: Sequence[onnx_ir.Value | None],
        outputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        domain: str = "",
    ) -> Sequence[onnx_ir.Value]:
        """Add a node, and return its outputs."""
        made = onnx_ir.node(
            operator, inputs, attributes, domain=domain, num_outputs=len(outputs),
            name=f"{self.prefix}{outputs[0]}/{operator}",
        )  # fmt: skip
        for value, name in zip(made.outputs, outputs, strict=True):
            value.name = f"{self.prefix}{name}"
        self.nodes.append(made)
        return made.outputs


def names_in(graph: onnx_ir.Graph) -> frozenset[str]:
    """Return the names of all values of a graph, without those of subgraphs."""
    made = (value.name for node in graph for value in node.outputs)
    given = (value.name for value in graph.inputs)
    return frozenset(name for name in (*made, *given, *graph.initializers) if name)


def free_prefix(prefix: str, taken: Collection[str]) -> str:
    """Return the prefix, lengthened until no name begins with it."""
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    return prefix


def insert_draft(
    graph: onnx_ir.Graph,
    draft: ReplacementDraft,
    before: onnx_ir.Node | None = None,
    *,
    after: onnx_ir.Node | None = None,
) -> None:
    """Add a draft to a graph: before a node, after another one, or at the beginning."""
    for value in draft.constants:
        graph.register_initializer(value)
    if after is not None:
        graph.insert_after(after, draft.nodes)
    else:
        graph.insert_before(graph[0] if before is None else before, draft.nodes)


def drop_unread(graph: onnx_ir.Graph, value: onnx_ir.Value) -> None:
    """Remove a constant from a graph if nothing reads it, and what it is computed from."""
    if value.uses() or value.is_graph_output():
        return
    producer = value.producer()
    if producer is not None:
        operands = [one for one in producer.inputs if one is not None]
        graph.remove(producer, safe=True)
        for one in operands:
            drop_unread(graph, one)
    else:
        graph.initializers.pop(value.name or "", None)
