"""A part of a model: some of its nodes, with missing operands and unread results as its interface.

Values that nodes outside of the part make become inputs, so a part computes on other data than the
whole model does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from eqsat_opt.ir.values.dims import plain_symbol
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType, ValueType

__all__ = ["part_of"]


def part_of(
    proto: onnx.ModelProto, types: Mapping[str, ValueType], numbers: Sequence[int]
) -> onnx.ModelProto | None:
    """Return the part of a model with some of its nodes; ``None`` if there can be none.

    There is none of no nodes, and none that would need an input without a known type.

    Args:
        proto: the model, its nodes in an order in which they can run; it is not changed.
        types: type of each value.
        numbers: numbers of the nodes of the part.
    """
    graph = proto.graph
    nodes = [graph.node[number] for number in sorted(numbers)]
    made = {name for node in nodes for name in node.output if name}
    read = list(dict.fromkeys(name for node in nodes for name in _reads(node)))
    constants = {tensor.name for tensor in graph.initializer}
    constants |= {tensor.values.name for tensor in graph.sparse_initializer}
    declared = {value.name: value for value in graph.input}
    inputs = []
    for name in read:
        if name in made or (name in constants and name not in declared):
            continue
        value = declared.get(name) or _value(name, types.get(name))
        if value is None:
            return None
        inputs.append(value)
    given = {value.name: value for value in graph.output}
    inside = {name for node in nodes for name in _reads(node)}
    ends = [
        given.get(name) or _value(name, types.get(name)) or onnx.ValueInfoProto(name=name)
        for node in nodes
        for name in node.output
        if name and (name in given or name not in inside)
    ]
    if not ends:
        return None
    part = onnx.ModelProto()
    part.CopyFrom(proto)
    for field in ("node", "input", "output", "value_info", "initializer", "sparse_initializer"):
        part.graph.ClearField(field)
    part.graph.node.extend(nodes)
    part.graph.input.extend(inputs)
    part.graph.output.extend(ends)
    used = set(read)
    part.graph.initializer.extend(t for t in graph.initializer if t.name in used)
    part.graph.sparse_initializer.extend(
        t for t in graph.sparse_initializer if t.values.name in used
    )
    return part


def _value(name: str, type_: ValueType | None) -> onnx.ValueInfoProto | None:
    """Declare a value of a known type; a size that is a formula is left open."""
    if not isinstance(type_, TensorType) or type_.dtype not in DTYPE_CODES:
        return None
    made = onnx.ValueInfoProto(name=name)
    made.type.tensor_type.elem_type = DTYPE_CODES[type_.dtype]
    made.type.tensor_type.shape.SetInParent()
    for size in type_.shape:
        dim = made.type.tensor_type.shape.dim.add()
        if isinstance(size, int):
            dim.dim_value = size
        elif (symbol := plain_symbol(size)) is not None:
            dim.dim_param = symbol.removeprefix("?")
    return made


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield what a node reads, and what its bodies read from outside."""
    yield from filter(None, node.input)
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            own = {value.name for value in graph.input} | {t.name for t in graph.initializer}
            own.update(name for inner in graph.node for name in inner.output)
            inside = (name for inner in graph.node for name in _reads(inner))
            results = (value.name for value in graph.output)
            yield from (name for name in (*inside, *results) if name not in own)
