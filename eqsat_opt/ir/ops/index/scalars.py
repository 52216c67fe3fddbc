"""Index semantics of tensors: one element as a term over the elements of the operands.

An operator's ``index_fn`` maps every output index, at symbolic extents, to an expression of operand
elements; ``eval_fn`` defines the same values by computing them. Terms are plain data: the prover
normalises them, the tests evaluate them and compare them with ``eval_fn``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from eqsat_opt.ir.ops._base import IllTyped
from eqsat_opt.ir.ops.index.integers import (
    TRUE,
    AllOf,
    Atom,
    Formula,
    Poly,
    all_of,
    any_of,
    atom,
    broadcast,
    equal,
    pick,
    poly,
)

__all__ = [
    "NAMED",
    "Call",
    "Choice",
    "Constant",
    "IndexFn",
    "IndexTensor",
    "Inverse",
    "Parameter",
    "Plus",
    "Premises",
    "Read",
    "Reduce",
    "Scalar",
    "Sign",
    "Times",
    "Unindexed",
    "Whole",
    "aligned",
    "bound",
    "broadcast_extents",
    "elementwise",
    "literal",
    "reduce_over",
]


class Unindexed(Exception):
    """An operator, or this use of it, has no index semantics; its types may still be valid."""


@dataclass(frozen=True, slots=True)
class Read:
    """Element ``index`` of a tensor variable."""

    tensor: str
    index: tuple[Poly, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer as a number."""

    value: Poly


@dataclass(frozen=True, slots=True)
class Constant:
    """A rational number."""

    value: Fraction


NAMED = "Named"
"""Whether an index, modulo an extent, is a place: a function of place, extent and index."""

Sign = Literal["unknown", "positive", "nonnegative", "negative"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A numeric attribute with a known or unknown sign."""

    name: str
    sign: Sign = "unknown"


@dataclass(frozen=True, slots=True)
class Plus:
    """A sum of a few terms."""

    parts: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Times:
    """A product of a few terms."""

    parts: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Inverse:
    """The reciprocal, 1 / operand."""

    operand: Scalar


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function by operator name, as :meth:`Domain.apply` evaluates it."""

    function: str
    attrs: tuple[tuple[str, Any], ...]
    args: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice: ``then`` where the condition on indices holds, else ``otherwise``."""

    condition: Formula
    then: Scalar
    otherwise: Scalar


ReduceKind = Literal["sum", "max", "min"]


@dataclass(frozen=True, slots=True)
class Reduce:
    """The sum or the extremum over index variables with their extents, where a condition holds.

    Over an empty set a sum is 0, and an extremum the least or greatest number there is.
    """

    kind: ReduceKind
    bound: tuple[tuple[Atom, Poly], ...]
    where: Formula
    body: Scalar


Scalar = Read | Whole | Constant | Parameter | Plus | Times | Inverse | Call | Choice | Reduce

ZERO = Constant(Fraction(0))
ONE = Constant(Fraction(1))
MINUS_ONE = Constant(Fraction(-1))


@dataclass(frozen=True)
class IndexTensor:
    """A tensor as a function of its index.

    Attributes:
        shape: one extent per axis.
        at: index to element; defined for indices within the shape only.
    """

    shape: tuple[Poly, ...]
    at: Callable[[Sequence[Poly]], Scalar]

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)


@dataclass
class Premises:
    """Conditions that well-typed operands satisfy, collected while index functions are applied."""

    formulas: list[Formula] = field(default_factory=list)

    def require(self, *formulas: Formula) -> None:
        """Add conditions that the operator's typing demands.

        Raises:
            IllTyped: a condition never holds.
        """
        for formula in formulas:
            if formula == any_of():
                raise IllTyped("extents do not fit")
            if formula != TRUE:
                self.formulas.append(formula)

    def same(self, left: Poly | int, right: Poly | int) -> None:
        """Add the condition that two extents are equal."""
        self.require(equal(left, right))


IndexFn = Callable[[Sequence[IndexTensor], Mapping[str, Any], Premises], IndexTensor]
"""A function from operands, attributes (:class:`Poly`, tuples of them, strings, numbers as
:class:`Scalar`) and premises, which it extends, to the result; it raises :class:`IllTyped` or
:class:`Unindexed`.
"""

_fresh = itertools.count()


def bound(name: str) -> Atom:
    """Return a new index variable; names sort in the order of creation."""
    return Atom(f"{name}'{next(_fresh):09}")


def literal(value: Poly) -> int:
    """Return an attribute that must be an integer here.

    Raises:
        Unindexed: the attribute is symbolic.
    """
    known = poly(value).constant
    if known is None:
        raise Unindexed(f"the attribute {value} is symbolic where only integers are covered")
    return known


def reduce_over(
    kind: ReduceKind,
    extents: Sequence[Poly],
    body: Callable[[Sequence[Poly]], Scalar],
    where: Callable[[Sequence[Poly]], Formula] = lambda _: TRUE,
) -> Scalar:
    """Reduce ``body`` over new index variables; a variable of extent 1 is replaced by 0."""
    variables = [(bound("k"), extent) for extent in extents]
    index = [poly(0) if extent.constant == 1 else atom(v) for v, extent in variables]
    kept = tuple(pair for pair in variables if pair[1].constant != 1)
    return Reduce(kind, kept, where(index), body(index))


def broadcast_extents(shapes: Sequence[Sequence[Poly]], premises: Premises) -> tuple[Poly, ...]:
    """Return the shape of operands that broadcast as in ONNX, and add the premise that they do."""
    rank = max(map(len, shapes))
    result = []
    for axis in range(-rank, 0):
        extents = [shape[axis] for shape in shapes if -axis <= len(shape)]
        common = broadcast(*extents)
        for extent in extents:
            premises.require(any_of(equal(extent, 1), equal(extent, common)))
        result.append(common)
    return tuple(result)


def aligned(operand: IndexTensor, shape: Sequence[Poly], index: Sequence[Poly]) -> Scalar:
    """Return the element of ``operand`` at ``index`` of the broadcast ``shape``."""
    skipped = len(shape) - operand.rank
    return operand.at(
        [
            i if extent == common else pick(i, extent)
            for i, extent, common in zip(
                index[skipped:], operand.shape, shape[skipped:], strict=True
            )
        ]
    )


def elementwise(combine: Callable[[Sequence[Scalar], Mapping[str, Any]], Scalar]) -> IndexFn:
    """Return the index function of an operator that computes each element separately."""

    def index_fn(
        operands: Sequence[IndexTensor], attrs: Mapping[str, Any], premises: Premises
    ) -> IndexTensor:
        shape = broadcast_extents([operand.shape for operand in operands], premises)
        return IndexTensor(
            shape, lambda index: combine([aligned(o, shape, index) for o in operands], attrs)
        )

    return index_fn


def called(function: str) -> IndexFn:
    """Return the index function of a scalar function without a definition of its own."""
    return elementwise(
        lambda args, attrs: Call(function, tuple(sorted(attrs.items())), tuple(args))
    )


def conjunction(formulas: Sequence[Formula]) -> tuple[Formula, ...]:
    """Return the conjuncts of all formulas."""
    joined = all_of(*formulas)
    return joined.parts if isinstance(joined, AllOf) else (joined,)
