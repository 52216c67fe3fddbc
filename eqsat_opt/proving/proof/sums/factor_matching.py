"""Candidates for matching two products: pairs of factors, and equations between their indices."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from eqsat_opt.ir.ops.index.integers import Atom, Poly, substitute
from eqsat_opt.ir.ops.index.polynomials import isolated
from eqsat_opt.ir.ops.index.scalars import Parameter, Read
from eqsat_opt.proving.proof.sums.normal import (
    Extremum,
    Factor,
    Letter,
    Normal,
    Opaque,
    Power,
    binders,
    single,
)

__all__ = ["Values", "equations_of", "pairings", "signature", "solved", "sum_differences"]

_PAIRINGS = 48
"""Most ways to pair equal-looking factors that are tried."""

Values = dict[Atom, Poly]


def _head(factor: Factor) -> Hashable:
    match factor:
        case Read(tensor, _):
            return "read", tensor
        case Parameter(name):
            return "parameter", name
        case Letter():
            return "integer"
        case Power(_, exponent):
            return "power", exponent
        case Opaque(function, attrs, args):
            return function, attrs, len(args)
        case Extremum(kind, _):
            return "extremum", kind


def signature(factors: Sequence[Factor]) -> Counter[Hashable]:
    """Return a signature of factors, which is equal for summands that may be alike."""
    return Counter(map(_head, factors))


def pairings(
    left: Sequence[Factor], right: Sequence[Factor]
) -> Iterator[list[tuple[Factor, Factor]]]:
    """Yield ways to pair factors with equal heads."""
    heads = list(dict.fromkeys(map(_head, left)))
    groups = [
        ([f for f in left if _head(f) == head], [f for f in right if _head(f) == head])
        for head in heads
    ]
    orders = itertools.product(*(itertools.permutations(rights) for _, rights in groups))
    for order in itertools.islice(orders, _PAIRINGS):
        yield [
            pair
            for (lefts, _), rights in zip(groups, order, strict=True)
            for pair in zip(lefts, rights, strict=True)
        ]


def equations_of(pairs: Sequence[tuple[Factor, Factor]]) -> list[Poly]:
    """Return differences of indices that should be zero where factors are equal, as candidates."""
    plain = [pair for pair in pairs if isinstance(pair[0], Read)]
    nested = [pair for pair in pairs if not isinstance(pair[0], Read)]
    found = []
    for left, right in [*plain, *nested]:
        inner = {*binders(single(left)), *binders(single(right))}
        found += [e for e in _differences(left, right) if inner.isdisjoint(e.symbols())]
    return found


def _differences(left: Factor, right: Factor) -> Iterator[Poly]:
    match left, right:
        case Read(_, a), Read(_, b):
            yield from (i - j for i, j in zip(a, b, strict=True))
        case Power(a, _), Power(b, _):
            yield from sum_differences(a, b)
        case Opaque(_, _, a), Opaque(_, _, b):
            for x, y in zip(a, b, strict=True):
                yield from sum_differences(x, y)
        case Extremum(_, a), Extremum(_, b):
            for one, other in zip(a, b, strict=False):
                yield from sum_differences(one.element, other.element)


def sum_differences(left: Normal, right: Normal) -> Iterator[Poly]:
    """Yield differences of indices of two sums, whose summands are paired by signature."""
    rest = list(right)
    for a in left:
        for b in rest:
            if signature(a.factors) == signature(b.factors):
                rest.remove(b)
                for x, y in next(pairings(a.factors, b.factors)):
                    yield from _differences(x, y)
                break


def solved(unknowns: Sequence[Atom], equations: Sequence[Poly]) -> Values:
    """Solve equations for the unknowns by elimination, as far as possible."""
    values: Values = {}
    found = True
    while found:
        found = False
        for equation in equations:
            reduced = substitute(equation, values)
            present = set(reduced.symbols())
            left = [v for v in unknowns if v not in values and v in present]
            if len(left) == 1:
                value = isolated(reduced, left[0])
                if value is not None:
                    values[left[0]] = value
                    found = True
    return values
