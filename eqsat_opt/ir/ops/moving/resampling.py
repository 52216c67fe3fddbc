"""Resizing of images: the nearest pixels, or weighted means of neighbouring pixels.

Positions and weights are computed in float32, as in runtimes, so that a position between two pixels
falls on the same side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from eqsat_opt.ir.ops._base import Array, AttrMap, Domain, define, require
from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.ir.values.dims import Dim, SymDim, dim_product, floor_div, literal
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["COORDINATES", "scaled"]

_F = np.float32
_EXACT = 1 << 8
"""Bound up to which products of sizes and quotients of numbers do not round."""

Positions = Callable[[Array, int, int, np.float32], Array]
"""A function from the index of a result pixel, the sizes before and after, and their ratio to the
position in the original image.
"""


def _half_pixel(index: Array, _before: int, _after: int, scale: np.float32) -> Array:
    return np.asarray((index + _F(0.5)) / scale - _F(0.5))


def _pytorch(index: Array, before: int, after: int, scale: np.float32) -> Array:
    return _half_pixel(index, before, after, scale) if after > 1 else np.zeros_like(index)


def _corners(index: Array, before: int, after: int, _scale: np.float32) -> Array:
    if after == 1:
        return np.zeros_like(index)
    return np.asarray(index * _F(before - 1) / _F(after - 1))


COORDINATES: Mapping[str, Positions] = {
    "half_pixel": _half_pixel,
    "pytorch_half_pixel": _pytorch,
    "align_corners": _corners,
    "asymmetric": lambda index, _before, _after, scale: np.asarray(index / scale),
    "tf_half_pixel_for_nn": lambda index, _before, _after, scale: np.asarray(
        (index + _F(0.5)) / scale
    ),
}
"""Coordinate transformations by their names in ONNX."""


_ROUNDINGS: Mapping[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}
"""Rounding modes by their names in ONNX."""


def scaled(size: Dim, scale: Fraction) -> Dim:
    """Multiply a size by a scale, in float32, and round down.

    Raises:
        IllTyped: the size is a symbol, and a product with this scale may round.
    """
    if not isinstance(size, SymDim):
        return int(_F(size) * _F(float(scale)))
    require(max(scale.numerator, scale.denominator) <= _EXACT, "{} times {}", size, scale)
    return floor_div(size * scale.numerator, scale.denominator)


def _sizes(x: TensorType, attrs: AttrMap) -> tuple[Dim, ...]:
    if attrs["sizes"]:
        return tuple(attrs["sizes"])
    scales = map(Fraction, attrs["up"], attrs["down"])
    return tuple(scaled(size, scale) for size, scale in zip(x.shape, scales, strict=True))


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    counts = {len(attrs["sizes"]) or x.rank, *(len(attrs[key]) or x.rank for key in ("up", "down"))}
    require(x.rank > 0 and counts == {x.rank}, "sizes for {}", x)
    require(len(attrs["up"]) == len(attrs["down"]), "scales for {}", x)
    require(bool(attrs["sizes"]) != bool(attrs["up"]), "either sizes or scales of {}", x)
    require(attrs["mode"] == "nearest" or x.dtype in FLOATS, "a mean of {}", x)
    require(all(size != 0 for size in x.shape), "an image of nothing")
    return TensorType(x.dtype, _sizes(x, attrs))


def _evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    after = tuple(map(literal, _sizes(TensorType("float32", x.shape), attrs)))
    for axis, (before, size) in enumerate(zip(x.shape, after, strict=True)):
        scale = _F(size) / _F(before)
        if attrs["up"]:
            scale = _F(attrs["up"][axis] / attrs["down"][axis])
        if before == size and scale == 1:
            continue
        index = np.arange(size, dtype=_F)
        places = COORDINATES[attrs["coordinates"]](index, before, size, scale)
        if attrs["mode"] == "nearest":
            nearest = _ROUNDINGS[attrs["rounding"]](places.astype(np.float64))
            x = x.take(np.clip(nearest.astype(np.int64), 0, before - 1), axis)
        else:
            x = _mixed(domain, x, axis, places)
    return x


def _mixed(domain: Domain, x: Array, axis: int, places: Array) -> Array:
    """Interpolate between two pixels by their distances."""
    last = x.shape[axis] - 1
    places = np.clip(places, 0, last)
    left = np.minimum(places.astype(np.int64), last)
    right = np.minimum(left + 1, last)
    share = places - left.astype(_F)
    share = np.where(left == right, _F(0.5), share)
    shape = [1] * x.ndim
    shape[axis] = len(places)
    weights = ((_F(1) - share).reshape(shape), share.reshape(shape))
    parts = [
        domain.mul(x.take(place, axis), _numbers(domain, weight, x))
        for place, weight in zip((left, right), weights, strict=True)
    ]
    return domain.add(*parts)


def _numbers(domain: Domain, weights: Array, like: Array) -> Array:
    if domain is FLOAT:
        return weights.astype(like.dtype)
    made = [domain.constant(float(weight), like) for weight in weights.reshape(-1)]
    return np.asarray(made).reshape(weights.shape)


define(
    "window",
    "Resize",
    {
        "mode": "str",
        "coordinates": "str",
        "rounding": "str",
        "sizes": "ints",
        "up": "ints",
        "down": "ints",
    },
    _type,
    eval_fn=_evaluate,
    flops=lambda _x, y, a: dim_product(y.shape) * (0 if a["mode"] == "nearest" else 11),
    choices={
        "mode": ("nearest", "linear"),
        "coordinates": tuple(COORDINATES),
        "rounding": tuple(_ROUNDINGS),
    },
)
