"""Matrices as integers are within half a step of the matrix, in both layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.approximation.weights import (
    BlockWeights,
    block_weights,
    compensated_weights,
    integer_weights,
    inverse_root,
)

_SIZES = st.integers(1, 9)


def _matrix(k: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((k, n)).astype(np.float32)


@given(_SIZES, _SIZES, st.integers(0, 99), st.sampled_from((7, 8)), st.booleans(), st.booleans())
def test_integers_are_within_half_a_step(
    k: int, n: int, seed: int, bits: int, is_signed: bool, is_per_column: bool
) -> None:
    matrix = _matrix(k, n, seed)
    held = integer_weights(matrix, bits=bits, is_signed=is_signed, is_per_column=is_per_column)
    assert held.values.dtype == (np.int8 if is_signed else np.uint8)
    assert held.scales.shape == held.zero_points.shape == ((n,) if is_per_column else ())
    centred = held.values.astype(np.float32) - held.zero_points.astype(np.float32)
    assert np.abs(centred).max() <= 2 ** (bits - 1) - 1
    assert (np.abs(centred * held.scales - matrix) <= held.scales * 0.501).all()


def _floats(held: BlockWeights, k: int, bits: int) -> np.ndarray:
    """Return the matrix `[k, n]` that blocks mean."""
    values, zeros = held.values, np.full_like(held.scales, 2 ** (bits - 1))
    n, blocks = held.scales.shape
    if bits == 4:
        values = np.stack((values & 15, values >> 4), axis=-1).reshape(n, blocks, -1)
    if held.zero_points is not None:
        zeros = held.zero_points
        if bits == 4:
            zeros = np.stack((zeros & 15, zeros >> 4), axis=-1).reshape(n, -1)[:, :blocks]
    floats = (values.astype(np.float32) - zeros[..., None]) * held.scales[..., None]
    return np.asarray(floats.reshape(n, -1)[:, :k].T)


@given(st.integers(1, 40), _SIZES, st.integers(0, 99), st.sampled_from((4, 8)), st.booleans())
def test_blocks_are_within_half_a_step(
    k: int, n: int, seed: int, bits: int, is_symmetric: bool
) -> None:
    matrix, block = _matrix(k, n, seed) + seed / 50, 16
    held = block_weights(matrix, bits=bits, block=block, is_symmetric=is_symmetric)
    blocks = -(-k // block)
    assert held.values.shape == (n, blocks, block * bits // 8)
    if held.zero_points is not None:
        assert held.zero_points.shape == (n, -(-blocks * bits // 8))
    steps = np.repeat(held.scales, block, axis=1)[:, :k].T
    # An end of the range may move by half a step, for zero to be met.
    allowed = 0.501 if is_symmetric else 1.001
    assert (np.abs(_floats(held, k, bits) - matrix) <= steps * allowed).all()


@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize(("k", "block"), [(64, 16), (70, 32)])
def test_compensated_weights_are_more_exact_in_products(
    k: int, block: int, is_symmetric: bool
) -> None:
    matrix, rng = _matrix(k, 24, 0), np.random.default_rng(1)
    mixing = rng.standard_normal((k, k)) * rng.exponential(size=k) / k
    rows, others = (rng.standard_normal((500, k)) @ mixing for _ in range(2))
    plain = block_weights(matrix, bits=4, block=block, is_symmetric=is_symmetric)
    upper = inverse_root(rows.T @ rows)
    assert upper is not None
    fitted = compensated_weights(matrix, upper, bits=4, block=block, is_symmetric=is_symmetric)
    assert fitted.values.shape == plain.values.shape
    left, right = (np.sum((others @ (_floats(one, k, 4) - matrix)) ** 2) for one in (fitted, plain))
    assert left < 0.8 * right


@pytest.mark.parametrize("odd", [np.nan, np.inf, 0.0])
def test_data_without_finite_squares_compensate_nothing(odd: float) -> None:
    assert inverse_root(np.full((4, 4), odd)) is None


@pytest.mark.parametrize("k", [1, 2, 64, 65, 200])
def test_root_is_that_of_the_inverse(k: int) -> None:
    rows = np.random.default_rng(0).standard_normal((3 * k, k))
    upper = inverse_root(rows.T @ rows)
    assert upper is not None
    np.testing.assert_array_equal(upper, np.triu(upper))
    damped = rows.T @ rows / np.mean(np.diag(rows.T @ rows)) + 0.01 * np.eye(k)
    np.testing.assert_allclose(upper.T @ upper @ damped, np.eye(k), atol=1e-9)


@pytest.mark.parametrize("is_signed", [True, False])
def test_zeros_stay_zeros(is_signed: bool) -> None:
    zeros = np.zeros((4, 3), np.float32)
    held = integer_weights(zeros, bits=8, is_signed=is_signed, is_per_column=True)
    assert (held.values == held.zero_points).all()
    assert (held.scales > 0).all()
    assert (block_weights(zeros, bits=8, block=16).scales > 0).all()
