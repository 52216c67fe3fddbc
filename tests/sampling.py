"""Sweeps that are too long for every run: a part of the cases by default, all with ``--slow``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sampled"]


def sampled(cases: Iterable[Any], every: int, keep: Iterable[Any] = ()) -> list[Any]:
    """Mark the cases of a sweep as slow, but for each of ``every`` and those in ``keep``.

    The same ones stay in each run, spread over the whole list, so that neighbours, which are alike,
    stand for each other. A case is one parameter or, as what ``pytest.param`` gives, several.
    """
    always = list(keep)
    return [
        case if place % every == 0 or case in always else _slow(case)
        for place, case in enumerate(cases)
    ]


def _slow(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.slow], id=case.id)
    return pytest.param(case, marks=pytest.mark.slow)
