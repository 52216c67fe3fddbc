"""A kernel as an ONNX model of its own, to be measured."""

from __future__ import annotations

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Graph, Node, attributes
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.values.types import StaticType

__all__ = ["export_kernel"]

_LARGEST_BYTES = 1 << 30
"""Limit of all tensors together; weights are generated, and go through a pipe to the measuring
process.
"""


def _as_split(graph: Graph) -> Graph:
    """Replace the Slices that split one tensor by one Split."""
    sizes = tuple(node.attr("hi") - node.attr("lo") for node in graph.nodes)
    split = Node(
        "Split", graph.nodes[0].inputs, tuple(n.output for n in graph.nodes),
        attributes(axis=graph.nodes[0].attr("axis"), sizes=sizes), name="split",
    )  # fmt: skip
    return graph.with_nodes((split,))


def export_kernel(kernel: Kernel) -> bytes:
    """Return the serialised model of a kernel, with seeded random weights.

    Raises:
        ModelError: an operator cannot be written in the default opset, or the tensors are too large
            to generate them.
    """
    needed = sum(type_.bytes for type_ in kernel.types if isinstance(type_, StaticType))
    if needed > _LARGEST_BYTES:
        raise ModelError(f"{kernel.name} works on {needed} bytes, too many to measure it alone")
    graph = kernel.to_graph()
    if len(kernel.steps) > 1 and all(
        step.op == "Slice" and step.operands == (0,) for step in kernel.steps
    ):
        graph = _as_split(graph)
    data: bytes = model_proto(export_model(graph)).SerializeToString()
    return data
