"""The rule sets of published systems: what is in them, and who may use them."""

from __future__ import annotations

import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import RuleError
from eqsat_opt.proving.rule_sets import METAFLOW, RULE_SETS
from eqsat_opt.proving.selection import costs_only, load_rules, notes_on_rules, standings


def _names(selection: str) -> list[str]:
    return [rule.name for rule in load_rules(selection, Numerics.REASSOCIATE)]


def test_metaflow_is_certified_and_read_from_left_to_right() -> None:
    rules = load_rules("metaflow", Numerics.BITEXACT)
    assert {rule.name for rule in rules} == {name for part in METAFLOW.values() for name in part}
    assert not any(rule.bidirectional for rule in rules)
    assert all(not standings()[rule.name].obstacle for rule in rules)


def test_a_set_is_part_of_a_selection() -> None:
    assert _names("metaflow,-conv/merge-siblings") == [
        name for name in _names("metaflow") if name != "conv/merge-siblings"
    ]
    assert _names("conv/take-groups,metaflow,-metaflow") == ["conv/take-groups"]
    assert len(_names("conv,metaflow")) > len(_names("conv"))


def test_taso_without_what_is_wrong() -> None:
    numbers = {name.partition("/")[2] for name in _names("taso") if name.startswith("taso/")}
    # 133 rules: four wrong, three for fusions and one more that repeats them, six repeat others.
    assert len(numbers) == 133 - 4 - 4 - 6
    assert numbers.isdisjoint({"99", "100", "130", "131"})
    assert set(_names("taso")) < set(_names("ocggs"))


def test_published_rules_serve_costs_only() -> None:
    assert costs_only("taso-published")
    assert costs_only(["conv", "taso-published"])
    assert not costs_only("taso")
    with pytest.raises(RuleError, match=r"compare costs only; give taso, or use"):
        load_rules("taso-published", Numerics.REASSOCIATE)
    names = [r.name for r in load_rules("taso-published", Numerics.REASSOCIATE, for_costs=True)]
    assert "taso/99-any-group" in names
    assert "handwritten/conv-mul" in names
    assert "wrong, as published" in notes_on_rules()[0]


def test_an_unknown_name_is_told_the_sets() -> None:
    with pytest.raises(RuleError, match=", ".join(RULE_SETS)):
        load_rules("metaflo", Numerics.REASSOCIATE)
