"""Result types of operators of other domains, which onnx does not infer.

The tools of onnxruntime write its own operators into models that are fused or hold weights in few
bits, converters of trees those of ai.onnx.ml. The nodes pass through unchanged, and without a type
all nodes after them would as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import onnx_ir

from eqsat_opt.ir.onnx.learned_types import LEARNED, Operands, Rule, need
from eqsat_opt.ir.ops._base import IllTyped, broadcast_shapes
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import TensorType, ValueType

__all__ = ["IN_DEFAULT_DOMAIN", "foreign_types", "standing_in"]

_REPLACEMENTS = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
"""Fused operators to operators with the same operands and the same result types."""

IN_DEFAULT_DOMAIN = frozenset({"LayerNormalization", "SimplifiedLayerNormalization"})
"""Operators that onnxruntime writes into the default domain at opsets without them."""


def foreign_types(
    node: onnx_ir.Node, operands: Sequence[ValueType | None], types: Sequence[ValueType]
) -> list[ValueType]:
    """Fill in known types of the results of a node that no schema of onnx describes.

    Args:
        node: a node of any domain.
        operands: types of its operands, ``None`` if absent or unknown.
        types: types of its results as far as they are already known; these stay.
    """
    domain = "com.microsoft" if node.op_type in IN_DEFAULT_DOMAIN else node.domain
    rule = _BY_DOMAIN.get(domain, {}).get(node.op_type)
    if rule is None or all(isinstance(one, TensorType) for one in types):
        return list(types)
    known = [one if isinstance(one, TensorType) else None for one in operands]
    try:
        found = rule(node, known)
    except (IllTyped, IndexError, ValueError, ZeroDivisionError):  # running it will show the fault
        return list(types)
    found += [None] * (len(types) - len(found))
    return [
        old if new is None or isinstance(old, TensorType) else new
        for old, new in zip(types, found, strict=False)
    ]


def standing_in(node: onnx_ir.Node) -> onnx.NodeProto:
    """Return the node as inference knows it: a fused operator without the activation after it."""
    proto = onnx_ir.to_proto(node)
    other = _REPLACEMENTS.get(node.op_type)
    if other is None or node.domain != "com.microsoft":
        return proto
    plain = onnx.helper.make_node(other, proto.input[:3], proto.output)
    plain.attribute.extend(a for a in proto.attribute if not a.name.startswith("activation"))
    return plain


def _with_last(operand: TensorType, last: Dim) -> TensorType:
    return TensorType(operand.dtype, (*operand.shape[:-1], last))


def _as_first(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type one result like the first operand."""
    return [need(operands, 0)]


def _skip_normalised(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type the normalised sum, mean and deviation by row, and the sum."""
    first = need(operands, 0)
    rows = TensorType("float32", (*first.shape[:-1], 1))
    return [first, rows, rows, first]


def _few_bits(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type a product with a weight whose number of columns is an attribute."""
    columns = node.attributes.get_int("N", 0)
    if not columns:
        raise IllTyped("the number of columns is missing")
    return [_with_last(need(operands, 0), columns)]


def _product(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type a product whose factors may be transposed first."""
    left, right = need(operands, 0), need(operands, 1)
    if (
        len(left.shape) < 2
        or len(right.shape) < 2
        or node.attributes.get_int("transBatchA", 0) != 0
    ):
        raise IllTyped("a product of vectors")
    if node.attributes.get_int("transBatchB", 0):
        raise IllTyped("a batch is transposed")
    rows = left.shape[-1 if node.attributes.get_int("transA", 0) else -2]
    columns = right.shape[-2 if node.attributes.get_int("transB", 0) else -1]
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    return [TensorType(left.dtype, (*batch, rows, columns))]


def _integer_product(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type a product of integers that is scaled to a float."""
    (product,) = _product(node, operands)
    assert product is not None
    return [TensorType("float32", product.shape)]


def _distances(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type the distance of each row of one matrix from each row of another."""
    left, right = need(operands, 0), need(operands, 1)
    return [TensorType(left.dtype, (left.shape[0], right.shape[0]))]


def _embedded(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type normalised sums of embeddings, the lengths of the masks, and the sums."""
    ids, table = need(operands, 0), need(operands, 2)
    result = TensorType(table.dtype, (*ids.shape, table.shape[-1]))
    return [result, TensorType("int32", ids.shape[:1]), result]


def _attention(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type attention on one operand, from which one weight computes queries, keys and values."""
    width = need(operands, 1).shape[-1]
    sizes = node.attributes.get_ints("qkv_hidden_sizes", None)
    if sizes is None and (not isinstance(width, int) or width % 3):
        raise IllTyped("queries, keys and values are not of one size")
    last = sizes[2] if sizes is not None else int(str(width)) // 3
    return [_with_last(need(operands, 0), last)]


def _attention_of_parts(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type attention on queries, keys and values [N, L, H·D]; packed operands are not supported."""
    query, value = need(operands, 0), operands[2] if len(operands) > 2 else None
    if value is None or len(query.shape) != 3 or len(value.shape) not in (3, 4):
        raise IllTyped("queries, keys and values are packed")
    if len(value.shape) == 3:
        return [_with_last(query, value.shape[-1])]
    return [_with_last(query, value.shape[1] * value.shape[3])]


def _grouped_attention(node: onnx_ir.Node, operands: Operands) -> list[TensorType | None]:
    """Type attention in which several heads share keys; results are like queries."""
    if operands[1] is None:
        raise IllTyped("queries, keys and values are packed")
    return [need(operands, 0)]


_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "BiasGelu",
            "FastGelu",
            "Gelu",
            "LayerNormalization",
            "QuickGelu",
            "RotaryEmbedding",
            "SimplifiedLayerNormalization",
        ),
        _as_first,
    ),
    "Attention": _attention,
    "CDist": _distances,
    "DynamicQuantizeMatMul": _product,
    "EmbedLayerNormalization": _embedded,
    "FusedMatMul": _product,
    "GroupQueryAttention": _grouped_attention,
    "MatMulIntegerToFloat": _integer_product,
    "MatMulNBits": _few_bits,
    "MultiHeadAttention": _attention_of_parts,
    "SkipLayerNormalization": _skip_normalised,
    "SkipSimplifiedLayerNormalization": _skip_normalised,
}

_BY_DOMAIN: Mapping[str, Mapping[str, Rule]] = {"com.microsoft": _RULES, "ai.onnx.ml": LEARNED}
