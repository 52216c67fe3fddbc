"""Contractions: matrix products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat_opt.ir.ops._base import (
    Array,
    AttrKind,
    AttrMap,
    Domain,
    OnnxForm,
    broadcast_shapes,
    define,
    padded,
    require,
    traits,
)
from eqsat_opt.ir.ops.index import linear as index_linear
from eqsat_opt.ir.values.dims import Dim, dim_product, floor_div
from eqsat_opt.ir.values.types import TensorType

__all__ = ["check_window", "window_size", "window_view"]


def _matmul_type(inputs: Sequence[TensorType], _attrs: AttrMap) -> TensorType:
    a, b = inputs
    require(a.dtype == b.dtype and a.dtype not in ("string", "bool"), "MatMul of {} and {}", a, b)
    require(a.rank >= 1 and b.rank >= 1, "MatMul of a scalar")
    left = a.shape if a.rank > 1 else (1, *a.shape)
    right = b.shape if b.rank > 1 else (*b.shape, 1)
    require(left[-1] == right[-2], "inner sizes differ: {} and {}", a, b)
    shape = list(broadcast_shapes(left[:-2], right[:-2]) if left[:-2] or right[:-2] else ())
    shape += [left[-2]] if a.rank > 1 else []
    shape += [right[-1]] if b.rank > 1 else []
    return TensorType(a.dtype, tuple(shape))


define(
    "contraction",
    "MatMul",
    {},
    _matmul_type,
    eval_fn=lambda d, x, _a: d.matmul(x[0], x[1]),
    index_fn=index_linear.matmul,
    arity=2,
    flops=lambda x, y, _a: dim_product(y.shape) * x[0].shape[-1] * 2,
    traits=traits("ring"),
    onnx=OnnxForm(),
)


def window_size(
    size: Dim, kernel: Dim, stride: int, before: int, after: int, dilation: int, ceil: int = 0
) -> Dim:
    """Return the number of positions of a sliding window along one axis (ONNX Conv and pools)."""
    span = size + before + after - (dilation * (kernel - 1) + 1)
    if stride == 1:
        return span + 1
    if not ceil:
        return floor_div(span, stride) + 1
    count = floor_div(span + stride - 1, stride) + 1
    # ONNX drops a last window that would start in the padding after the data.
    if isinstance(count, int) and isinstance(size, int) and (count - 1) * stride >= size + before:
        count -= 1
    return count


def check_window(attrs: AttrMap, kernel: Sequence[Dim] = ()) -> None:
    """Check that kernels, strides and dilations are positive and pads not negative, where known.

    Raises:
        IllTyped: a value is not allowed.
    """
    positive = (*kernel, *attrs["strides"], *attrs["dilations"])
    for low, sizes in ((1, positive), (0, attrs["pads"])):
        known = [size for size in sizes if isinstance(size, int)]
        require(min(known, default=low) >= low, "a window {}", sizes)


def window_view(x: Array, kernel: Sequence[int], attrs: AttrMap, fill: Any) -> Array:
    """Return all windows: [N, C, *data] to [N, C, *positions, *kernel], padded with ``fill``."""
    n_axes = len(kernel)
    pads, strides, dilations = attrs["pads"], attrs["strides"], attrs["dilations"]
    after = list(pads[n_axes:])
    counts: list[int] = []
    if attrs.get("ceil"):
        # Ceil mode may need windows that reach beyond the padding: extend it with the same fill.
        for i in range(n_axes):
            count = window_size(
                x.shape[2 + i],
                kernel[i],
                strides[i],
                pads[i],
                after=pads[n_axes + i],
                dilation=dilations[i],
                ceil=1,
            )
            need = (int(count) - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1  # type: ignore[arg-type]
            after[i] += max(0, need - x.shape[2 + i] - pads[i] - after[i])
            counts.append(int(count))  # type: ignore[arg-type]
    widths = [(0, 0), (0, 0), *((pads[i], after[i]) for i in range(n_axes))]
    data = padded(x, widths, fill)
    if not counts:
        counts = [
            (data.shape[2 + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1
            for i in range(n_axes)
        ]
    # With these counts a last window that would start in the padding after the data is dropped.
    if not data.dtype.hasobject:
        data = np.ascontiguousarray(data)
    steps = data.strides[2:]
    shape = (*data.shape[:2], *counts, *kernel)
    moves = (
        *data.strides[:2],
        *[step * stride for step, stride in zip(steps, strides, strict=True)],
        *[step * dilation for step, dilation in zip(steps, dilations, strict=True)],
    )
    if data.dtype.hasobject or not data.size:
        return np.lib.stride_tricks.as_strided(data, shape, moves, writeable=False)
    # This is ten times as fast, and checks that all windows are inside.
    windows: Array = np.ndarray(shape, data.dtype, data, 0, moves)
    windows.flags.writeable = False
    return windows


_CONV_ATTRS: dict[str, AttrKind] = {
    "strides": "ints",
    "pads": "ints",
    "dilations": "ints",
    "group": "int",
}


def _check_conv(inputs: Sequence[TensorType], attrs: AttrMap) -> int:
    x, w = inputs[:2]
    n_axes = x.rank - 2
    require(
        x.dtype == w.dtype and n_axes >= 1 and w.rank == x.rank, "convolution of {} with {}", x, w
    )
    require(
        len(attrs["strides"]) == n_axes and len(attrs["pads"]) == 2 * n_axes,
        "attributes do not fit the rank",
    )
    require(len(attrs["dilations"]) == n_axes, "attributes do not fit the rank")
    group = attrs["group"]
    require(isinstance(group, int) and group >= 1, "a convolution in {} groups", group)
    check_window(attrs, w.shape[2:])
    return n_axes


def _conv_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, w = inputs[:2]
    n_axes = _check_conv(inputs, attrs)
    require(
        x.shape[1] == w.shape[1] * attrs["group"],
        f"channels of {x} do not fit {w}, group {attrs['group']}",
    )
    require(
        not isinstance(w.shape[0], int) or w.shape[0] % attrs["group"] == 0,
        "outputs do not divide into groups",
    )
    if len(inputs) == 3:
        require(inputs[2].shape == (w.shape[0],), "bias does not fit")
    sizes = [
        window_size(x.shape[2 + i], w.shape[2 + i], attrs["strides"][i], attrs["pads"][i],
                    after=attrs["pads"][n_axes + i], dilation=attrs["dilations"][i])
        for i in range(n_axes)
    ]  # fmt: skip
    require(
        all(not isinstance(s, int) or s > 0 for s in sizes), "the kernel is larger than the data"
    )
    return TensorType(x.dtype, (x.shape[0], w.shape[0], *sizes))


def _conv(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    x, w = operands[:2]
    group, n_axes = attrs["group"], x.ndim - 2
    windows = window_view(x, w.shape[2:], attrs, 0)
    n, positions = x.shape[0], windows.shape[2 : 2 + n_axes]
    inner = math.prod(w.shape[1:])
    # [N, G, positions, C/G * kernel] @ [G, C/G * kernel, O/G]
    grouped = windows.reshape(n, group, w.shape[1], *windows.shape[2:])
    order = (0, 1, *range(3, 3 + n_axes), 2, *range(3 + n_axes, 3 + 2 * n_axes))
    data = grouped.transpose(order).reshape(n, group, math.prod(positions), inner)
    kernel = w.reshape(group, w.shape[0] // group, inner).transpose(0, 2, 1)
    result = domain.matmul(data, kernel[None])
    result = result.transpose(0, 1, 3, 2).reshape(n, w.shape[0], *positions)
    if len(operands) == 3:
        result = domain.add(result, operands[2].reshape(1, -1, *(1,) * n_axes))
    return result


def _conv_flops(inputs: Sequence[TensorType], output: TensorType, _attrs: AttrMap) -> Dim:
    w = inputs[1]
    return dim_product(output.shape) * dim_product(w.shape[1:]) * 2 + (
        dim_product(output.shape) if len(inputs) == 3 else 0
    )


_convolution = partial(
    define, "contraction", arity=(2, 3), traits=traits("floats", "ring", "spatial")
)
_convolution("Conv", _CONV_ATTRS, _conv_type, _conv, index_linear.conv, flops=_conv_flops)


def _deconv_type(inputs: Sequence[TensorType], attrs: AttrMap) -> TensorType:
    x, w = inputs[:2]
    n_axes = _check_conv(inputs, attrs)
    require(x.shape[1] == w.shape[0], "channels of {} do not fit {}", x, w)
    require(0 not in x.shape[2:], "nothing to stretch in {}", x)
    sizes = [
        (x.shape[2 + i] - 1) * attrs["strides"][i] + attrs["output_padding"][i]
        + (w.shape[2 + i] - 1) * attrs["dilations"][i] + 1
        - attrs["pads"][i] - attrs["pads"][n_axes + i]
        for i in range(n_axes)
    ]  # fmt: skip
    require(all(not isinstance(s, int) or s > 0 for s in sizes), "the pads are wider than the data")
    channels = w.shape[1] * attrs["group"]
    require(len(inputs) == 2 or inputs[2].shape == (channels,), "bias does not fit")
    return TensorType(x.dtype, (x.shape[0], channels, *sizes))


def _deconv(domain: Domain, operands: Sequence[Array], attrs: AttrMap) -> Array:
    """Compute a transposed convolution: convolve stretched data with the flipped kernel."""
    x, w = operands[:2]
    n_axes, group = x.ndim - 2, attrs["group"]
    kernel, strides, dilations, pads = (
        w.shape[2:],
        attrs["strides"],
        attrs["dilations"],
        attrs["pads"],
    )
    stretched = np.zeros(
        (*x.shape[:2], *((s - 1) * t + 1 for s, t in zip(x.shape[2:], strides, strict=True))),
        dtype=x.dtype,
    )
    stretched[(slice(None), slice(None), *(slice(None, None, s) for s in strides))] = x
    span = [d * (k - 1) for k, d in zip(kernel, dilations, strict=True)]
    before = [span[i] - pads[i] for i in range(n_axes)]
    after = [span[i] - pads[n_axes + i] + attrs["output_padding"][i] for i in range(n_axes)]
    # A negative width crops: padding wider than the kernel removes data.
    widths = [(0, 0), (0, 0), *((max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True))]
    stretched = padded(stretched, widths)
    crop = tuple(
        slice(max(-b, 0), stretched.shape[2 + i] - max(-a, 0))
        for i, (b, a) in enumerate(zip(before, after, strict=True))
    )
    stretched = stretched[(slice(None), slice(None), *crop)]
    flipped = w[(slice(None), slice(None), *(slice(None, None, -1),) * n_axes)]
    swapped = flipped.reshape(group, w.shape[0] // group, w.shape[1], *kernel).swapaxes(1, 2)
    weights = swapped.reshape(group * w.shape[1], w.shape[0] // group, *kernel)
    plain = {
        "strides": (1,) * n_axes,
        "pads": (0,) * 2 * n_axes,
        "dilations": dilations,
        "group": group,
    }
    return _conv(domain, [stretched, weights, *operands[2:]], plain)


_convolution(
    "ConvTranspose",
    {**_CONV_ATTRS, "output_padding": "ints"},
    _deconv_type,
    _deconv,
    index_linear.deconv,
    flops=lambda x, _y, _a: dim_product(x[0].shape) * dim_product(x[1].shape[1:]) * 2,
)
