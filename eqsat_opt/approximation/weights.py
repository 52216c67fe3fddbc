"""Constant matrices as integers, in the layouts that kernels of onnxruntime read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BlockWeights", "IntegerWeights", "block_weights", "integer_weights"]

_Array = npt.NDArray[Any]

_LEAST_SCALE = np.finfo(np.float32).tiny
"""Scale of weights that are all zero: a scale of 0 would make them NaN in some kernels."""


@dataclass(frozen=True)
class IntegerWeights:
    """A matrix as 8-bit integers.

    Attributes:
        values: `[k, n]`, int8 or uint8.
        scales: f32, a scalar or `[n]`.
        zero_points: integers of the type of ``values``, in the shape of ``scales``.
    """

    values: _Array
    scales: _Array
    zero_points: _Array


@dataclass(frozen=True)
class BlockWeights:
    """A matrix as integers of few bits with a scale for each block of a column.

    Attributes:
        values: `[n, blocks, bytes]` uint8, with two weights of 4 bits in a byte.
        scales: `[n, blocks]` f32.
    """

    values: _Array
    scales: _Array


def integer_weights(
    weight: _Array, *, bits: int, is_signed: bool, is_per_column: bool
) -> IntegerWeights:
    """Round a matrix `[k, n]` to symmetric integers of at most 8 bits.

    Unsigned integers have the zero point 128.
    """
    most = 2 ** (bits - 1) - 1
    largest = np.abs(weight).max(axis=0 if is_per_column else None, initial=0.0)
    scales = np.maximum(largest / most, _LEAST_SCALE).astype(np.float32)
    rounded = np.clip(np.rint(weight / scales), -most, most)
    zero, kind = (0, np.int8) if is_signed else (128, np.uint8)
    return IntegerWeights(
        (rounded + zero).astype(kind), scales, np.full(np.shape(scales), zero, dtype=kind)
    )


def block_weights(weight: _Array, *, bits: int, block: int) -> BlockWeights:
    """Round a matrix `[k, n]` to symmetric integers of 4 or 8 bits in blocks along `k`.

    The last block is filled with zeros where ``block`` does not divide `k`.
    """
    k, n = weight.shape
    blocks = -(-k // block)
    padded = np.zeros((n, blocks * block), dtype=np.float32)
    padded[:, :k] = weight.T
    parts = padded.reshape(n, blocks, block)
    half = 2 ** (bits - 1)
    largest = np.abs(parts).max(axis=-1)
    scales = np.maximum(largest / (half - 1), _LEAST_SCALE).astype(np.float32)
    values = np.clip(np.rint(parts / scales[..., None]), -half, half - 1) + half
    values = values.astype(np.uint8)
    if bits == 4:
        values = values[..., 0::2] | (values[..., 1::2] << 4)
    return BlockWeights(np.ascontiguousarray(values), scales)
