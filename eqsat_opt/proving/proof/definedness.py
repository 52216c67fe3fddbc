"""The definedness of a side: demands of inverses, roots and logarithms on their operands.

The equality of both sides is proved for operands at which all these operations are defined. So
wherever the left side has a value, every operation of either side must be shown to have one. An
operation of the left side may be assumed to have one if the left side has no value without it,
because nothing is claimed where the left side has none. This is not so for an operation in a
branch, inside an extremum or under a function that maps an infinity to a number (exp(-1/0) = 0). A
pole there is accepted only where it is a zero of a polynomial in the operands: such zeros are
isolated, and an equation that holds next to them holds at them by continuity. The pole of 1 /
max(x, 0) is refused, because max(x, 0) is 0 for half of all x.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsat_opt.ir.ops.index.integers import Atom
from eqsat_opt.ir.ops.index.scalars import Parameter, Read, Scalar
from eqsat_opt.proving.proof.demands import Demand, Kind, Place, Signs, demands
from eqsat_opt.proving.proof.sums.equality import reached
from eqsat_opt.proving.proof.sums.factor_matching import signature
from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.normal import (
    Case,
    Extremum,
    Factor,
    Letter,
    Normal,
    Power,
    Summand,
    binders,
    negative,
    relabelled,
    single,
)
from eqsat_opt.rules.rule import Rule

__all__ = ["undefined"]

_WORDS: dict[Kind, str] = {
    "nonzero": "divides by what may be 0",
    "nonnegative": "takes a root or logarithm of what may be negative",
    "power": "takes a power of what may not have one",
}


def undefined(left: Scalar, right: Scalar, rule: Rule, context: Context) -> str | None:
    """Return why ``right`` may be undefined where ``left`` is defined; ``None`` if it cannot be.

    Both are the same element: of the side that is replaced, and of its replacement.
    """
    signs = Signs(context)
    lefts = list(demands(left, Place({}), signs))
    rights = list(demands(right, Place({}), signs))
    facts = [*_conditions(rule), *(demand for demand in lefts if demand.firm)]
    passed = []
    for demand in lefts:
        if demand.firm or _met(demand, facts, context):
            continue
        if not _is_isolated(demand, signs):
            return f"the left side {_WORDS[demand.kind]} where that may not matter"
        passed.append(demand)
    for demand in rights:
        beside = [one for one in passed if set(one.branches) <= set(demand.branches)]
        if not _met(demand, facts if demand.firm else [*facts, *beside], context):
            return f"the right side {_WORDS[demand.kind]} where the left side has a value"
    return None


def _is_isolated(demand: Demand, signs: Signs) -> bool:
    """Return whether a demand fails only at the zeros of a polynomial that is not 0 everywhere."""
    element = demand.case.element
    looks = [signature(part.factors) for part in element]
    return (
        demand.kind == "nonzero"
        and any(part.coefficient and not part.where for part in element)
        and all(one != other for one, other in itertools.combinations(looks, 2))
        and all(_is_plain(factor, signs) for part in element for factor in part.factors)
    )


def _is_plain(factor: Factor, signs: Signs) -> bool:
    match factor:
        case Letter(integer) | Power((Summand(_, (), (), (Letter(integer),)),), _):
            return signs.positive(integer)
        case _:
            return isinstance(factor, Read | Parameter)


def _conditions(rule: Rule) -> Iterator[Demand]:
    """Yield the demands that conditions meet: attributes that are required not to be 0."""
    for condition in rule.when:
        if condition.kind == "!=":
            for one, other in (condition.args, condition.args[::-1]):
                if one.kind == "attr" and other.kind == "literal" and other.args[0] == 0:
                    yield Place({}).asking("nonzero", single(Parameter(one.args[0])))


def _met(demand: Demand, facts: Sequence[Demand], context: Context) -> bool:
    """Return whether a demand follows from others of its kind."""
    cases = [fact.case for fact in facts if fact.kind == demand.kind]
    if _labelled(demand.case) in map(_labelled, cases):
        return True
    if demand.kind == "nonzero":
        cases += [replace(case, element=negative(case.element)) for case in cases]
    return bool(cases) and reached(demand.case, cases, context)


def _labelled(case: Case) -> Normal:
    """Return the case as a factor, with bound variables named by their order."""
    whole = single(Extremum("max", (case,)))
    return relabelled(whole, {v: Atom(f"bound {i}") for i, v in enumerate(binders(whole))})
