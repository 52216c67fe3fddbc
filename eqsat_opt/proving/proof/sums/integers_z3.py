"""Decisions about integers: linear arithmetic by z3, where each product is a separate unknown.

A monomial of several atoms is one unknown to the solver, so that every question is linear; a few
true facts about products (monotone in each factor) are added. A formula that follows here follows
for the true products; a formula that does not may still hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from eqsat_opt.ir.ops.index.integers import (
    FALSE,
    TRUE,
    AllOf,
    AnyOf,
    Atom,
    Formula,
    IsZero,
    NonNegative,
    Poly,
    all_of,
    any_of,
    at_least,
    atom,
    divide,
    equal,
    less,
    negate,
    poly,
    polynomials,
    product,
    within,
)
from eqsat_opt.ir.ops.index.scalars import conjunction
from eqsat_opt.proving.proof.budget import Budget

__all__ = ["Context", "definition", "nested_quotients", "products_facts", "resources_used"]

_QUERY_LIMIT = 2_000_000
"""Limit of one question in z3's resource units, which count steps, so that it repeats."""


Monomial = tuple[Atom, ...]


@dataclass(frozen=True)
class _Sentence:
    """A formula in SMT-LIB, the names in it and the monomials that they denote."""

    text: str
    names: frozenset[str]
    monomials: frozenset[Monomial]


