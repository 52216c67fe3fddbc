"""Transformation of graphs in onnxruntime's blocked layout (NCHWc).

onnxruntime runs chains of convolutions and pools with channels in blocks of the vector width, and
converts at the ends of a chain. A kernel measured alone would pay both conversions and could not
take a residual in blocked form. Here such a kernel is optimised together with added neighbours, and
the neighbours and the conversions at the boundary are then removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "NCHWC_DOMAIN",
    "BlockedKernel",
    "add_neighbours",
    "between_reorders",
    "cut_neighbourhood",
    "has_blocked_kernels",
    "is_layout_sensitive",
    "reorder_in_model",
    "reorder_out_model",
]

NCHWC_DOMAIN = "com.microsoft.nchwc"

# Only these operators start a blocked chain; all others can only continue one.
_CHAIN_STARTERS = frozenset(
    ("Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
)
_RESIDUAL_OPS = frozenset(("Add", "Sum"))
_REORDERS = frozenset(("ReorderInput", "ReorderOutput"))


@dataclass(frozen=True)
class BlockedKernel:
    """A kernel without its neighbourhood.

    Attributes:
        model: the graph that remains; its inputs and outputs have no shapes.
        input_names: the inputs of `model`, which are values of the uncut graph.
    """

    model: onnx.ModelProto
    input_names: tuple[str, ...]


def is_layout_sensitive(model: onnx.ModelProto) -> bool:
    """Return whether onnxruntime may run (part of) the model in its blocked layout."""
    return any(node.op_type in _CHAIN_STARTERS for node in model.graph.node)


def has_blocked_kernels(optimized: onnx.ModelProto) -> bool:
    """Return whether onnxruntime did choose the blocked layout."""
    return any(node.domain == NCHWC_DOMAIN for node in optimized.graph.node)


def add_neighbours(model: onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Put a producer of blocked data before each residual input.

    The producer is a 1×1 convolution with a Relu; without the Relu, onnxruntime would fuse the
    addition into the producer.

    Returns:
        The extended copy, and the inputs that got a producer.
    """
    residual = {
        name
        for node in model.graph.node
        if node.op_type in _RESIDUAL_OPS and len(node.input) > 1
        for name in node.input
    }
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    constants = {tensor.name for tensor in model.graph.initializer}
    names = tuple(
        name
        for name, shape in shapes.items()
        if name in residual and name not in constants and len(shape) == 4 and all(shape)
    )
    extended = onnx.ModelProto()
    extended.CopyFrom(model)
    for node in extended.graph.node:
        for position, name in enumerate(node.input):
            if name in names:
                node.input[position] = f"{name}/neighbour"
    body = list(extended.graph.node)
    del extended.graph.node[:]
    for name in names:
        channels = shapes[name][1]
        identity = np.eye(channels, dtype=np.float32).reshape(channels, channels, 1, 1)
        extended.graph.initializer.append(numpy_helper.from_array(identity, f"{name}/weight"))
        extended.graph.node.extend(
            [
                helper.make_node("Conv", [name, f"{name}/weight"], [f"{name}/conv"]),
                helper.make_node("Relu", [f"{name}/conv"], [f"{name}/neighbour"]),
            ]
        )
    extended.graph.node.extend(body)
    return extended, names


