"""Sites: products with a constant matrix that implementations of low precision may compute."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

__all__ = ["LEAST_OPSET", "ProductSite", "constant_of", "find_sites", "is_plain_product"]

LEAST_OPSET = 11
"""First opset with DynamicQuantizeLinear."""

_LEAST_WEIGHTS = 1024
"""Weights of the smallest matrix that is a site; conversions take longer than smaller products."""

_DATA, _WEIGHT, _BIAS = range(3)


@dataclass(frozen=True, eq=False)
class ProductSite:
    """A product of rows with a constant matrix in the main graph of a model.

    Attributes:
        node: the node, a MatMul or Gemm.
        name: name of its result.
        is_transposed: whether the constant is held as `[n, k]`.
        k, n: elements of a row before and after.
    """

    node: onnx_ir.Node
    name: str
    is_transposed: bool
    k: int
    n: int

    @property
    def data(self) -> onnx_ir.Value:
        """The rows, `[..., k]`."""
        value = self.node.inputs[_DATA]
        assert value is not None
        return value

    @property
    def weight(self) -> onnx_ir.Value:
        """The constant as the model holds it."""
        value = self.node.inputs[_WEIGHT]
        assert value is not None
        return value

    @property
    def bias(self) -> onnx_ir.Value | None:
        """The value that is added, if there is one."""
        inputs = self.node.inputs
        return inputs[_BIAS] if len(inputs) > _BIAS else None

    def matrix(self) -> npt.NDArray[Any]:
        """Return the constant as `[k, n]` f32."""
        tensor, _ = _stored(self.weight)
        assert tensor is not None
        array = tensor.numpy()
        return np.ascontiguousarray(array.T) if self.is_transposed else array


def find_sites(model: onnx_ir.Model) -> tuple[ProductSite, ...]:
    """Return the sites of a model in the order of its nodes."""
    if model.opset_imports.get("", 0) < LEAST_OPSET:
        return ()
    return tuple(_sites(model.graph))


def _sites(graph: onnx_ir.Graph) -> Iterator[ProductSite]:
    for node in graph:
        if node.domain not in ("", "ai.onnx") or not is_plain_product(node):
            continue
        data, weight = node.inputs[_DATA], node.inputs[_WEIGHT]
        if data is None or weight is None or constant_of(data) is not None:
            continue
        (tensor, is_turned), name = _stored(weight), node.outputs[0].name
        if tensor is None or weight in graph.inputs or not name:
            continue
        if tensor.dtype != onnx_ir.DataType.FLOAT or len(tensor.shape) != 2:
            continue
        reads_turned = node.op_type == "Gemm" and bool(node.attributes.get_int("transB", 0))
        is_transposed = is_turned != reads_turned
        k, n = tensor.shape.numpy()
        if is_transposed:
            k, n = n, k
        if k * n >= _LEAST_WEIGHTS:
            yield ProductSite(node, name, is_transposed, k=k, n=n)


def _stored(weight: onnx_ir.Value) -> tuple[onnx_ir.TensorProtocol | None, bool]:
    """Return the constant of a weight, and whether the weight is its transpose.

    Embeddings that are the last layer as well are transposed there.
    """
    producer = weight.producer()
    if producer is not None and producer.op_type == "Transpose" and not producer.domain:
        (data,) = producer.inputs
        graph = producer.graph
        is_given = isinstance(graph, onnx_ir.Graph) and data in graph.inputs
        return (None if data is None or is_given else constant_of(data)), True
    return constant_of(weight), False


def is_plain_product(node: onnx_ir.Node) -> bool:
    """Return whether a node is a MatMul, or a Gemm of plain rows without factors."""
    if node.op_type == "MatMul":
        return True
    if node.op_type != "Gemm":
        return False
    scales = (node.attributes.get_float(name, 1.0) for name in ("alpha", "beta"))
    return not node.attributes.get_int("transA", 0) and all(one == 1.0 for one in scales)


def constant_of(value: onnx_ir.Value) -> onnx_ir.TensorProtocol | None:
    """Return the tensor of a constant or an initializer; ``None`` if the value is computed."""
    return onnx_ir.convenience.get_const_tensor(value)
