"""Bring a term into normal form, with what is known of powers and extrema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import reduce

from eqsat_opt.ir.ops.integers import Atom, Formula, Poly, atom, negate, substitute
from eqsat_opt.ir.ops.scalars import (
    Call,
    Choice,
    Constant,
    Inverse,
    Parameter,
    Plus,
    Read,
    Reduce,
    Scalar,
    Times,
    Whole,
    bound,
    conjunction,
)
from eqsat_opt.rules.verify.proof.normal import (
    ONE,
    Case,
    Extremum,
    Factor,
    Normal,
    Opaque,
    Power,
    Summand,
    integer,
    mentioned,
    multiply,
    negative,
    renamed,
    single,
)

__all__ = ["exponential", "extremum", "normalise", "power", "rational"]

_EXPANDED = 4
"""Integer powers up to this are products."""


def _guarded(sum_: Normal, *conditions: Formula) -> Normal:
    return tuple(replace(part, where=conjunction([*part.where, *conditions])) for part in sum_)


def rational(sum_: Normal) -> Fraction | None:
    """The number that a sum is, if it is one whatever the sizes."""
    if not sum_:
        return Fraction(0)
    if all(not (p.bound or p.where or p.factors) for p in sum_):
        return sum((p.coefficient for p in sum_), Fraction(0))
    return None


def _inverse(factor: Factor) -> Normal:
    if isinstance(factor, Power):
        return power(factor.base, -factor.exponent)
    return single(Power(single(factor), Fraction(-1)))


def _inverse_of_sum(part: Summand) -> Normal:
    """1 / sum of f g = 1/f / sum of g, where f does not depend on the index of the sum."""
    variables = {v for v, _ in part.bound}
    outer = [f for f in part.factors if variables.isdisjoint(mentioned(f))]
    inner = tuple(f for f in part.factors if f not in outer)
    rest: Normal = (replace(part, coefficient=Fraction(1), factors=inner),)
    sum_ = Power(rest, Fraction(-1))
    constant: Normal = (replace(ONE, coefficient=1 / part.coefficient, factors=(sum_,)),)
    return reduce(multiply, map(_inverse, outer), constant)


def exponential(argument: Normal) -> Normal:
    """exp(a + b) = exp(a) exp(b)."""
    factors = tuple(Opaque("Exp", (), ((part,),)) for part in argument)
    return (replace(ONE, factors=factors),)


def power(base: Normal, exponent: Fraction) -> Normal:
    """A power; small positive integer ones and inverses of single products are carried out.

    Poles and negative bases of roots are left out: where one side is undefined nothing is claimed.
    """
    if exponent.denominator == 1 and 0 <= exponent <= _EXPANDED:
        factors = (renamed(base) for _ in range(int(exponent)))
        return reduce(multiply, factors, (ONE,))
    known = rational(base)
    if known is not None and known and exponent == -1:
        return (replace(ONE, coefficient=1 / known),)
    if len(base) == 1 and exponent == -1 and base[0].bound:
        return _inverse_of_sum(base[0])
    if len(base) == 1 and not base[0].bound and not base[0].where:
        (only,) = base
        if exponent == -1:
            constant: Normal = (replace(ONE, coefficient=1 / only.coefficient),)
            return reduce(multiply, map(_inverse, only.factors), constant)
        if (
            only.coefficient == 1
            and len(only.factors) == 1
            and isinstance(only.factors[0], Power)
            and only.factors[0].exponent.denominator != 1
            and (only.factors[0].exponent * exponent).denominator != 1
        ):
            inner = only.factors[0]
            return single(Power(inner.base, inner.exponent * exponent))
    return single(Power(base, exponent))


def extremum(kind: str, cases: Iterable[Case]) -> Normal:
    """Nested extrema of one kind are one."""
    flat: list[Case] = []
    for case in cases:
        element = case.element
        if len(element) == 1 and element[0] == replace(ONE, factors=element[0].factors):
            factors = element[0].factors
            if len(factors) == 1 and isinstance(factors[0], Extremum) and factors[0].kind == kind:
                flat += (
                    Case(
                        case.bound + inner.bound,
                        conjunction([*case.where, *inner.where]),
                        inner.element,
                    )
                    for inner in factors[0].cases
                )
                continue
        flat.append(case)
    return single(Extremum(kind, tuple(flat)))


def _call(call: Call, names: Mapping[Atom, Poly]) -> Normal:
    args = tuple(normalise(arg, names) for arg in call.args)
    match call.function:
        case "Relu":
            return extremum("max", [Case((), (), args[0]), Case((), (), ())])
        case "Max" | "Min":
            return extremum(call.function.lower(), [Case((), (), arg) for arg in args])
        case "Exp":
            return exponential(args[0])
        case "Sqrt":
            return power(args[0], Fraction(1, 2))
        case "Where":
            truth = single(Opaque("Truth", (), args[:1]))
            otherwise = multiply(truth, args[2])
            return multiply(renamed(truth), args[1]) + args[2] + negative(renamed(otherwise))
        case "Pow" if (exponent := rational(args[1])) is not None:
            return power(args[0], exponent)
        case _:
            return single(Opaque(call.function, call.attrs, args))


def normalise(term: Scalar, names: Mapping[Atom, Poly] | None = None) -> Normal:
    """The normal form of a term; every binder gets a new name."""
    names = names or {}
    match term:
        case Read(tensor, index):
            return single(Read(tensor, tuple(substitute(i, names) for i in index)))
        case Whole(value):
            return integer(substitute(value, names))
        case Constant(value):
            return (replace(ONE, coefficient=value),) if value else ()
        case Parameter():
            return single(term)
        case Plus(parts):
            return tuple(summand for part in parts for summand in normalise(part, names))
        case Times(parts):
            return reduce(multiply, (normalise(part, names) for part in parts), (ONE,))
        case Inverse(operand):
            return power(normalise(operand, names), Fraction(-1))
        case Call():
            return _call(term, names)
        case Choice(condition, then, otherwise):
            holds = substitute(condition, names)
            return _guarded(normalise(then, names), holds) + _guarded(
                normalise(otherwise, names), negate(holds)
            )
        case Reduce(kind, variables, where, body):
            new = [(bound("v"), substitute(extent, names)) for _, extent in variables]
            inner = {
                **names,
                **{old: atom(v) for (old, _), (v, _) in zip(variables, new, strict=True)},
            }
            condition = substitute(where, inner)
            element = normalise(body, inner)
            if kind == "sum":
                return tuple(
                    replace(part, bound=(*new, *part.bound))
                    for part in _guarded(element, condition)
                )
            return extremum(kind, [Case(tuple(new), conjunction([condition]), element)])
