"""Scalar functions of float32 have the digits that a float32 can have, at both ends of their range.

Where a definition loses digits, both sides of a rule are measured against noise: right rules are
refused, or wrong ones accepted.
"""

from __future__ import annotations

import numpy as np
import pytest

from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.ops.functions import FUNCTIONS

ATTRIBUTES = {
    "approximate": "none", "alpha": 0.25, "beta": 0.5, "gamma": 1.0625, "min": -1.0, "max": 2.0,
}  # fmt: skip
ROUNDOFFS = 8
"""Of the result, relative to it: some operations in a row."""
BESIDE = np.concatenate([2.0 ** -np.arange(22), -(2.0 ** -np.arange(22))])
POINTS = np.concatenate(
    [np.linspace(-30, 30, 6_001), *(at + BESIDE for at in (-3.0, -1.0, 0.0, 1.0, 3.0))]
).astype(np.float32)


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_no_digits_are_lost(function: str) -> None:
    single = FLOAT.apply(function, ATTRIBUTES, POINTS)
    double = FLOAT.apply(function, ATTRIBUTES, POINTS.astype(np.float64))
    assert single.dtype == np.float32
    normal = np.isfinite(double) & (np.abs(double) >= np.finfo(np.float32).tiny)
    assert normal.sum() > len(POINTS) // 3
    lost = np.abs(single[normal] - double[normal]) / np.abs(double[normal])
    worst = lost.argmax()
    assert lost[worst] <= ROUNDOFFS * 2.0**-24, (POINTS[normal][worst], double[normal][worst])


@pytest.mark.parametrize(
    ("function", "at", "value"),
    [
        ("Sigmoid", -24.0, 3.7751345e-11),
        ("Gelu", -7.5, -2.3931e-13),
        ("HardSwish", -2.999999, -5e-7),
    ],
)
def test_tails_are_those_of_the_definition(function: str, at: float, value: float) -> None:
    result = FLOAT.apply(function, ATTRIBUTES, np.array([at], np.float32))
    np.testing.assert_allclose(result, value, rtol=0.05)
