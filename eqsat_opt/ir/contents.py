"""What a model file holds: its operators and the bytes of its constants, as they stand in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import onnx_ir

from eqsat_opt.ir.sparse import stands_for_initializer

__all__ = ["constant_bytes", "operator_counts"]


def operator_counts(model: onnx_ir.Model) -> Counter[str]:
    """How many nodes of each operator the main graph has; a call of a function is one node."""
    return Counter(node.op_type for node in model.graph if not stands_for_initializer(node))


def constant_bytes(model: onnx_ir.Model) -> int:
    """Bytes of all initializers and tensors in attributes, in subgraphs and functions too."""
    found: dict[int, Any] = {}
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                found[id(value.const_value)] = value.const_value
    inner = (node for function in model.functions.values() for node in function.all_nodes())
    for node in (*model.graph.all_nodes(), *inner):
        for attribute in node.attributes.values():
            if not attribute.is_ref() and attribute.type == onnx_ir.AttributeType.TENSOR:
                found[id(attribute.value)] = attribute.as_tensor()
            elif not attribute.is_ref() and attribute.type == onnx_ir.AttributeType.TENSORS:
                found.update((id(tensor), tensor) for tensor in attribute.as_tensors())
    return sum(map(_bytes, found.values()))


def _bytes(tensor: Any) -> int:
    if tensor.dtype == onnx_ir.DataType.STRING:
        return sum(map(len, tensor.string_data()))
    return int(tensor.nbytes)
