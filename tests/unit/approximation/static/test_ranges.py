"""Ranges round to the nearest integer, mean zero exactly, and clip where that is more exact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eqsat_opt.approximation.static.ranges import QuantisedRange, range_of

_FLOATS = arrays.arrays(
    np.float32, st.integers(0, 40), elements=st.floats(-(2.0**90), 2.0**90, width=32)
)


@given(_FLOATS)
def test_values_in_the_range_move_by_half_a_step(array: np.ndarray) -> None:
    held = range_of([array])
    assert held is not None
    assert held.scale > 0
    assert 0 <= held.zero <= 255
    assert held.floats(held.integers(np.zeros(1, np.float32))) == 0
    low, high = ((number - held.zero) * held.scale for number in (0, 255))
    inside = array[(array >= low) & (array <= high)]
    moved = np.abs(held.floats(held.integers(inside)) - inside)
    assert (moved <= 0.51 * held.scale + 1e-6 * np.abs(inside)).all()


@given(_FLOATS)
def test_no_wider_range_is_more_exact(array: np.ndarray) -> None:
    held = range_of([array])
    assert held is not None
    low, high = (float(limit(array, initial=0.0)) for limit in (np.min, np.max))
    scale = max((high - low) / 255, float(np.finfo(np.float32).tiny))
    full = QuantisedRange(scale, round(-low / scale))
    errors = [
        np.sum((one.floats(one.integers(array)).astype(float) - array) ** 2) for one in (held, full)
    ]
    assert errors[0] <= errors[1] * 1.01 + 1e-12


def test_one_value_far_away_is_clipped() -> None:
    array = np.append(np.random.default_rng(0).standard_normal(100_000), 30.0).astype(np.float32)
    held = range_of([array])
    assert held is not None
    assert (255 - held.zero) * held.scale < 28


def test_a_limit_is_kept() -> None:
    held = range_of([np.array([0, 20], np.float32)], most=6.0)
    assert held is not None
    assert held.zero == 0
    assert 255 * held.scale == pytest.approx(6.0, rel=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_have_no_range(odd: float) -> None:
    assert range_of([np.array([1, odd], np.float32)]) is None
