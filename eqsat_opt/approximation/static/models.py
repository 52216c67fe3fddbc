"""Models of one unit, in floats and on integers, whose times and errors are measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir

from eqsat_opt.approximation.drafts import CONTRIB
from eqsat_opt.approximation.sites import constant_of
from eqsat_opt.approximation.static.ranges import QuantisedRange
from eqsat_opt.approximation.static.rewriting import Static, with_static
from eqsat_opt.approximation.static.units import Unit

__all__ = [
    "TO_CHANNELS_FIRST",
    "TO_CHANNELS_LAST",
    "conversions",
    "integer_model",
    "pool_in_company",
    "unit_model",
]

_FLOATS = onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
_INTEGERS = onnx_ir.TensorType(onnx_ir.DataType.UINT8)

TO_CHANNELS_LAST = (0, 2, 3, 1)
"""Transposition of an image to the layout of integer kernels."""

TO_CHANNELS_FIRST = (0, 3, 1, 2)


def unit_model(
    unit: Unit,
    opset_imports: Mapping[str, int],
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> onnx_ir.Model:
    """Return the model of a unit in floats, with the names of its data and result.

    Args:
        unit: the unit.
        opset_imports: operator sets of the model it is from.
        shapes: shapes of its data and of its result; ``None`` leaves them open.
    """

    def shape_of(name: str) -> onnx_ir.Shape | None:
        return None if shapes is None else onnx_ir.Shape(shapes[name])

    values = {
        name: onnx_ir.Value(name=name, type=_FLOATS, shape=shape_of(name)) for name in unit.reads
    }
    held: dict[onnx_ir.Value, onnx_ir.Value] = {
        value: values[value.name or ""] for value in unit.data
    }
    graph = onnx_ir.Graph(
        list(values.values()), [], nodes=[], opset_imports=dict(opset_imports), name="unit"
    )
    for number, node in enumerate(unit.nodes):
        operands: list[onnx_ir.Value | None] = []
        for index, value in enumerate(node.inputs):
            if value is None or value in held:
                operands.append(None if value is None else held[value])
                continue
            tensor = constant_of(value)
            assert tensor is not None
            constant = _copied(tensor, f"constant{number}_{index}")
            graph.register_initializer(constant)
            operands.append(constant)
        made = onnx_ir.node(
            node.op_type, operands, dict(node.attributes), domain=node.domain, num_outputs=1
        )
        made.outputs[0].name = node.outputs[0].name
        held[node.outputs[0]] = made.outputs[0]
        graph.append(made)
    result = held[unit.result]
    result.type, result.shape = _FLOATS, shape_of(unit.name)
    graph.outputs.append(result)
    return onnx_ir.Model(graph, ir_version=9)


def integer_model(
    model: onnx_ir.Model,
    way: Static,
    ranges: Mapping[str, QuantisedRange],
    *,
    channels_last: bool = False,
) -> onnx_ir.Model:
    """Return the model of a unit on integers, whose inputs and output are integers as well.

    Args:
        model: the model of `unit_model`.
        way: how the unit is computed; a result in floats stays so.
        ranges: ranges of its inputs and its output.
        channels_last: whether images come and go as integer kernels hold them. All values have
            four axes then.
    """
    (output,) = model.graph.outputs
    result = with_static(model, {output.name or "": way}, ranges)
    graph = result.graph
    for number, value in enumerate(list(graph.inputs)):
        (rounding,) = [use.node for use in value.uses()]
        integers = onnx_ir.Value(name=f"{value.name}/in", type=_INTEGERS)
        fed = integers
        if channels_last:
            fed = _transposed(graph, integers, TO_CHANNELS_FIRST)
        else:
            integers.shape = value.shape
        rounding.outputs[0].replace_all_uses_with(fed)
        graph.inputs[number] = integers
        graph.remove(rounding, safe=True)
    if way.gives_floats:
        return result
    (floats,) = graph.outputs
    conversion = floats.producer()
    assert conversion is not None
    made = conversion.inputs[0]
    assert made is not None
    if channels_last:
        made = _transposed(graph, made, TO_CHANNELS_LAST, at_end=True)
    made.type = _INTEGERS
    graph.outputs[0] = made
    graph.remove(conversion, safe=True)
    return result


def pool_in_company(unit: Unit) -> onnx_ir.Model | None:
    """Return the model of a MaxPool of images as onnxruntime runs it among integer convolutions.

    Alone, images would not change their layout for it, and a kernel would run that is much slower.
    The input is `[batch, height, width, channels]` uint8, as the output. ``None`` for other units.
    """
    (node, *_) = unit.nodes
    if node.op_type != "MaxPool":
        return None
    integers = onnx_ir.Value(name=f"{unit.reads[0]}/in", type=_INTEGERS)
    attributes = {k: v for k, v in node.attributes.items() if k != "storage_order"}
    made = onnx_ir.node(
        "NhwcMaxPool", [integers], attributes, domain=CONTRIB, num_outputs=1, name="pool"
    )
    made.outputs[0].name, made.outputs[0].type = unit.name, _INTEGERS
    graph = onnx_ir.Graph(
        [integers], made.outputs, nodes=[made], opset_imports={"": 17, CONTRIB: 1}, name="pool"
    )
    return onnx_ir.Model(graph, ir_version=9)


def _copied(tensor: onnx_ir.TensorProtocol, name: str) -> onnx_ir.Value:
    """Return a constant of its own, since a tensor bears the name of the value that holds it."""
    own = onnx_ir.tensor(tensor.numpy(), name=name)
    return onnx_ir.Value(
        name=name,
        type=onnx_ir.TensorType(own.dtype),
        shape=onnx_ir.Shape(own.shape.numpy()),
        const_value=own,
    )


def _transposed(
    graph: onnx_ir.Graph, value: onnx_ir.Value, order: Sequence[int], *, at_end: bool = False
) -> onnx_ir.Value:
    node = onnx_ir.node("Transpose", [value], {"perm": list(order)}, num_outputs=1)
    node.outputs[0].name = f"{value.name}/transposed"
    if at_end:
        graph.append(node)
    else:
        graph.insert_before(graph[0], node)
    return node.outputs[0]


def conversions(shape: Sequence[int]) -> tuple[onnx_ir.Model, onnx_ir.Model]:
    """Return the models that convert floats to integers and back.

    Images change to the layout of integer kernels on the way, and back.
    """
    is_image = len(shape) == len(TO_CHANNELS_LAST)
    last = [shape[axis] for axis in TO_CHANNELS_LAST] if is_image else shape
    floats = onnx_ir.Value(name="floats", type=_FLOATS, shape=onnx_ir.Shape(shape))
    integers = onnx_ir.Value(name="integers", type=_INTEGERS, shape=onnx_ir.Shape(last))
    to = _chain(floats, "QuantizeLinear", [], [TO_CHANNELS_LAST] if is_image else [])
    back = _chain(integers, "DequantizeLinear", [TO_CHANNELS_FIRST] if is_image else [], [])
    to.graph.outputs[0].type, back.graph.outputs[0].type = _INTEGERS, _FLOATS
    return to, back


def _chain(
    value: onnx_ir.Value,
    operator: str,
    before: Sequence[Sequence[int]],
    behind: Sequence[Sequence[int]],
) -> onnx_ir.Model:
    graph = onnx_ir.Graph([value], [], nodes=[], opset_imports={"": 17}, name="conversion")
    held = [
        _copied(onnx_ir.tensor(np.asarray(1, np.float32)), "scale"),
        _copied(onnx_ir.tensor(np.asarray(128, np.uint8)), "zero"),
    ]
    for one in held:
        graph.register_initializer(one)
    steps: list[tuple[str, list[onnx_ir.Value], dict[str, Any]]] = [
        *(("Transpose", [], {"perm": list(one)}) for one in before),
        (operator, held, {}),
        *(("Transpose", [], {"perm": list(one)}) for one in behind),
    ]
    for number, (name, operands, attributes) in enumerate(steps):
        node = onnx_ir.node(name, [value, *operands], attributes, num_outputs=1)
        (value,) = node.outputs
        value.name = f"step{number}"
        graph.append(node)
    graph.outputs.append(value)
    return onnx_ir.Model(graph, ir_version=9)
