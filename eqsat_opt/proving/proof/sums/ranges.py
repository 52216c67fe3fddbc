"""Signs of terms for all values of elements: squares, exponentials, extrema and sums of these."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator

from eqsat_opt.ir.ops.index.integers import TRUE, Poly
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    Choice,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Reduce,
    Scalar,
    Times,
    Whole,
)
from eqsat_opt.proving.numbers.definitions import defined

__all__ = ["Range", "range_of"]


class Range(enum.IntEnum):
    """The range of the values of a term, where it has any."""

    ANY = 0
    NONNEGATIVE = 1
    POSITIVE = 2


_SIGNS = {"positive": Range.POSITIVE, "nonnegative": Range.NONNEGATIVE}

Integers = Callable[[Poly], Range]
"""A function from an integer to the range of its values."""


def range_of(term: Scalar, integers: Integers) -> Range:
    """Return the range of the values of ``term``, where it is defined.

    Extents are at least 1.
    """
    match term:
        case Constant(value):
            return _of_number(value > 0, value >= 0)
        case Whole(value):
            return integers(value)
        case Parameter(_, sign):
            return _SIGNS.get(sign, Range.ANY)
        case Plus(parts):
            found = [range_of(part, integers) for part in parts]
            return max(found) if min(found) is not Range.ANY else Range.ANY
        case Times():
            return _of_product(list(_factors(term)), integers)
        case Inverse(operand):
            known = range_of(operand, integers)
            return Range.ANY if known is Range.ANY else Range.POSITIVE
        case Choice(_, then, otherwise):
            return min(range_of(then, integers), range_of(otherwise, integers))
        case Reduce(kind, _, where, body):
            known = range_of(body, integers)
            if where == TRUE:
                return known
            # A sum over nothing is 0, an extremum over nothing is not a number.
            return min(known, Range.NONNEGATIVE) if kind == "sum" else Range.ANY
        case Call():
            return _of_call(term, integers)
        case _:
            return Range.ANY


def _of_number(positive: bool, nonnegative: bool) -> Range:
    if positive:
        return Range.POSITIVE
    return Range.NONNEGATIVE if nonnegative else Range.ANY


def _factors(term: Scalar) -> Iterator[Scalar]:
    if isinstance(term, Times):
        for part in term.parts:
            yield from _factors(part)
    else:
        yield term


def _of_product(factors: list[Scalar], integers: Integers) -> Range:
    """Return the range of a product; equal factors pair up as squares."""
    found = Range.POSITIVE
    while factors:
        factor = factors.pop()
        known = range_of(factor, integers)
        if known is not Range.POSITIVE and factor in factors:
            factors.remove(factor)
            known = Range.NONNEGATIVE
        found = min(found, known)
    return found


def _of_call(call: Call, integers: Integers) -> Range:
    meaning = defined(call)
    if meaning is not None and call.function != "Abs":
        return range_of(meaning, integers)
    known = [range_of(arg, integers) for arg in call.args]
    match call.function:
        case "Exp":
            return Range.POSITIVE
        case "Sqrt" | "Relu" | "Abs":
            return max(known[0], Range.NONNEGATIVE)
        case "Max":
            return max(known)
        case "Min":
            return min(known)
        case "Where":
            return min(known[1:])
        case "Pow":
            return known[0]
        case _:
            return Range.ANY
