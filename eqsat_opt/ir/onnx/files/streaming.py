"""Writing of a model file to a stream, in which large weights are never copied.

Protobuf encodes a message as a whole, so that a file of 600 MB takes three further copies of its
weights, and seconds. Here the messages around a large weight are encoded without it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, BinaryIO

import numpy as np
import onnx
import onnx_ir

from eqsat_opt.errors import InternalError
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.external import TensorSlot, placed_in_file, tensor_slots

__all__ = ["data_in_memory", "write_serialised"]

_LARGE_BYTES = 1 << 20
"""Least size of an initializer that is worth a write of its own."""

_PLACE = "eqsat_opt.streamed:"
"""Start of the location of the data of a large weight while the model is encoded."""

_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_RAW_DATA = onnx.TensorProto.DESCRIPTOR.fields_by_name["raw_data"].number
_LENGTH_DELIMITED = 2
"""Wire type of messages and bytes in protobuf's encoding."""


def write_serialised(model: onnx_ir.Model, file: BinaryIO) -> None:
    """Write the bytes of a model file; the same model gives the same bytes.

    They are those that protobuf gives for the whole model. The model is unchanged after the call.

    Raises:
        OSError: the stream cannot be written.
    """
    held: list[Any] = []
    with ExitStack() as undo:
        for slot in filter(_is_large, tensor_slots(model)):
            undo.callback(slot.replace, slot.tensor)
            place = placed_in_file(slot.tensor, f"{_PLACE}{len(held)}", 0, slot.tensor.nbytes)
            held.append(slot.tensor)
            slot.replace(place)
        proto = model_proto(model)
    if not held:
        file.write(_encoded(proto))
        return
    weights = [_encoded_weight(one, held) for one in proto.graph.initializer]
    graph = _around(proto.graph, _INITIALIZER)
    whole = _around(proto, _GRAPH)
    file.write(whole[0])
    file.write(_header(_GRAPH, sum(map(len, graph)) + sum(size for size, _ in weights)))
    file.write(graph[0])
    for _, parts in weights:
        for part in parts:
            file.write(part if isinstance(part, bytes) else _data(part))
    file.write(graph[1])
    file.write(whole[1])


def _is_large(slot: TensorSlot) -> bool:
    """Return whether the data of a tensor can be written apart: it is stored as plain bytes."""
    tensor = slot.tensor
    if not slot.is_initializer or slot.is_external or tensor.metadata_props:
        return False
    if isinstance(tensor, onnx_ir.TensorProtoTensor) and not tensor.raw.HasField("raw_data"):
        return False
    return tensor.dtype != onnx_ir.DataType.STRING and int(tensor.nbytes) >= _LARGE_BYTES


def _encoded(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _encoded_weight(message: onnx.TensorProto, held: list[Any]) -> tuple[int, tuple[Any, ...]]:
    """Return the size of an initializer in a graph, and its parts: bytes, or a tensor."""
    where = next((one.value for one in message.external_data if one.key == "location"), "")
    if not where.startswith(_PLACE):
        data = _encoded(message)
        parts: tuple[Any, ...] = (_header(_INITIALIZER, len(data)), data)
        return sum(map(len, parts)), parts
    tensor = held[int(where.removeprefix(_PLACE))]
    message.ClearField("external_data")
    message.ClearField("data_location")
    before, after = _around(message, _RAW_DATA)
    before += _header(_RAW_DATA, tensor.nbytes)
    size = len(before) + tensor.nbytes + len(after)
    head = _header(_INITIALIZER, size)
    return len(head) + size, (head + before, tensor, after)


def _around(message: Any, number: int) -> tuple[bytes, bytes]:
    """Encode the fields of a message before and after the one with a number."""
    sides = type(message)(), type(message)()
    for field, value in message.ListFields():
        if field.number == number:
            continue
        side = sides[field.number > number]
        if field.is_repeated:
            getattr(side, field.name).extend(value)
        elif field.message_type is not None:
            getattr(side, field.name).CopyFrom(value)
        else:
            setattr(side, field.name, value)
    return _encoded(sides[0]), _encoded(sides[1])


def _header(number: int, length: int) -> bytes:
    """Encode the key and the length of a field."""
    return bytes((*_varint(number << 3 | _LENGTH_DELIMITED), *_varint(length)))


def _varint(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def _data(tensor: Any) -> Any:
    """Return the data of a tensor, whose number of bytes was written already.

    Raises:
        InternalError: there are more or fewer.
    """
    data = data_in_memory(tensor)
    if data is None:
        data = tensor.tobytes()
    if len(data) != tensor.nbytes:
        raise InternalError(f"{tensor.name!r} has {len(data)} bytes instead of {tensor.nbytes}")
    return data


def data_in_memory(tensor: Any) -> Any:
    """Return the bytes of a tensor without a copy; ``None`` where they are not in one piece."""
    if isinstance(tensor, onnx_ir.ExternalTensor) or sys.byteorder != "little":
        return None
    array = tensor.numpy()
    if array.nbytes != tensor.nbytes or not array.flags.c_contiguous:  # such as packed elements
        return None
    return array.reshape(-1).view(np.uint8).data
