"""Simplification of a sum under assumptions.

Conditions are decided, variables with only one value are removed, and powers are merged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

from eqsat_opt.ir.ops.index.integers import (
    Atom,
    Formula,
    IsZero,
    Poly,
    at_least,
    atom,
    divide,
    negate,
)
from eqsat_opt.ir.ops.index.integers import within as within_extent
from eqsat_opt.ir.ops.index.polynomials import isolated
from eqsat_opt.ir.ops.index.scalars import Read, bound, conjunction
from eqsat_opt.proving.proof.record import Step
from eqsat_opt.proving.proof.sums.from_terms import extremum, function
from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.merging import Same, merged
from eqsat_opt.proving.proof.sums.normal import (
    ONE,
    Case,
    Extremum,
    Factor,
    Normal,
    Opaque,
    Power,
    Summand,
    domain,
    integer,
    mentioned,
    mentioned_in,
    multiply,
    places,
    replaced,
    single,
)
from eqsat_opt.proving.proof.sums.powers import power
from eqsat_opt.proving.proof.sums.signs import is_positive

__all__ = ["Open", "settle"]


class Open(Exception):
    """The error raised where a condition without bound variables is undecided; split on it."""

    def __init__(self, condition: Formula) -> None:
        """Store the condition."""
        super().__init__(str(condition))
        self.condition = condition


def _mentions(formula: Formula | Poly, atoms: Sequence[Atom]) -> bool:
    return any(symbol in atoms for symbol in formula.symbols())


def _unpinned(part: Summand) -> Normal | None:
    """Remove or split one bound variable; return ``None`` if none can be.

    A variable is removed if it has one value only, or does not occur. It is split into two where a
    flattened index is taken apart.
    """
    for v, extent in part.bound:
        rest = tuple(pair for pair in part.bound if pair[0] != v)
        if extent.constant == 1:
            return replaced((replace(part, bound=rest),), {v: Poly(())})
        for condition in part.where:
            if isinstance(condition, IsZero) and _mentions(condition.poly, [v]):
                value = _pinned(condition.poly, v)
                if value is not None:
                    where = conjunction([*part.where, within_extent(value, extent)])
                    return replaced((replace(part, bound=rest, where=where),), {v: value})
        if v not in mentioned_in(replace(part, bound=rest)):
            return multiply((replace(part, bound=rest),), integer(extent))
        width = _seam(part, v)
        count = divide(extent, width) if width is not None and width != extent else None
        if width is not None and count is not None:
            outer, inner = bound("v"), bound("v")
            twice = (*rest, (outer, count), (inner, width))
            value = atom(outer) * width + atom(inner)
            return replaced((replace(part, bound=twice),), {v: value})
    return None


def _pinned(equation: Poly, unknown: Atom) -> Poly | None:
    """Return the only value of ``unknown`` that makes ``equation`` zero, if there is one."""
    factors = [m for m, _ in equation.terms if unknown in m]
    return isolated(equation, unknown) if factors == [(unknown,)] else None


def _seam(part: Summand, v: Atom) -> Poly | None:
    """Return the d of some floor(v / d), where a flattened index is taken apart."""
    for factor in part.factors:
        for place in places(factor):
            for piece in sorted(place.atoms()):
                if piece.kind == "quotient" and piece.args[0] == atom(v):
                    width: Poly = piece.args[1]
                    return width
    return None


# Indices -----------------------------------------------------------------------------------------


def _resolved(value: Poly, scope: Sequence[Atom], context: Context) -> Poly:
    """Replace quotients, and broadcast indices of bound variables, that the assumptions fix."""
    for part in sorted(value.atoms()):
        if part.kind == "quotient":
            candidates = [Poly(())] if context.entails(within_extent(*part.args)) else []
        elif part.kind == "symbol" or not _mentions(atom(part), scope):
            continue
        else:
            candidates = [c for c in _candidates(part) if context.same(atom(part), c)]
        if candidates:
            return _resolved(_exchanged(value, part, candidates[0]), scope, context)
    return value


def _candidates(part: Atom) -> Sequence[Poly]:
    match part.kind:
        case "pick":
            return (part.args[0], Poly(()))
        case "choose":
            return (part.args[1], part.args[2])
        case _:
            return ()


def _exchanged(value: Poly, part: Atom, by: Poly) -> Poly:
    total = Poly(())
    for monomial, coefficient in value.terms:
        factors = (by if a == part else atom(a) for a in monomial)
        total = total + reduce(lambda a, b: a * b, factors, Poly((((), coefficient),)))
    return total


# Summands ----------------------------------------------------------------------------------------


def _decided(
    where: Sequence[Formula], variables: Sequence[Atom], context: Context
) -> tuple[Formula, ...] | None:
    """Return the part of ``where`` that is not decided; ``None`` if ``where`` cannot hold.

    Raises:
        Open: a condition without bound variables is undecided.
    """
    kept = []
    for condition in where:
        if variables and _mentions(condition, variables):
            kept.append(condition)
        elif context.entails(condition):
            continue
        elif not context.feasible(condition):
            return None
        else:
            raise Open(condition)
    return tuple(kept)


def _settled_case(case: Case, scope: Sequence[Atom], context: Context, same: Same) -> list[Case]:
    variables = [v for v, _ in case.bound]
    where = _decided(case.where, variables, context)
    if where is None:
        return []
    case = replace(case, where=where)
    if where and not context.feasible(*domain(case)):
        return []
    try:
        with context.assuming(domain(case)):
            element = settle(case.element, [*scope, *variables], context, same)
    except Open as split:
        if not _mentions(split.condition, variables):
            raise
        halves = (
            replace(case, where=conjunction([*where, side]))
            for side in (split.condition, negate(split.condition))
        )
        return [c for half in halves for c in _settled_case(half, scope, context, same)]
    return [replace(case, element=element)]


def _raised(argument: Normal, context: Context) -> Normal:
    """Return the exponential of a sum as a product, with exp(q log s) = s^q for a positive s."""

    def positive(integer: Atom) -> bool:
        return context.entails(at_least(atom(integer), 1))

    result: Normal = (ONE,)
    for part in argument:
        match part:
            case Summand(exponent, (), (), (Opaque("Log", _, (s,)),)) if is_positive(s, positive):
                result = multiply(result, power(s, exponent))
            case _:
                result = multiply(result, function("Exp", (), ((part,),)))
    return result


def _settled_factor(factor: Factor, scope: Sequence[Atom], context: Context, same: Same) -> Normal:
    match factor:
        case Read(tensor, index):
            return single(Read(tensor, tuple(_resolved(i, scope, context) for i in index)))
        case Power(base, exponent):
            return power(settle(base, scope, context, same), exponent)
        case Opaque(name, attrs, args):
            settled = tuple(settle(arg, scope, context, same) for arg in args)
            if name == "Exp":
                return _raised(settled[0], context)
            return function(name, attrs, settled)
        case Extremum(kind, cases):
            found = [c for case in cases for c in _settled_case(case, scope, context, same)]
            return extremum(kind, found)
        case _:
            return single(factor)


def _without_implied(part: Summand, context: Context) -> Summand:
    """Remove the conditions on otherwise unused variables that the ranges of variables imply."""
    elsewhere = mentioned(*part.factors)
    for v, _ in part.bound:
        if v in elsewhere:
            continue
        kept = tuple(c for c in part.where if not _mentions(c, [v]))
        ranges = domain(replace(part, where=kept))
        with context.assuming(ranges):
            if all(c in kept or context.entails(c) for c in part.where):
                part = replace(part, where=kept)
    return part


def _settled(part: Summand, scope: Sequence[Atom], context: Context, same: Same) -> Normal:
    # Every result is settled again until nothing changes, and so are all sums in it.
    key = (context.assumptions, part, tuple(scope))
    if key in context.settled:
        return (part,)
    result = _settled_anew(part, scope, context, same)
    if result == (part,):
        context.settled.add(key)
    return result


def _settled_anew(part: Summand, scope: Sequence[Atom], context: Context, same: Same) -> Normal:
    context.budget.step()
    record = context.budget.record
    while (simpler := _unpinned(part)) is not None:
        context.budget.step()
        if record is not None:
            record.steps.append(Step("reindex", context.ordered, (part,), simpler))
        if len(simpler) != 1:
            return settle(simpler, scope, context, same)
        (part,) = simpler
    variables = [v for v, _ in part.bound]
    where = _decided(part.where, variables, context)
    if where is None:
        return ()
    part = replace(part, where=where)
    if where and not context.feasible(*domain(part)):
        return ()
    if (shorter := _without_implied(part, context)) != part:
        return _settled(shorter, scope, context, same)
    inner = [*scope, *variables]
    try:
        with context.assuming(domain(part)):
            factors = (_settled_factor(f, inner, context, same) for f in part.factors)
            bare: Normal = (replace(part, factors=()),)
            result = reduce(multiply, factors, bare)
            if len(result) == 1 and result[0].bound == part.bound and result[0].where == where:
                joined = merged(result[0], context, same)
                if joined is not None:
                    if record is not None:
                        record.steps.append(Step("merge", context.ordered, result, joined))
                    return settle(joined, scope, context, same)
    except Open as split:
        if not _mentions(split.condition, variables):
            raise
        halves = (
            replace(part, where=conjunction([*where, side]))
            for side in (split.condition, negate(split.condition))
        )
        return tuple(s for half in halves for s in _settled(half, scope, context, same))
    if result == (part,):
        return result
    return settle(result, scope, context, same)


def settle(sum_: Normal, scope: Sequence[Atom], context: Context, same: Same) -> Normal:
    """Simplify ``sum_`` under the assumptions of ``context``.

    Args:
        sum_: a sum in normal form.
        scope: variables bound further out.
        context: assumptions.
        same: function that decides the equality of sums, to merge factors.

    Raises:
        Open: a condition that does not depend on variables bound in ``sum_`` is undecided.
    """
    return tuple(
        summand
        for part in sum_
        if part.coefficient
        for summand in _settled(part, scope, context, same)
    )
