"""The table of derivatives, which the modules of this folder fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Node
from eqsat_opt.training.tape import TapeValue

__all__ = [
    "CONSTANTS",
    "DEFINITIONS",
    "DERIVATIVES",
    "Definition",
    "Derivative",
    "TapeApplication",
    "defines",
    "derives",
    "is_constant",
    "no_derivative",
]


@dataclass(frozen=True)
class TapeApplication:
    """An application of an operator whose derivative is wanted.

    Attributes:
        node: the node.
        operands: its operands.
        result: its result.
        gradient: the gradient with respect to the result, in the shape of the result.
        wanted: numbers of the operands whose gradients are needed.
    """

    node: Node
    operands: tuple[TapeValue, ...]
    result: TapeValue
    gradient: TapeValue
    wanted: frozenset[int]

    @property
    def attrs(self) -> Mapping[str, Any]:
        """The attributes by name."""
        return dict(self.node.attrs)

    @property
    def operand(self) -> TapeValue:
        """The first operand."""
        return self.operands[0]


Derivative = Callable[[TapeApplication], Sequence[TapeValue | None]]
"""A function that returns the gradient with respect to each operand. It may be in the shape of the
result where an operand broadcasts, and is ``None`` for an operand that is not wanted or has none.
"""

Definition = Callable[[Sequence[TapeValue], Mapping[str, Any]], TapeValue]
"""A function that computes an operator from operands and attributes by simpler operators."""

DERIVATIVES: dict[str, Derivative] = {}
"""Operator to derivative."""

DEFINITIONS: dict[str, Definition] = {}
"""Operator to its definition, from which its derivative follows."""

CONSTANTS = frozenset(
    {
        *("And", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Not", "Or"),
        *("ArgMax", "ArgMin", "Ceil", "Fill", "Floor", "IdentityKernel", "Range", "Round"),
        *("Scalar", "Sign", "Xor"),
    }
)
"""Operators that are constant almost everywhere, or have truth values or integers as results."""


def is_constant(node: Node) -> bool:
    """Return whether no gradient flows through a node."""
    return node.op in CONSTANTS or (node.op == "TopK" and node.attr("output") == 1)


def derives(*ops: str) -> Callable[[Derivative], Derivative]:
    """Register the derivative of operators."""

    def add(function: Derivative) -> Derivative:
        for op in ops:
            if op in DERIVATIVES:
                raise ValueError(f"{op} has two derivatives")
            DERIVATIVES[op] = function
        return function

    return add


def defines(op: str) -> Callable[[Definition], Definition]:
    """Register the definition of an operator."""

    def add(function: Definition) -> Definition:
        if op in DEFINITIONS:
            raise ValueError(f"{op} has two definitions")
        DEFINITIONS[op] = function
        return function

    return add


def no_derivative(node: Node, why: str) -> ModelError:
    """Return the error for an application that has no derivative here."""
    name = next(filter(None, (node.name, *node.sources, *node.outputs)))
    return ModelError(
        f"{name!r} ({node.op}) has no derivative here: {why}; "
        "freeze the parameters before it, or replace it in the model"
    )
