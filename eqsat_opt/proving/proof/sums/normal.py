"""Normal form of an element: a sum of guarded products under bound sums.

A product has a rational coefficient, bound index variables with extents, conditions on indices, and
factors: elements of tensors, integers, powers of sums, extrema of sums, and unknown functions of
sums. Equality up to the order of summands and factors, the names of bound variables and facts about
the integers is decided in :mod:`eqsat_opt.proving.proof.sums.equality`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

from eqsat_opt.ir.ops.index.integers import (
    Atom,
    Formula,
    Poly,
    atom,
    polynomials,
    substitute,
    within,
)
from eqsat_opt.ir.ops.index.scalars import (
    Parameter,
    Read,
    bound,
    conjunction,
)

__all__ = [
    "ONE",
    "Bound",
    "Case",
    "Extremum",
    "Factor",
    "Letter",
    "Normal",
    "Opaque",
    "Power",
    "Summand",
    "binders",
    "domain",
    "factor_replaced",
    "integer",
    "mentioned",
    "mentioned_in",
    "multiply",
    "negative",
    "number",
    "places",
    "relabelled",
    "renamed",
    "replaced",
    "single",
]

Bound: TypeAlias = tuple[tuple[Atom, Poly], ...]


@dataclass(frozen=True, slots=True)
class Letter:
    """An integer symbol, quotient or the like, as a number."""

    atom: Atom


@dataclass(frozen=True, slots=True)
class Power:
    """A power of a sum that is not a single number: an inverse or a root."""

    base: Normal
    exponent: Fraction


@dataclass(frozen=True, slots=True)
class Opaque:
    """An unknown function of sums; all that is known is that equal arguments give equal results."""

    function: str
    attrs: tuple[tuple[str, Any], ...]
    args: tuple[Normal, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A case of an extremum: an element, at all index points where the conditions hold."""

    bound: Bound
    where: tuple[Formula, ...]
    element: Normal


@dataclass(frozen=True, slots=True)
class Extremum:
    """The greatest (``max``) or least (``min``) element of all cases."""

    kind: str
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Summand:
    """One guarded product, summed over its bound variables."""

    coefficient: Fraction
    bound: Bound
    where: tuple[Formula, ...]
    factors: tuple[Factor, ...]


Factor: TypeAlias = Read | Parameter | Letter | Power | Opaque | Extremum
Normal: TypeAlias = tuple[Summand, ...]

ONE = Summand(Fraction(1), (), (), ())


def domain(part: Summand | Case) -> tuple[Formula, ...]:
    """Return all conditions on the bound variables of a summand or case."""
    return conjunction([*(within(atom(v), extent) for v, extent in part.bound), *part.where])


def negative(sum_: Normal) -> Normal:
    """Return a sum with the opposite sign."""
    return tuple(replace(part, coefficient=-part.coefficient) for part in sum_)


def multiply(left: Normal, right: Normal) -> Normal:
    """Return the product, distributed; the operands share no bound variable."""
    return tuple(
        Summand(
            a.coefficient * b.coefficient,
            a.bound + b.bound,
            conjunction([*a.where, *b.where]),
            a.factors + b.factors,
        )
        for a in left
        for b in right
    )


def integer(value: Poly) -> Normal:
    """Return an integer as a sum of numbers."""
    return tuple(
        Summand(Fraction(coefficient), (), (), tuple(Letter(a) for a in monomial))
        for monomial, coefficient in value.terms
    )


def number(value: int) -> Fraction:
    """Return an integer as a coefficient or exponent."""
    return Fraction(value)


def single(factor: Factor) -> Normal:
    """Return the sum that consists of one factor."""
    return (replace(ONE, factors=(factor,)),)


# Replacement -------------------------------------------------------------------------------------


def _bound_replaced(bound_: Bound, values: Mapping[Atom, Poly]) -> Bound:
    return tuple((v, substitute(extent, values)) for v, extent in bound_)


def _where_replaced(where: tuple[Formula, ...], values: Mapping[Atom, Poly]) -> tuple[Formula, ...]:
    return conjunction([substitute(part, values) for part in where])


