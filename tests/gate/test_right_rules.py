"""Right rules of many kinds, as users write them, pass the gate."""

from __future__ import annotations

import pytest

from benchmarks.gate_right import admit, right_rules
from eqsat_opt.proving.gate import BRIEF_POINTS, certify_exact
from eqsat_opt.rules import Rule, families

NAMES = list(right_rules())
REFUSED = {"whole/cast-of-magnitude": "no exact numbers have both casts and an order"}
"""Right rules that the gate is known to refuse, and why."""
SEVERAL = [name for name in NAMES if name not in REFUSED][::54]
"""Of every family some."""


def _equation(rule: Rule) -> tuple[str, ...]:
    return (*map(str, rule.lhs), *map(str, rule.rhs), *map(str, rule.when))


def test_there_are_right_rules_of_every_kind_and_none_is_of_the_book() -> None:
    book = {_equation(rule) for family in families().values() for rule in family}
    assert len(NAMES) >= 380
    assert [name for name, rule in right_rules().items() if _equation(rule) in book] == []
    assert all(len(rule.doc.split()) >= 2 for rule in right_rules().values())


@pytest.mark.parametrize("name", SEVERAL)
def test_a_right_rule_is_accepted(name: str) -> None:
    assert certify_exact(right_rules()[name], max_points=BRIEF_POINTS).level == 1


@pytest.mark.slow
def test_nearly_all_right_rules_are_accepted_and_most_are_proven() -> None:
    found = [admit(name) for name in NAMES]
    refused = {one.name: one.reason for one in found if not one.level}
    assert set(refused) <= set(REFUSED), refused
    assert len(refused) <= 0.03 * len(found)
    assert sum(one.level == 2 for one in found) >= 0.75 * len(found)
