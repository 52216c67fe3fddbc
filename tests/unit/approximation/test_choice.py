"""The choice is the optimum: nothing that keeps the limits takes less time."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat_opt.approximation.choice import Offer, Option, Selection, select_within

_TIMES = st.integers(0, 20).map(float)
_SQUARES = st.tuples(*[st.integers(0, 9).map(float)] * 2)


@st.composite
def offers_of(draw: st.DrawFn) -> tuple[Offer, ...]:
    """Draw up to four sites, some of which read the same rows."""
    conversions = [draw(_TIMES), draw(_TIMES)]
    return tuple(
        Offer(
            f"site{number}",
            f"rows{(rows := draw(st.integers(0, 1)))}",
            draw(_TIMES),
            conversions[rows],
            tuple(
                Option(f"option{i}", draw(_TIMES), draw(st.booleans()), draw(_SQUARES))
                for i in range(draw(st.integers(0, 3)))
            ),
        )
        for number in range(draw(st.integers(1, 4)))
    )


def _least_time(offers: tuple[Offer, ...], limits: tuple[float, float]) -> float:
    best = math.inf
    for choice in itertools.product(*[(None, *one.options) for one in offers]):
        taken = [one for one in choice if one is not None]
        if any(sum(one.squares[i] for one in taken) > limits[i] for i in range(2)):
            continue
        conversions = {
            offer.rows: offer.conversion_us
            for offer, one in zip(offers, choice, strict=True)
            if one is not None and one.reads_integers
        }
        time_us = sum(conversions.values()) + sum(
            offer.floats_us if one is None else one.time_us
            for offer, one in zip(offers, choice, strict=True)
        )
        best = min(best, time_us)
    return best


@settings(max_examples=30, deadline=None)
@given(offers_of(), st.tuples(*[st.sampled_from((0.0, 3.0, 8.0, math.inf))] * 2))
def test_nothing_within_the_limits_is_faster(
    offers: tuple[Offer, ...], limits: tuple[float, float]
) -> None:
    found = select_within(offers, limits, time_limit_s=10)
    assert found.time_us == pytest.approx(_least_time(offers, limits), abs=1e-6)
    assert found.bound_us <= found.time_us + 1e-9
    assert all(square <= limit + 1e-9 for square, limit in zip(found.squares, limits, strict=True))


def test_sites_share_a_conversion() -> None:
    option = Option("int8", 1.0, True, (0.0,))
    alone = (Offer("a", "x", 5.0, 6.0, (option,)),)
    both = (*alone, Offer("b", "x", 5.0, 6.0, (option,)))
    assert select_within(alone, [1.0], time_limit_s=5).chosen == {}
    assert select_within(both, [1.0], time_limit_s=5) == Selection(
        {"a": "int8", "b": "int8"}, 8.0, 8.0, (0.0,)
    )
