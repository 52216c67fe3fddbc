"""Algorithms of kernels, against all assignments there are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import pytest

from eqsat_opt.lab.search.pricing.assignment import (
    Point,
    Value,
    best_on_hull,
    improved,
    least_ratio,
)


def random_choices(seed: int) -> list[list[Point]]:
    rng = random.Random(seed)
    return [
        [(float(rng.randint(1, 40)), float(rng.randint(1, 40))) for _ in range(rng.randint(1, 4))]
        for _ in range(rng.randint(1, 6))
    ]


def total(choices: Sequence[Sequence[Point]], chosen: Sequence[int], value: Value) -> float:
    points = [one[i] for one, i in zip(choices, chosen, strict=True)]
    return value(sum(time for time, _ in points), sum(energy for _, energy in points))


def least(choices: Sequence[Sequence[Point]], value: Value) -> float:
    return min(total(choices, one, value) for one in product(*(range(len(c)) for c in choices)))


def linear(time: float, energy: float) -> float:
    return 3 * time + energy


def weighted_product(time: float, energy: float) -> float:
    return float(time**0.25 * energy**0.75)


def power(time: float, energy: float) -> float:
    return energy / time


@pytest.mark.parametrize("seed", range(60))
class TestAgainstAllAssignments:
    def test_one_change_at_a_time_solves_sums(self, seed: int) -> None:
        choices = random_choices(seed)
        found = improved(choices, linear, 1, [0] * len(choices))
        assert total(choices, found, linear) == least(choices, linear)

    @pytest.mark.parametrize("value", [linear, weighted_product])
    def test_the_hull_has_the_best(self, seed: int, value: Value) -> None:
        choices = random_choices(seed)
        found = best_on_hull(choices, value)
        assert total(choices, found, value) == pytest.approx(least(choices, value), rel=1e-12)

    def test_the_least_power(self, seed: int) -> None:
        choices = random_choices(seed)
        found = least_ratio(choices)
        assert total(choices, found, power) == pytest.approx(least(choices, power), rel=1e-12)

    @pytest.mark.parametrize("value", [weighted_product, power])
    def test_a_walk_ends_where_no_two_changes_help(self, seed: int, value: Value) -> None:
        choices = random_choices(seed)
        start = [len(points) - 1 for points in choices]
        found = improved(choices, value, 2, start)
        reached = total(choices, found, value)
        assert least(choices, value) <= reached <= total(choices, start, value)
        for other in product(*(range(len(points)) for points in choices)):
            if sum(a != b for a, b in zip(found, other, strict=True)) <= 2:
                assert total(choices, other, value) >= reached * (1 - 1e-12)


def test_a_walk_of_enough_changes_is_exhaustive() -> None:
    for seed in range(20):
        choices = random_choices(seed)[:4]
        found = improved(choices, weighted_product, len(choices), [0] * len(choices))
        assert total(choices, found, weighted_product) == least(choices, weighted_product)


def test_a_graph_without_kernels() -> None:
    assert best_on_hull([], linear) == least_ratio([]) == improved([], linear, 2, []) == []


def test_a_choice_that_no_sum_prefers_is_left_out() -> None:
    # (5, 6) lies above the line from (1, 9) to (9, 1), and (9, 9) behind (1, 9).
    assert best_on_hull([[(5, 6), (9, 9), (1, 9), (9, 1)]], weighted_product) == [3]
