"""Tensors whose data are in files beside the model: their places, and checks before reading.

All places are covered: initializers and attributes, of the main graph, of nested graphs and of the
model's functions.
"""

from __future__ import annotations

import math
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import onnx
import onnx_ir

from eqsat_opt.errors import ModelError, reason

__all__ = [
    "BITS",
    "TensorSlot",
    "by_real_place",
    "byte_count",
    "check_external",
    "external_files",
    "external_in",
    "external_tensor",
    "external_tensors",
    "files_read_by",
    "has_external",
    "placed_in_file",
    "tensor_slots",
    "with_data_inside",
]

_SMALL_MODEL_BYTES = 64 << 20
"""Size above which no external data is expected: a model file with external data is small."""

BITS = {
    int(one): one.bitwidth
    for one in onnx_ir.DataType  # onnx may be newer, and have types that onnx-ir cannot read
    if one not in (onnx_ir.DataType.UNDEFINED, onnx_ir.DataType.STRING)
}


def byte_count(size: int, code: int) -> int:
    """Return the bytes of ``size`` elements of an ONNX element type."""
    return (size * BITS[code] + 7) // 8


class TensorSlot:
    """A place in a model that holds a tensor: of a value, or in an attribute of a node."""

    def __init__(self, owner: Any, key: str | None, index: int | None = None) -> None:
        self._owner = owner
        self._key = key
        self._index = index
        held = owner.const_value if key is None else owner.attributes[key].value
        self.tensor: Any = held if index is None else held[index]

    @property
    def is_initializer(self) -> bool:
        return self._key is None

    @property
    def is_external(self) -> bool:
        return isinstance(self.tensor, onnx_ir.ExternalTensor)

    def replace(self, tensor: Any) -> None:
        if self._key is None:
            self._owner.const_value = tensor
            return
        old = self._owner.attributes[self._key]
        value = tensor
        if self._index is not None:
            value = [*old.value]
            value[self._index] = tensor
        self._owner.attributes[self._key] = onnx_ir.Attr(
            old.name, old.type, value, doc_string=old.doc_string
        )


def tensor_slots(model: onnx_ir.Model) -> Iterator[TensorSlot]:
    """Yield every place of a model that holds a tensor."""
    yield from _graph_slots(model.graph)
    for function in model.functions.values():
        yield from _graph_slots(function.graph)
        yield from _attribute_slots(function, [])  # defaults of its attributes


def _graph_slots(graph: onnx_ir.Graph) -> Iterator[TensorSlot]:
    waiting = [graph]
    while waiting:
        graph = waiting.pop()
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield TensorSlot(value, None)
        for node in graph:
            if node.attributes:
                yield from _attribute_slots(node, waiting)


def _attribute_slots(owner: Any, graphs: list[onnx_ir.Graph]) -> Iterator[TensorSlot]:
    """Yield the tensors in attributes, and append the graphs in attributes to a list."""
    for key, attribute in owner.attributes.items():
        if attribute.is_ref() or attribute.value is None:
            continue
        kind = attribute.type
        if kind is onnx_ir.AttributeType.TENSOR:
            yield TensorSlot(owner, key)
        elif kind is onnx_ir.AttributeType.TENSORS:
            yield from (TensorSlot(owner, key, index) for index in range(len(attribute.value)))
        elif kind is onnx_ir.AttributeType.GRAPH:
            graphs.append(attribute.value)
        elif kind is onnx_ir.AttributeType.GRAPHS:
            graphs.extend(attribute.value)


def external_tensors(model: onnx_ir.Model) -> Iterator[onnx_ir.ExternalTensor]:
    """Return every tensor of a model whose data are in another file."""
    return (slot.tensor for slot in tensor_slots(model) if slot.is_external)


def has_external(model: onnx_ir.Model) -> bool:
    """Return whether any data of a model are in another file."""
    return next(external_tensors(model), None) is not None


def with_data_inside(model: onnx_ir.Model) -> onnx_ir.Model:
    """Return the model with external weights in memory; the model itself if it has none."""
    if not has_external(model):
        return model
    return onnx_ir.external_data.load_to_model(model.clone())


def placed_in_file(tensor: Any, location: str, offset: int, length: int) -> onnx_ir.ExternalTensor:
    """Return a tensor that describes another one, with its data at a place in a file."""
    return onnx_ir.ExternalTensor(
        location,
        offset,
        length,
        tensor.dtype,
        shape=onnx_ir.Shape(tensor.shape),
        name=tensor.name or "",
        doc_string=tensor.doc_string,
    )


def external_files(model: onnx_ir.Model) -> set[str]:
    """Return the files that a model reads its data from, by their real paths."""
    return {os.path.realpath(tensor.path) for tensor in external_tensors(model)}


