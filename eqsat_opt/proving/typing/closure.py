"""A rule at the limit of its tolerances.

A rule that treats a constant as its target, because the constant was rounded on the way, is an
equation at the target only. Elsewhere within the tolerance it may move the result by a few times as
much as the constant. It is therefore verified at the target, its movement is measured
(:mod:`eqsat_opt.proving.checks.margins`), and its certificate gives the distance from the target up
to which the rule applies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr

__all__ = ["closure", "tolerance"]


@lru_cache(maxsize=64)
def closure(rule: Rule) -> Rule:
    """Return the rule with every approximate condition made exact.

    Two sides that are equal at the limit are not in a strict order there, so a condition that
    orders them is dropped.
    """
    limits = {_pair(c) for c in rule.when if c.kind == "near"}
    if not limits:
        return rule
    return replace(rule, when=tuple(_exact(rule.when, limits)))


def _exact(when: tuple[Condition, ...], limits: set[frozenset[str]]) -> Iterator[Condition]:
    for condition in when:
        if condition.kind == "near":
            yield Condition("==", condition.args[:2])
        elif condition.kind not in ("<", "!=") or _pair(condition) not in limits:
            yield condition


def _pair(condition: Condition) -> frozenset[str]:
    return frozenset(str(side) for side in condition.args[:2] if isinstance(side, Expr))


def tolerance(rule: Rule) -> float:
    """Return the largest relative distance of a constant from its target; 0 if all are exact."""
    return max((c.args[2] for c in rule.when if c.kind == "near"), default=0.0)
