"""Units: operators for which onnxruntime has a kernel on 8-bit integers, with a fused activation.

A new kind of unit is one row of a table here. Prices and errors are measured, so an operator for
which a version of onnxruntime has no such kernel is merely never chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir

from eqsat_opt.approximation.sites import constant_of, is_plain_product

__all__ = ["LEAST_STATIC_OPSET", "Unit", "find_units"]

LEAST_STATIC_OPSET = 10
"""First opset with QuantizeLinear."""

_WEIGHTED = frozenset({"Conv", "MatMul", "Gemm"})
"""Operators whose second operand is constant."""

_FIRST_ONLY = MappingProxyType(
    {
        "MaxPool": True,
        "Reshape": True,
        "Transpose": True,
        "Flatten": True,
        "Squeeze": True,
        "Unsqueeze": True,
        "Resize": True,
        "AveragePool": False,
        "GlobalAveragePool": False,
        "Sigmoid": False,
        "LeakyRelu": False,
    }
)
"""Operators on one value, and whether its range is that of the result as well."""

_ON_ALL = frozenset({"Add", "Mul", "Concat"})
"""Operators on several values, none of which is constant."""

_ACTIVATIONS = frozenset({"Relu", "Clip"})
"""Activations that an integer kernel computes by the limits of its result."""

_FUSES = _WEIGHTED | {"Add"}
"""Operators with which an activation is fused."""


@dataclass(frozen=True, eq=False)
class Unit:
    """One operator, or one and its activation.

    Attributes:
        nodes: the operator, and its activation if there is one.
        data: values that it reads besides constants.
        has_weight: whether its second operand is a constant of floats.
        keeps_range: whether the range of its operand is that of its result too.
        most: upper limit of its result.
    """

    nodes: tuple[onnx_ir.Node, ...]
    data: tuple[onnx_ir.Value, ...]
    has_weight: bool = False
    keeps_range: bool = False
    most: float = np.inf

    @property
    def result(self) -> onnx_ir.Value:
        """The value of the last node."""
        return self.nodes[-1].outputs[0]

    @property
    def name(self) -> str:
        """Name of the result."""
        return self.result.name or ""

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of its data, in the order of the operands."""
        return tuple(value.name or "" for value in self.data)

    @property
    def is_convolution(self) -> bool:
        """Whether it is a convolution with a constant weight."""
        return self.has_weight and self.nodes[0].op_type == "Conv"

    @property
    def product(self) -> str:
        """Name of the result before the activation."""
        return self.nodes[0].outputs[0].name or ""

    @property
    def weight_axis(self) -> int:
        """Axis of the weight along which the channels of the result lie."""
        node = self.nodes[0]
        is_first = self.is_convolution or bool(node.attributes.get_int("transB", 0))
        return 0 if is_first else 1


def find_units(model: onnx_ir.Model) -> tuple[Unit, ...]:
    """Return the units of the main graph of a model in the order of its nodes."""
    if model.opset_imports.get("", 0) < LEAST_STATIC_OPSET:
        return ()
    return tuple(_units(model.graph))


def _units(graph: onnx_ir.Graph) -> Iterator[Unit]:
    for node in graph:
        if node.domain not in ("", "ai.onnx") or not node.outputs or not node.outputs[0].name:
            continue
        if any(value.name for value in node.outputs[1:]):
            continue
        unit = _unit(node, graph)
        if unit is not None and all(unit.reads) and _is_closed(unit):
            yield unit


def _unit(node: onnx_ir.Node, graph: onnx_ir.Graph) -> Unit | None:
    first = node.inputs[0] if node.inputs else None
    if first is None or constant_of(first) is not None:
        return None
    if node.op_type in _WEIGHTED:
        if not _has_constant_weight(node, graph):
            return None
        nodes, most = _with_activation(node)
        return Unit(nodes, (first,), has_weight=True, most=most)
    if node.op_type in _ON_ALL:
        data = [value for value in node.inputs if value is not None]
        if len(data) != len(node.inputs) or any(constant_of(one) is not None for one in data):
            return None
        nodes, most = _with_activation(node)
        return Unit(nodes, tuple(data), most=most)
    if node.op_type not in _FIRST_ONLY:
        return None
    if node.op_type == "Resize" and node.attributes.get_string("mode", "nearest") != "nearest":
        return None
    return Unit((node,), (first,), keeps_range=_FIRST_ONLY[node.op_type])


def _is_closed(unit: Unit) -> bool:
    """Return whether a unit reads nothing besides its data and constants."""
    held = {unit.nodes[0].outputs[0], *unit.data, None}
    return all(
        value in held or (value is not None and constant_of(value) is not None)
        for node in unit.nodes
        for value in node.inputs
    )


def _has_constant_weight(node: onnx_ir.Node, graph: onnx_ir.Graph) -> bool:
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    tensor = None if weight is None else constant_of(weight)
    if tensor is None or weight in graph.inputs or tensor.dtype != onnx_ir.DataType.FLOAT:
        return False
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    if bias is not None:
        held = constant_of(bias)
        if held is None or bias in graph.inputs or len(held.shape) != 1:
            return False
    if node.op_type == "Conv":
        return len(tensor.shape) >= 3
    return is_plain_product(node) and len(tensor.shape) == 2


def _with_activation(node: onnx_ir.Node) -> tuple[tuple[onnx_ir.Node, ...], float]:
    """Return the node with the activation that alone reads it, and the limit of the result."""
    (value, *_), alone = node.outputs, ((node,), np.inf)
    uses = tuple(value.uses())
    if node.op_type not in _FUSES or len(uses) != 1 or value.is_graph_output():
        return alone
    reader = uses[0].node
    if reader.op_type not in _ACTIVATIONS or reader.graph is not node.graph or uses[0].idx:
        return alone
    if reader.domain not in ("", "ai.onnx") or not reader.outputs[0].name:
        return alone
    if reader.op_type == "Relu":
        return (node, reader), np.inf
    limits = [None if one is None else constant_of(one) for one in reader.inputs[1:]]
    if len(limits) != 2 or any(one is None or one.size != 1 for one in limits):
        return alone
    least, most = (float(one.numpy().item()) for one in limits if one is not None)
    return ((node, reader), most) if least == 0.0 and most > 0.0 else alone
