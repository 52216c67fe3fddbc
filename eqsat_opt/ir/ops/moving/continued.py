"""Padding of a tensor with its own elements: reflected, repeated from the edge, or wrapped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import Array, AttrMap, Domain, define, require
from eqsat_opt.ir.values.types import TensorType

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), pads = inputs, attrs["pads"]
    require(len(pads) == 2 * x.rank, "{} pads for {}", len(pads), x)
    require(min(pads, default=0) >= 0, "pads of {} that crop", x)
    for axis, size in enumerate(x.shape):
        longest = max(pads[axis], pads[x.rank + axis])
        needed = {"edge": 1, "wrap": longest, "reflect": longest + 1}[attrs["mode"]]
        fits = not isinstance(size, int) or not longest or size >= needed
        require(fits, "axis {} of {} has too little for {}", axis, x, pads)
    shape = tuple(size + pads[axis] + pads[x.rank + axis] for axis, size in enumerate(x.shape))
    return TensorType(x.dtype, shape)


def _evaluate(_domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,), pads = operands, attrs["pads"]
    widths = [(pads[axis], pads[x.ndim + axis]) for axis in range(x.ndim)]
    for axis, (before, after) in enumerate(widths):
        if before + after:
            places = np.pad(np.arange(x.shape[axis]), (before, after), mode=attrs["mode"])
            x = x.take(places, axis)
    return x


define(
    "movement",
    "Continued",
    {"pads": "ints", "mode": "str"},
    _type,
    eval_fn=_evaluate,
    flops=0,
    choices={"mode": ("reflect", "edge", "wrap")},
)