def files_read_by(path: str | os.PathLike[str]) -> frozenset[str]:
    """Return the data files of the model in a file, by their real paths.

    The result is empty if the file does not hold a model.
    """
    try:
        status = os.stat(path)
        # Reading a pipe would block, and its data would be lost to the next reader.
        if not stat.S_ISREG(status.st_mode) or status.st_size > _SMALL_MODEL_BYTES:
            return frozenset()
        proto = onnx.load(path, load_external_data=False)
        folder = os.path.dirname(os.path.abspath(path))
        return frozenset(os.path.realpath(t.path) for t in external_in(proto, folder))
    except Exception:  # onnx raises errors of its parsers
        return frozenset()


def external_in(message: Any, base: str) -> Iterator[onnx_ir.ExternalTensor]:
    """Yield every external tensor in a protobuf message, at any place that ONNX allows."""
    if isinstance(message, onnx.TensorProto):
        if message.data_location == onnx.TensorProto.EXTERNAL:
            yield external_tensor(message, base)
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else (value,):
                yield from external_in(item, base)


def external_tensor(proto: onnx.TensorProto, base: str) -> onnx_ir.ExternalTensor:
    """Return an external tensor in the form of onnx-ir.

    Raises:
        ModelError: the tensor's place in a file is malformed.
    """
    try:
        tensor = onnx_ir.serde.deserialize_tensor(proto, base)
    except Exception as error:  # onnx-ir wraps exceptions of onnx
        why = error.__cause__ or error
        raise ModelError(f"external data of tensor {proto.name!r} is malformed: {why}") from error
    assert isinstance(tensor, onnx_ir.ExternalTensor)
    return tensor


def by_real_place(tensor: onnx_ir.ExternalTensor, home: str) -> onnx_ir.ExternalTensor:
    """Return a tensor with its path in ``home``, if a link from elsewhere leads there."""
    path = os.path.realpath(tensor.path)
    if (
        not home
        or not _is_within(path, home)
        or _is_within(path, os.path.realpath(tensor.base_dir))
    ):
        return tensor
    return onnx_ir.ExternalTensor(
        os.path.relpath(path, home),
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=onnx_ir.Shape(tensor.shape),
        name=tensor.name or "",
        doc_string=tensor.doc_string,
        metadata_props=dict(tensor.metadata_props),
        base_dir=home,
    )


def check_external(tensors: Iterable[onnx_ir.ExternalTensor], home: str | None = None) -> None:
    """Refuse data outside the folder of their model, missing, cut off or reached by hard links.

    Args:
        tensors: the tensors, with the folder to which their paths are relative.
        home: the real folder of the model's own file; links may lead there too: a hub may keep
            files in one folder and names in another.

    Raises:
        ModelError: a tensor is refused; the message names the first one.
    """
    sizes: dict[tuple[str, str], int] = {}
    for tensor in tensors:
        place = (os.fspath(tensor.base_dir) or os.getcwd(), os.fspath(tensor.location))
        label = f"external data {place[1]!r} of tensor {tensor.name!r}"
        if place not in sizes:
            sizes[place] = _file_size(*place, label, home)
        if tensor.dtype.value not in BITS:
            raise ModelError(f"{label} is of type {tensor.dtype.name}, which cannot be external")
        expected = byte_count(math.prod(tensor.shape.numpy()), tensor.dtype.value)
        if tensor.length is not None and tensor.length != expected:
            raise ModelError(
                f"{label} has {tensor.length} bytes where its dimensions need {expected}"
            )
        if (tensor.offset or 0) < 0 or (tensor.offset or 0) + expected > sizes[place]:
            raise ModelError(
                f"{label} ends before byte {(tensor.offset or 0) + expected}: the file is truncated"
            )


def _is_within(path: str, folder: str) -> bool:
    return os.path.commonpath([folder, path]) == folder


def _file_size(folder: str, location: str, label: str, home: str | None) -> int:
    if os.path.isabs(location) or Path(os.path.normpath(location)).parts[:1] == ("..",):
        raise ModelError(f"{label} lies outside the model's folder")
    path = os.path.join(folder, location)
    try:
        folders = {os.path.realpath(folder), home or os.path.realpath(folder)}
        if not any(_is_within(os.path.realpath(path), root) for root in folders):
            raise ModelError(f"{label} is a link that leaves the model's folder")
        status = os.stat(path)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise ModelError(f"{label} {'is missing' if missing else reason(error)}") from error
    if not os.path.isfile(path):
        raise ModelError(f"{label} is not a file")
    if status.st_nlink > 1:
        # onnx-ir refuses to map such a file: a hard link can smuggle in a file of another owner.
        raise ModelError(f"{label} has several hard links; copy the file")
    return status.st_size
