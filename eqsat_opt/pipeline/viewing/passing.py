"""Operators that pass through an optimisation unchanged, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.folding import is_deterministic
from eqsat_opt.ir.onnx.importer import FIRST_OPSET
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.onnx.quantised import quantised_units
from eqsat_opt.ir.onnx.types import inner_graphs
from eqsat_opt.ir.values.types import TensorType

__all__ = ["Passing", "passing_operators"]

_PLACES = 3
"""Most nodes that are named for a reason; the others are only counted."""

_ALIASES = ("Constant", "Identity")
"""Operators that compute nothing."""


@dataclass(frozen=True)
class Passing:
    """Operators of one kind that pass through unchanged for one reason.

    Attributes:
        operator: the operator's name, with its domain if that is not the default one.
        count: number of nodes.
        why: the reason, as a clause.
        nodes: names of the first nodes; an unnamed node has the name of its first output.
    """

    operator: str
    count: int
    why: str
    nodes: tuple[str, ...]


def passing_operators(graph: Graph) -> tuple[Passing, ...]:
    """Return the operators that no equation can rewrite, the most frequent first.

    Args:
        graph: a graph in normal form, as operators that are folded away pass nothing on.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for node, why in _reasons(graph):
        payload = node.payload
        name = f"{payload.domain}::{payload.op_type}" if payload.domain else payload.op_type
        found.setdefault((name, why), []).append(node.name or node.outputs[0])
    return tuple(
        Passing(name, len(nodes), why, tuple(nodes[:_PLACES]))
        for (name, why), nodes in sorted(found.items(), key=lambda one: (-len(one[1]), one[0]))
    )


def _reasons(graph: Graph) -> Iterator[tuple[Node, str]]:
    opaque = [node for node in graph.nodes if node.op == OPAQUE and node.payload is not None]
    units = quantised_units([node.payload for node in opaque])
    opset = 0 if graph.model is None else graph.model.opset_imports.get("", 0)
    for node in opaque:
        payload: onnx_ir.Node = node.payload
        if payload.domain or payload.op_type not in _ALIASES:
            yield node, _reason(node, graph, is_quantised=payload in units, opset=opset)


def _reason(node: Node, graph: Graph, *, is_quantised: bool, opset: int) -> str:
    payload: onnx_ir.Node = node.payload
    if graph.model is not None and payload.op_identifier() in graph.model.functions:
        return "a function of the model, kept as one operator"
    if is_quantised:
        return "quantised arithmetic, for which the runtime has integer kernels of this form"
    if any(True for _ in inner_graphs(payload)):
        return "control flow, whose bodies are optimised as graphs of their own"
    if payload.domain:
        return f"an operator of the domain {payload.domain}, about which no equation is known"
    if not is_deterministic(payload):
        return "its result is another one each time"
    if opset < FIRST_OPSET:
        return f"the model has operator set {opset}; equations begin at {FIRST_OPSET}"
    if payload.op_type not in READERS:
        return "no equation about this operator is known"
    names = filter(None, node.inputs)
    if any(not isinstance(graph.types.get(name), TensorType) for name in names):
        return "an operand has a shape that only a run tells"
    return "these operands or attributes are outside of what equations cover"
