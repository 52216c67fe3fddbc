"""What a float literal was rounded from."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

from eqsat_opt.proving.numbers.literals import ExactLiteral, exact_literal

MEANT = [
    (0.0, ExactLiteral(Fraction(0))),
    (-0.1, ExactLiteral(Fraction(-1, 10))),
    (1e-12, ExactLiteral(Fraction(1, 10**12))),
    (1e30, ExactLiteral(Fraction(10**30))),
    (123456789.0, ExactLiteral(Fraction(123456789))),
    (1 / 3, ExactLiteral(Fraction(1, 3))),
    (1.702, ExactLiteral(Fraction(851, 500))),
    (0.044715, ExactLiteral(Fraction(8943, 200000))),
    (1 / 0.044715, ExactLiteral(Fraction(200000, 8943))),
    (-math.sqrt(0.5), ExactLiteral(Fraction(-1, 2), 2)),
    (1 / math.sqrt(2), ExactLiteral(Fraction(1, 2), 2)),
    (1 / math.sqrt(96), ExactLiteral(Fraction(1, 24), 6)),
    (math.pi, ExactLiteral(Fraction(1), 1, 2)),
    (math.sqrt(2 / math.pi), ExactLiteral(Fraction(1), 2, -1)),
    (2 * math.sqrt(2 / math.pi) * 0.044715, ExactLiteral(Fraction(8943, 100000), 2, -1)),
]


@pytest.mark.parametrize(("value", "meant"), MEANT)
def test_literal_is_read_as_what_it_means(value: float, meant: ExactLiteral) -> None:
    assert exact_literal(value) == meant


@pytest.mark.parametrize(
    "value",
    [
        math.inf,
        math.nan,
        math.e,
        math.log(2),
        math.sqrt(0.5) + 1e-12,
        float.fromhex("0x1.6a09e6p-1"),
    ],
)
def test_what_stands_for_nothing_is_not_read(value: float) -> None:
    assert exact_literal(value) is None


def test_a_reading_is_the_literal_up_to_rounding() -> None:
    draw = random.Random(0)
    for _ in range(300):
        rational = Fraction(draw.randint(1, 999), draw.randint(1, 999))
        radicand, halves = draw.choice((1, 2, 3, 6, 10)), draw.randint(-2, 2)
        value = float(rational) * math.sqrt(radicand) * math.pi ** (halves / 2)
        assert exact_literal(value) == ExactLiteral(rational, radicand, halves)


def test_random_numbers_stand_for_nothing() -> None:
    draw = random.Random(0)
    found = sum(exact_literal(draw.uniform(0, 10)) is not None for _ in range(400))
    assert found < 12
