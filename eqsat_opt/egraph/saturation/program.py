"""The commands that an engine runs before a model is loaded; many models share them.

Rules whose left side needs an operator that neither the model nor another rule provides are left
out. Compiling them would be useless, and would take most of the time for small models.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat_opt.egraph.encoding.compile import compile_rule, rule_numbers
from eqsat_opt.egraph.encoding.schema import Schema
from eqsat_opt.egraph.encoding.typing import is_typed, typing_rules
from eqsat_opt.egraph.terms import TermNode
from eqsat_opt.ir.ops.functions import FUNCTIONS
from eqsat_opt.rules.rule import Phase, Rule, directed
from eqsat_opt.rules.term import MAP, Term, applied

__all__ = ["EngineProgram", "program_for", "relevant"]


@dataclass(frozen=True)
class EngineProgram:
    """Schema, typing rules and substitution rules, compiled to commands.

    Attributes:
        schema: the schema of the e-graph.
        commands: the commands for the engine.
        numbers: numbers of the directed rules in use by name, in the order of a round.
        phases: phases of the rules in use.
    """

    schema: Schema
    commands: tuple[str, ...]
    numbers: Mapping[str, int]
    phases: frozenset[Phase]


def program_for(
    rules: Sequence[Rule], terms: Iterable[TermNode], *, exact: bool = False
) -> EngineProgram:
    """Return the program for ``terms`` under ``rules``, where equations are read both ways.

    Raises:
        RuleError: a rule cannot be compiled.
    """
    held = frozenset((term.op, len(term.children)) for term in terms)
    return _program(tuple(rules), held, exact)


@lru_cache(maxsize=16)
def _program(
    rules: tuple[Rule, ...], held: frozenset[tuple[str, int]], exact: bool
) -> EngineProgram:
    one_way = relevant(_directed(rules), {op for op, _ in held})
    numbers = rule_numbers(one_way)
    schema = Schema.of(one_way, held, exact=exact)
    compiled = [compile_rule(rule, numbers[rule.name], schema) for rule in one_way]
    commands = (*schema.declarations(), *typing_rules(schema), *compiled, "(set (now) 0)")
    return EngineProgram(schema, commands, numbers, frozenset(rule.phase for rule in one_way))


@lru_cache(maxsize=8)
def _directed(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(directed(rules))


def _operators(roots: Iterable[Term]) -> frozenset[str]:
    return frozenset(term.op for term in applied(roots))


def _is_made(op: str) -> bool:
    return op == MAP or op in FUNCTIONS or is_typed(op)


@lru_cache(maxsize=8)
def _sides(rules: tuple[Rule, ...]) -> tuple[tuple[str, frozenset[str], frozenset[str]], ...]:
    """Return names of the rules with the operators of their left and right sides."""
    return tuple((rule.name, _operators(rule.lhs), _operators(rule.rhs)) for rule in rules)


def relevant(rules: Sequence[Rule], operators: Iterable[str]) -> list[Rule]:
    """Return the rules that may match in a graph of ``operators``, in their order.

    A rule that cannot be compiled is kept, so that the compiler reports it for every model.
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
