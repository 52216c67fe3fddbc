"""Arithmetic in a small prime field, for all pairs of many operands at once.

Numbers are integers below the prime, held in double precision: products of matrices are then those
of BLAS, and exact as long as no sum exceeds 2^49. A nonlinear function is a random one, so what
holds here holds for any function.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops import Array

__all__ = ["PRIME", "conv_pairs", "inverse", "matmul_pairs", "pairs", "random_function", "reduced"]

PRIME = 1_048_573
"""The greatest prime below 2^20."""


def reduced(values: Array) -> Array:
    """Return integers below 2^49 modulo the prime, in place.

    The quotient is at most 2^29 and its rounding below 2^-23, while (v + 1/2) / PRIME is at least
    2^-21 away from every integer, so the floor is right.
    """
    values -= np.floor((values + 0.5) * (1.0 / PRIME)) * PRIME
    return values


def inverse(values: Array) -> Array:
    """Return the reciprocals modulo the prime; 0 for 0."""
    result, power, exponent = np.ones_like(values), values.copy(), PRIME - 2
    while exponent:
        if exponent & 1:
            result = reduced(result * power)
        power = reduced(power * power)
        exponent >>= 1
    return result


def random_function(values: Array, salt: int) -> Array:
    """Return a function of each element, as good as random; ``salt`` tells functions apart."""
    mixed = values.astype(np.uint64) + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return ((mixed ^ (mixed >> np.uint64(31))) % np.uint64(PRIME)).astype(np.float64)


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Return each ``a`` beside each ``b`` as views ``[na, nb, …]``."""
    shape = len(a), len(b)
    return (
        np.broadcast_to(a[:, None], (*shape, *a.shape[1:])),
        np.broadcast_to(b[None], (*shape, *b.shape[1:])),
    )


def matmul_pairs(a: Array, b: Array) -> Array:
    """Return all products of matrices ``[na, r, k]`` and ``[nb, k, c]`` as ``[na * nb, r, c]``."""
    (na, rows, inner), (nb, _, columns) = a.shape, b.shape
    left = np.ascontiguousarray(a).reshape(na * rows, inner)
    right = np.ascontiguousarray(b.transpose(1, 0, 2)).reshape(inner, nb * columns)
    product = reduced(left @ right).reshape(na, rows, nb, columns)
    return np.ascontiguousarray(product.transpose(0, 2, 1, 3)).reshape(na * nb, rows, columns)


def conv_pairs(x: Array, w: Array, pads: Sequence[int]) -> Array:
    """Return all convolutions of images ``[na, n, c, h, w]`` by kernels ``[nb, o, c, kh, kw]``.

    Strides, dilations and groups are 1; the result is ``[na * nb, n, o, h', w']``.
    """
    na, samples, channels = x.shape[:3]
    nb, filters, _, high, wide = w.shape
    top, left, bottom, right = pads
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (top, bottom), (left, right)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (high, wide), axis=(3, 4))
    rows, columns = windows.shape[3:5]
    inner = channels * high * wide
    flat = windows.transpose(0, 1, 3, 4, 2, 5, 6).reshape(na * samples * rows * columns, inner)
    product = reduced(flat @ w.reshape(nb * filters, inner).T)
    shaped = product.reshape(na, samples, rows, columns, nb, filters).transpose(0, 4, 1, 5, 2, 3)
    return np.ascontiguousarray(shaped).reshape(na * nb, samples, filters, rows, columns)
