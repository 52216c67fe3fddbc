"""Conditions under which the inverses, roots and logarithms of a term are defined.

A demand is firm where the whole term has no value without it. An operation in a branch, inside an
extremum or under a function that maps an infinity to a number (exp(-1/0) = 0) has only soft
demands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from typing import Literal

from eqsat_opt.ir.ops.index.integers import Atom, Formula, Poly, at_least, atom, negate, substitute
from eqsat_opt.ir.ops.index.scalars import (
    Call,
    Choice,
    Inverse,
    Parameter,
    Plus,
    Reduce,
    Scalar,
    Times,
    bound,
    conjunction,
)
from eqsat_opt.proving.numbers.definitions import defined
from eqsat_opt.proving.proof.sums.from_terms import normalise
from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.normal import (
    ONE,
    Bound,
    Case,
    Factor,
    Letter,
    Normal,
    Power,
    multiply,
    negative,
    single,
)
from eqsat_opt.proving.proof.sums.powers import power, rational
from eqsat_opt.proving.proof.sums.ranges import Range, range_of
from eqsat_opt.proving.proof.sums.signs import is_positive, is_positive_factor
from eqsat_opt.proving.typing import unify

__all__ = ["Demand", "Kind", "Place", "Signs", "demands"]

Kind = Literal["nonzero", "nonnegative", "power"]
Branches = tuple[tuple[Normal, bool], ...]
"""Conditions on elements, and whether each of them is true."""


@dataclass(frozen=True)
class Demand:
    """A condition for an operation to have a value.

    Attributes:
        kind: required property of the element of ``case``.
        case: the element, for all index points of its domain.
        firm: whether the whole side has no value where the demand does not hold.
        branches: conditions on elements under which the operation is evaluated.
    """

    kind: Kind
    case: Case
    firm: bool
    branches: Branches


@dataclass(frozen=True)
class Place:
    """The place of an operation within a side.

    Attributes:
        names: bound variables of the side to fresh ones.
        bound, where: index points at which the operation is reached.
        pole, root: whether an infinity, or no number at all, at this place makes the side
            undefined.
        branches: conditions on elements under which the operation is evaluated.
    """

    names: Mapping[Atom, Poly]
    bound: Bound = ()
    where: tuple[Formula, ...] = ()
    pole: bool = True
    root: bool = True
    branches: Branches = ()

    def inside(self) -> Place:
        """Return this place inside an extremum or a function, where all demands are soft."""
        return replace(self, pole=False, root=False)

    def asking(self, kind: Kind, element: Normal) -> Demand:
        """Return the demand of an operation at this place on its operand."""
        firm = self.pole if kind == "nonzero" else self.root
        return Demand(kind, Case(self.bound, self.where, element), firm, self.branches)


class Signs:
    """Signs of terms under the assumptions on sizes."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def positive(self, integer: Atom) -> bool:
        return self._assumed(integer) or self._context.entails(at_least(atom(integer), 1))

    def _assumed(self, integer: Atom) -> bool:
        return at_least(atom(integer), 1) in self._context.assumptions

    def of(self, term: Scalar, names: Mapping[Atom, Poly]) -> Range:
        def integer(value: Poly) -> Range:
            known = substitute(value, names)
            if unify.is_positive(known, filter(self._assumed, known.symbols())):
                return Range.POSITIVE
            for least, found in ((1, Range.POSITIVE), (0, Range.NONNEGATIVE)):
                if self._context.entails(at_least(known, least)):
                    return found
            return Range.ANY

        return range_of(term, integer)


def demands(term: Scalar, place: Place, signs: Signs) -> Iterator[Demand]:
    """Yield the demands of all operations of a term, except those that are known to hold."""
    match term:
        case Plus(parts) | Times(parts):
            for part in parts:
                yield from demands(part, place, signs)
        case Inverse(operand):
            # 1/(1/x) has a value where 1/x is infinite.
            yield from demands(operand, replace(place, pole=False), signs)
            yield from _of_power(operand, Fraction(-1), place, signs)
        case Choice(condition, then, otherwise):
            holds = substitute(condition, place.names)
            for part, side in ((then, holds), (otherwise, negate(holds))):
                where = conjunction([*place.where, side])
                yield from demands(part, replace(place, where=where), signs)
        case Reduce(kind, variables, where, body):
            inner = _inside(variables, where, place)
            yield from demands(body, inner if kind == "sum" else inner.inside(), signs)
        case Call():
            yield from _of_call(term, place, signs)
        case _:
            return


def _inside(variables: Bound, where: Formula, place: Place) -> Place:
    fresh = [(bound("v"), substitute(extent, place.names)) for _, extent in variables]
    pairs = zip(variables, fresh, strict=True)
    names = {**place.names, **{old: atom(new) for (old, _), (new, _) in pairs}}
    conditions = conjunction([*place.where, substitute(where, names)])
    return replace(place, names=names, bound=(*place.bound, *fresh), where=conditions)


