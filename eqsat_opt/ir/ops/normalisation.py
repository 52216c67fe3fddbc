"""Normalisations with a scale and a shift."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrKind,
    AttrMap,
    Domain,
    IllTyped,
    broadcast_shapes,
    define,
    require,
    traits,
)
from eqsat_opt.ir.ops.index import reduction as index_reduction
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__ = ["inverse_deviation", "mean"]


def _layer_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x = inputs[0]
    require(x.dtype in FLOATS, "a normalisation of {}", x)
    require(0 <= attrs["axis"] < x.rank, "axis {} of {}", attrs["axis"], x)
    for parameter in inputs[1:]:
        require(parameter.dtype == x.dtype, "parameter {} of {}", parameter, x)
        try:
            fits = broadcast_shapes(x.shape, parameter.shape) == x.shape
        except IllTyped:
            fits = False
        require(fits, "parameter {} does not broadcast to {}", parameter, x)
    return x


def mean(domain: Domain, x: Array, axes: tuple[int, ...]) -> Array:
    """Return the mean over ``axes``, which are kept with size 1."""
    total = domain.sum(x, axes)
    count = math.prod(x.shape[a] for a in axes)
    return domain.div(total, domain.constant(count, x))


def inverse_deviation(
    domain: Domain, centred: Array, axes: tuple[int, ...], epsilon: float
) -> Array:
    """Return 1/sqrt(mean(centred²) + epsilon) over ``axes``, which are kept with size 1."""
    variance = mean(domain, domain.mul(centred, centred), axes)
    deviation = domain.apply("Sqrt", {}, domain.add(variance, domain.constant(epsilon, centred)))
    return domain.div(domain.constant(1, centred), deviation)


def _trailing(x: Array, axis: int) -> tuple[int, ...]:
    return tuple(range(axis, x.ndim))


def _layer(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, scale = operands[:2]
    axes = _trailing(x, attrs["axis"])
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    centred = domain.sub(wide, mean(domain, wide, axes))
    normal = domain.mul(centred, inverse_deviation(domain, centred, axes, attrs["epsilon"])).astype(
        x.dtype
    )
    scaled = domain.mul(normal, scale)
    return domain.add(scaled, operands[2]) if len(operands) == 3 else scaled


def _rms(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, scale = operands
    axes = _trailing(x, attrs["axis"])
    wide = x.astype(np.float32) if x.dtype.itemsize == 2 else x
    normal = domain.mul(wide, inverse_deviation(domain, wide, axes, attrs["epsilon"])).astype(
        x.dtype
    )
    return domain.mul(normal, scale)


def _per_channel(x: Array, parameter: Array) -> Array:
    return parameter.reshape(1, -1, *(1,) * (x.ndim - 2))


def _batch(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, scale, shift, mean, variance = operands
    deviation = domain.apply(
        "Sqrt", {}, domain.add(variance, domain.constant(attrs["epsilon"], variance))
    )
    factor = domain.div(scale, deviation)
    offset = domain.sub(shift, domain.mul(mean, factor))
    return domain.add(domain.mul(x, _per_channel(x, factor)), _per_channel(x, offset))


def _instance(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, scale, shift = operands
    axes = tuple(range(2, x.ndim))
    centred = domain.sub(x, mean(domain, x, axes))
    normal = domain.mul(centred, inverse_deviation(domain, centred, axes, attrs["epsilon"]))
    return domain.add(domain.mul(normal, _per_channel(x, scale)), _per_channel(x, shift))


def _channel_type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    x = inputs[0]
    require(x.dtype in FLOATS, "a normalisation of {}", x)
    require(
        x.rank >= 2 and all(p.dtype == x.dtype and p.shape == (x.shape[1],) for p in inputs[1:]),
        f"parameters do not fit {x}",
    )
    return x


_reduction = partial(define, "reduction")
_BY_AXIS: dict[str, AttrKind] = {"axis": "int", "epsilon": "float"}
_TRAILING, _CHANNEL = traits("floats", "trailing"), traits("channel", "floats")
_reduction(
    "LayerNormalization",
    _BY_AXIS,
    _layer_type,
    _layer,
    index_fn=index_reduction.layer,
    arity=(2, 3),
    flops=8,
    traits=_TRAILING,
)
_reduction(
    "RMSNormalization",
    _BY_AXIS,
    _layer_type,
    _rms,
    index_fn=index_reduction.rms,
    arity=2,
    flops=5,
    traits=_TRAILING,
)
define(
    "pointwise",
    "BatchNormalization",
    {"epsilon": "float"},
    _channel_type,
    eval_fn=_batch,
    index_fn=index_reduction.batch,
    arity=5,
    flops=2,
    traits=_CHANNEL,
)
_reduction(
    "InstanceNormalization",
    {"epsilon": "float"},
    _channel_type,
    _instance,
    index_fn=index_reduction.instance,
    arity=3,
    flops=8,
    traits=_CHANNEL | traits("plane"),
)
