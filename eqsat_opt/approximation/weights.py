"""Constant matrices as integers, in the layouts that kernels of onnxruntime read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "BlockWeights",
    "IntegerWeights",
    "block_weights",
    "compensated_weights",
    "integer_weights",
    "inverse_root",
]

_Array = npt.NDArray[Any]

_LEAST_SCALE = np.finfo(np.float32).tiny
"""Scale of weights that are all zero: a scale of 0 would make them NaN in some kernels."""

_HALVED = 64
"""Rows of a triangular matrix above which it is inverted by halves."""

_DAMPING = 0.01
"""Share of the mean that is added to the diagonal of a Gram matrix, which makes it invertible."""


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
        zero_points: `[n, bytes]` uint8, packed like the values; ``None`` if all are in the middle.
    """

    values: _Array
    scales: _Array
    zero_points: _Array | None = None


@dataclass(frozen=True)
class _Grid:
    """The numbers that integers of some bits mean, with scales and zero points along one axis.

    Attributes:
        bits: the bits.
        scales, zeros: f32, of shapes that broadcast to the weights.
    """

    bits: int
    scales: _Array
    zeros: _Array

    def integers(self, weights: _Array) -> _Array:
        rounded = np.rint(weights / self.scales) + self.zeros
        return np.asarray(np.clip(rounded, 0, 2**self.bits - 1))

    def floats(self, integers: _Array) -> _Array:
        return np.asarray((integers - self.zeros) * self.scales)


def _grid(weights: _Array, axis: int, *, bits: int, is_symmetric: bool) -> _Grid:
    """Return the grid that covers weights along an axis, and zero."""
    if is_symmetric:
        half = 2 ** (bits - 1)
        largest = np.abs(weights).max(axis=axis, keepdims=True)
        scales = np.maximum(largest / (half - 1), _LEAST_SCALE).astype(np.float32)
        return _Grid(bits, scales, np.full_like(scales, half))
    low = weights.min(axis=axis, keepdims=True, initial=0.0)
    high = weights.max(axis=axis, keepdims=True, initial=0.0)
    scales = np.maximum((high - low) / (2**bits - 1), _LEAST_SCALE).astype(np.float32)
    return _Grid(bits, scales, np.rint(-low / scales).astype(np.float32))


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


def block_weights(
    weight: _Array, *, bits: int, block: int, is_symmetric: bool = True
) -> BlockWeights:
    """Round a matrix `[k, n]` to integers of 4 or 8 bits in blocks along `k`.

    The last block is filled with zeros where ``block`` does not divide `k`.
    """
    k, n = weight.shape
    blocks = -(-k // block)
    padded = np.zeros((n, blocks * block), dtype=np.float32)
    padded[:, :k] = weight.T
    parts = padded.reshape(n, blocks, block)
    grid = _grid(parts, -1, bits=bits, is_symmetric=is_symmetric)
    return _packed(
        grid.integers(parts),
        grid.scales[..., 0],
        None if is_symmetric else grid.zeros[..., 0],
        bits,
    )


def compensated_weights(
    weight: _Array, upper: _Array, *, bits: int, block: int, is_symmetric: bool
) -> BlockWeights:
    """Round a matrix in blocks, one row after the other; the rows that follow make up for errors.

    The squared error of the product becomes small, not that of the matrix (GPTQ, Frantar et al.,
    2023).

    Args:
        weight: `[k, n]`.
        upper: `[k, k]`, the :func:`inverse_root` of the data.
        bits: 4 or 8.
        block: elements of a block along `k`.
        is_symmetric: whether zero is in the middle of the integers.
    """
    k, n = weight.shape
    blocks = -(-k // block)
    left = weight.astype(np.float64)
    integers = np.empty((blocks, block, n))
    scales, zeros = np.empty((blocks, n), np.float32), np.empty((blocks, n), np.float32)
    for number, first in enumerate(range(0, k, block)):
        last = min(first + block, k)
        part = left[first:last]
        grid = _grid(part, 0, bits=bits, is_symmetric=is_symmetric)
        scales[number], zeros[number] = grid.scales[0], grid.zeros[0]
        integers[number] = grid.zeros
        errors = np.empty_like(part)
        for index, row in enumerate(range(first, last)):
            rounded = grid.integers(part[index : index + 1])
            integers[number, index] = rounded[0]
            errors[index] = (part[index] - grid.floats(rounded)[0]) / upper[row, row]
            part[index + 1 :] -= np.outer(upper[row, row + 1 : last], errors[index])
        left[last:] -= upper[first:last, last:].T @ errors
    return _packed(integers.transpose(2, 0, 1), scales.T, None if is_symmetric else zeros.T, bits)


def inverse_root(gram: _Array) -> _Array | None:
    """Return the upper Cholesky factor of the inverse of a damped Gram matrix.

    Args:
        gram: `[k, k]`, the product of the data, transposed, with itself.

    Returns:
        The factor, `[k, k]`; ``None`` if the data are zeros or not finite.
    """
    mean = float(np.mean(np.diag(gram))) if np.isfinite(gram).all() else np.nan
    if not mean > 0:
        return None
    damped = gram / mean + _DAMPING * np.eye(len(gram))
    try:
        # The factor of the inverse is the inverse of the factor with rows and columns reversed.
        return _inverse_upper(np.linalg.cholesky(damped[::-1, ::-1])[::-1, ::-1])
    except np.linalg.LinAlgError:
        return None


def _inverse_upper(upper: _Array) -> _Array:
    """Return the inverse of an upper triangular matrix, with most of the work in products."""
    if len(upper) <= _HALVED:
        return np.triu(np.linalg.inv(upper))
    half = len(upper) // 2
    result = np.zeros_like(upper)
    result[:half, :half] = first = _inverse_upper(upper[:half, :half])
    result[half:, half:] = last = _inverse_upper(upper[half:, half:])
    result[:half, half:] = -first @ upper[:half, half:] @ last
    return result


def _packed(integers: _Array, scales: _Array, zeros: _Array | None, bits: int) -> BlockWeights:
    """Return blocks in the layout of MatMulNBits.

    Args:
        integers: `[n, blocks, block]`.
        scales: `[n, blocks]`.
        zeros: zero points, `[n, blocks]`.
        bits: 4 or 8.
    """
    return BlockWeights(
        np.ascontiguousarray(_in_bytes(integers, bits)),
        np.ascontiguousarray(scales, dtype=np.float32),
        None if zeros is None else np.ascontiguousarray(_in_bytes(zeros, bits)),
    )


def _in_bytes(integers: _Array, bits: int) -> _Array:
    """Return integers as bytes; those of 4 bits lie in pairs along the last axis."""
    values = integers.astype(np.uint8)
    if bits != 4:
        return values
    if values.shape[-1] % 2:
        values = np.concatenate([values, np.zeros_like(values[..., :1])], axis=-1)
    return np.asarray(values[..., 0::2] | (values[..., 1::2] << 4))
