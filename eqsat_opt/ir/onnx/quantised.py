"""The nodes that belong to quantised arithmetic, which are left unchanged.

A runtime finds its integer kernels by form: DequantizeLinear before an operator and QuantizeLinear
after it, or a sum of integer products that is cast and scaled. No other node may come between these
nodes, and a weight that is dequantised ahead of time takes four times the bytes and runs in floats.
So the nodes of such a unit enter the graph opaque: no rule sees them, nothing is folded into them,
and they are never shared or moved. The float parts beside them are free.

A rule that moves QuantizeLinear or DequantizeLinear would have to be ``bitexact``: a sum that is
rounded differently changes a quantised value by a whole step. There is no such rule, and the
registry does not define these operators, so that none can be written by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir

from eqsat_opt.ir.onnx.data_movement import MOVING
from eqsat_opt.ir.onnx.types import inner_graphs

__all__ = ["ROUNDING", "may_fold", "quantised_units"]

_QUANTISERS = frozenset({"QuantizeLinear", "DynamicQuantizeLinear"})
ROUNDING = _QUANTISERS | {"DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulNBits"}
"""Operators that round floats to quantisation steps, also to steps of their own."""

_CONVERTERS = _QUANTISERS | {"DequantizeLinear"}
_INTEGER_PRODUCTS = frozenset({"MatMulInteger", "ConvInteger"})
_CONTRACTIONS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Contractions, which have integer kernels even if their result stays a float."""

_CARRIERS = MOVING | {"MaxPool", "Resize"}
"""Operators that pass quantised values on unchanged."""

_BOUNDS = frozenset({"Clip", "Relu"})
"""Operators that the runtime drops if the quantisation after them clips as well."""

_FIRST = slice(1)
_DATA = {
    **dict.fromkeys(_CONVERTERS | _CARRIERS | _BOUNDS - {"Concat"}, _FIRST),
    "Concat": slice(None),
    "Pad": _FIRST,
    "TopK": _FIRST,
    "Where": slice(1, None),
}
"""Operands that hold data, and not shapes, indices, scales or bounds: all if not listed."""

_FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")


def may_fold(node: onnx_ir.Node, dtypes: Iterable[str]) -> bool:
    """Return whether an opaque node on constants of these element types may be evaluated early.

    Quantisation makes constants smaller. A node that reads stored integers, or converts them to
    floats, is not evaluated.
    """
    if node.op_type in _QUANTISERS:
        return True
    return (
        node.op_type != "DequantizeLinear"
        and not _holds_units(node)
        and not {"int8", "uint8"}.intersection(dtypes)
    )


def quantised_units(nodes: Sequence[onnx_ir.Node]) -> frozenset[onnx_ir.Node]:
    """Return the nodes that belong to quantised arithmetic.

    These are: conversions to and from quantised integers, and computations on them; operators that
    read dequantised values and whose results are quantised again, and contractions, whose results
    need not be; operators that only pass quantised values on, such as a Transpose between
    DequantizeLinear and MatMul; Relu and Clip before a quantisation; Cast, Mul and Add after a sum
    of integer products; casts of weights that are stored in at most 8 bits; and nodes whose
    subgraphs hold one of these.

    Args:
        nodes: the nodes of one graph in topological order.
    """
    return frozenset(_Search(nodes).run())


