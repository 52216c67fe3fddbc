"""The typing of level 1 and that of proofs fail apart: a mistake of one is seen by the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eqsat_opt.errors import RuleRefuted
from eqsat_opt.ir.ops import OPS
from eqsat_opt.ir.ops.index.integers import equal, poly
from eqsat_opt.ir.ops.index.linear import conv
from eqsat_opt.ir.ops.index.scalars import IndexTensor, Premises
from eqsat_opt.proving.gate import certify_exact
from eqsat_opt.proving.instances import left_side, search
from eqsat_opt.proving.proof import prove
from eqsat_opt.rules.rule import Int, Ints, Sides, Tensor, rule
from eqsat_opt.rules.term import concat, ops

pytest.importorskip("z3", reason="proofs need z3: pip install 'eqsat-opt[verify]'")


@rule("wrong/filters-of-any-group")
def filters(x: Tensor, w: Tensor, v: Tensor, s: Ints, p: Ints, d: Ints, g: Int) -> Sides:
    """Right for one group only."""
    attrs = {"strides": s, "pads": p, "dilations": d, "group": g}
    merged = ops.Conv(x, concat(w, v, axis=0), **attrs)
    return merged, concat(ops.Conv(x, w, **attrs), ops.Conv(x, v, **attrs), axis=1)


@pytest.fixture
def one_group(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An index function that demands too much."""

    def ungrouped(
        operands: Sequence[IndexTensor], attrs: Mapping[str, Any], premises: Premises
    ) -> IndexTensor:
        premises.require(equal(poly(attrs["group"]), 1))
        return conv(operands, attrs, premises)

    monkeypatch.setitem(OPS, "Conv", replace(OPS["Conv"], index_fn=ungrouped))
    _forget()
    yield
    _forget()


def _forget() -> None:
    search.find_instances.cache_clear()
    left_side._remembered.cache_clear()


def test_without_the_mistake_the_rule_is_refused_by_both() -> None:
    assert prove(filters).status == "unknown"
    with pytest.raises(RuleRefuted):
        certify_exact(filters)


def test_level_1_sees_a_mistake_of_the_typing_of_proofs(one_group: None) -> None:
    assert prove(filters).status == "proven"
    with pytest.raises(RuleRefuted):
        certify_exact(filters)


def test_instances_of_the_typing_of_proofs_would_not(
    one_group: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Why level 1 has a typing of its own."""
    monkeypatch.setattr(left_side.LeftSide, "every", lambda *_: None)
    for drawing in ("drawn", "guided"):
        monkeypatch.setattr(left_side.LeftSide, drawing, lambda *_: itertools.repeat(None))
    assert certify_exact(filters).level == 1
