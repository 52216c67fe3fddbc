"""Bodies of If, Loop and Scan as graphs, and as models with the values they read as inputs.

A body is in the scope of its node: it reads values of the graphs around it by name. The graphs and
models made here never refer to those graphs, so neither they nor the given model are changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import onnx_ir

from eqsat_opt.ir.graph.graph import Constant
from eqsat_opt.ir.onnx.export_context import tensor_of
from eqsat_opt.ir.onnx.files.load import FREE_INITIALIZERS

__all__ = ["body_model", "defined_names", "definitions", "detached"]


def defined_names(model: onnx_ir.Model) -> Counter[str]:
    """Count how often each name is defined in a model; graphs side by side may share a name."""
    found: Counter[str] = Counter()
    for graph in model.graphs():
        values = {id(value): value for value in (*graph.inputs, *graph.initializers.values())}
        for node in graph:
            values.update((id(value), value) for value in node.outputs)
        found.update(value.name for value in values.values() if value.name)
    return found


def detached(graph: onnx_ir.Graph) -> tuple[onnx_ir.Graph, dict[str, onnx_ir.Value]]:
    """Copy a body so that it shares tensors and nothing else with its surroundings.

    Returns:
        The copy, and a value without a producer for each name that it reads from outside.
    """
    copy = graph.clone(allow_outer_scope_values=True)
    own = {id(value) for one in (copy, *copy.subgraphs()) for value in definitions(one)}
    outer: dict[str, onnx_ir.Value] = {}

    def stand_in(value: onnx_ir.Value) -> onnx_ir.Value:
        name = value.name or ""
        if name not in outer:
            outer[name] = onnx_ir.Value(name=name)
        return outer[name]

    for node in copy.all_nodes():
        for index, value in enumerate(node.inputs):
            if value is not None and id(value) not in own:
                node.replace_input_with(index, stand_in(value))
    for one in (copy, *copy.subgraphs()):
        for index, value in enumerate(one.outputs):
            if id(value) not in own:
                one.outputs[index] = stand_in(value)
    return copy, outer


def definitions(graph: onnx_ir.Graph) -> list[onnx_ir.Value]:
    """Return the inputs, initializers and results of a graph, without those of its bodies."""
    made = [value for node in graph for value in node.outputs]
    return [*graph.inputs, *graph.initializers.values(), *made]


def body_model(
    graph: onnx_ir.Graph, model: onnx_ir.Model, constants: Mapping[str, Constant]
) -> onnx_ir.Model | None:
    """Return a body as a model; values that it reads from outside become further inputs.

    Args:
        graph: the body.
        model: the model of the body; operator sets and functions are the same.
        constants: values around the body whose contents are known; they become initializers.

    Returns:
        The model, with outer values in the order of reading; ``None`` if a name would denote two
            values.
    """
    copy, outer = detached(graph)
    own = {value.name for one in (copy, *copy.subgraphs()) for value in definitions(one)}
    if own & outer.keys() or any(not value.name for value in copy.outputs):
        return None
    for name, value in outer.items():
        constant = constants.get(name)
        if constant is None:
            copy.inputs.append(value)
            continue
        tensor: Any = tensor_of(name, constant)
        value.const_value = tensor
        value.type = onnx_ir.TensorType(tensor.dtype)
        value.shape = onnx_ir.Shape(tensor.shape)
        copy.register_initializer(value)
    copy.name = copy.name or "body"
    copy.opset_imports.clear()
    copy.opset_imports.update(model.graph.opset_imports)
    functions = [function.clone() for function in model.functions.values()]
    return onnx_ir.Model(
        copy, ir_version=max(model.ir_version, FREE_INITIALIZERS), functions=functions
    )