def cut_neighbourhood(
    optimized: onnx.ModelProto, neighbours: Sequence[str]
) -> BlockedKernel | None:
    """Remove the producers of `add_neighbours` and the conversions of inputs and outputs.

    Args:
        optimized: the extended model as onnxruntime optimised it.
        neighbours: the inputs that got a producer.

    Returns:
        The kernel, or None if nothing remains or the producers are not where they were.
    """
    graph = optimized.graph
    nodes = list(graph.node)
    constants = {tensor.name for tensor in graph.initializer}
    inputs = {value.name for value in graph.input} - constants
    for name in neighbours:
        produced = _follow_producer(nodes, name)
        if produced is None:
            return None
        inputs.add(produced)
        inputs.discard(name)
    outputs = [value.name for value in graph.output]

    kept: list[onnx.NodeProto] = []
    for node in nodes:  # in topological order, so one pass finds chains of conversions
        if node.op_type in _REORDERS and node.input[0] in inputs:
            inputs.add(node.output[0])
        else:
            kept.append(node)
    for node in reversed(kept.copy()):
        used = {name for other in kept for name in other.input}
        if (
            node.op_type in _REORDERS
            and node.output[0] in outputs
            and node.output[0] not in used
            and node.input[0] not in outputs
        ):
            outputs[outputs.index(node.output[0])] = node.input[0]
            kept.remove(node)

    if not kept or not set(outputs) <= {name for node in kept for name in node.output}:
        return None
    needed = {name for node in kept for name in node.input}
    input_names = tuple(sorted(inputs & needed))
    rest = onnx.ModelProto()
    rest.CopyFrom(optimized)
    for field in ("node", "input", "output", "value_info", "initializer"):
        rest.graph.ClearField(field)
    rest.graph.node.extend(kept)
    rest.graph.initializer.extend(t for t in graph.initializer if t.name in needed)
    rest.graph.input.extend(value for value in graph.input if value.name in input_names)
    rest.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    return BlockedKernel(rest, input_names)


def reorder_in_model(shape: Sequence[int]) -> onnx.ModelProto:
    """Build a model that converts an NCHW tensor of `shape` into the blocked layout."""
    return _reorder("ReorderInput", shape)


def reorder_out_model(shape: Sequence[int], block: int) -> onnx.ModelProto:
    """Build a model that converts blocks of `block` channels to an NCHW tensor of `shape`."""
    batch, channels, *spatial = shape
    padded = -(-channels // block) * block
    return _reorder("ReorderOutput", (batch, padded, *spatial), channels=channels)


def between_reorders(model: onnx.ModelProto, block: int) -> onnx.ModelProto:
    """Return `model` with blocked layout for its rank-4 float inputs and its outputs.

    Operators without a blocked form, such as Split, run like this between convolutions.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    before, after = [], []
    for value in graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if len(shape) != 4 or value.type.tensor_type.elem_type != TensorProto.FLOAT:
            continue
        inner = f"{value.name}_plain"
        for node in graph.node:
            node.input[:] = [inner if name == value.name else name for name in node.input]
        before.append(_reorder_node("ReorderOutput", value.name, inner, shape[1]))
        value.type.tensor_type.shape.dim[1].dim_value = -(-shape[1] // block) * block
    for value in graph.output:
        inner = f"{value.name}_plain"
        for node in graph.node:
            node.output[:] = [inner if name == value.name else name for name in node.output]
        after.append(_reorder_node("ReorderInput", inner, value.name))
        value.CopyFrom(helper.make_empty_tensor_value_info(value.name))
    nodes = [*before, *graph.node, *after]
    del graph.node[:]
    graph.node.extend(nodes)
    del graph.value_info[:]
    changed.opset_import.append(helper.make_opsetid(NCHWC_DOMAIN, 1))
    return changed


def _reorder_node(
    op_type: str, source: str, target: str, channels: int | None = None
) -> onnx.NodeProto:
    node = helper.make_node(op_type, [source], [target], domain=NCHWC_DOMAIN)
    node.attribute.append(helper.make_attribute("channels_last", 0))
    if channels is not None:
        node.attribute.append(helper.make_attribute("channels", channels))
    return node


def _reorder(op_type: str, shape: Sequence[int], channels: int | None = None) -> onnx.ModelProto:
    graph = helper.make_graph(
        [_reorder_node(op_type, "x", "y", channels)],
        "reorder",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
        [helper.make_empty_tensor_value_info("y")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(NCHWC_DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def _follow_producer(nodes: list[onnx.NodeProto], name: str) -> str | None:
    """Remove the producer that reads input `name` from `nodes`, and return its result's name."""
    value = name
    for op_types in (_REORDERS, ("Conv", "FusedConv"), ("Relu",)):
        users = [node for node in nodes if value in node.input]
        if len(users) == 1 and users[0].op_type in op_types:
            last = users[0]
            fused = any(attribute.name == "activation" for attribute in last.attribute)
            nodes.remove(last)
            value = last.output[0]
            if fused:
                break
        elif op_types is not _REORDERS:
            return None
    return value