class Context:
    """Assumptions about integers, and questions under them.

    Attributes:
        assumptions: formulas that are assumed to hold.
        budget: budget of the proof.
        used: whether any answer may rest on an assumption.
        settled: summands that cannot be simplified further, each with its assumptions and scope.
    """

    def __init__(self, assumptions: Iterable[Formula], budget: Budget) -> None:
        """Start from ``assumptions``; a question beyond ``budget`` raises OutOfWork."""
        import z3

        self._z3 = z3
        self._names: dict[Monomial, str] = {}
        self._sentences: dict[Formula, _Sentence] = {}
        self._definitions: dict[Atom, Formula] = {}
        self._facts: dict[tuple[frozenset[Monomial], tuple[Poly, ...]], list[Formula]] = {}
        self._known: dict[tuple[frozenset[Formula], Formula], bool] = {}
        # The order makes questions to z3 the same in every process; the set is a key of known
        # answers.
        self._ordered = conjunction(list(assumptions))
        self.assumptions = frozenset(self._ordered)
        self.budget = budget
        self.used = False
        self.settled: set[Hashable] = set()

    @contextmanager
    def assuming(self, formulas: Sequence[Formula]) -> Iterator[None]:
        """Add assumptions for as long as the context is open."""
        before = self._ordered, self.assumptions
        added = conjunction(formulas)
        self._ordered = (*self._ordered, *(f for f in added if f not in self.assumptions))
        self.assumptions = self.assumptions.union(added)
        try:
            yield
        finally:
            self._ordered, self.assumptions = before

    def entails(self, formula: Formula) -> bool:
        """Return whether the assumptions imply ``formula``; ``False`` where that is unknown."""
        if formula == TRUE:
            return True
        if formula in self.assumptions:
            self.used = True
            return True
        if isinstance(formula, AllOf):
            return all(map(self.entails, formula.parts))
        return self._impossible(negate(formula))

    def feasible(self, *formulas: Formula) -> bool:
        """Return whether ``formulas`` may hold under the assumptions; ``True`` where unknown."""
        return not self._impossible(all_of(*formulas))

    def same(self, left: Poly, right: Poly) -> bool:
        """Return whether two integers are equal under the assumptions; ``False`` where unknown."""
        return left == right or self.entails(equal(left, right))

    @property
    def ordered(self) -> tuple[Formula, ...]:
        """The assumptions, in the order in which they were made."""
        return self._ordered

    # Questions -----------------------------------------------------------------------------------

    def _impossible(self, formula: Formula) -> bool:
        if formula == FALSE:
            return True
        self.used = True
        if FALSE in self.assumptions:
            return True
        key = (self.assumptions, formula)
        if key not in self._known:
            self._known[key] = self._unsatisfiable(formula)
        return self._known[key]

    def _unsatisfiable(self, formula: Formula) -> bool:
        asked = [*self._relevant(formula), formula]
        defined = self._defined(asked)
        digits = nested_quotients(defined)
        asked += [*defined.values(), *(within(digit, base) for digit, base in digits)]
        asked += self._products(asked, [digit for digit, _ in digits])
        sentences = [self._sentence(f) for f in asked]
        names = sorted(set().union(*(sentence.names for sentence in sentences)))
        lines = [f"(declare-const {name} Int)" for name in names]
        lines += [f"(assert {sentence.text})" for sentence in sentences]
        solver = self._z3.SimpleSolver(ctx=self.budget.z3)
        solver.set("rlimit", _QUERY_LIMIT)
        text = "\n".join(lines)
        solver.from_string(text)
        before = resources_used(solver)
        found = bool(solver.check() == self._z3.unsat)
        self.budget.question(len(text), resources_used(solver) - before)
        if found and self.budget.record is not None:
            self.budget.record.questions["QF_LIA", text] = None
        return found

    def _relevant(self, formula: Formula) -> list[Formula]:
        """Return the assumptions that share symbols with ``formula``, even through others."""
        rest = {f: frozenset(f.symbols()) for f in self._ordered}
        reached = set(formula.symbols())
        if not reached:
            return list(rest)
        found: list[Formula] = []
        grown = True
        while grown:
            near = [f for f, symbols in rest.items() if not symbols.isdisjoint(reached)]
            grown = bool(near)
            for f in near:
                reached |= rest.pop(f)
            found += near
        return found

    def _defined(self, formulas: Sequence[Formula]) -> dict[Atom, Formula]:
        """Return the definitions of quotients, broadcast indices and choices in ``formulas``."""
        found: dict[Atom, Formula] = {}
        pending = list(formulas)
        while pending:
            for part in _compound(pending.pop()):
                if part not in found:
                    if part not in self._definitions:
                        self._definitions[part] = definition(part)
                    found[part] = self._definitions[part]
                    pending.append(found[part])
        return found

    def _products(self, formulas: Sequence[Formula], digits: Sequence[Poly]) -> list[Formula]:
        monomials = frozenset(
            m for f in formulas for m in self._sentence(f).monomials if len(m) > 1
        )
        key = (monomials, tuple(digits))
        if key not in self._facts:
            self._facts[key] = products_facts(monomials, digits)
        return self._facts[key]

    # SMT-LIB, whose parser is much faster than building terms through the bindings ----------------

    def _sentence(self, formula: Formula) -> _Sentence:
        if formula not in self._sentences:
            monomials: set[Monomial] = set()
            text = self._text(formula, monomials)
            names = frozenset(self._names[m] for m in monomials)
            self._sentences[formula] = _Sentence(text, names, frozenset(monomials))
        return self._sentences[formula]

    def _text(self, formula: Formula, monomials: set[Monomial]) -> str:
        match formula:
            case NonNegative(p):
                return f"(>= {self._sum(p, monomials)} 0)"
            case IsZero(p):
                return f"(= {self._sum(p, monomials)} 0)"
            case AllOf(parts):
                return f"(and true {' '.join(self._text(part, monomials) for part in parts)})"
            case AnyOf(parts):
                return f"(or false {' '.join(self._text(part, monomials) for part in parts)})"

    def _sum(self, value: Poly, monomials: set[Monomial]) -> str:
        parts = []
        for monomial, coefficient in value.terms:
            number = str(coefficient) if coefficient >= 0 else f"(- {-coefficient})"
            if not monomial:
                parts.append(number)
                continue
            monomials.add(monomial)
            name = self._names.setdefault(monomial, f"m{len(self._names)}")
            parts.append(name if coefficient == 1 else f"(* {number} {name})")
        return f"(+ 0 {' '.join(parts)})"


