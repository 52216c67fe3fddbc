"""Preservation of sparse tensors, which onnx-ir cannot hold.

Every sparse tensor of a model becomes a dense ``uint8`` attribute that holds its serialised bytes,
and a sparse initializer becomes a ``Constant`` node with such an attribute; :func:`restore_sparse`
undoes both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.onnx.files.external import by_real_place, external_tensor

__all__ = ["hide_sparse", "restore_sparse", "sparse_shape", "stands_for_initializer"]

_LARGEST_BYTES = (1 << 31) - 1  # of a protobuf message
_TENSOR = "eqsat_opt.sparse_tensor"
_INITIALIZER = "eqsat_opt.sparse_initializer"
_KINDS = {onnx.AttributeProto.SPARSE_TENSOR, onnx.AttributeProto.SPARSE_TENSORS}


def _node_lists(model: onnx.ModelProto) -> Iterator[Any]:
    """Yield the graphs and functions of a model, nested graphs included."""
    pending: list[Any] = [model.graph, *model.functions]
    while pending:
        owner = pending.pop()
        yield owner
        for node in owner.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    pending.append(attribute.g)
                elif attribute.type == onnx.AttributeProto.GRAPHS:
                    pending.extend(attribute.graphs)


def _sparse_tensors(model: onnx.ModelProto) -> Iterator[onnx.SparseTensorProto]:
    for owner in _node_lists(model):
        if isinstance(owner, onnx.GraphProto):
            yield from owner.sparse_initializer
        for node in owner.node:
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
                    yield attribute.sparse_tensor
                elif attribute.type == onnx.AttributeProto.SPARSE_TENSORS:
                    yield from attribute.sparse_tensors


def _packed(tensor: onnx.SparseTensorProto, marker: str) -> onnx.TensorProto:
    data = tensor.SerializeToString(deterministic=True)
    return onnx.TensorProto(
        name=marker, data_type=onnx.TensorProto.UINT8, dims=[len(data)], raw_data=data
    )


def _hide_attribute(attribute: onnx.AttributeProto) -> None:
    if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
        attribute.t.CopyFrom(_packed(attribute.sparse_tensor, _TENSOR))
        attribute.ClearField("sparse_tensor")
        attribute.type = onnx.AttributeProto.TENSOR
    else:
        attribute.tensors.extend(_packed(t, _TENSOR) for t in attribute.sparse_tensors)
        attribute.ClearField("sparse_tensors")
        attribute.type = onnx.AttributeProto.TENSORS


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values)
    indices = onnx.numpy_helper.to_array(sparse.indices)
    size = math.prod(sparse.dims) * values.dtype.itemsize
    if size > _LARGEST_BYTES:
        raise ModelError(
            f"the sparse default of input {sparse.values.name!r} has {size} bytes, more than a "
            "file can hold"
        )
    array = np.zeros(tuple(sparse.dims), values.dtype)
    array[tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, array.shape)] = (
        values
    )
    return onnx.numpy_helper.from_array(array, sparse.values.name)


def hide_sparse(model: onnx.ModelProto, base: str = "", home: str = "") -> onnx.ModelProto:
    """Return the model without sparse tensors: a copy if there are any, else ``model`` itself.

    Args:
        model: the model to be read.
        base: the folder of external data of sparse tensors, which are read into memory.
        home: another folder, to which links from ``base`` may lead.
    """
    if next(_sparse_tensors(model), None) is None:
        return model
    hidden = onnx.ModelProto()
    hidden.CopyFrom(model)
    for sparse in _sparse_tensors(hidden):
        for part in (sparse.values, sparse.indices):
            if part.data_location == onnx.TensorProto.EXTERNAL:
                part.raw_data = by_real_place(external_tensor(part, base), home).tobytes()
                part.ClearField("external_data")
                part.ClearField("data_location")
    for owner in _node_lists(hidden):
        for node in owner.node:
            for attribute in node.attribute:
                if attribute.type in _KINDS:
                    _hide_attribute(attribute)
        if not isinstance(owner, onnx.GraphProto):
            continue
        constants = []
        inputs = {value.name for value in owner.input}
        for sparse in owner.sparse_initializer:
            if sparse.values.name in inputs:
                # A default of an input cannot be a node; it becomes dense, but keeps its value.
                owner.initializer.append(_dense(sparse))
                continue
            constant = onnx.NodeProto(op_type="Constant", output=[sparse.values.name])
            attribute = constant.attribute.add(name="sparse_value", type=onnx.AttributeProto.TENSOR)
            attribute.t.CopyFrom(_packed(sparse, _INITIALIZER))
            constants.append(constant)
        nodes = list(owner.node)
        del owner.node[:], owner.sparse_initializer[:]
        owner.node.extend([*constants, *nodes])
    return hidden


def stands_for_initializer(node: onnx_ir.Node) -> bool:
    """Return whether a node of a loaded model is not in the file, but is a sparse initializer."""
    attribute = node.attributes.get("sparse_value")
    return (
        attribute is not None
        and attribute.type == onnx_ir.AttributeType.TENSOR
        and attribute.as_tensor().name == _INITIALIZER
    )


def sparse_shape(node: onnx_ir.Node) -> tuple[int, tuple[int, ...]] | None:
    """Return the code of the element type and the sizes of a hidden sparse constant.

    Returns:
        ``None`` for any other node.
    """
    attribute = node.attributes.get("sparse_value")
    if node.op_type != "Constant" or attribute is None or attribute.is_ref():
        return None
    tensor = onnx.SparseTensorProto.FromString(attribute.as_tensor().tobytes())
    return tensor.values.data_type, tuple(tensor.dims)


def restore_sparse(model: onnx.ModelProto) -> onnx.ModelProto:
    """Restore the sparse tensors that :func:`hide_sparse` hid, in place, and return ``model``."""
    for owner in _node_lists(model):
        initializers = []
        for index, node in enumerate(owner.node):
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.TENSOR:
                    if attribute.t.name == _INITIALIZER:
                        initializers.append(index)
                    elif attribute.t.name == _TENSOR:
                        attribute.sparse_tensor.ParseFromString(attribute.t.raw_data)
                        attribute.ClearField("t")
                        attribute.type = onnx.AttributeProto.SPARSE_TENSOR
                elif attribute.type == onnx.AttributeProto.TENSORS and any(
                    t.name == _TENSOR for t in attribute.tensors
                ):
                    for tensor in attribute.tensors:
                        attribute.sparse_tensors.add().ParseFromString(tensor.raw_data)
                    attribute.ClearField("tensors")
                    attribute.type = onnx.AttributeProto.SPARSE_TENSORS
        for index in initializers:
            sparse = owner.sparse_initializer.add()
            sparse.ParseFromString(owner.node[index].attribute[0].t.raw_data)
            sparse.values.name = owner.node[index].output[0]
        for index in reversed(initializers):
            del owner.node[index]
    return model
