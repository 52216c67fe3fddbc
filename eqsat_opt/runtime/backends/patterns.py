"""Kernel patterns: what a backend fuses, written over the operator registry.

A pattern says which operators a backend runs as one kernel. It is matched on the frozen e-graph, so
an operator that only a backend knows is never an e-node. What ONNX itself names and no local
epilogue reaches (LayerNormalization, Gelu, attention from any spelling) is an equation of the
rulebook instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from eqsat_opt.ir.graph import Attrs
from eqsat_opt.ir.types import TensorType

__all__ = [
    "Anything",
    "Const",
    "KernelPattern",
    "Literal",
    "Match",
    "OpPattern",
    "Pattern",
    "op",
]


@dataclass(frozen=True)
class Anything:
    """Any value; equal names must be the same value."""

    name: str


@dataclass(frozen=True)
class Const:
    """A value that is known at compile time, with a condition on its type and that of the root."""

    name: str
    fits: Callable[[TensorType, TensorType], bool] = lambda _own, _root: True


@dataclass(frozen=True)
class Literal:
    """The scalar ``value``, within float32 rounding."""

    value: float


@dataclass(frozen=True)
class OpPattern:
    """One of ``ops`` applied to patterns; operands of commutative operators match in either order.

    Attributes:
        ops: operator names.
        operands: their patterns.
        where: condition on the attributes.
        same: patterns of one kernel with the same text here must have equal attributes.
    """

    ops: tuple[str, ...]
    operands: tuple[Pattern, ...]
    where: Callable[[Attrs], bool] = lambda _attrs: True
    same: str = ""


Pattern = Anything | Const | Literal | OpPattern
Match = dict[str, int]


@dataclass(frozen=True)
class KernelPattern:
    """A named pattern; ``where`` sees the type of the root."""

    name: str
    pattern: OpPattern
    where: Callable[[TensorType], bool] = lambda _root: True


def op(name: str, *operands: Pattern) -> OpPattern:
    """One operator."""
    return OpPattern((name,), operands)
