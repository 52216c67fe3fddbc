"""Matrices as integers are within half a step of the matrix, in both layouts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eqsat_opt.approximation.weights import block_weights, integer_weights

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


@given(st.integers(1, 40), _SIZES, st.integers(0, 99), st.sampled_from((4, 8)))
def test_blocks_are_within_half_a_step(k: int, n: int, seed: int, bits: int) -> None:
    matrix, block = _matrix(k, n, seed), 16
    held = block_weights(matrix, bits=bits, block=block)
    values = held.values
    assert values.shape == (n, -(-k // block), block * bits // 8)
    if bits == 4:
        values = np.stack((values & 15, values >> 4), axis=-1).reshape(*values.shape[:2], block)
    floats = (values.astype(np.float32) - 2 ** (bits - 1)) * held.scales[..., None]
    steps = np.repeat(held.scales, block, axis=1)[:, :k].T
    assert (np.abs(floats.reshape(n, -1)[:, :k].T - matrix) <= steps * 0.501).all()


@pytest.mark.parametrize("is_signed", [True, False])
def test_zeros_stay_zeros(is_signed: bool) -> None:
    zeros = np.zeros((4, 3), np.float32)
    held = integer_weights(zeros, bits=8, is_signed=is_signed, is_per_column=True)
    assert (held.values == held.zero_points).all()
    assert (held.scales > 0).all()
    assert (block_weights(zeros, bits=8, block=16).scales > 0).all()
