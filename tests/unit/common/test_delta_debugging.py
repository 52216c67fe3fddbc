"""Delta debugging: no item of the result can be left out, and few subsets are tried."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eqsat_opt.common.delta_debugging import needed_items


@pytest.mark.parametrize(
    ("faulty", "expected"),
    [(["c"], "c"), (["a"], "a"), (["b", "d"], "bd"), (["a", "b", "d"], "abd"), ([], ""), ("x", "")],
)
def test_no_item_can_be_left_out(faulty: Sequence[str], expected: str) -> None:
    assert needed_items("abcd", lambda subset: set(faulty) <= set(subset)) == tuple(expected)


def test_few_subsets_are_tried() -> None:
    tried: list[Sequence[int]] = []

    def fails(subset: Sequence[int]) -> bool:
        tried.append(subset)
        return {300, 700} <= set(subset)

    assert needed_items(range(1000), fails) == (300, 700)
    assert len(tried) < 30