def _of_call(call: Call, place: Place, signs: Signs) -> Iterator[Demand]:
    meaning = defined(call)
    if meaning is not None and call.function != "IsNaN":
        yield from demands(meaning, place, signs)
        return
    inner = place.inside()
    match call.function:
        case "Sqrt":
            inner = place
            yield from _of_power(call.args[0], Fraction(1, 2), place, signs)
        case "Log":
            # A logarithm has a value wherever an inverse root has one.
            inner = replace(place, pole=False)
            yield from _of_power(call.args[0], Fraction(-1, 2), place, signs)
        case "Exp" | "Erf":
            inner = replace(place, pole=False)
        case "Pow":
            exponent = rational(normalise(call.args[1], place.names))
            if exponent is not None:
                yield from _of_power(call.args[0], exponent, place, signs)
            elif signs.of(call.args[0], place.names) is not Range.POSITIVE:
                yield place.asking("power", normalise(call, place.names))
                yield from _of_power(call.args[0], Fraction(-1), place, signs)
        case "Where":
            yield from _of_choice(call, inner, place, signs)
            return
        case _:
            pass
    for arg in call.args:
        yield from demands(arg, inner, signs)


def _of_choice(call: Call, inner: Place, place: Place, signs: Signs) -> Iterator[Demand]:
    condition, *branches = call.args
    yield from demands(condition, inner, signs)
    found = normalise(condition, place.names)
    known = rational(found)
    for branch, truth in zip(branches, (True, False), strict=True):
        if known is None:
            behind = replace(inner, branches=(*inner.branches, (found, truth)))
            yield from demands(branch, behind, signs)
        elif truth == bool(known):
            yield from demands(branch, place, signs)


def _of_power(base: Scalar, exponent: Fraction, place: Place, signs: Signs) -> Iterator[Demand]:
    """Yield the demands of a power on its base, factor by factor."""
    known = signs.of(base, place.names)
    rooted = exponent.denominator != 1 and known is Range.ANY
    inverted = exponent < 0 and known is not Range.POSITIVE
    if not (rooted or inverted):
        return
    found = power(normalise(base, place.names), exponent)
    powers = [f for part in found for f in part.factors if isinstance(f, Power)]
    for factor in powers:
        if rooted and factor.exponent.denominator != 1:
            for element in _to_be_nonnegative(factor.base, signs):
                yield place.asking("nonnegative", element)
        if inverted and factor.exponent < 0:
            for element in _to_be_nonzero(factor.base, signs):
                yield place.asking("nonzero", element)


def _is_product(sum_: Normal) -> bool:
    return len(sum_) == 1 and not sum_[0].bound and not sum_[0].where


def _to_be_nonzero(base: Normal, signs: Signs) -> Iterator[Normal]:
    """Yield the sums that must not be 0 so that ``base`` is not 0."""
    if is_positive(base, signs.positive) or is_positive(negative(base), signs.positive):
        return
    if not _is_product(base):
        yield base
        return
    for factor in base[0].factors:
        if isinstance(factor, Power):
            # An inverse is never 0 where it has a value.
            yield from _to_be_nonzero(factor.base, signs) if factor.exponent > 0 else ()
        elif not _is_never_zero(factor, signs):
            yield single(factor)


def _is_never_zero(factor: Factor, signs: Signs) -> bool:
    if isinstance(factor, Parameter) and factor.sign == "negative":
        return True
    if isinstance(factor, Letter) and signs.positive(factor.atom):
        return True
    return is_positive_factor(factor, signs.positive)


def _to_be_nonnegative(base: Normal, signs: Signs) -> Iterator[Normal]:
    """Yield a sum that must not be negative so that ``base`` is not negative.

    For a product, it is the product of its odd factors of unknown sign.
    """
    if is_positive(base, signs.positive):
        return
    if not _is_product(base):
        yield base
        return
    odd: list[Factor] = []
    for factor in base[0].factors:
        if is_positive_factor(factor, signs.positive) or _is_even(factor):
            continue
        if factor in odd:
            odd.remove(factor)
        else:
            odd.append(factor)
    sign = 1 if base[0].coefficient > 0 else -1
    if odd or sign < 0:
        constant: Normal = (replace(ONE, coefficient=Fraction(sign)),)
        yield reduce(multiply, map(_of_same_sign, odd), constant)


def _is_even(factor: Factor) -> bool:
    """Return whether a factor is a root or an even power, which are not negative."""
    if not isinstance(factor, Power):
        return False
    return factor.exponent.denominator != 1 or factor.exponent.numerator % 2 == 0


def _of_same_sign(factor: Factor) -> Normal:
    return factor.base if isinstance(factor, Power) else single(factor)
