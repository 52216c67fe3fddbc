"""Single numbers beside columns: tensors whose last axis has one element.

onnxruntime 1.32 merges axes before it broadcasts. Beside an operand of fewer axes, a last axis of
one element is not merged, so every element is a loop of its own: 7 ms instead of 0.07 for a product
of 512 x 508 x 1 elements with a number. A number of as many axes is not slow.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.graph.handles import shaped
from eqsat_opt.ir.ops import with_trait
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["axes_beside", "with_numbers_beside_columns"]

_BROADCASTING = with_trait("broadcasting")


def axes_beside(type_: TensorType) -> tuple[int, ...]:
    """Return the shape that a number should have beside a tensor: no axes, except by a column."""
    is_column = bool(type_.shape) and type_.shape[-1] == 1
    return (1,) * type_.rank if is_column else ()


def with_numbers_beside_columns(graph: Graph) -> Graph:
    """Return the graph with constants of one element in as many axes as the column they meet."""
    constants = dict(graph.constants)
    types: dict[str, ValueType] = dict(graph.types)

    def operand(name: str, shape: tuple[int, ...]) -> str:
        constant = graph.constants.get(name)
        if constant is None or len(constant.type.shape) >= len(shape):
            return name
        if prod(constant.type.shape) != 1:
            return name
        other = f"{name}_{len(shape)}d"
        while other in types and other not in made:
            other += "_"
        if other not in made:
            made.add(other)
            constants[other] = shaped(constant, shape)
            types[other] = constants[other].type
        return other

    def rewritten(node: Node) -> Node:
        type_ = graph.types.get(node.output) if len(node.outputs) == 1 else None
        if node.op not in _BROADCASTING or not isinstance(type_, TensorType):
            return node
        shape = axes_beside(type_)
        return replace(node, inputs=tuple(operand(name, shape) for name in node.inputs))

    made: set[str] = set()
    nodes = tuple(map(rewritten, graph.nodes))
    if not made:
        return graph
    return replace(graph, nodes=nodes, constants=constants, types=types)
