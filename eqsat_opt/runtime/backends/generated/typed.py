"""The graph into which onnxruntime optimised a model, with types, as operators of the registry.

onnxruntime infers the shapes of its values, also those of its own operators. An operator of its own
that is a known elementwise formula is replaced by the formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
import onnx_ir
from onnx import helper

from eqsat_opt.errors import ModelError, RuntimeFailed
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.runtime.backends.ort.session import OrtOptions, OrtSession

__all__ = ["typed_graph"]

_MICROSOFT = "com.microsoft"
_LARGE = 1024
"""Number of elements above which a constant holds no shape and is left out."""

_TYPES = {"tensor(float)": onnx.TensorProto.FLOAT}


def typed_graph(model: onnx.ModelProto, options: OrtOptions) -> Graph | None:
    """Return the typed graph; each of its nodes names the node of the model that it comes from.

    Args:
        model: the model after optimisation by onnxruntime, with distinct names of nodes.
        options: options by which onnxruntime runs the model unchanged.

    Returns:
        The graph; ``None`` if onnxruntime or the registry cannot read the model.
    """
    copied = _without_weights(model)
    graph = copied.graph
    try:
        types = list(_inner_types(copied, options))
    except RuntimeFailed:
        return None
    numbers: dict[str, onnx.TensorProto] = {}
    nodes = [one for node in graph.node for one in _spelled(node, numbers)]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numbers.values())
    try:
        graph.value_info.extend(types)
        return import_model(onnx_ir.from_proto(copied), exact=True)
    except ModelError:
        return None


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without large constants and without types of inner values."""
    kept = [tensor for tensor in model.graph.initializer if math.prod(tensor.dims) <= _LARGE]
    names = {value.name for value in model.graph.input}
    weights = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in model.graph.initializer
        if math.prod(tensor.dims) > _LARGE and tensor.name not in names
    ]
    copied = onnx.ModelProto()
    for name in ("ir_version", "opset_import", "functions"):
        _copy(model, copied, name)
    for name in ("node", "input", "output", "sparse_initializer", "name"):
        _copy(model.graph, copied.graph, name)
    copied.graph.initializer.extend(kept)
    copied.graph.input.extend(weights)
    return copied


def _copy(source: Any, target: Any, name: str) -> None:
    value = getattr(source, name)
    if isinstance(value, int | str):
        setattr(target, name, value)
    else:
        getattr(target, name).extend(value)


def _inner_types(model: onnx.ModelProto, options: OrtOptions) -> Iterator[onnx.ValueInfoProto]:
    """Yield the types that onnxruntime infers for all float32 values between nodes."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    known = {value.name for value in probe.graph.output}
    names = [name for node in model.graph.node for name in node.output if name]
    probe.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n not in known)
    for value in OrtSession(probe, options).native.get_outputs():
        if value.type in _TYPES and value.name not in known and value.shape is not None:
            yield helper.make_tensor_value_info(value.name, _TYPES[value.type], value.shape)


def _spelled(
    node: onnx.NodeProto, numbers: dict[str, onnx.TensorProto]
) -> Iterator[onnx.NodeProto]:
    """Yield the formula of a node, or the node if it has none; all parts have its name."""
    formula = _FORMULAS.get((node.domain, node.op_type))
    if formula is None or any(not name for name in node.input):
        yield node
        return
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    parts = formula(len(node.input), attrs)
    for i, (op, operands) in enumerate(parts):
        names = []
        for operand in operands:
            if isinstance(operand, float):
                name = f"eqsat_opt.number {operand!r}"
                numbers[name] = helper.make_tensor(name, onnx.TensorProto.FLOAT, [], [operand])
                names.append(name)
            else:
                names.append(node.input[operand] if operand >= 0 else _part(node, i + operand))
        output = node.output[0] if i == len(parts) - 1 else _part(node, i)
        yield helper.make_node(op, names, [output], name=node.name)


def _part(node: onnx.NodeProto, i: int) -> str:
    return f"{node.output[0]} eqsat_opt.{i}"


_Formula = list[tuple[str, tuple[int | float, ...]]]
"""Operators of ONNX with operands: inputs (0 or more), earlier lines (-1 is the last), numbers."""


def _quick_gelu(_inputs: int, attrs: Mapping[str, float]) -> _Formula:
    alpha = float(attrs.get("alpha", 1.702))
    return [("Mul", (0, alpha)), ("Sigmoid", (-1,)), ("Mul", (0, -1))]


def _gelu(inputs: int, _attrs: Mapping[str, float]) -> _Formula:
    """Return x/2 (1 + erf(x/√2)), where x may be a sum of two inputs."""
    total: _Formula = [("Add", (0, 1))] if inputs == 2 else []
    x, again = (-1, -4) if total else (0, 0)
    gate: _Formula = [("Div", (x, math.sqrt(2.0))), ("Erf", (-1,)), ("Add", (-1, 1.0))]
    return [*total, *gate, ("Mul", (again, -1)), ("Mul", (-1, 0.5))]


_FORMULAS: Mapping[tuple[str, str], Callable[[int, Mapping[str, float]], _Formula]] = {
    (_MICROSOFT, "QuickGelu"): _quick_gelu,
    (_MICROSOFT, "Gelu"): _gelu,
    (_MICROSOFT, "BiasGelu"): _gelu,
}
