"""Polynomials with integer coefficients over structured atoms.

Unlike the atoms of :class:`~eqsat_opt.ir.values.dims.SymDim`, these hold their arguments, so that
an index variable can be replaced inside a quotient or a broadcast index.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Literal

__all__ = [
    "Atom",
    "Monomial",
    "Poly",
    "atom",
    "divide",
    "isolated",
    "multiple_of",
    "poly",
    "product",
]

AtomKind = Literal["symbol", "quotient", "pick", "broadcast", "choose"]


@dataclass(frozen=True, slots=True)
class Atom:
    """An atom of a polynomial; ``key`` identifies it.

    Kinds: a symbol; ``quotient(n, d)`` = floor(n/d); ``pick(i, e)`` = 0 if e == 1 else i, the index
    into an operand of extent e that broadcasts; ``broadcast(e, …)`` = the common extent of operands
    that broadcast; ``choose(c, a, b)`` = a where the formula c holds, else b.
    """

    key: str
    kind: AtomKind = field(default="symbol", compare=False)
    args: tuple[Any, ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Atom) -> bool:
        """Compare in the order of the factors of a monomial."""
        return self.key < other.key

    def symbols(self) -> Iterator[Atom]:
        """Yield the symbols in the atom, at any depth."""
        if self.kind == "symbol":
            yield self
        for arg in self.args:
            yield from arg.symbols()

    def __str__(self) -> str:
        return self.key


Monomial = tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Poly:
    """A polynomial with integer coefficients over atoms, in one normal form."""

    terms: tuple[tuple[Monomial, int], ...]
    _hash: int = field(default=0, init=False, compare=False, repr=False)
    _symbols: frozenset[Atom] | None = field(default=None, init=False, compare=False, repr=False)

    def __hash__(self) -> int:
        if not self._hash:
            object.__setattr__(self, "_hash", hash(self.terms) or 1)
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.terms,)  # hashes of texts differ between processes

    def __add__(self, other: Poly | int) -> Poly:
        if other == 0:
            return self
        total = dict(self.terms)
        for monomial, coefficient in poly(other).terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return _from(total)

    __radd__ = __add__

    def __neg__(self) -> Poly:
        return Poly(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Poly | int) -> Poly:
        if other == 0:
            return self
        total = dict(self.terms)
        for monomial, coefficient in poly(other).terms:
            total[monomial] = total.get(monomial, 0) - coefficient
        return _from(total)

    def __rsub__(self, other: Poly | int) -> Poly:
        return poly(other) + -self

    def __mul__(self, other: Poly | int) -> Poly:
        right = poly(other)
        result: dict[Monomial, int] = {}
        for a, i in self.terms:
            for b, j in right.terms:
                monomial = tuple(sorted(a + b)) if a and b else a or b
                result[monomial] = result.get(monomial, 0) + i * j
        return _from(result)

    __rmul__ = __mul__

    @property
    def constant(self) -> int | None:
        """The value of a constant polynomial, else ``None``."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def atoms(self) -> set[Atom]:
        """Return the atoms of the monomials, without the atoms in their arguments."""
        return {atom for monomial, _ in self.terms for atom in monomial}

    def symbols(self) -> frozenset[Atom]:
        """Return all symbols in the polynomial, at any depth."""
        if self._symbols is None:
            found = frozenset(s for atom in self.atoms() for s in atom.symbols())
            object.__setattr__(self, "_symbols", found)
            return found
        return self._symbols

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            factors = "*".join(a.key for a in monomial)
            if factors and abs(coefficient) == 1:
                parts.append(factors if coefficient == 1 else f"-{factors}")
            else:
                parts.append(f"{coefficient}*{factors}" if factors else str(coefficient))
        return " + ".join(parts) or "0"


def _order(item: tuple[Monomial, int]) -> tuple[int, list[str]]:
    return len(item[0]), [atom.key for atom in item[0]]


def _from(terms: Mapping[Monomial, int]) -> Poly:
    kept = [item for item in terms.items() if item[1]]
    if len(kept) > 1:
        kept.sort(key=_order)
    return Poly(tuple(kept))


def poly(value: Poly | int) -> Poly:
    """Convert an integer to a polynomial."""
    if isinstance(value, Poly):
        return value
    return Poly((((), int(value)),)) if value else Poly(())


def atom(symbol: Atom | str) -> Poly:
    """Return the polynomial that consists of one atom; a string names a symbol."""
    return Poly((((Atom(symbol) if isinstance(symbol, str) else symbol,), 1),))


def product(factors: Iterable[Poly]) -> Poly:
    """Return the product of the factors (1 for none)."""
    return reduce(lambda a, b: a * b, factors, poly(1))


def _leading(p: Poly) -> tuple[Monomial, int]:
    return max(p.terms, key=_order)


def multiple_of(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """Return ``monomial`` without ``factors``, ``None`` if it does not contain them all."""
    rest = list(monomial)
    for factor in factors:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def divide(numerator: Poly, denominator: Poly) -> Poly | None:
    """Return the exact quotient, ``None`` if none is found (one may still exist)."""
    result, rest = poly(0), numerator
    monomial, coefficient = _leading(denominator)
    for _ in range(16):
        if not rest.terms:
            return result
        top, value = _leading(rest)
        factor = multiple_of(top, monomial)
        if factor is None or value % coefficient:
            return None
        step = Poly(((factor, value // coefficient),))
        result, rest = result + step, rest - step * denominator
    return None


def isolated(equation: Poly, unknown: Atom) -> Poly | None:
    """Solve ``equation`` = 0 for ``unknown``; return ``None`` if it does not occur linearly."""
    factor = rest = Poly(())
    for monomial, coefficient in equation.terms:
        others = tuple(a for a in monomial if a != unknown)
        if any(unknown in a.symbols() for a in others) or len(monomial) - len(others) > 1:
            return None
        if len(others) < len(monomial):
            factor = factor + Poly(((others, coefficient),))
        else:
            rest = rest + Poly(((monomial, coefficient),))
    return divide(-rest, factor) if factor.terms else None
