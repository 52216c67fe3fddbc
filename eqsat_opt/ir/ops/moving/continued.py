"""Padding that no rule speaks of: with a tensor's own elements, or by widths that are computed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrMap,
    Domain,
    define,
    padded,
    require,
)
from eqsat_opt.ir.values.types import TensorType, has_element

__all__: list[str] = []


def _type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,), pads, mode = inputs, attrs["pads"], attrs["mode"]
    require(len(pads) == 2 * x.rank, "{} pads for {}", len(pads), x)
    require(has_element(x.dtype, attrs["value"]), "{} beside {}", attrs["value"], x)
    shape = tuple(size + pads[axis] + pads[x.rank + axis] for axis, size in enumerate(x.shape))
    literal = [size for size in shape if isinstance(size, int)]
    require(min(literal, default=0) >= 0, "pads {} of {}", pads, x)
    for axis, size in enumerate(x.shape) if mode != "constant" else ():
        widths = [pad for pad in (pads[axis], pads[x.rank + axis]) if isinstance(pad, int)]
        require(min(widths, default=0) >= 0, "pads of {} that crop", x)
        longest = max(widths, default=0)
        needed = {"edge": 1, "wrap": longest, "reflect": longest + 1}[mode]
        fits = not isinstance(size, int) or not longest or size >= needed
        require(fits, "axis {} of {} has too little for {}", axis, x, pads)
    return TensorType(x.dtype, shape)


def _evaluate(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,), pads, mode = operands, attrs["pads"], attrs["mode"]
    widths = [(pads[axis], pads[x.ndim + axis]) for axis in range(x.ndim)]
    if mode == "constant":
        cuts = zip(widths, x.shape, strict=True)
        kept = x[tuple(slice(max(-lo, 0), size - max(-hi, 0)) for (lo, hi), size in cuts)]
        wider = [(max(lo, 0), max(hi, 0)) for lo, hi in widths]
        return padded(kept, wider, domain.constant(attrs["value"], x))
    for axis, (before, after) in enumerate(widths):
        if before + after:
            places = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)
            x = x.take(places, axis)
    return x


define(
    "movement",
    "Continued",
    {"pads": "ints", "mode": "str", "value": "float"},
    _type,
    eval_fn=_evaluate,
    flops=0,
    choices={"mode": ("constant", "reflect", "edge", "wrap")},
    doc="ONNX's Pad with elements of its operand, or with a constant where widths are computed or "
    "crop an axis of open size; a width below 0 crops",
)
