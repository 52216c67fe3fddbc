"""Which rules can match at all, given the operators of a model.

A rule whose left side needs an operator that neither the model has nor another rule makes would be
compiled for nothing, which for small models is most of the time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from eqsat_opt.egraph.encoding.typing import is_typed
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Term, applied

__all__ = ["relevant"]


def _operators(roots: Iterable[Term]) -> frozenset[str]:
    return frozenset(term.op for term in applied(roots))


def _is_made(op: str) -> bool:
    return op == MAP or op in FUNCTIONS or is_typed(op)


@lru_cache(maxsize=8)
def _sides(rules: tuple[Rule, ...]) -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    """Names of the rules with the operators of their left and right sides."""
    return tuple((rule.name, _operators(rule.lhs), _operators(rule.rhs)) for rule in rules)


def relevant(rules: Sequence[Rule], operators: Iterable[str]) -> list[Rule]:
    """The rules that may match in a graph of ``operators``, in their order.

    A rule that cannot be compiled stays, so that the compiler says why, whatever the model.
    """
    known = set(operators)
    sides = _sides(tuple(rules))
    kept = {name for name, _, made in sides if not all(map(_is_made, made))}
    while True:
        if known & set(FUNCTIONS):
            known.add(MAP)
        found = [side for side in sides if side[0] not in kept and side[1] <= known]
        if not found:
            return [rule for rule in rules if rule.name in kept]
        for name, _, made in found:
            kept.add(name)
            known |= made
