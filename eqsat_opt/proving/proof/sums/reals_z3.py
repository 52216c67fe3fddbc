"""Sums with extrema of few numbers: nonlinear arithmetic over the reals decides all orders.

Elements, parameters and functions are real unknowns of which at most the sign is known. An inverse
is the number whose product with its operand is 1. Its existence is shown, or known of the left
side, before any sum is decided (:mod:`eqsat_opt.proving.proof.definedness`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction

from eqsat_opt.ir.ops.index.integers import at_least, atom
from eqsat_opt.ir.ops.index.scalars import Parameter
from eqsat_opt.proving.proof.budget import Budget
from eqsat_opt.proving.proof.sums.integers_z3 import Context, resources_used
from eqsat_opt.proving.proof.sums.normal import (
    Extremum,
    Factor,
    Letter,
    Normal,
    Opaque,
    Power,
    Summand,
)

__all__ = ["is_zero_by_cases"]

_QUERY_LIMIT = 3_000_000
"""Limit of one question in z3's resource units, which count steps, so that it repeats."""
_UNKNOWNS = 16


class _Indexed(Exception):
    """The error raised where a sum over an index, or a condition on one, is no polynomial."""


def _extrema(sum_: Normal) -> Iterator[Extremum]:
    for part in sum_:
        for factor in part.factors:
            if isinstance(factor, Extremum):
                yield factor


@dataclass
class _Polynomials:
    """Sums in SMT-LIB, with the unknowns met so far."""

    context: Context
    names: dict[Factor, str] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)

    def sum(self, sum_: Normal) -> str:
        return f"(+ 0 {' '.join(self._product(part) for part in sum_)})"

    def _product(self, part: Summand) -> str:
        if part.bound or part.where:
            raise _Indexed
        factors = " ".join(self._unknown(factor) for factor in part.factors)
        return (
            f"(* {_number(part.coefficient)} {factors})" if factors else _number(part.coefficient)
        )

    def _unknown(self, factor: Factor) -> str:
        if factor not in self.names:
            name = self.names[factor] = f"r{len(self.names)}"
            self.facts += self._facts(name, factor)
        return self.names[factor]

    def _facts(self, name: str, factor: Factor) -> list[str]:
        match factor:
            case Parameter(_, sign):
                order = {"positive": ">", "nonnegative": ">=", "negative": "<"}.get(sign)
                return [f"({order} {name} 0)"] if order else []
            case Letter(integer) if self.context.entails(at_least(atom(integer), 1)):
                return [f"(>= {name} 1)"]
            case Opaque("Exp", _, _):
                return [f"(> {name} 0)"]
            case Power(base, exponent) if exponent == -1:
                return [f"(= (* {name} {self.sum(base)}) 1)"]
            case Extremum(kind, cases):
                if any(case.bound or case.where for case in cases):
                    return []
                order = ">=" if kind == "max" else "<="
                elements = [self.sum(case.element) for case in cases]
                attained = " ".join(f"(= {name} {element})" for element in elements)
                bounds = [f"({order} {name} {element})" for element in elements]
                return [*bounds, f"(or {attained})"]
            case _:
                return []


def _number(value: Fraction) -> str:
    sign = "-" if value < 0 else "+"
    return f"({sign} 0 (/ {abs(value.numerator)} {value.denominator}))"


def _unsatisfiable(text: str, budget: Budget) -> bool:
    import z3

    solver = z3.SolverFor("QF_NRA", ctx=budget.z3)
    solver.set("rlimit", _QUERY_LIMIT)
    solver.from_string(text)
    before = resources_used(solver)
    found = bool(solver.check() == z3.unsat)
    budget.question(len(text), resources_used(solver) - before)
    if found and budget.record is not None:
        budget.record.questions["QF_NRA", text] = None
    return found


def is_zero_by_cases(sum_: Normal, context: Context) -> bool:
    """Return whether a sum with extrema is proved zero, whichever element each extremum attains."""
    if not any(_extrema(sum_)):
        return False
    polynomials = _Polynomials(context)
    try:
        text = polynomials.sum(sum_)
    except _Indexed:
        return False
    names = polynomials.names.values()
    if len(names) > _UNKNOWNS:
        return False
    lines = [f"(declare-const {name} Real)" for name in names]
    lines += [f"(assert {fact})" for fact in polynomials.facts]
    question = "\n".join([*lines, f"(assert (not (= {text} 0)))"])
    return _unsatisfiable(question, context.budget)
