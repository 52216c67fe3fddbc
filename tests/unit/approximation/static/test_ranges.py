"""Ranges round to the nearest integer, mean zero exactly, and clip where that is more exact."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from eqsat_opt.approximation.static.ranges import QuantisedRange, range_of, thinned

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
    samples = [_with_an_outlier(np.random.default_rng(i), i) for i in range(4)]
    held = range_of([one.astype(np.float32) for one in samples])
    assert held is not None
    assert (255 - held.zero) * held.scale < 8


def test_an_outlier_of_every_sample_is_no_reason_to_clip_those_of_others() -> None:
    """What clips well where it was fixed may not clip well on another sample."""
    rng = np.random.default_rng(0)
    samples = [rng.uniform(0, peak, 500).astype(np.float32) for peak in (1.0, 2.0, 3.0)]
    held = range_of(samples)
    assert held is not None
    assert held.origin in ("min-max", "110% of min-max")


def _with_an_outlier(rng: np.random.Generator, number: int) -> np.ndarray:
    one = rng.standard_normal(8_000)
    one[0] = 12.0 if number == 1 else one[0]
    return one


@pytest.mark.parametrize(
    ("draw", "origin"),
    [
        (lambda rng, _: rng.lognormal(0, 1.5, 8_000), "min-max"),
        (lambda rng, _: rng.exponential(size=8_000), "percentile"),
        (lambda rng, _: rng.standard_t(3, 8_000), "110% of min-max"),
        (_with_an_outlier, "entropy"),
    ],
)
def test_ranges_of_all_origins_win_somewhere(
    draw: Callable[[np.random.Generator, int], np.ndarray], origin: str
) -> None:
    rng = np.random.default_rng(0)
    held = range_of([draw(rng, number).astype(np.float32) for number in range(4)])
    assert held is not None
    assert origin in held.origin


def test_thinned_arrays_keep_their_ends() -> None:
    array = np.random.default_rng(0).standard_normal((500, 300)).astype(np.float32)
    found = thinned(array)
    assert (found.min(), found.max()) == (array.min(), array.max())
    assert found.size < 8_200
    assert thinned(array[:10]).size == 3_000


def test_a_limit_is_kept() -> None:
    held = range_of([np.array([0, 20], np.float32)], most=6.0)
    assert held is not None
    assert held.zero == 0
    assert 255 * held.scale == pytest.approx(6.0, rel=1e-6)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_have_no_range(odd: float) -> None:
    assert range_of([np.array([1, odd], np.float32)]) is None
