"""Contents of a model: its operators, the bytes of its constants, and a digest of everything."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from contextlib import ExitStack
from typing import Any

import numpy as np
import onnx_ir

from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.external import tensor_slots
from eqsat_opt.ir.onnx.files.sparse_tensors import stands_for_initializer
from eqsat_opt.ir.onnx.files.streaming import data_in_memory

__all__ = ["constant_bytes", "content_digest", "operator_counts", "update_digest"]


def operator_counts(model: onnx_ir.Model) -> Counter[str]:
    """Count the nodes of each operator in the main graph; a call of a function is one node."""
    return Counter(node.op_type for node in model.graph if not stands_for_initializer(node))


def constant_bytes(model: onnx_ir.Model) -> int:
    """Count the bytes of all initializers and attribute tensors, those in subgraphs included.

    Tensors in functions count too.
    """
    return sum(_bytes(slot.tensor) for slot in tensor_slots(model))


def _bytes(tensor: Any) -> int:
    if tensor.dtype == onnx_ir.DataType.STRING:
        return sum(map(len, tensor.string_data()))
    if isinstance(tensor, onnx_ir.TensorProtoTensor):  # onnx-ir makes a shape of it at every look
        size: int = math.ceil(math.prod(tensor.raw.dims) * tensor.dtype.itemsize)
        return size
    return int(tensor.nbytes)


def content_digest(model: onnx_ir.Model, *, computed_only: bool = False) -> str:
    """Return the SHA-256 of the graph and of every byte of its tensors, without metadata.

    The same model has the same digest in memory, in one file, or with its weights in other files.
    All weights are read, in pieces, which takes about as long as writing the model. The model is
    unchanged after the call.

    Args:
        model: the model.
        computed_only: whether to leave out the bytes of tensors that were stored in a file; those
            that are still to be computed count. The digest is another one then, and of use only
            beside that of the model they come from.
    """
    state = hashlib.sha256()
    shared = _without_data()  # onnx-ir names an initializer's tensor when it writes it
    with ExitStack() as cleanup:
        for slot in tensor_slots(model):
            tensor = slot.tensor
            if tensor.dtype == onnx_ir.DataType.STRING:
                continue
            state.update(f"{tensor.name}:{tensor.dtype.name}{tensor.shape}:".encode())
            if not computed_only or isinstance(tensor, onnx_ir.LazyTensor):
                update_digest(state, tensor)
            state.update(f"{tensor.doc_string or ''}\0".encode())
            cleanup.callback(slot.replace, tensor)
            slot.replace(shared if slot.is_initializer else _without_data(tensor.name or ""))
        proto = model_proto(model)
    del proto.metadata_props[:]
    state.update(proto.SerializeToString(deterministic=True))
    return state.hexdigest()


def _without_data(name: str = "") -> Any:
    """Return a tensor for the place of one whose type and data are in the digest already."""
    return onnx_ir.Tensor(np.empty(0, np.uint8), name=name)


def update_digest(state: Any, tensor: Any) -> None:
    """Add the bytes of a tensor to a digest, without a copy of those in memory."""
    data = data_in_memory(tensor)
    if data is None:
        tensor.tofile(_DigestFile(state))
    else:
        state.update(data)


class _DigestFile:
    """A file that only computes the digest of the data written to it."""

    def __init__(self, state: Any) -> None:
        self._state = state

    def write(self, data: Any) -> int:
        self._state.update(data)
        return len(data)
