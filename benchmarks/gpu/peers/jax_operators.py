"""Our operators in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.gpu.peers.graphs import Operator, window_counts, window_pads

__all__ = ["OPERATORS"]

Attrs: TypeAlias = Mapping[str, Any]

_LETTERS = "XYZ"


def _sides(pads: Sequence[int]) -> list[tuple[int, int]]:
    count = len(pads) // 2
    return list(zip(pads[:count], pads[count:], strict=True))


def _in_channels(x: Any, vector: Any) -> Any:
    """A number for each channel, as it broadcasts with an image."""
    return vector.reshape((1, -1) + (1,) * (x.ndim - 2))


def _conv(a: Attrs, x: Any, w: Any, bias: Any = None) -> Any:
    axes = _LETTERS[: x.ndim - 2]
    y = lax.conv_general_dilated(
        x,
        w,
        a["strides"],
        _sides(a["pads"]),
        rhs_dilation=a["dilations"],
        dimension_numbers=("NC" + axes, "OI" + axes, "NC" + axes),
        feature_group_count=a["group"],
    )
    return y if bias is None else y + _in_channels(y, bias)


def _conv_transpose(a: Attrs, x: Any, w: Any, bias: Any = None) -> Any:
    """A convolution of the image with gaps, by the kernel backwards."""
    axes, groups = _LETTERS[: x.ndim - 2], a["group"]
    grouped = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    kernel = jnp.moveaxis(grouped, 2, 1).reshape(-1, w.shape[0] // groups, *w.shape[2:])
    spans = [(size - 1) * apart for size, apart in zip(w.shape[2:], a["dilations"], strict=True)]
    padding = [
        (span - begin, span - end + more)
        for span, (begin, end), more in zip(
            spans, _sides(a["pads"]), a["output_padding"], strict=True
        )
    ]
    y = lax.conv_general_dilated(
        x,
        jnp.flip(kernel, range(2, w.ndim)),
        (1,) * len(axes),
        padding,
        lhs_dilation=a["strides"],
        rhs_dilation=a["dilations"],
        dimension_numbers=("NC" + axes, "OI" + axes, "NC" + axes),
        feature_group_count=groups,
    )
    return y if bias is None else y + _in_channels(y, bias)


def _windows(a: Attrs, x: Any, start: Any, function: Any) -> Any:
    return lax.reduce_window(
        x,
        np.asarray(start, x.dtype),
        function,
        (1, 1, *a["kernel"]),
        (1, 1, *a["strides"]),
        padding=((0, 0), (0, 0), *window_pads(x.shape[2:], a)),
        window_dilation=(1, 1, *a["dilations"]),
    )


def _average_pool(a: Attrs, x: Any) -> Any:
    return _windows(a, x, 0, lax.add) / window_counts(x.shape[2:], a).astype(x.dtype)


def _lrn(a: Attrs, x: Any) -> Any:
    size, rest = a["size"], x.ndim - 2
    before = (size - 1) // 2
    sums = lax.reduce_window(
        x * x,
        np.asarray(0, x.dtype),
        lax.add,
        (1, size, *(1,) * rest),
        (1,) * x.ndim,
        padding=((0, 0), (before, size - 1 - before), *((0, 0),) * rest),
    )
    return x / (a["bias"] + a["alpha"] / size * sums) ** a["beta"]


def _normalised(x: Any, axes: tuple[int, ...], epsilon: float) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(axes, keepdims=True) + epsilon)


def _layer_norm(a: Attrs, x: Any, scale: Any, shift: Any = None) -> Any:
    y = _normalised(x, tuple(range(a["axis"] % x.ndim, x.ndim)), a["epsilon"]) * scale
    return y if shift is None else y + shift


def _batch_norm(a: Attrs, x: Any, scale: Any, shift: Any, mean: Any, variance: Any) -> Any:
    factor = scale * lax.rsqrt(variance + a["epsilon"])
    return x * _in_channels(x, factor) + _in_channels(x, shift - mean * factor)


def _resize(a: Attrs, x: Any) -> Any:
    for axis, factor in enumerate(a["factors"]):
        x = jnp.repeat(x, factor, axis) if factor > 1 else x
    return x


def _plane(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


OPERATORS: Mapping[str, Operator] = {
    "Abs": lambda a, x: jnp.abs(x),
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": lambda a, x: x.astype(a["to"]),
    "Clip": lambda a, x: jnp.clip(x, a["min"], a["max"]),
    "Concat": lambda a, *xs: jnp.concatenate(xs, a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": lambda a, x, y: x / y,
    "Erf": lambda a, x: lax.erf(x),
    "Exp": lambda a, x: jnp.exp(x),
    "Gelu": lambda a, x: jax.nn.gelu(x, approximate=a["approximate"] == "tanh"),
    "GlobalAveragePool": lambda a, x: x.mean(_plane(x), keepdims=True),
    "GlobalMaxPool": lambda a, x: x.max(_plane(x), keepdims=True),
    "Greater": lambda a, x, y: x > y,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda a, x: jax.nn.leaky_relu(x, a["alpha"]),
    "Log": lambda a, x: jnp.log(x),
    "MatMul": lambda a, x, y: x @ y,
    "Max": lambda a, x, y: jnp.maximum(x, y),
    "MaxPool": lambda a, x: _windows(a, x, -np.inf, lax.max),
    "Min": lambda a, x, y: jnp.minimum(x, y),
    "Mul": lambda a, x, y: x * y,
    "Neg": lambda a, x: -x,
    "Pow": lambda a, x, y: x**y,
    "Reciprocal": lambda a, x: 1 / x,
    "ReduceMax": lambda a, x: x.max(a["axes"], keepdims=bool(a["keepdims"])),
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdims=bool(a["keepdims"])),
    "ReduceSum": lambda a, x: x.sum(a["axes"], keepdims=bool(a["keepdims"])),
    "Relu": lambda a, x: jnp.maximum(x, 0),
    "Reshape": lambda a, x: x.reshape(a["shape"]),
    "Resize": _resize,
    "Rsqrt": lambda a, x: lax.rsqrt(x),
    "Sigmoid": lambda a, x: jax.nn.sigmoid(x),
    "Slice": lambda a, x: lax.slice_in_dim(x, a["lo"], a["hi"], axis=a["axis"]),
    "Softmax": lambda a, x: jax.nn.softmax(x, a["axis"]),
    "Sqrt": lambda a, x: jnp.sqrt(x),
    "Square": lambda a, x: x * x,
    "Sub": lambda a, x, y: x - y,
    "Swish": lambda a, x: x * jax.nn.sigmoid(a["alpha"] * x),
    "Tanh": lambda a, x: jnp.tanh(x),
    "Transpose": lambda a, x: jnp.transpose(x, a["perm"]),
    "Where": lambda a, c, x, y: jnp.where(c, x, y),
}
