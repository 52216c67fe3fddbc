"""Canonical keys: two values have the same key exactly if they are the same expression.

A key is a digest over operator, attributes and the keys of the operands (a Merkle tree). So names,
the order of nodes and the history of a graph do not matter, and a change needs new keys only above
itself. Keys are the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from eqsat_opt.ir.graph.graph import OPAQUE, Attrs, Constant, Node
from eqsat_opt.ir.values.types import ValueType

__all__ = [
    "KEY_BYTES",
    "constant_key",
    "graph_key",
    "input_key",
    "opaque_key",
    "operator_key",
    "output_key",
    "term_key",
]

KEY_BYTES = 16
"""128 bits: among a billion expressions, two share a key with a probability below 1e-20."""


def _digest(*parts: object) -> bytes:
    return blake2b(repr(parts).encode(), digest_size=KEY_BYTES).digest()


def operator_key(op: str, attrs: Attrs) -> bytes:
    """Return the key of an operator with its attributes, without operands."""
    # Symbolic sizes print as polynomials in normal form.
    return _digest("operator", op, tuple((name, str(value)) for name, value in attrs))


def term_key(operator: bytes, operands: Iterable[bytes]) -> bytes:
    """Return the key of an operator applied to operands.

    All keys have one length, so their concatenation is unambiguous.
    """
    return blake2b(operator + b"".join(operands), digest_size=KEY_BYTES).digest()


def input_key(index: int, type_: ValueType) -> bytes:
    """Return the key of graph input ``index``."""
    return _digest("input", index, str(type_))


def constant_key(handle: Constant) -> bytes:
    """Return the key of a constant, made of its type and contents."""
    return _digest("constant", str(handle.type), handle.digest)


def opaque_key(node: Node) -> bytes:
    """Return the key of an opaque node without its operands.

    An opaque node keeps its names, so it equals no other node.
    """
    return _digest(OPAQUE, node.outputs)


def output_key(index: int) -> bytes:
    """Return the key of the application that takes result ``index`` of an opaque node."""
    return _digest("output", index)


def graph_key(outputs: Iterable[bytes]) -> bytes:
    """Return the key of a graph from the keys of its outputs, in interface order."""
    return blake2b(b"".join(outputs), digest_size=KEY_BYTES).digest()