def resources_used(solver: Any) -> int:
    """Return z3's count of its steps so far."""
    statistics = solver.statistics()
    return int(statistics.get_key_value("rlimit count")) if len(statistics) else 0


def _compound(formula: Formula) -> Iterator[Atom]:
    for value in polynomials(formula):
        for part in sorted(value.atoms()):
            if part.kind != "symbol":
                yield part


def definition(part: Atom) -> Formula:
    """Return the definition of a quotient, broadcast index, common extent or choice."""
    value = atom(part)
    match part.kind:
        case "quotient":
            numerator, denominator = part.args
            below = value * denominator
            return all_of(at_least(numerator, below), less(numerator, below + denominator))
        case "pick":
            index, extent = part.args
            single = equal(extent, 1)
            return all_of(
                any_of(negate(single), equal(value, 0)), any_of(single, equal(value, index))
            )
        case "broadcast":
            return all_of(
                any_of(*(equal(value, extent) for extent in part.args)),
                *(any_of(equal(extent, 1), equal(value, extent)) for extent in part.args),
            )
        case _:
            condition, then, otherwise = part.args
            return all_of(
                any_of(negate(condition), equal(value, then)),
                any_of(condition, equal(value, otherwise)),
            )


def nested_quotients(parts: Iterable[Atom]) -> list[tuple[Poly, Poly]]:
    """Return the digits floor(n / a) - b floor(n / ab) of quotients of one integer, with bases b.

    A digit is in [0, b), because floor(n / ab) = floor(floor(n / a) / b). The integer may be
    shifted by a multiple of a in one of the two quotients. Divisors are positive, as
    :func:`definition` has it, so b is positive as well.
    """
    found = []
    quotients = [part for part in parts if part.kind == "quotient"]
    for fine, coarse in itertools.permutations(quotients, 2):
        (numerator, divisor), (shifted, multiple) = fine.args, coarse.args
        base = divide(multiple, divisor)
        shift = divide(shifted - numerator, divisor) if base is not None else None
        if base is not None and shift is not None:
            found.append((atom(fine) + shift - atom(coarse) * base, base))
    return found


def products_facts(monomials: Iterable[Monomial], digits: Iterable[Poly] = ()) -> list[Formula]:
    """Return facts about products u*s for s >= 1: they grow with u, by steps of s.

    Each u is 0, 1 or a cofactor of s in one of ``monomials``; or it is one of ``digits``, if the
    products in it with s are all known. A digit is compared with 0 and 1 only.
    """
    known = frozenset(monomials)
    cofactors: dict[Atom, set[Monomial]] = {}
    for monomial in known:
        for i, factor in enumerate(monomial):
            cofactors.setdefault(factor, set()).add(monomial[:i] + monomial[i + 1 :])
    facts = []
    for factor, others in sorted(cofactors.items()):
        shared = atom(factor)
        ends = [poly(0), poly(1)]
        values = [product(map(atom, other)) for other in sorted(others)]
        pairs = [*itertools.permutations([*ends, *values], 2)]
        for digit in digits:
            if known.issuperset(monomial for monomial, _ in (digit * shared).terms):
                pairs += [pair for end in ends for pair in ((end, digit), (digit, end))]
        facts += [
            _monotone(low, high, shared)
            for low, high in pairs
            if low.constant is None or high.constant is None
        ]
    return facts


@lru_cache(maxsize=1 << 14)  # scenarios of a rule ask for the same facts
def _monotone(low: Poly, high: Poly, shared: Poly) -> Formula:
    difference = (high - low) * shared
    return any_of(
        less(shared, 1),
        all_of(
            any_of(less(high, low), at_least(difference, 0)),
            any_of(at_least(low, high), at_least(difference, shared)),
            any_of(at_least(high, low + 2), at_least(shared, difference)),
        ),
    )
