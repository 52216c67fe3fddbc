"""Write a model all or nothing, without ever holding all its weights in memory."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.onnx_export import model_proto

__all__ = ["save_model"]

_INLINE_BYTES = 2**31 - 2**24
"""Protobuf refuses messages above 2 GiB; the margin is for everything that is no weight."""

_EXTERNAL_BYTES = 1024
"""Tensors below this stay in the model file even if the others are external."""

_ALIGNMENT = 4096


def save_model(model: onnx_ir.Model, path: str | os.PathLike[str]) -> None:
    """Write ``model`` to ``path``, its weights beside it if any was external or they exceed 2 GB.

    The model is the same after the call; what was external in it still refers to the files that it
    came from.

    Raises:
        ModelError: the file cannot be written; nothing is left behind.
    """
    target = os.fspath(path)
    try:
        _save(model, os.path.abspath(target))
    except OSError as error:
        raise ModelError(f"cannot write {target}: {error.strerror or error}") from error


def _save(model: onnx_ir.Model, target: str) -> None:
    if os.path.isdir(target):
        raise IsADirectoryError(21, "it is a folder")
    slots = list(_tensor_slots(model))
    external = any(isinstance(s.tensor, onnx_ir.ExternalTensor) for s in slots)
    external = external or sum(s.tensor.nbytes for s in slots) > _INLINE_BYTES
    with contextlib.ExitStack() as cleanup:
        model_file, model_temporary = _temporary(cleanup, target)
        data_name = f"{os.path.basename(target)}.data"
        data_target = os.path.join(os.path.dirname(target), data_name)
        data_temporary = ""
        if external:
            data_file, data_temporary = _temporary(cleanup, data_target)
            moved = [
                s for s in slots if s.tensor.nbytes >= _EXTERNAL_BYTES or _is_external(s.tensor)
            ]
            places = [_append(data_file, slot.tensor) for slot in moved]
            _finish(data_file)
            for slot, (offset, length) in zip(moved, places, strict=True):
                cleanup.callback(slot.replace, slot.tensor)
                slot.replace(_moved(slot.tensor, data_name, offset, length))
        model_file.write(model_proto(model).SerializeToString(deterministic=True))
        _finish(model_file)
        if external:
            os.replace(data_temporary, data_target)
        os.replace(model_temporary, target)


def _is_external(tensor: Any) -> bool:
    return isinstance(tensor, onnx_ir.ExternalTensor)


class _Slot:
    """A place in a model that holds a tensor."""

    def __init__(self, owner: Any, key: str | None) -> None:
        self._owner = owner
        self._key = key
        self.tensor: Any = owner.const_value if key is None else owner.attributes[key].value

    def replace(self, tensor: Any) -> None:
        if self._key is None:
            self._owner.const_value = tensor
        else:
            self._owner.attributes[self._key] = onnx_ir.AttrTensor(self._key, tensor)


def _tensor_slots(model: onnx_ir.Model) -> Iterator[_Slot]:
    """Initializers, and external tensors of attributes, in nested graphs and functions too."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None and value.const_value.dtype != onnx_ir.DataType.STRING:
                yield _Slot(value, None)
        for node in graph:
            for key, attribute in node.attributes.items():
                if attribute.type == onnx_ir.AttributeType.TENSOR and _is_external(attribute.value):
                    yield _Slot(node, key)


def _temporary(cleanup: contextlib.ExitStack, target: str) -> tuple[BinaryIO, str]:
    """A file beside ``target`` that is gone afterwards, unless it was renamed."""
    handle, path = tempfile.mkstemp(
        prefix=f".{os.path.basename(target)}.", dir=os.path.dirname(target)
    )
    cleanup.callback(_remove, path)
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(path, 0o666 & ~mask)  # mkstemp makes files that only their owner may read
    return cleanup.enter_context(os.fdopen(handle, "wb")), path


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _finish(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _append(file: BinaryIO, tensor: Any) -> tuple[int, int]:
    """Write a tensor at the next aligned offset; returns offset and length in bytes."""
    offset = -(-file.tell() // _ALIGNMENT) * _ALIGNMENT
    file.write(b"\0" * (offset - file.tell()))
    tensor.tofile(file)
    return offset, file.tell() - offset


def _moved(tensor: Any, location: str, offset: int, length: int) -> onnx_ir.ExternalTensor:
    return onnx_ir.ExternalTensor(
        location,
        offset,
        length,
        tensor.dtype,
        shape=onnx_ir.Shape(tensor.shape),
        name=tensor.name or "",
        doc_string=tensor.doc_string,
    )
