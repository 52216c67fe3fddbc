"""Translation of terms of index functions to steps of kernels.

Two descriptions of kernels are made of such steps, `kernel` and `program`; this is the code that
they share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from eqsat_opt.ir.graph.graph import Graph, Node
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.index.integers import Poly, poly
from eqsat_opt.ir.ops.index.scalars import (
    MINUS_ONE,
    Call,
    Choice,
    Constant,
    IndexTensor,
    Inverse,
    Parameter,
    Plus,
    Premises,
    Read,
    Scalar,
    Times,
    Unindexed,
)
from eqsat_opt.runtime.backends.generated.kernel import FUNCTIONS

__all__ = ["Index", "TermTranslator", "Unfit", "rounded"]

Index = tuple[Poly, ...]

P = TypeVar("P")
R = TypeVar("R")


class Unfit(Exception):
    """Failure to make a kernel of a region; the message is the reason."""


class TermTranslator(ABC, Generic[P, R]):
    """A translator of terms to steps at a place ``P`` of a kernel, with registers ``R``."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.numbers: dict[str, float] = {}

    @abstractmethod
    def number(self, place: P, value: float) -> R:
        """Emit a number."""

    @abstractmethod
    def element(self, place: P, name: str, index: Index) -> R:
        """Emit an element of a value."""

    @abstractmethod
    def emit(self, place: P, function: str, operands: tuple[R, ...], numbers: Any = ()) -> R:
        """Emit a function of registers."""

    @abstractmethod
    def choice(self, place: P, term: Choice) -> R:
        """Emit the choice of one of two terms."""

    def attribute(self, value: float) -> float:
        """Return an attribute of a function as the kernel stores it."""
        return rounded(value)

    def other(self, place: P, term: Scalar) -> R:
        """Emit a term of a kind that not every description of kernels has.

        Raises:
            Unfit: this one does not have it.
        """
        raise Unfit(f"no kernel has a {type(term).__name__}")

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the literal extents of a value."""
        return self.graph.static_type(name).shape

    def indexed(self, node: Node) -> IndexTensor:
        """Return the result of a node as a function of its index, over elements of its operands.

        Raises:
            Unfit: the node has no index function.
        """
        op = get_op(node.op)
        operands = [IndexTensor(tuple(map(poly, self.shape(i))), _reader(i)) for i in node.inputs]
        attrs: dict[str, Any] = {}
        for name, value in node.attrs:
            match op.attrs[name]:
                case "int" | "size":
                    attrs[name] = poly(value)  # type: ignore[arg-type]
                case "ints":
                    attrs[name] = tuple(map(poly, value))  # type: ignore[arg-type]
                case "float":  # a name that no other node has
                    attrs[name] = Parameter(f"{node.output} {name}")
                    self.numbers[f"{node.output} {name}"] = float(value)  # type: ignore[arg-type]
                case _:
                    attrs[name] = value
        try:
            return self.applied(node.op, operands, attrs)
        except Unindexed as error:
            raise Unfit(str(error)) from error

    def applied(
        self, op: str, operands: Sequence[IndexTensor], attrs: Mapping[str, Any]
    ) -> IndexTensor:
        """Apply an operator by its index function.

        Raises:
            Unfit: the operator has no index function.
        """
        index_fn = get_op(op).index_fn
        if index_fn is None:
            raise Unfit(f"{op} has no index function")
        return index_fn(operands, attrs, Premises())

    def scalar(self, place: P, term: Scalar) -> R:
        """Emit the steps of a term and return its register.

        Raises:
            Unfit: no kernel has such a term.
        """
        match term:
            case Read(name, index):
                return self.element(place, name, index)
            case Constant(value):
                return self.number(place, float(value))
            case Parameter(name):
                return self.number(place, self.numbers[name])
            case Plus((left, Times((sign, right)))) if sign == MINUS_ONE:
                return self._step(place, "Sub", (left, right))
            case Plus((first, *others)):
                return self._folded(place, "Add", first, others)
            case Times((sign, right)) if sign == MINUS_ONE:
                return self._step(place, "Neg", (right,))
            case Times((first, *others)):
                return self._folded(place, "Mul", first, others)
            case Inverse(operand):
                one = self.number(place, 1.0)
                return self.emit(place, "Div", (one, self.scalar(place, operand)))
            case Choice():
                return self.choice(place, term)
            case Call(function, attrs, args):
                return self.called(place, function, dict(attrs), args)
        return self.other(place, term)

    def _folded(self, place: P, name: str, first: Scalar, rest: Sequence[Scalar]) -> R:
        result = self.scalar(place, first)
        for part in rest:
            if name == "Mul" and isinstance(part, Inverse):
                result = self.emit(place, "Div", (result, self.scalar(place, part.operand)))
            else:
                result = self.emit(place, name, (result, self.scalar(place, part)))
        return result

    def _step(self, place: P, name: str, operands: Sequence[Scalar]) -> R:
        return self.emit(place, name, tuple(self.scalar(place, one) for one in operands))

    def called(self, place: P, name: str, attrs: Mapping[str, Any], args: Sequence[Scalar]) -> R:
        """Emit a scalar function by its name in the registry."""
        name += str(attrs.get("approximate", "")).capitalize()
        if name not in FUNCTIONS:
            raise Unfit(f"no kernel has the function {name}")
        numbers = []
        for attribute in FUNCTIONS[name].numbers:
            value = attrs[attribute]
            assert isinstance(value, Parameter)
            numbers.append(self.attribute(self.numbers[value.name]))
        operands = tuple(self.scalar(place, one) for one in args)
        return self.emit(place, name, operands, tuple(numbers))


def _reader(name: str) -> Any:
    return lambda index: Read(name, tuple(map(poly, index)))


def rounded(value: float) -> float:
    """Return a value rounded to float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))