def factor_replaced(factor: Factor, values: Mapping[Atom, Poly]) -> Factor:
    """Replace index variables in a factor; integers that are factors themselves stay."""
    match factor:
        case Read(tensor, index):
            return Read(tensor, tuple(substitute(i, values) for i in index))
        case Parameter() | Letter():
            return factor
        case Power(base, exponent):
            return Power(replaced(base, values), exponent)
        case Opaque(function, attrs, args):
            return Opaque(function, attrs, tuple(replaced(arg, values) for arg in args))
        case Extremum(kind, cases):
            return Extremum(
                kind,
                tuple(
                    Case(
                        _bound_replaced(case.bound, values),
                        _where_replaced(case.where, values),
                        replaced(case.element, values),
                    )
                    for case in cases
                ),
            )


def replaced(sum_: Normal, values: Mapping[Atom, Poly]) -> Normal:
    """Replace index variables or sizes in a sum."""
    if not values:
        return sum_
    result: list[Summand] = []
    for part in sum_:
        letters = [f for f in part.factors if isinstance(f, Letter)]
        moved = Summand(
            part.coefficient,
            _bound_replaced(part.bound, values),
            _where_replaced(part.where, values),
            tuple(factor_replaced(f, values) for f in part.factors if not isinstance(f, Letter)),
        )
        numbers: list[Normal] = [
            integer(substitute(atom(letter.atom), values)) for letter in letters
        ]
        whole: Normal = reduce(multiply, numbers, (moved,))
        result += whole
    return tuple(result)


def binders(sum_: Normal) -> Iterator[Atom]:
    """Yield all bound variables, at any depth."""
    for part in sum_:
        yield from (v for v, _ in part.bound)
        for factor in part.factors:
            match factor:
                case Power(base, _):
                    yield from binders(base)
                case Opaque(_, _, args):
                    for arg in args:
                        yield from binders(arg)
                case Extremum(_, cases):
                    for case in cases:
                        yield from (v for v, _ in case.bound)
                        yield from binders(case.element)


def places(factor: Factor) -> Iterator[Poly]:
    """Yield all indices, extents and integers in a factor."""
    match factor:
        case Read(_, index):
            yield from index
        case Letter(letter):
            yield atom(letter)
        case Power(base, _):
            yield from _places_of(base)
        case Opaque(_, _, args):
            for arg in args:
                yield from _places_of(arg)
        case Extremum(_, cases):
            for case in cases:
                yield from _places_of_domain(case)
                yield from _places_of(case.element)


def _places_of(sum_: Normal) -> Iterator[Poly]:
    for part in sum_:
        yield from _places_of_domain(part)
        for factor in part.factors:
            yield from places(factor)


def _places_of_domain(part: Summand | Case) -> Iterator[Poly]:
    for condition in part.where:
        yield from polynomials(condition)
    for _, extent in part.bound:
        yield extent


def mentioned(*factors: Factor) -> set[Atom]:
    """Return all symbols in some factors."""
    return {symbol for factor in factors for place in places(factor) for symbol in place.symbols()}


def mentioned_in(part: Summand) -> set[Atom]:
    """Return all symbols in a summand; its own bound variables are included only if they occur."""
    return {symbol for place in _places_of((part,)) for symbol in place.symbols()}


def _rebound_factor(factor: Factor, names: Mapping[Atom, Atom]) -> Factor:
    match factor:
        case Power(base, exponent):
            return Power(_rebound(base, names), exponent)
        case Opaque(function, attrs, args):
            return Opaque(function, attrs, tuple(_rebound(arg, names) for arg in args))
        case Extremum(kind, cases):
            return Extremum(
                kind,
                tuple(
                    Case(
                        tuple((names[v], e) for v, e in case.bound),
                        case.where,
                        _rebound(case.element, names),
                    )
                    for case in cases
                ),
            )
        case _:
            return factor


def _rebound(sum_: Normal, names: Mapping[Atom, Atom]) -> Normal:
    return tuple(
        replace(
            part,
            bound=tuple((names[v], e) for v, e in part.bound),
            factors=tuple(_rebound_factor(f, names) for f in part.factors),
        )
        for part in sum_
    )


def relabelled(sum_: Normal, names: Mapping[Atom, Atom]) -> Normal:
    """Rename the symbols of a sum; ``names`` has all bound variables."""
    return replaced(_rebound(sum_, names), {old: atom(new) for old, new in names.items()})


def renamed(sum_: Normal) -> Normal:
    """Give all bound variables of a sum new names."""
    names = {v: bound("v") for v in binders(sum_)}
    return relabelled(sum_, names) if names else sum_
