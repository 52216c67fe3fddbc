"""Keys of graphs that compute the same by the same operators, whatever their values are called."""

from __future__ import annotations

import hashlib

import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.onnx.folding import is_deterministic
from eqsat_opt.ir.ops import get_op

__all__ = ["is_identity", "output_keys"]


def output_keys(graph: Graph) -> tuple[str, ...] | None:
    """Return a key for each output; equal keys mean equal terms over the same inputs and constants.

    Inputs are identified by name, constants by their digest. Operands that may be exchanged have no
    order, and an Identity has the key of its operand.

    Returns:
        ``None`` if an operator may return another result each time, or reads bodies of its own.
    """
    keys = {name: f"input {name}" for name in graph.inputs}
    keys.update({name: f"constant {one.digest}" for name, one in graph.constants.items()})
    for node in graph.live_nodes():
        if node.op == OPAQUE and (node.captures or not is_deterministic(node.payload)):
            return None
        if is_identity(node):
            keys[node.output] = keys[node.inputs[0]]
            continue
        term = _term(node, [keys[name] if name else "" for name in node.inputs])
        for number, name in enumerate(node.outputs):
            if name:
                keys[name] = f"{term}.{number}"
    return tuple(keys[name] for name in graph.outputs)


def is_identity(node: Node) -> bool:
    """Return whether a node only gives its operand another name."""
    payload = node.payload
    return node.op == OPAQUE and payload.domain == "" and payload.op_type == "Identity"


def _term(node: Node, operands: list[str]) -> str:
    if node.op == OPAQUE:
        attributes = sorted(map(_attribute_text, node.payload.attributes.values()))
        own = (node.payload.op_type, *attributes)
    else:
        own = (node.op, str(node.attrs))
        if get_op(node.op).commutative:
            operands = sorted(operands)
    text = "\0".join((*own, *operands))
    return hashlib.sha256(text.encode()).hexdigest()


def _attribute_text(attribute: onnx_ir.Attr) -> str:
    data: bytes = onnx_ir.to_proto(attribute).SerializeToString(deterministic=True)
    return data.hex()
