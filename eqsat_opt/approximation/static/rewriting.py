"""Models in which chosen units compute on integers.

Convolutions and products become the operators that ONNX has for them; others stand between
DequantizeLinear and QuantizeLinear, which onnxruntime fuses with them. A value has one range, so
all its readers share one conversion. The limits of a range also compute a fused activation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir

from eqsat_opt.approximation.drafts import (
    CONTRIB,
    ReplacementDraft,
    drop_unread,
    free_prefix,
    insert_draft,
    names_in,
)
from eqsat_opt.approximation.implementations import integer_product
from eqsat_opt.approximation.sites import constant_of
from eqsat_opt.approximation.static.ranges import QuantisedRange
from eqsat_opt.approximation.static.units import Unit, find_units
from eqsat_opt.approximation.weights import IntegerWeights, integer_weights

__all__ = ["Static", "with_static"]

_MOST = 2**31 - 1
"""Largest integer of a bias."""


@dataclass(frozen=True)
class Static:
    """A way to compute a unit on integers.

    Attributes:
        name: name for users.
        bits: bits of weights; 0 for units without.
        gives_floats: whether the result is left in floats, which products can do.
    """

    name: str
    bits: int = 0
    gives_floats: bool = False


def with_static(
    model: onnx_ir.Model, chosen: Mapping[str, Static], ranges: Mapping[str, QuantisedRange]
) -> onnx_ir.Model:
    """Return a model whose chosen units compute on integers.

    The interface and the names of outputs stay.

    Args:
        model: the model.
        chosen: name of the result of a unit to the way it is computed.
        ranges: range of each value that chosen units read, and of each that they leave in integers.
    """
    result = model.clone()
    graph = result.graph
    graph.sort()
    units = [unit for unit in find_units(result) if unit.name in chosen]
    rewriting = _Rewriting(graph, ranges, free_prefix("static_", names_in(graph)))
    # Names move to other values behind graph outputs, so all are read first.
    for unit, names, name in [(unit, unit.reads, unit.name) for unit in units]:
        rewriting.rewrite(unit, names, name, chosen[name])
    rewriting.end()
    if any(node.domain == CONTRIB for node in graph):
        result.opset_imports.setdefault(CONTRIB, 1)
    return result


@dataclass(frozen=True)
class _Integers:
    """A value in integers, and the same in floats for readers that need these."""

    integers: onnx_ir.Value
    floats: onnx_ir.Value
    scale: onnx_ir.Value
    zero: onnx_ir.Value


@dataclass
class _Rewriting:
    graph: onnx_ir.Graph
    ranges: Mapping[str, QuantisedRange]
    prefix: str
    held: dict[str, _Integers] = field(default_factory=dict)
    drafts: int = 0

    def rewrite(self, unit: Unit, names: tuple[str, ...], name: str, way: Static) -> None:
        """Put the integer form of a unit in its place."""
        read = [
            self.held.get(one) or self._rounded(one, unit.nodes[0], index)
            for index, one in enumerate(names)
        ]
        draft = self._draft(f"{unit.nodes[0].op_type}_")
        constants = [value for value in unit.nodes[0].inputs[1:] if value is not None]
        if way.gives_floats:
            self._replace(unit, draft, _product_in_floats(unit, draft, read[0], way.bits))
        else:
            bounds = _bounds(draft, self.ranges[name])
            make = _MAKERS.get(unit.nodes[0].op_type, _between_conversions)
            integers = make(unit, draft, read, bounds, way.bits, self.ranges[names[0]].scale)
            (floats,) = draft.node("DequantizeLinear", [integers, *bounds], ["floats"])
            self._replace(unit, draft, floats)
            self.held[name] = _Integers(integers, floats, *bounds)
        if unit.has_weight:
            for value in constants:
                drop_unread(self.graph, value)

    def end(self) -> None:
        """Remove conversions to floats that nothing reads."""
        for one in self.held.values():
            conversion = one.floats.producer()
            if not one.floats.uses() and not one.floats.is_graph_output():
                assert conversion is not None
                self.graph.remove(conversion, safe=True)

    def _rounded(self, name: str, node: onnx_ir.Node, index: int) -> _Integers:
        value = node.inputs[index]
        assert value is not None
        draft = self._draft()
        bounds = _bounds(draft, self.ranges[name])
        (integers,) = draft.node("QuantizeLinear", [value, *bounds], ["integers"])
        (floats,) = draft.node("DequantizeLinear", [integers, *bounds], ["floats"])
        floats.type, floats.shape = value.type, value.shape
        insert_draft(self.graph, draft, after=value.producer())
        self.held[name] = _Integers(integers, floats, *bounds)
        return self.held[name]

    def _draft(self, name: str = "") -> ReplacementDraft:
        self.drafts += 1
        return ReplacementDraft(f"{self.prefix}{self.drafts}_{name}")

    def _replace(self, unit: Unit, draft: ReplacementDraft, result: onnx_ir.Value) -> None:
        old = unit.result
        result.type, result.shape = old.type, old.shape
        insert_draft(self.graph, draft, after=unit.nodes[-1])
        is_output = old.is_graph_output()
        old.replace_all_uses_with(result, replace_graph_outputs=True)
        if is_output:
            result.name, old.name = old.name, f"{draft.prefix}replaced"
        for node in reversed(unit.nodes):
            self.graph.remove(node, safe=True)


_Bounds = tuple[onnx_ir.Value, onnx_ir.Value]
"""Scale and zero point."""


def _bounds(draft: ReplacementDraft, held: QuantisedRange) -> _Bounds:
    return (
        draft.constant("scale", np.asarray(held.scale, np.float32)),
        draft.constant("zero", np.asarray(held.zero, np.uint8)),
    )


def _between_conversions(
    unit: Unit,
    draft: ReplacementDraft,
    read: list[_Integers],
    bounds: _Bounds,
    _bits: int,
    _scale: float,
) -> onnx_ir.Value:
    node = unit.nodes[0]
    operands = [*(one.floats for one in read), *node.inputs[len(read) :]]
    (floats,) = draft.node(node.op_type, operands, ["exact"], dict(node.attributes))
    (integers,) = draft.node("QuantizeLinear", [floats, *bounds], ["integers"])
    return integers


def _convolution_on_integers(
    unit: Unit,
    draft: ReplacementDraft,
    read: list[_Integers],
    bounds: _Bounds,
    bits: int,
    scale: float,
) -> onnx_ir.Value:
    node, held = unit.nodes[0], _weights(unit, bits)
    (one,) = read
    operands: list[onnx_ir.Value] = [one.integers, one.scale, one.zero, *_given(draft, held)]
    operands += bounds
    if (bias := _bias(unit, draft, held, scale)) is not None:
        operands.append(bias)
    return draft.node("QLinearConv", operands, ["integers"], dict(node.attributes))[0]


def _product_on_integers(
    unit: Unit,
    draft: ReplacementDraft,
    read: list[_Integers],
    bounds: _Bounds,
    bits: int,
    scale: float,
) -> onnx_ir.Value:
    (one,) = read
    held = _weights(unit, bits)
    operands = [one.integers, one.scale, one.zero, *_given(draft, held)]
    bias = _bias(unit, draft, held, scale)
    if bias is None:
        return draft.node("QLinearMatMul", [*operands, *bounds], ["integers"])[0]
    return draft.node("QGemm", [*operands, bias, *bounds], ["integers"], domain=CONTRIB)[0]


_MAKERS = {
    "Conv": _convolution_on_integers,
    "MatMul": _product_on_integers,
    "Gemm": _product_on_integers,
}


def _product_in_floats(
    unit: Unit, draft: ReplacementDraft, read: _Integers, bits: int
) -> onnx_ir.Value:
    product = integer_product(draft, (read.integers, read.scale, read.zero), _weights(unit, bits))
    node = unit.nodes[0]
    if len(node.inputs) > 2 and node.inputs[2] is not None:
        (product,) = draft.node("Add", [product, node.inputs[2]], ["sum"])
    for activation in unit.nodes[1:]:
        operands = [product, *activation.inputs[1:]]
        (product,) = draft.node(
            activation.op_type, operands, ["active"], dict(activation.attributes)
        )
    return product


def _weights(unit: Unit, bits: int) -> IntegerWeights:
    """Return the weight as integers: `[m, ...]` of convolutions, `[k, n]` of products."""
    weight = unit.nodes[0].inputs[1]
    tensor = None if weight is None else constant_of(weight)
    assert tensor is not None
    array = np.moveaxis(tensor.numpy(), unit.weight_axis, -1)
    matrix = np.ascontiguousarray(array).reshape(-1, array.shape[-1])
    held = integer_weights(matrix, bits=bits, is_signed=True, is_per_column=True)
    if unit.nodes[0].op_type != "Conv":
        return held
    values = np.moveaxis(held.values.reshape(array.shape), -1, 0)
    return IntegerWeights(np.ascontiguousarray(values), held.scales, held.zero_points)


def _given(draft: ReplacementDraft, held: IntegerWeights) -> list[onnx_ir.Value]:
    return [
        draft.constant("weight", held.values),
        draft.constant("weight_scale", held.scales),
        draft.constant("weight_zero", held.zero_points),
    ]


def _bias(
    unit: Unit, draft: ReplacementDraft, held: IntegerWeights, scale: float
) -> onnx_ir.Value | None:
    """Return the bias in units of the sums of products, to which kernels add it."""
    inputs = unit.nodes[0].inputs
    bias = inputs[2] if len(inputs) > 2 else None
    tensor = None if bias is None else constant_of(bias)
    if tensor is None:
        return None
    unit_of_sums = float(scale) * held.scales.astype(np.float64)
    steps = np.clip(np.rint(tensor.numpy().astype(np.float64) / unit_of_sums), -_MOST, _MOST)
    return draft.constant("bias", steps.astype(np.int32))
