"""Windows of operands of every layout: moved in memory, empty, and of any numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.ops.domains import FLOAT

_WINDOW: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 0, 1), "dilations": (1, 2)}
_POOL = {**_WINDOW, "kernel": (2, 3), "ceil": 1}
_OPERATORS: dict[str, dict[str, Any]] = {
    "Conv": {**_WINDOW, "group": 2},
    "MaxPool": _POOL,
    "AveragePool": {**_POOL, "count_include_pad": 1},
}
_KERNEL = np.random.default_rng(1).standard_normal((6, 2, 2, 3))


def _of(name: str, x: Any, **changed: Any) -> Any:
    operands = [x, _KERNEL] if name == "Conv" else [x]
    return get_op(name).eval_fn(FLOAT, operands, {**_OPERATORS[name], **changed})


@pytest.mark.parametrize("name", _OPERATORS)
@pytest.mark.parametrize("pads", [(1, 0, 0, 1), (0, 0, 0, 0)])
def test_windows_do_not_depend_on_where_elements_lie(name: str, pads: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 7, 6))
    expected = _of(name, x, pads=pads)
    moved = np.ascontiguousarray(x.transpose(2, 0, 3, 1)).transpose(1, 3, 0, 2)
    twice = np.repeat(x, 2, axis=3)[..., ::2]
    backwards = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    for other in (moved, twice, backwards):
        assert np.array_equal(_of(name, other, pads=pads), expected)
    one = np.broadcast_to(x[:1], x.shape)
    assert np.array_equal(_of(name, one, pads=pads)[2], expected[0])


@pytest.mark.parametrize("name", _OPERATORS)
def test_no_samples_have_no_windows(name: str) -> None:
    x = np.zeros((0, 4, 7, 6))
    assert _of(name, x).shape == (0, *_of(name, np.zeros((1, 4, 7, 6))).shape[1:])


def test_windows_hold_any_numbers() -> None:
    x = np.random.default_rng(0).integers(-9, 9, (1, 2, 5, 6))
    assert np.array_equal(_of("MaxPool", x.astype(object)), _of("MaxPool", x))


def test_averages_of_ones_are_ones_on_every_plane() -> None:
    for height, width in ((6, 7), (7, 6), (6, 7)):
        average = _of("AveragePool", np.ones((1, 2, height, width)), count_include_pad=0)
        assert np.array_equal(average, np.ones_like(average))
