"""Symbolic integers of index semantics: quotients, broadcasting, choices, and formulas.

This module proves nothing: the callers decide which formulas hold for all sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eqsat_opt.ir.ops.index.polynomials import Atom, Poly, atom, divide, multiple_of, poly, product

__all__ = [
    "AllOf",
    "AnyOf",
    "Atom",
    "Formula",
    "IsZero",
    "NonNegative",
    "Poly",
    "all_of",
    "any_of",
    "at_least",
    "atom",
    "broadcast",
    "choose",
    "divide",
    "equal",
    "less",
    "negate",
    "pick",
    "poly",
    "polynomials",
    "product",
    "quotient",
    "substitute",
    "within",
]


def quotient(numerator: Poly, denominator: Poly) -> Poly:
    """Return floor(numerator / denominator), with multiples of the denominator taken out.

    The denominator is positive.
    """
    n, d = numerator.constant, denominator.constant
    if d == 1:
        return numerator
    if n is not None and d is not None:
        return poly(n // d)
    whole, rest = poly(0), numerator
    if len(denominator.terms) == 1:
        ((monomial, coefficient),) = denominator.terms
        for term, value in numerator.terms:
            factor = multiple_of(term, monomial)
            if factor is not None and value // coefficient:
                step = Poly(((factor, value // coefficient),))
                whole, rest = whole + step, rest - step * denominator
    else:
        exact = divide(numerator, denominator)
        if exact is not None:
            return exact
    left = rest.constant
    if left is not None and left == 0:
        return whole
    if left is not None and d is not None:
        return whole + left // d
    if d == 2 and ((), 1) in rest.terms:
        # A half rounded up and a half rounded down make the whole, so one form represents both.
        even = rest - 1
        return whole + even - quotient(even, denominator)
    nested = _only_quotient(rest)
    if nested is not None:
        return whole + quotient(nested.args[0], nested.args[1] * denominator)
    return whole + atom(Atom(f"⌊({rest})/({denominator})⌋", "quotient", (rest, denominator)))


def _only_quotient(value: Poly) -> Atom | None:
    """Return the quotient that is the only term of a polynomial, ``None`` if there is none."""
    if len(value.terms) != 1 or value.terms[0][1] != 1 or len(value.terms[0][0]) != 1:
        return None
    only = value.terms[0][0][0]
    return only if only.kind == "quotient" else None


def pick(index: Poly, extent: Poly) -> Poly:
    """Return the index into an operand of ``extent`` that broadcasts: 0 where the extent is 1."""
    known = extent.constant
    if known is not None:
        return poly(0) if known == 1 else index
    if not index.terms:
        return index
    if len(index.terms) == 1 and len(index.terms[0][0]) == 1 and index.terms[0][1] == 1:
        inner = index.terms[0][0][0]
        if inner.kind == "pick" and (inner.args[1] == extent or _covers(inner.args[1], extent)):
            return pick(inner.args[0], extent)
    return atom(Atom(f"pick({index};{extent})", "pick", (index, extent)))


def _covers(common: Poly, extent: Poly) -> bool:
    """Return whether ``common`` is the extent of a broadcast in which ``extent`` takes part."""
    parts = _extents(common)
    return len(parts) > 1 and set(_extents(extent)) <= set(parts)


def _extents(extent: Poly) -> tuple[Poly, ...]:
    if len(extent.terms) == 1 and extent.terms[0][1] == 1 and len(extent.terms[0][0]) == 1:
        only = extent.terms[0][0][0]
        if only.kind == "broadcast":
            return only.args
    return (extent,)


@lru_cache(maxsize=1 << 16)
def broadcast(*extents: Poly) -> Poly:
    """Return the common extent of operands that broadcast."""
    parts = {part for extent in extents for part in _extents(extent) if part.constant != 1}
    literal = [part for part in parts if part.constant is not None]
    if not parts:
        return poly(1)
    if literal:
        return literal[0]
    if len(parts) == 1:
        return parts.pop()
    ordered = tuple(sorted(parts, key=str))
    return atom(Atom(f"broadcast({','.join(map(str, ordered))})", "broadcast", ordered))


def choose(condition: Formula, then: Poly, otherwise: Poly) -> Poly:
    """Return ``then`` where the condition holds, else ``otherwise``."""
    if then == otherwise or condition == TRUE:
        return then
    if condition == FALSE:
        return otherwise
    key = f"choose({condition};{then};{otherwise})"
    return atom(Atom(key, "choose", (condition, then, otherwise)))


# Formulas ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NonNegative:
    """The condition that a polynomial is at least 0."""

    poly: Poly

    def symbols(self) -> Iterator[Atom]:
        """Yield all symbols in the formula."""
        yield from self.poly.symbols()

    def __str__(self) -> str:
        return f"{self.poly} >= 0"


@dataclass(frozen=True, slots=True)
class IsZero:
    """The condition that a polynomial is 0."""

    poly: Poly

    def symbols(self) -> Iterator[Atom]:
        """Yield all symbols in the formula."""
        yield from self.poly.symbols()

    def __str__(self) -> str:
        return f"{self.poly} == 0"


@dataclass(frozen=True, slots=True)
class AllOf:
    """A conjunction; without parts it is true."""

    parts: tuple[Formula, ...]
    _hash: int = field(default=0, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        if not self._hash:
            object.__setattr__(self, "_hash", hash(self.parts) or 1)
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parts,)  # hashes of texts differ between processes

    def symbols(self) -> Iterator[Atom]:
        """Yield all symbols in the formula."""
        for part in self.parts:
            yield from part.symbols()

    def __str__(self) -> str:
        return f"({' and '.join(map(str, self.parts)) or 'true'})"


@dataclass(frozen=True, slots=True)
class AnyOf:
    """A disjunction; without parts it is false."""

    parts: tuple[Formula, ...]
    _hash: int = field(default=0, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        if not self._hash:
            object.__setattr__(self, "_hash", hash(self.parts) or 1)
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.parts,)  # hashes of texts differ between processes

    def symbols(self) -> Iterator[Atom]:
        """Yield all symbols in the formula."""
        for part in self.parts:
            yield from part.symbols()

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.parts)) or 'false'})"


Formula = NonNegative | IsZero | AllOf | AnyOf

TRUE = AllOf(())
FALSE = AnyOf(())


def _truth(value: bool) -> Formula:
    return TRUE if value else FALSE


def at_least(left: Poly | int, right: Poly | int) -> Formula:
    """Return the formula ``left >= right``."""
    difference = poly(left) - right
    known = difference.constant
    return NonNegative(difference) if known is None else _truth(known >= 0)


def less(left: Poly | int, right: Poly | int) -> Formula:
    """Return the formula ``left < right``."""
    return at_least(right, poly(left) + 1)


@lru_cache(maxsize=1 << 16)
def equal(left: Poly | int, right: Poly | int) -> Formula:
    """Return the formula ``left == right``."""
    difference = poly(left) - right
    known = difference.constant
    return IsZero(difference) if known is None else _truth(known == 0)


def within(index: Poly, extent: Poly) -> Formula:
    """Return the formula ``0 <= index < extent``."""
    return all_of(at_least(index, 0), less(index, extent))


def all_of(*parts: Formula) -> Formula:
    """Return a flattened conjunction."""
    flat: dict[Formula, None] = {}
    for part in parts:
        if part == FALSE:
            return FALSE
        flat.update(dict.fromkeys(part.parts if isinstance(part, AllOf) else (part,)))
    return next(iter(flat)) if len(flat) == 1 else AllOf(tuple(flat))


def any_of(*parts: Formula) -> Formula:
    """Return a flattened disjunction."""
    flat: dict[Formula, None] = {}
    for part in parts:
        if part == TRUE:
            return TRUE
        flat.update(dict.fromkeys(part.parts if isinstance(part, AnyOf) else (part,)))
    return next(iter(flat)) if len(flat) == 1 else AnyOf(tuple(flat))


def negate(formula: Formula) -> Formula:
    """Return the negation of a formula over the integers."""
    match formula:
        case NonNegative(p):
            return at_least(-p - 1, 0)
        case IsZero(p):
            return any_of(at_least(p, 1), at_least(-p, 1))
        case AllOf(parts):
            return any_of(*map(negate, parts))
        case AnyOf(parts):
            return all_of(*map(negate, parts))


def polynomials(formula: Formula) -> Iterator[Poly]:
    """Yield the polynomials that a formula compares with 0."""
    match formula:
        case NonNegative(p) | IsZero(p):
            yield p
        case AllOf(parts) | AnyOf(parts):
            for part in parts:
                yield from polynomials(part)


# Replacement -------------------------------------------------------------------------------------


def _replace_atom(part: Atom, values: Mapping[Atom, Poly]) -> Poly:
    if part in values:
        return values[part]
    if part.kind == "symbol":
        return atom(part)
    args = [substitute(arg, values) for arg in part.args]
    match part.kind:
        case "quotient":
            return quotient(args[0], args[1])
        case "pick":
            return pick(args[0], args[1])
        case "broadcast":
            return broadcast(*args)
        case _:
            return choose(args[0], args[1], args[2])


def substitute(value: Any, values: Mapping[Atom, Poly]) -> Any:
    """Replace atoms everywhere in a polynomial or a formula."""
    match value:
        case Poly():
            if value.symbols().isdisjoint(values):
                return value
            total = poly(0)
            for monomial, coefficient in value.terms:
                total = total + product(_replace_atom(a, values) for a in monomial) * coefficient
            return total
        case NonNegative(p):
            return at_least(substitute(p, values), 0)
        case IsZero(p):
            return equal(substitute(p, values), 0)
        case AllOf(parts):
            return all_of(*(substitute(part, values) for part in parts))
        case AnyOf(parts):
            return any_of(*(substitute(part, values) for part in parts))
