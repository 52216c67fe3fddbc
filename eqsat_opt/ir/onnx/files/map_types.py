"""Preservation of types that onnx-ir cannot hold: maps, sequences of maps, opaque types.

Classifiers of scikit-learn have outputs of such types. The type of such a value becomes an entry of
its metadata, as text, and the value has no type for onnx-ir; :func:`restore_types` undoes it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

import onnx

__all__ = ["has_hidden_types", "hide_types", "restore_types"]

_TYPE = "eqsat_opt.hidden_type"


def _is_unknown_to_ir(type_: onnx.TypeProto) -> bool:
    match type_.WhichOneof("value"):
        case "map_type" | "opaque_type":
            return True
        case "sequence_type":
            return _is_unknown_to_ir(type_.sequence_type.elem_type)
        case "optional_type":
            return _is_unknown_to_ir(type_.optional_type.elem_type)
        case _:
            return False


def _typed_values(graph: onnx.GraphProto) -> Iterator[onnx.ValueInfoProto]:
    """Yield the typed values of a graph and of the graphs within its nodes."""
    pending = [graph]
    while pending:
        owner = pending.pop()
        yield from (*owner.input, *owner.output, *owner.value_info)
        for node in owner.node:
            for attribute in node.attribute:
                pending.extend(attribute.graphs)
                if attribute.HasField("g"):
                    pending.append(attribute.g)


def has_hidden_types(model: onnx.ModelProto) -> bool:
    """Return whether :func:`hide_types` would change ``model``."""
    return any(_is_unknown_to_ir(value.type) for value in _typed_values(model.graph))


def hide_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without such types: a copy if there are any, else ``model`` itself."""
    if not has_hidden_types(model):
        return model
    hidden = onnx.ModelProto()
    hidden.CopyFrom(model)
    for value in _typed_values(hidden.graph):
        if _is_unknown_to_ir(value.type):
            text = base64.b64encode(value.type.SerializeToString(deterministic=True)).decode()
            value.metadata_props.add(key=_TYPE, value=text)
            value.ClearField("type")
    return hidden


def restore_types(model: onnx.ModelProto) -> onnx.ModelProto:
    """Restore the types that :func:`hide_types` hid, in place, and return ``model``."""
    for value in _typed_values(model.graph):
        for index, entry in enumerate(value.metadata_props):
            if entry.key == _TYPE:
                value.type.ParseFromString(base64.b64decode(entry.value))
                del value.metadata_props[index]
                break
    return model
