"""Sequences and maps are compared as tensors are: floats within rounding, all else exactly."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.validation.tolerances import TOLERANCES, Scale, compare_values

ONE = np.asarray([1.0, 2.0], np.float32)
WHOLE = np.asarray([1, 2], np.int64)
FEW = np.asarray([1, 2], ml_dtypes.int4)


def fault(expected: Any, actual: Any) -> str:
    tolerance = TOLERANCES[Numerics.REASSOCIATE]
    return compare_values("y", expected, actual, Scale(0.0, 0.0), tolerance, exact=False).why


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ([{0: 0.25, 1: 0.75}, {0: 0.5, 1: 0.5}], [{0: 0.2500001, 1: 0.7499999}, {0: 0.5, 1: 0.5}]),
        ([{"cat": 0.25}, {"cat": 0.75}], [{"cat": 0.2500001}, {"cat": 0.7499999}]),
        ([ONE, ONE], [ONE, ONE * np.float32(1 + 1e-6)]),
        ([ONE.astype(np.float16)], [ONE.astype(np.float16) * np.float16(1.001)]),
        ([WHOLE, FEW], [WHOLE, FEW]),
        ([], []),
        (None, None),
        ([np.zeros((0, 3), np.float32)], [np.zeros((0, 3), np.float32)]),
        ([{0: float("nan")}], [{0: float("nan")}]),
        (["a", "b"], ["a", "b"]),
    ],
)
def test_rounding_is_no_fault(expected: Any, actual: Any) -> None:
    assert fault(expected, actual) == ""


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ([{0: 0.25, 1: 0.75}], [{0: 0.2505, 1: 0.7495}]),
        ([{0: 0.25, 1: 0.75}], [{0: 0.75, 1: 0.25}]),
        ([{0: 0.25}], [{1: 0.25}]),
        ([{0: 0.25}], [{0: 0.25, 1: 0.0}]),
        ([{0: 0.25}], [{0: float("nan")}]),
        ([ONE, ONE], [ONE]),
        ([ONE], [ONE.reshape(1, 2)]),
        ([ONE], [ONE.astype(np.float64)]),
        ([ONE, ONE], [ONE, ONE * np.float32(1.01)]),
        ([WHOLE], [WHOLE + 1]),
        ([FEW], [FEW[::-1]]),
        ([], [[]]),
        ([{}], [[]]),
        (["a"], ["b"]),
        (None, ONE),
    ],
)
def test_another_value_is_one(expected: Any, actual: Any) -> None:
    assert fault(expected, actual) == "values differ"
