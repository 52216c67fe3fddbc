"""Models of the bodies of launches, for runtimes that take ONNX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import onnx
import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Constant, Graph, Node, attributes
from eqsat_opt.ir.onnx.exporter import SPLIT, export_model, model_proto
from eqsat_opt.ir.values.types import StaticType
from eqsat_opt.runtime.plan.places import Array
from eqsat_opt.runtime.plan.plan import Launch

__all__ = ["operand_names", "session_model"]


def operand_names(launch: Launch) -> list[str]:
    """Return the names of the body's operands in the model, where constants are not inputs."""
    return [f"x{number}" for number in range(len(launch.body.operands))]


def session_model(launch: Launch, reads: Sequence[Array]) -> onnx.ModelProto:
    """Build the model that a session of a launch runs.

    Outputs of the body that are the same value are one output of the session.

    Args:
        launch: the launch.
        reads: the operands of the launch; the constants among them become part of the model.
    """
    graph = launch.body.to_graph()
    constants = {
        name: Constant(constant.type, f"{launch.name} {name}", partial(np.asarray, value))
        for name, value in zip(operand_names(launch), reads, strict=True)
        if (constant := graph.constants.get(name)) is not None
    }
    outputs = tuple(dict.fromkeys(graph.outputs))
    graph = replace(graph, constants=constants, outputs=outputs)
    return model_proto(_exported(_with_splits(_with_resized_images(graph))))


_FAST_POOLS = 18
"""Last operator set with the fast AveragePool of onnxruntime 1.32. Later operator sets add
dilations, and there it takes seven times as long (219 µs instead of 31 µs for 24 planes of
56x56)."""


def _exported(graph: Graph) -> onnx_ir.Model:
    pools = [node for node in graph.nodes if node.op == "AveragePool"]
    # Later operator sets changed the result at the end of an axis that is not covered evenly.
    if pools and not any(node.attr("ceil") for node in pools):
        with suppress(ModelError):
            return export_model(graph, opset=_FAST_POOLS)
    return export_model(graph)


def _with_splits(graph: Graph) -> Graph:
    """Replace Slices that together make up a value by one Split, which plans do not have."""
    parts: dict[tuple[str, int], list[Node]] = {}
    for node in graph.nodes:
        if node.op == "Slice":
            parts.setdefault((node.inputs[0], node.attr("axis")), []).append(node)
    splits: dict[str, Node] = {}
    joined: set[str] = set()
    for (name, axis), nodes in parts.items():
        type_ = graph.tensor_type(name)
        ordered = sorted(nodes, key=lambda node: int(node.attr("lo")))
        borders = [0, *(int(node.attr("hi")) for node in ordered)]
        begins = [int(node.attr("lo")) for node in ordered]
        if len(nodes) < 2 or type_ is None or [*begins, type_.shape[axis]] != borders:
            continue
        sizes = tuple(end - begin for begin, end in pairwise(borders))
        outputs = tuple(node.output for node in ordered)
        attrs = attributes(axis=axis, sizes=sizes)
        splits[nodes[0].output] = Node(SPLIT, (name,), outputs, attrs, name=nodes[0].name)
        joined.update(outputs)
    kept = (splits.get(node.outputs[0], node) for node in graph.nodes)
    return replace(
        graph, nodes=tuple(node for node in kept if node.op == SPLIT or node.output not in joined)
    )


def _with_resized_images(graph: Graph) -> Graph:
    """Replace repeated rows and columns of images by one Resize; runtimes have a kernel for it."""
    reads = Counter(name for node in graph.nodes for name in node.inputs)
    reads.update(graph.outputs)
    producer = {node.output: node for node in graph.nodes}
    inside: set[str] = set()
    found: dict[str, tuple[Node, Constant]] = {}
    for node in reversed(graph.nodes):
        if node.output in inside or not _is_of_images(graph, node):
            continue
        scales, source = [1, 1, 1, 1], node
        while True:
            scales[source.attr("axis")] *= source.attr("repeats")
            below = producer.get(source.inputs[0])
            if below is None or reads[below.output] > 1 or not _is_of_images(graph, below):
                break
            source = below
            inside.add(source.output)
        name = f"{node.output} scales"
        load = partial(np.array, scales, np.float32)
        constant = Constant(StaticType("float32", (4,)), f"scales {scales}", load)
        payload = onnx_ir.node(
            "Resize",
            [],
            attributes={"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        )
        inputs = (source.inputs[0], "", name)
        found[node.output] = Node(OPAQUE, inputs, (node.output,), payload=payload), constant
    if not found:
        return graph
    nodes = (found[n.output][0] if n.output in found else n for n in graph.nodes)
    made = {node.inputs[2]: constant for node, constant in found.values()}
    return replace(
        graph,
        nodes=tuple(node for node in nodes if node.output not in inside),
        constants={**graph.constants, **made},
        types={**graph.types, **{name: one.type for name, one in made.items()}},
    )


_IMAGE_AXES = (2, 3)


def _is_of_images(graph: Graph, node: Node) -> bool:
    type_ = graph.tensor_type(node.output)
    is_image = type_ is not None and type_.rank == 4 and type_.dtype == "float32"
    return node.op == "Repeat" and is_image and node.attr("axis") in _IMAGE_AXES
