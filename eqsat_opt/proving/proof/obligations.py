"""Proof obligations without irrelevant axes and assumptions, so that many scenarios share one.

An axis that every read of a tensor indexes with the same free index is a spectator: at that index
the tensor is an arbitrary tensor with one axis less. So a normalisation over the last two of five
axes is proved as a normalisation over both of two axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat_opt.ir.ops.index.integers import Atom, Formula, Poly, atom, substitute
from eqsat_opt.ir.ops.index.scalars import Read
from eqsat_opt.proving.proof.sums.normal import (
    Case,
    Extremum,
    Factor,
    Normal,
    Opaque,
    Power,
    binders,
    mentioned_in,
    relabelled,
)

__all__ = ["Key", "Obligation", "obligation"]

Key = tuple[Normal, frozenset[Formula]]
"""A statement: a sum that vanishes under assumptions."""


@dataclass(frozen=True)
class Obligation:
    """A sum that is to vanish under assumptions.

    Attributes:
        sum: the sum, without spectators.
        assumptions: assumptions that share symbols with the sum, directly or through others.
    """

    sum: Normal
    assumptions: tuple[Formula, ...]

    def statements(self) -> Iterator[Key]:
        """Yield keys of the sum alone, then with its assumptions; equal keys mean equal statements.

        Symbols are named by their order.
        """
        symbols: dict[Atom, None] = dict.fromkeys(binders(self.sum))
        for part in self.sum:
            for read in _reads((part,)):
                for place in read.index:
                    symbols.update(dict.fromkeys(sorted(place.symbols())))
            symbols.update(dict.fromkeys(sorted(mentioned_in(part))))
        names = {old: Atom(f"c{i}") for i, old in enumerate(symbols)}
        sum_ = relabelled(self.sum, names)
        yield sum_, frozenset()
        others = dict.fromkeys(s for fact in self.assumptions for s in sorted(fact.symbols()))
        for symbol in others:
            names.setdefault(symbol, Atom(f"c{len(names)}"))
        values = {old: atom(new) for old, new in names.items()}
        yield sum_, frozenset(substitute(fact, values) for fact in self.assumptions)


def obligation(sum_: Normal, assumptions: Sequence[Formula]) -> Obligation:
    """Return the obligation to prove that ``sum_`` vanishes."""
    shorter = _without(sum_, _spectators(sum_))
    return Obligation(shorter, _relevant(shorter, assumptions))


def _reads(sum_: Normal) -> Iterator[Read]:
    for part in sum_:
        for factor in part.factors:
            match factor:
                case Read():
                    yield factor
                case Power(base, _):
                    yield from _reads(base)
                case Opaque(_, _, args):
                    for arg in args:
                        yield from _reads(arg)
                case Extremum(_, cases):
                    for case in cases:
                        yield from _reads(case.element)


def _spectators(sum_: Normal) -> dict[str, set[int]]:
    """Return, by tensor, the axes that all its reads index alike, free of bound variables."""
    bound = set(binders(sum_))
    common: dict[str, dict[int, Poly]] = {}
    for read in _reads(sum_):
        axes = dict(enumerate(read.index))
        before = common.setdefault(read.tensor, axes)
        common[read.tensor] = {
            axis: place
            for axis, place in axes.items()
            if before.get(axis) == place and bound.isdisjoint(place.symbols())
        }
    return {tensor: set(axes) for tensor, axes in common.items()}


def _without(sum_: Normal, dropped: dict[str, set[int]]) -> Normal:
    return tuple(
        replace(part, factors=tuple(_factor_without(f, dropped) for f in part.factors))
        for part in sum_
    )


def _factor_without(factor: Factor, dropped: dict[str, set[int]]) -> Factor:
    match factor:
        case Read(tensor, index):
            kept = (p for axis, p in enumerate(index) if axis not in dropped[tensor])
            return Read(tensor, tuple(kept))
        case Power(base, exponent):
            return Power(_without(base, dropped), exponent)
        case Opaque(function, attrs, args):
            return Opaque(function, attrs, tuple(_without(arg, dropped) for arg in args))
        case Extremum(kind, cases):
            kept_cases = (
                Case(case.bound, case.where, _without(case.element, dropped)) for case in cases
            )
            return Extremum(kind, tuple(kept_cases))
        case _:
            return factor


def _relevant(sum_: Normal, assumptions: Sequence[Formula]) -> tuple[Formula, ...]:
    reached = {symbol for part in sum_ for symbol in mentioned_in(part)}
    rest = {fact: frozenset(fact.symbols()) for fact in assumptions}
    near: list[Formula] | None = None
    while near is None or near:
        near = [fact for fact, symbols in rest.items() if not symbols.isdisjoint(reached)]
        for fact in near:
            reached |= rest.pop(fact)
    return tuple(fact for fact in assumptions if fact not in rest)
