"""The most general typing: equations between sizes are solved, the rest is kept as premises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from eqsat_opt.ir.ops.index.integers import (
    AllOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    Poly,
    atom,
    divide,
    poly,
    substitute,
)
from eqsat_opt.ir.ops.index.polynomials import isolated
from eqsat_opt.ir.ops.index.scalars import conjunction

__all__ = ["Unifier", "is_positive"]


def is_positive(value: Poly, positive: Iterable[Atom]) -> bool:
    """Return whether a polynomial is at least 1 because all its terms are positive."""
    known = set(positive)
    return bool(value.terms) and all(
        coefficient > 0 and all(_positive_atom(a, known) for a in monomial)
        for monomial, coefficient in value.terms
    )


def _positive_atom(part: Atom, positive: set[Atom]) -> bool:
    if part.kind == "broadcast":
        return all(is_positive(extent, positive) for extent in part.args)
    return part in positive


@dataclass
class Unifier:
    """A solver of equations for symbols.

    Attributes:
        values: symbol to its value, in terms of symbols that are not solved.
        positive: symbols that are at least 1.
    """

    values: dict[Atom, Poly]
    positive: set[Atom]

    def solve(self, formulas: Iterable[Formula]) -> bool:
        """Solve the equations in ``formulas``, and return whether anything new was solved."""
        found = False
        for formula in formulas:
            for part in formula.parts if isinstance(formula, AllOf) else (formula,):
                reduced = substitute(part, self.values)
                if isinstance(reduced, IsZero):
                    equation = self._shortened(reduced.poly)
                    solved = self._units(equation) or self._solve(equation)
                    found = solved or self._share(equation) or found
        return found

    def _solve(self, equation: Poly) -> bool:
        symbols = {a for a in equation.atoms() if a.kind == "symbol"}
        # Extents are replaced before attributes, later names before earlier ones.
        for symbol in sorted(symbols, key=lambda s: ("." in s.key, s.key), reverse=True):
            value = isolated(equation, symbol)
            if value is None or symbol in value.symbols():
                continue
            if not self._divides_safely(equation, symbol):
                continue
            self._set(symbol, value)
            return True
        return False

    def _units(self, equation: Poly) -> bool:
        """Solve an equation that makes a product of sizes 1, by sizes that are 1."""
        found = False
        for sign in (1, -1):
            rest = equation * sign + 1
            if len(rest.terms) == 1 and is_positive(rest, self.positive):
                for symbol in sorted(rest.symbols() & self.positive):
                    self._set(symbol, poly(1))
                    found = True
        return found

    def _share(self, equation: Poly) -> bool:
        """Solve floor(n/d) d = n by n = d q, with a new size q."""
        for part in sorted(equation.atoms()):
            if part.kind != "quotient":
                continue
            numerator, denominator = part.args
            exact = atom(part) * denominator - numerator
            for symbol in sorted(numerator.atoms()) if equation in (exact, -exact) else ():
                share = Atom(f"({numerator})/({denominator})")
                value = isolated(numerator - atom(share) * denominator, symbol)
                if symbol.kind == "symbol" and value is not None:
                    sides = (numerator, denominator)
                    if all(is_positive(side, self.positive) for side in sides):
                        self.positive.add(share)
                    self._set(symbol, value)
                    return True
        return False

    def _set(self, symbol: Atom, value: Poly) -> None:
        self.values = {
            **{k: substitute(v, {symbol: value}) for k, v in self.values.items()},
            symbol: value,
        }

    def _divides_safely(self, equation: Poly, symbol: Atom) -> bool:
        """Return whether the factor of ``symbol`` in the equation is never 0."""
        factor = Poly(
            tuple(
                (tuple(a for a in monomial if a != symbol), coefficient)
                for monomial, coefficient in equation.terms
                if symbol in monomial
            )
        )
        return (
            factor.constant not in (None, 0)
            or is_positive(factor, self.positive)
            or (is_positive(-factor, self.positive))
        )

    def _shortened(self, equation: Poly) -> Poly:
        """Divide the equation by its common positive factors."""
        for symbol in sorted(equation.atoms()):
            while (
                symbol in self.positive
                and len(equation.terms)
                and all(symbol in monomial for monomial, _ in equation.terms)
            ):
                shorter = divide(equation, Poly((((symbol,), 1),)))
                if shorter is None:
                    break
                equation = shorter
        return equation

    def premises(self, formulas: Sequence[Formula]) -> list[Formula]:
        """Return ``formulas`` after replacement, and a fact for each positive symbol."""
        facts = [NonNegative(poly(0) + self.value(symbol) - 1) for symbol in sorted(self.positive)]
        return list(
            conjunction([*facts, *(substitute(formula, self.values) for formula in formulas)])
        )

    def value(self, symbol: Atom) -> Poly:
        """Return the value of a symbol; a symbol that is not solved is its own value."""
        return self.values.get(symbol, Poly((((symbol,), 1),)))
