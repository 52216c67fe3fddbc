"""Signatures from index functions: the ranks that an operator takes, and the shape it makes.

An index function is applied to operands of every rank with a symbol for every extent. So the
constraints that an operator puts on shapes are read from its definition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from eqsat_opt.ir.ops._base import IllTyped, Op, get_op
from eqsat_opt.ir.ops.index.integers import Formula, Poly, atom, poly
from eqsat_opt.ir.ops.index.polynomials import Atom
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    Choice,
    IndexTensor,
    Inverse,
    Parameter,
    Plus,
    Premises,
    Read,
    Reduce,
    Scalar,
    Times,
    Unindexed,
)

__all__ = ["HIGHEST", "Signature", "functions_of", "ranks_of", "signature", "signatures"]

HIGHEST = 7
"""Highest rank of operands that is tried."""


@dataclass(frozen=True)
class Signature:
    """An operator at operands of some ranks.

    Attributes:
        operands: extents of the operands.
        attrs: attributes as the index function took them.
        premises: conditions that hold where the operator is defined.
        result: extents of the result.
    """

    operands: tuple[tuple[Poly, ...], ...]
    attrs: Mapping[str, Any]
    premises: tuple[Formula, ...]
    result: tuple[Poly, ...]


def signature(op: Op, operands: Sequence[Sequence[Poly]], attrs: Mapping[str, Any]) -> Signature:
    """Return the signature of an operator at operands with these extents and attributes.

    Raises:
        IllTyped: the operator is not defined at such operands.
        Unindexed: the operator has no index function, or none for symbolic attributes.
    """
    premises = Premises()
    result = _indexed(op, operands, attrs, premises)
    shapes = tuple(map(tuple, operands))
    return Signature(shapes, dict(attrs), tuple(premises.formulas), result.shape)


def _indexed(
    op: Op, shapes: Sequence[Sequence[Poly]], attrs: Mapping[str, Any], premises: Premises
) -> IndexTensor:
    if op.index_fn is None:
        raise Unindexed(f"{op.name} has no index semantics")
    operands = [_tensor(f"x{number}", shape) for number, shape in enumerate(shapes)]
    return op.index_fn(operands, attrs, premises)


def _tensor(name: str, shape: Sequence[Poly]) -> IndexTensor:
    return IndexTensor(tuple(shape), lambda index: Read(name, tuple(index)))


@cache
def signatures(name: str, operands: int) -> tuple[Signature, ...]:
    """Return the signatures of an operator at operands of all ranks that it takes.

    An attribute is a symbol of its name, except for axes and for attributes with few values, where
    each value is tried; the extent of axis j of operand i is the symbol ``di_j``.

    Raises:
        Unindexed: the operator has no index function, or an attribute that is a list.
    """
    op, found = get_op(name), []
    for ranks in itertools.product(range(HIGHEST + 1), repeat=operands):
        shapes = [[atom(Atom(f"d{i}_{j}")) for j in range(rank)] for i, rank in enumerate(ranks)]
        for attrs in _attributes(op, ranks[0] if ranks else 0):
            try:
                found.append(signature(op, shapes, attrs))
            except IllTyped:
                continue
    return tuple(found)


def _attributes(op: Op, rank: int, axes: Sequence[Poly] = ()) -> Iterator[dict[str, Any]]:
    """Yield the attributes of :func:`signatures`; a set of axes is ``axes``, unless empty."""
    options: list[Sequence[Any]] = []
    for key, kind in op.attrs.items():
        if key in op.choices:
            values = op.choices[key]
            options.append([poly(v) if isinstance(v, int) else v for v in values])
        elif key == "axis":
            options.append([poly(axis) for axis in range(rank)])
        elif kind in ("int", "size", "float"):
            options.append([Parameter(key) if kind == "float" else atom(Atom(key))])
        elif key == "axes" and axes:
            options.append([axes])
        elif kind == "str":
            options.append([key])
        else:
            raise Unindexed(f"{op.name} has an attribute {key} of no fixed length")
    for values in itertools.product(*options):
        yield dict(zip(op.attrs, values, strict=True))


@cache
def functions_of(name: str) -> frozenset[str]:
    """Return the scalar functions that compute an element of the result, as far as known."""
    op = get_op(name)
    for ranks in itertools.product((4, 1), repeat=op.arity[0]):
        shapes = [[atom(Atom(f"d{i}_{j}")) for j in range(rank)] for i, rank in enumerate(ranks)]
        with suppress(IllTyped, Unindexed):
            for attrs in _attributes(op, 4, axes=(poly(1),)):
                made = _indexed(op, shapes, attrs, Premises())
                return frozenset(_functions(made.at([poly(0)] * made.rank)))
    return frozenset()


def _functions(term: Scalar) -> Iterator[str]:
    match term:
        case Call(function, _, args):
            yield function
            for arg in args:
                yield from _functions(arg)
        case Plus(parts) | Times(parts):
            for part in parts:
                yield from _functions(part)
        case Inverse(operand):
            yield from _functions(operand)
        case Choice(_, then, otherwise):
            yield from _functions(then)
            yield from _functions(otherwise)
        case Reduce(body=body):
            yield from _functions(body)


def ranks_of(name: str, operands: int) -> frozenset[tuple[int, ...]]:
    """Return the possible ranks of the operands and, last, of the result; empty if unknown."""
    try:
        told = signatures(name, operands)
    except Unindexed:
        return frozenset()
    return frozenset((*map(len, one.operands), len(one.result)) for one in told)
