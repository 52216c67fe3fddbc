"""Hashes of everything a certificate rests on: the rule, its operators and the verifier."""

from __future__ import annotations

import hashlib
from typing import Any

from eqsat_opt.proving.certificates.foundations import foundations
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import MAP, Apply, Condition, Expr, Term, Var, applied

__all__ = ["fingerprint", "rule_text"]

_PROVEN = 2
"""The lowest level at which there is a proof."""


def rule_text(rule: Rule) -> str:
    """Return everything that the meaning of a rule depends on, as one canonical text."""
    parts = [
        rule.name,
        "both ways" if rule.bidirectional else "one way",
        rule.numerics.name,
        *([f"{rule.backward.name} backward"] if rule.backward is not None else []),
        *(f"{name}: {kind}" for name, kind in rule.kinds),
        *(f"left {_term(term)}" for term in rule.lhs),
        *(f"right {_term(term)}" for term in rule.rhs),
        *(f"when {_condition(condition)}" for condition in rule.when),
    ]
    return "\n".join(parts)


def _term(term: Term) -> str:
    if isinstance(term, Var):
        return f"{'weight' if term.const else 'tensor'} {term.name!a}"
    assert isinstance(term, Apply)
    operands = ", ".join(_term(arg) for arg in term.args)
    attrs = ", ".join(f"{key}={_attr(value)}" for key, value in term.attrs.items())
    return f"{term.op}({operands}; {attrs})"


def _attr(value: Any) -> str:
    """Return the text of an attribute, or of part of a condition; only equal values share one.

    A literal shows its type, because 1, 1.0 and True differ. Names are quoted, whatever characters
    they have.
    """
    if isinstance(value, tuple):
        return f"({', '.join(map(_attr, value))},)"
    if not isinstance(value, Expr):
        return f"{type(value).__name__} {value!r}"
    if value.kind == "literal":
        return f"literal {_attr(value.args[0])}"
    if value.kind == "attr":
        return f"attribute {value.args[0]!a}"
    return f"{value.kind}({', '.join(map(_attr, value.args))})"


def _condition(condition: Condition) -> str:
    """Return the text of a condition without its reason, which is for readers only."""
    return f"{condition.kind}{_attr(condition.args)}"


def _operators(rule: Rule) -> list[str]:
    return sorted({term.op for term in applied(rule.roots)} - {MAP})


def fingerprint(rule: Rule, level: int = 1) -> str | None:
    """Return the hash of a rule, of the operators it uses and of the verifier.

    It is another one from level 2 on, so that no proof is claimed for what was only tried.

    Returns:
        ``None`` where the sources cannot be read, as in some frozen applications; certificates
        cannot be compared there.
    """
    on = foundations()
    if on is None:
        return None
    operators = [on.operators[name] for name in _operators(rule)]
    text = "\n".join([rule_text(rule), f"proven {level >= _PROVEN}", on.verifier, *operators])
    return hashlib.sha256(text.encode()).hexdigest()[:32]
