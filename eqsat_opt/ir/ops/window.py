"""Pools and local response normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrKind,
    AttrMap,
    Domain,
    OnnxForm,
    define,
    lowest,
    padded,
    require,
    traits,
)
from eqsat_opt.ir.ops.index import linear as index_linear
from eqsat_opt.ir.ops.linear import check_window, window_size, window_view
from eqsat_opt.ir.values.dims import dim_product
from eqsat_opt.ir.values.types import FLOATS, TensorType

__all__: list[str] = []

_POOL_ATTRS: dict[str, AttrKind] = {
    "kernel": "ints", "strides": "ints", "pads": "ints", "dilations": "ints", "ceil": "int",
}  # fmt: skip


def _pool_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    (x,) = inputs
    n_axes = x.rank - 2
    require(
        n_axes >= 1 and len(attrs["kernel"]) == n_axes == len(attrs["strides"]), "pool of {}", x
    )
    check_window(attrs, attrs["kernel"])
    sizes = [
        window_size(x.shape[2 + i], attrs["kernel"][i], attrs["strides"][i], attrs["pads"][i],
                    after=attrs["pads"][n_axes + i], dilation=attrs["dilations"][i],
                    ceil=attrs["ceil"])
        for i in range(n_axes)
    ]  # fmt: skip
    require(
        all(not isinstance(s, int) or s > 0 for s in sizes), "the kernel is larger than the data"
    )
    return TensorType(x.dtype, (*x.shape[:2], *sizes))


def _maximum_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    """Return the type of a maximum; its plane must have elements, since padding has no maximum."""
    result = _pool_type(inputs, attrs)
    require(all(size != 0 for size in inputs[0].shape[2:]), "an extremum over nothing")
    return result


def _average_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "an average of {}", inputs[0])
    return _pool_type(inputs, attrs)


def _kernel_axes(x: Array) -> tuple[int, ...]:
    n_axes = x.ndim - 2
    return tuple(range(2 + n_axes, 2 + 2 * n_axes))


def _max_pool(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    axes = _kernel_axes(x)
    windows = window_view(x, attrs["kernel"], attrs, lowest(x.dtype))
    return domain.maximum(windows, axes).reshape(windows.shape[: axes[0]])


def _average_pool(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    (x,) = operands
    axes = _kernel_axes(x)
    total = domain.sum(window_view(x, attrs["kernel"], attrs, 0), axes)
    total = total.reshape(total.shape[: axes[0]])
    count = _counted(x.shape[2:], total.shape[2:], tuple(attrs.items()))
    if domain.name == "float":
        return domain.div(total, np.maximum(count, 1).astype(x.dtype))
    return domain.div(total, np.broadcast_to(count, total.shape).astype(x.dtype))


@lru_cache(maxsize=8)
def _counted(
    plane: tuple[int, ...], positions: tuple[int, ...], named: tuple[tuple[str, Any], ...]
) -> Array:
    """Count the elements of a plane, and of its padding if that counts, in each window.

    The result is cached, because verification evaluates a pool at many values in succession.
    """
    attrs, n_axes = dict(named), len(plane)
    inside = np.ones((1, 1, *plane), dtype=np.int64)
    if attrs["count_include_pad"]:
        # Padding counts; the positions that ceil mode adds beyond it do not.
        widths = [
            (0, 0),
            (0, 0),
            *((attrs["pads"][i], attrs["pads"][n_axes + i]) for i in range(n_axes)),
        ]
        inside = padded(inside, widths, 1)
        beyond = {**attrs, "pads": (0,) * 2 * n_axes}
        if attrs["ceil"]:
            need = [
                (position - 1) * attrs["strides"][i]
                + attrs["dilations"][i] * (attrs["kernel"][i] - 1)
                + 1
                for i, position in enumerate(positions)
            ]
            widths = [
                (0, 0),
                (0, 0),
                *((0, max(0, n - inside.shape[2 + i])) for i, n in enumerate(need)),
            ]
            inside = padded(inside, widths)
            beyond = {**beyond, "ceil": 0}
        count = window_view(inside, attrs["kernel"], beyond, 0)
        count = count[(slice(None), slice(None), *(slice(n) for n in positions))]
    else:
        count = window_view(inside, attrs["kernel"], attrs, 0)
    return np.asarray(count.sum(axis=_kernel_axes(inside)))


_pool = partial(
    define, "window", flops=lambda _x, y, a: dim_product(y.shape) * dim_product(a["kernel"])
)
_pool(
    "MaxPool",
    _POOL_ATTRS,
    _maximum_type,
    _max_pool,
    index_fn=index_linear.max_pool,
    traits=traits("order", "pooling", "spatial"),
    choices={"ceil": (0, 1)},
)
_pool(
    "AveragePool",
    {**_POOL_ATTRS, "count_include_pad": "int"},
    _average_type,
    _average_pool,
    index_fn=index_linear.average_pool,
    traits=traits("floats", "pooling", "spatial"),
    choices={"ceil": (0, 1), "count_include_pad": (0, 1)},
)


def _lrn(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Return x / (bias + alpha/size * sum of squares over neighbouring channels)^beta."""
    (x,) = operands
    if not x.size:
        return x
    size = attrs["size"]
    before = (size - 1) // 2
    squares = domain.mul(x, x)
    widths = [(0, 0), (before, size - 1 - before), *[(0, 0)] * (x.ndim - 2)]
    windows = np.lib.stride_tricks.sliding_window_view(padded(squares, widths), size, axis=1)
    total = domain.sum(windows, (windows.ndim - 1,))[..., 0]
    scale = domain.div(domain.constant(attrs["alpha"], x), domain.constant(size, x))
    base = domain.add(domain.constant(attrs["bias"], x), domain.mul(scale, total))
    return domain.div(
        x,
        domain.apply(
            "Pow", {}, base, np.broadcast_to(domain.constant(attrs["beta"], x), base.shape)
        ),
    )


def _lrn_type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    require(inputs[0].dtype in FLOATS, "a normalisation of {}", inputs[0])
    require(inputs[0].rank >= 2, "LRN needs a channel axis")
    return inputs[0]


define(
    "window",
    "LRN",
    {"size": "int", "alpha": "float", "beta": "float", "bias": "float"},
    _lrn_type,
    eval_fn=_lrn,
    index_fn=index_linear.lrn,
    flops=lambda _x, y, a: dim_product(y.shape) * (int(a["size"]) + 14),
    traits=traits("channel", "floats", "spatial"),
    onnx=OnnxForm(defaults={"alpha": 1e-4, "beta": 0.75, "bias": 1.0}),
)
