"""Equality of sums in normal form: like terms cancel.

Two summands are alike where a bijection between their index points, affine and found by solving the
equations between their indices, makes their factors equal. On the points that both have their
coefficients add up. The points of one summand only stay behind with a narrower domain, so that the
parts of a sum that was cut at a seam find each other. Every step keeps the value, so a sum that
cancels to nothing is zero; a sum that does not may still be zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsat_opt.ir.ops.index.integers import (
    Formula,
    NonNegative,
    Poly,
    all_of,
    atom,
    equal,
    negate,
    poly,
    substitute,
)
from eqsat_opt.ir.ops.index.polynomials import isolated
from eqsat_opt.ir.ops.index.scalars import Parameter, Read, conjunction
from eqsat_opt.proving.proof.record import Vanishing
from eqsat_opt.proving.proof.sums.denominators import without_denominator
from eqsat_opt.proving.proof.sums.factor_matching import (
    Values,
    equations_of,
    pairings,
    signature,
    solved,
    sum_differences,
)
from eqsat_opt.proving.proof.sums.integers_z3 import Context
from eqsat_opt.proving.proof.sums.normal import (
    Case,
    Extremum,
    Factor,
    Letter,
    Normal,
    Opaque,
    Power,
    Summand,
    binders,
    domain,
    factor_replaced,
    negative,
    renamed,
    replaced,
    single,
)
from eqsat_opt.proving.proof.sums.reals_z3 import is_zero_by_cases
from eqsat_opt.proving.proof.sums.settle import Open, settle

__all__ = ["reached", "same", "vanishes"]

_WITNESSES = 32
"""Most points of an extremum that are tried for variables without an equation."""
_STEPS = 64
"""Most partial cancellations per sum."""
_DENOMINATOR = 16
"""Steps that multiplying by a denominator costs."""


def same(left: Normal, right: Normal, context: Context) -> bool:
    """Return whether two sums are proved equal under the assumptions."""
    return left == right or vanishes(left + negative(renamed(right)), context)


def vanishes(sum_: Normal, context: Context, steps: int = _STEPS) -> bool:
    """Return whether a sum is proved to be zero under the assumptions."""
    shown = Vanishing(context.ordered, [sum_])
    found = _vanishes(sum_, context, steps, shown)
    if found and context.budget.record is not None:
        context.budget.record.vanishing.append(shown)
    return found


def _vanishes(sum_: Normal, context: Context, steps: int, shown: Vanishing) -> bool:
    try:
        parts = settle(sum_, (), context, same)
    except Open as split:
        shown.ending = "split"
        return all(
            _vanishes_where(sum_, side, context, steps, shown=shown)
            for side in (split.condition, negate(split.condition))
        )
    shown.sums.append(parts)
    return _cancels(list(parts), context, steps, shown)


def _vanishes_where(
    sum_: Normal, condition: Formula, context: Context, steps: int, *, shown: Vanishing
) -> bool:
    possible = context.feasible(condition)
    with context.assuming([condition]):
        shown.rest.append((context.ordered, sum_ if possible else None))
        return not possible or vanishes(sum_, context, steps)


def _cancels(parts: list[Summand], context: Context, steps: int, shown: Vanishing) -> bool:
    while parts:
        part = parts.pop()
        left = _combined(part, parts, context, whole=True)
        if left is None:
            left = _combined(part, parts, context, whole=False)
            if left is None or not steps:
                return _vanishes_otherwise((*parts, part), context, steps, shown)
            shown.ending = "continued"
            shown.rest.append((context.ordered, tuple(left)))
            return vanishes(tuple(left), context, steps - 1)
        parts = left
        shown.sums.append(tuple(parts))
    return True


def _vanishes_otherwise(sum_: Normal, context: Context, steps: int, shown: Vanishing) -> bool:
    """Try to prove a sum to be zero without a denominator, or by deciding over the real numbers."""
    if steps >= _DENOMINATOR:
        cleared = without_denominator(sum_, context, same)
        if cleared is not None:
            shown.ending = "cleared"
            shown.rest.append((context.ordered, cleared))
            return vanishes(cleared, context, steps - _DENOMINATOR)
    shown.ending = "by cases"
    return is_zero_by_cases(sum_, context)


def _combined(
    part: Summand, others: Sequence[Summand], context: Context, *, whole: bool
) -> list[Summand] | None:
    """Combine ``part`` with the first summand of ``others`` like it; ``None`` if there is none."""
    for i, other in enumerate(others):
        if signature(part.factors) != signature(other.factors):
            continue
        left = _joined(part, other, context, whole=whole)
        if left is not None:
            return [*others[:i], *left, *others[i + 1 :]]
    return None


# Like terms --------------------------------------------------------------------------------------


def _bijections(
    a: Summand, b: Summand, pairs: Sequence[tuple[Factor, Factor]]
) -> Iterator[tuple[Values, Values]]:
    """Yield candidates for the index of ``b`` as a function of that of ``a``, and back."""
    of_a, of_b = [v for v, _ in a.bound], [v for v, _ in b.bound]
    equations = equations_of(pairs)
    to_b, to_a = solved(of_b, equations), solved(of_a, equations)
    free_a = [v for v in of_a if v not in to_a]
    free_b = [v for v in of_b if v not in to_b]
    if len(free_a) != len(free_b) or len(free_a) > 3:
        return
    for order in itertools.permutations(free_a):
        forth = {**to_b, **{v: atom(w) for v, w in zip(free_b, order, strict=True)}}
        back = {**to_a, **{w: atom(v) for v, w in zip(free_b, order, strict=True)}}
        if any(set(of_b) & set(value.symbols()) for value in forth.values()):
            continue
        if any(set(of_a) & set(value.symbols()) for value in back.values()):
            continue
        yield forth, back


def _joined(a: Summand, b: Summand, context: Context, *, whole: bool) -> list[Summand] | None:
    """Return ``a + b`` as like terms; ``None`` if they are not alike.

    With ``whole``, they must have the same points.
    """
    if set(binders((a,))) & set(binders((b,))):
        (b,) = renamed((b,))
    if not whole and a.coefficient * b.coefficient > 0:
        return None
    for pairs in pairings(a.factors, b.factors):
        for forth, back in _bijections(a, b, pairs):
            on_a = _image(a, b, forth, back)
            on_b = _image(b, a, back, forth)
            if whole and not (_covers(a, on_a, context) and _covers(b, on_b, context)):
                continue
            if not whole and not context.feasible(*domain(a), on_a):
                continue
            with context.assuming([*domain(a), on_a]):
                if not all(_equal_factors(x, y, forth, context) for x, y in pairs):
                    continue
            left = []
            if a.coefficient + b.coefficient:
                where = a.where if whole else conjunction([*a.where, on_a])
                left.append(replace(a, coefficient=a.coefficient + b.coefficient, where=where))
            if not whole:
                left += [
                    replace(part, where=conjunction([*part.where, negate(on)]))
                    for part, on in ((a, on_a), (b, on_b))
                    if context.feasible(*domain(part), negate(on))
                ]
            return left
    return None


def _image(a: Summand, b: Summand, forth: Values, back: Values) -> Formula:
    """Return the condition that a point of ``a`` has an image in ``b`` that is mapped back."""
    inside = [substitute(condition, forth) for condition in domain(b)]
    returns = [equal(substitute(back[v], forth), atom(v)) for v, _ in a.bound]
    return all_of(*inside, *returns)


def _covers(part: Summand, where: Formula, context: Context) -> bool:
    with context.assuming(domain(part)):
        return context.entails(where)


def _equal_factors(left: Factor, right: Factor, values: Values, context: Context) -> bool:
    match left, right:
        case Letter(a), Letter(b):
            return context.same(atom(a), substitute(atom(b), values))
        case Read(_, a), Read(_, b):
            moved = [substitute(i, values) for i in b]
            return all(context.same(i, j) for i, j in zip(a, moved, strict=True))
        case Parameter(), Parameter():
            return True
        case Power(a, _), Power(b, _):
            return same(a, replaced(b, values), context)
        case Opaque(_, _, a), Opaque(_, _, b):
            moved_args = [replaced(arg, values) for arg in b]
            return all(same(x, y, context) for x, y in zip(a, moved_args, strict=True))
        case Extremum(), Extremum():
            moved_factor = factor_replaced(right, values)
            assert isinstance(moved_factor, Extremum)
            return _reaches(left, moved_factor, context) and _reaches(moved_factor, left, context)
    return False


# Extrema -----------------------------------------------------------------------------------------


def _reaches(left: Extremum, right: Extremum, context: Context) -> bool:
    """Return whether every element of ``left`` is one of ``right``."""
    return all(reached(case, right.cases, context) for case in left.cases)


def reached(case: Case, others: Sequence[Case], context: Context) -> bool:
    """Return whether every element of ``case`` is proved to be one of ``others``."""
    open_ = list(domain(case))
    for other in others:
        (fresh,) = renamed(single(Extremum("max", (other,))))
        (factor,) = fresh.factors
        assert isinstance(factor, Extremum)
        (candidate,) = factor.cases
        for values in _witnesses(case, candidate):
            if not context.feasible(*open_):
                return True
            meets = all_of(*(substitute(c, values) for c in domain(candidate)))
            if not context.feasible(*open_, meets):
                continue
            with context.assuming([*open_, meets]):
                if same(case.element, replaced(candidate.element, values), context):
                    open_ = list(conjunction([*open_, negate(meets)]))
    return not context.feasible(*open_)


def _witnesses(case: Case, other: Case) -> Iterator[Values]:
    """Yield points of ``other`` that may hold the same element as a point of ``case``."""
    inner = {*binders(case.element), *binders(other.element)}
    differences = sum_differences(case.element, other.element)
    equations = [e for e in differences if inner.isdisjoint(e.symbols())]
    yield from itertools.islice(_points(case, other, equations, {}), _WITNESSES)


def _points(case: Case, other: Case, equations: Sequence[Poly], chosen: Values) -> Iterator[Values]:
    """Yield solutions of the equations; variables that stay open are at the ends of their range."""
    unknown = [v for v, _ in other.bound if v not in chosen]
    values = solved(unknown, [substitute(e, chosen) for e in equations])
    known = {**{v: substitute(e, values) for v, e in chosen.items()}, **values}
    free = [pair for pair in other.bound if pair[0] not in known]
    if not free:
        yield known
        return
    v, extent = free[0]
    ends = [poly(0), extent - 1, *(atom(w) for w, _ in case.bound)]
    others = {w for w, _ in other.bound}
    for condition in other.where:
        if isinstance(condition, NonNegative):
            end = isolated(condition.poly, v)
            if end is not None and others.isdisjoint(end.symbols()):
                ends.append(end)
    for end in dict.fromkeys(ends):
        yield from _points(case, other, equations, {**known, v: end})
