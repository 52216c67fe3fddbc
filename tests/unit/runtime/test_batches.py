"""Several products as one call of a library, where strides lead through them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eqsat_opt.runtime.backends.cublaslt.described import calls
from eqsat_opt.runtime.backends.shared.batches import one_product
from eqsat_opt.runtime.backends.shared.tensors import StridedTensor
from tests.tools.fake_gpu import FakeArray, FakeGpu

Shape = tuple[int, ...]


def tensor(array: Any) -> StridedTensor:
    return StridedTensor(array.shape, tuple(step // array.itemsize for step in array.strides))


def drawn(shape: Shape, form: str) -> Any:
    """Numbers that lie densely, by columns, or with gaps between rows or batches."""
    rng = np.random.default_rng(0)
    if form == "columns":
        return rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).swapaxes(-1, -2)
    wide = {"dense": shape, "rows": (*shape[:-1], shape[-1] + 3)}
    wide["batches"] = (*shape[:-3], *(n + 1 for n in shape[-3:-2]), *shape[-2:])
    cut = tuple(slice(0, n) for n in shape)
    return rng.standard_normal(wide[form])[cut]


@pytest.mark.parametrize("form", ["dense", "columns", "rows", "batches"])
@pytest.mark.parametrize(
    ("a", "b", "count"),
    [
        ((5, 7), (7, 3), 1),
        ((1, 1), (1, 1), 1),
        ((4, 5, 7), (7, 3), 1),  # rows of four
        ((2, 4, 5, 7), (1, 1, 7, 3), 1),
        ((4, 5, 7), (4, 7, 3), 1),  # batches
        ((2, 3, 5, 7), (2, 3, 7, 3), 1),
        ((2, 3, 1, 7), (2, 3, 7, 1), 1),
        ((2, 1, 5, 7), (1, 3, 7, 3), 6),  # no stride leads through either
        ((1, 5, 7), (3, 7, 4), 3),
    ],
)
def test_products_of_batches_are_one_call(
    a: Shape, b: Shape, count: int, form: str, tmp_path: Path
) -> None:
    factors = [drawn(a, form), drawn(b, "dense")]
    wanted = np.matmul(*factors)
    result = np.full(wanted.shape, np.nan)
    arrays: Sequence[Any] = [one.view(FakeArray) for one in (*factors, result)]
    batches = one_product(*map(tensor, arrays))
    made = list(calls(arrays, batches, FakeGpu(tmp_path).cupy.ndarray))
    assert (batches is None) == (len(made) > 1)
    assert len(made) >= count
    if form == "dense":
        assert len(made) == count
    for left, right, place in made:
        assert {x.ndim for x in (left, right, place)} in ({2}, {3})
        place[...] = np.matmul(left, right)
    np.testing.assert_allclose(result, wanted)