@dataclass
class _Search:
    """A search that follows quantised values forwards and backwards.

    Attributes:
        carried: values that are quantised, or were just dequantised.
        awaited: values that are about to be quantised, or dequantised.
        stored: constants of at most 8 bits per element.
    """

    nodes: Sequence[onnx_ir.Node]
    carried: set[onnx_ir.Value] = field(default_factory=set)
    awaited: set[onnx_ir.Value] = field(default_factory=set)
    stored: set[onnx_ir.Value] = field(default_factory=set)

    def run(self) -> Iterator[onnx_ir.Node]:
        for node in self.nodes:
            operands = set(_operands(node))
            self.stored.update(value for value in operands if _is_narrow_constant(value))
            if node.op_type in _CARRIERS and operands & self.stored:
                self.stored.update(node.outputs)
            if self._converts(node):
                self.carried.update(node.outputs[:1])
            elif node.op_type in _CARRIERS and operands & self.carried:
                self.carried.update(node.outputs)
        for node in reversed(self.nodes):
            hands_on = node.op_type in _CARRIERS or node.op_type in _BOUNDS
            # A quantisation whose step depends on the data forms no unit with the nodes before it.
            is_fixed = self._converts(node) and node.op_type != "DynamicQuantizeLinear"
            if (
                is_fixed
                or node.op_type in _INTEGER_PRODUCTS
                or (hands_on and self.awaited.intersection(node.outputs))
            ):
                self.awaited.update(_operands(node))
        for node in self.nodes:
            if self._belongs(node):
                yield node
        for node in self.nodes:
            if node.op_type in _INTEGER_PRODUCTS:
                yield from _scaling(node)

    def _converts(self, node: onnx_ir.Node) -> bool:
        if node.op_type in _CONVERTERS or node.op_type.startswith(("QLinear", "QGemm")):
            return True
        return (
            node.op_type == "Cast"
            and bool(self.stored.intersection(_operands(node)))
            and node.attributes.get_int("to", 0) in [onnx_ir.DataType[name] for name in _FLOATS]
        )

    def _belongs(self, node: onnx_ir.Node) -> bool:
        op_type, operands = node.op_type, _operands(node)
        if self._converts(node) or op_type in _INTEGER_PRODUCTS or _holds_units(node):
            return True
        is_awaited = bool(self.awaited.intersection(node.outputs))
        carried = [value for value in operands if value in self.carried]
        if op_type in _BOUNDS and is_awaited:
            return True
        if op_type in _CARRIERS:
            return bool(carried) or is_awaited
        if op_type in _CONTRACTIONS:
            return bool(carried)
        others = (value for value in operands if value not in self.carried)
        return bool(carried) and is_awaited and all(map(_is_known, others))


def _operands(node: onnx_ir.Node) -> list[onnx_ir.Value]:
    """Return the operands that hold data."""
    chosen = node.inputs[_DATA.get(node.op_type, slice(None))]
    return [value for value in chosen if value is not None]


def _constant_of(value: onnx_ir.Value) -> onnx_ir.TensorProtocol | None:
    """Return the constant tensor of a value: that of an initializer or of a Constant node."""
    if value.const_value is not None:
        return value.const_value
    producer = value.producer()
    if producer is None or producer.op_type != "Constant" or producer.domain:
        return None
    attribute = producer.attributes.get("value")
    if attribute is None or attribute.is_ref() or attribute.type != onnx_ir.AttributeType.TENSOR:
        return None
    tensor: onnx_ir.TensorProtocol = attribute.value  # as_tensor would check every method
    return tensor


def _is_constant(value: onnx_ir.Value | None) -> bool:
    """Return whether a value is a constant, or the result of a carrier on a constant."""
    if value is None or _constant_of(value) is not None:
        return value is not None
    producer = value.producer()
    return (
        producer is not None and producer.op_type in _CARRIERS and _is_constant(producer.inputs[0])
    )


def _is_narrow_constant(value: onnx_ir.Value) -> bool:
    tensor = _constant_of(value)
    if tensor is None or tensor.dtype in (onnx_ir.DataType.BOOL, onnx_ir.DataType.STRING):
        return False
    return tensor.size > 1 and tensor.dtype.bitwidth <= 8


def _is_known(value: onnx_ir.Value) -> bool:
    """Return whether an operand leaves a unit intact: a constant, or no float, such as a shape."""
    if _constant_of(value) is not None:
        return True
    return value.dtype is not None and value.dtype.name not in _FLOATS


def _scaling(product: onnx_ir.Node) -> Iterator[onnx_ir.Node]:
    """Yield the nodes that scale integer products to floats: Cast, Mul by scales, Add of a bias."""
    for cast in _readers(product, "Cast"):
        yield cast
        for scaled in _readers(cast, "Mul"):
            yield scaled
            for value in scaled.inputs:
                scales = value.producer() if value is not None else None
                if scales is not None and scales.op_type == "Mul" and _multiplies_scales(scales):
                    yield scales
            for biased in _readers(scaled, "Add"):
                if any(map(_is_constant, biased.inputs)):
                    yield biased


def _readers(node: onnx_ir.Node, op_type: str) -> list[onnx_ir.Node]:
    uses = (use.node for use in node.outputs[0].uses())
    return [reader for reader in uses if reader.op_type == op_type and not reader.domain]


def _multiplies_scales(node: onnx_ir.Node) -> bool:
    producers = (value.producer() for value in node.inputs if value is not None)
    return any(p is not None and p.op_type == "DynamicQuantizeLinear" for p in producers)


def _holds_units(node: onnx_ir.Node) -> bool:
    return any(
        inner.op_type in _CONVERTERS | _INTEGER_PRODUCTS or _holds_units(inner)
        for graph in inner_graphs(node)
        for inner in graph
    )
