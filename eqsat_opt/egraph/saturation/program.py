"""The commands that an engine runs before a model is loaded; many models share them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from eqsat_opt.egraph.encoding.compile import compile_rule, rule_numbers
from eqsat_opt.egraph.encoding.schema import Schema
from eqsat_opt.egraph.encoding.typing import typing_rules
from eqsat_opt.egraph.saturation.relevance import relevant
from eqsat_opt.egraph.terms import TermNode
from eqsat_opt.rules.rule import Phase, Rule, directed

__all__ = ["Program", "program_for"]


@dataclass(frozen=True)
class Program:
    """Schema, typing rules and substitution rules, compiled to commands.

    Attributes:
        schema: of the e-graph.
        commands: for the engine.
        numbers: of the directed rules that take part, by name, in the order of a round.
        phases: those of which a rule takes part.
    """

    schema: Schema
    commands: tuple[str, ...]
    numbers: Mapping[str, int]
    phases: frozenset[Phase]


def program_for(
    rules: Sequence[Rule], terms: Iterable[TermNode], *, exact: bool = False
) -> Program:
    """The program in which ``rules``, read both ways where they are equations, meet ``terms``.

    Raises:
        RuleError: a rule cannot be compiled.
    """
    held = frozenset((term.op, len(term.children)) for term in terms)
    return _program(tuple(rules), held, exact)


@lru_cache(maxsize=16)
def _program(rules: tuple[Rule, ...], held: frozenset[tuple[str, int]], exact: bool) -> Program:
    one_way = relevant(_directed(rules), {op for op, _ in held})
    numbers = rule_numbers(one_way)
    schema = Schema.of(one_way, held, exact=exact)
    compiled = [compile_rule(rule, numbers[rule.name], schema) for rule in one_way]
    commands = (*schema.declarations(), *typing_rules(schema), *compiled, "(set (now) 0)")
    return Program(schema, commands, numbers, frozenset(rule.phase for rule in one_way))


@lru_cache(maxsize=8)
def _directed(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(directed(rules))
