"""Our operators in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn import functional as f

from benchmarks.gpu.peers.graphs import Operator, window_counts, window_pads
from eqsat_opt.errors import RuntimeFailed

__all__ = ["OPERATORS"]

Attrs: TypeAlias = Mapping[str, Any]
Tensor: TypeAlias = torch.Tensor


def _sides(pads: Sequence[int]) -> list[tuple[int, int]]:
    count = len(pads) // 2
    return list(zip(pads[:count], pads[count:], strict=True))


def _padded(x: Tensor, sides: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    """More elements around the last axes; PyTorch begins with the last one."""
    flat = [size for side in reversed(sides) for size in side]
    return f.pad(x, flat, value=value) if any(flat) else x


def _conv(a: Attrs, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    conv = (f.conv1d, f.conv2d, f.conv3d)[x.ndim - 3]
    sides, padding = _sides(a["pads"]), (0,) * (x.ndim - 2)
    if all(begin == end for begin, end in sides):
        padding = tuple(begin for begin, _ in sides)
    else:
        x = _padded(x, sides)
    return conv(x, w, bias, a["strides"], padding, a["dilations"], a["group"])


def _conv_transpose(a: Attrs, x: Tensor, w: Tensor, bias: Tensor | None = None) -> Tensor:
    conv = (f.conv_transpose1d, f.conv_transpose2d, f.conv_transpose3d)[x.ndim - 3]
    sides = _sides(a["pads"])
    if any(begin != end for begin, end in sides):
        raise RuntimeFailed("PyTorch has no transposed convolution with uneven padding")
    padding = tuple(begin for begin, _ in sides)
    return conv(
        x, w, bias, a["strides"], padding, a["output_padding"], a["group"], a["dilations"]
    )  # fmt: skip


def _is_plain(a: Attrs) -> bool:
    sides = zip(_sides(a["pads"]), a["kernel"], strict=True)
    return all(begin == end and 2 * begin <= taps for (begin, end), taps in sides)


def _max_pool(a: Attrs, x: Tensor) -> Tensor:
    pool = (f.max_pool1d, f.max_pool2d, f.max_pool3d)[x.ndim - 3]
    padding: tuple[int, ...] = tuple(begin for begin, _ in _sides(a["pads"]))
    ceil = bool(a["ceil"])
    if not _is_plain(a):
        x = _padded(x, window_pads(x.shape[2:], a), -torch.inf)
        padding, ceil = (0,) * len(padding), False
    return pool(x, a["kernel"], a["strides"], padding, a["dilations"], ceil)


def _average_pool(a: Attrs, x: Tensor) -> Tensor:
    if any(apart != 1 for apart in a["dilations"]):
        raise RuntimeFailed("PyTorch has no average pool with dilations")
    pool = (f.avg_pool1d, f.avg_pool2d, f.avg_pool3d)[x.ndim - 3]
    if _is_plain(a):
        padding = tuple(begin for begin, _ in _sides(a["pads"]))
        is_counted = bool(a["count_include_pad"])
        return pool(x, a["kernel"], a["strides"], padding, bool(a["ceil"]), is_counted)
    counts = torch.as_tensor(window_counts(x.shape[2:], a), dtype=x.dtype, device=x.device)
    taps = float(torch.tensor(a["kernel"]).prod())
    return pool(_padded(x, window_pads(x.shape[2:], a)), a["kernel"], a["strides"]) * taps / counts


def _lrn(a: Attrs, x: Tensor) -> Tensor:
    if a["size"] % 2 == 0:
        raise RuntimeFailed("PyTorch centres windows of even size otherwise")
    plane = x if x.ndim > 2 else x[..., None]
    y = f.local_response_norm(plane, a["size"], a["alpha"], a["beta"], a["bias"])
    return y.reshape(x.shape)


def _layer_norm(a: Attrs, x: Tensor, scale: Tensor, shift: Tensor | None = None) -> Tensor:
    return f.layer_norm(x, x.shape[a["axis"] :], scale, shift, a["epsilon"])


def _batch_norm(
    a: Attrs, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    return f.batch_norm(x, mean, variance, scale, shift, eps=a["epsilon"])


def _resize(a: Attrs, x: Tensor) -> Tensor:
    assert a["factors"][:2] == (1, 1)
    return f.interpolate(x, scale_factor=[float(n) for n in a["factors"][2:]], mode="nearest")


def _slice(a: Attrs, x: Tensor) -> Tensor:
    return x.narrow(a["axis"], a["lo"], a["hi"] - a["lo"])


def _cast(a: Attrs, x: Tensor) -> Tensor:
    return x.to(getattr(torch, a["to"]))


def _plane(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


OPERATORS: Mapping[str, Operator] = {
    "Abs": lambda a, x: x.abs(),
    "Add": lambda a, x, y: x + y,
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": lambda a, x: x.clamp(a["min"], a["max"]),
    "Concat": lambda a, *xs: torch.cat(xs, a["axis"]),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Div": lambda a, x, y: x / y,
    "Erf": lambda a, x: torch.erf(x),
    "Exp": lambda a, x: x.exp(),
    "Gelu": lambda a, x: f.gelu(x, approximate=a["approximate"]),
    "GlobalAveragePool": lambda a, x: x.mean(_plane(x), keepdim=True),
    "GlobalMaxPool": lambda a, x: x.amax(_plane(x), keepdim=True),
    "Greater": lambda a, x, y: x > y,
    "LRN": _lrn,
    "LayerNormalization": _layer_norm,
    "LeakyRelu": lambda a, x: f.leaky_relu(x, a["alpha"]),
    "Log": lambda a, x: x.log(),
    "MatMul": lambda a, x, y: x @ y,
    "Max": lambda a, x, y: torch.maximum(x, y),
    "MaxPool": _max_pool,
    "Min": lambda a, x, y: torch.minimum(x, y),
    "Mul": lambda a, x, y: x * y,
    "Neg": lambda a, x: -x,
    "Pow": lambda a, x, y: x**y,
    "Reciprocal": lambda a, x: x.reciprocal(),
    "ReduceMax": lambda a, x: x.amax(a["axes"], keepdim=bool(a["keepdims"])),
    "ReduceMean": lambda a, x: x.mean(a["axes"], keepdim=bool(a["keepdims"])),
    "ReduceSum": lambda a, x: x.sum(a["axes"], keepdim=bool(a["keepdims"])),
    "Relu": lambda a, x: x.relu(),
    "Reshape": lambda a, x: x.reshape(a["shape"]),
    "Resize": _resize,
    "Rsqrt": lambda a, x: x.rsqrt(),
    "Sigmoid": lambda a, x: x.sigmoid(),
    "Slice": _slice,
    "Softmax": lambda a, x: x.softmax(a["axis"]),
    "Sqrt": lambda a, x: x.sqrt(),
    "Square": lambda a, x: x * x,
    "Sub": lambda a, x, y: x - y,
    "Swish": lambda a, x: x * (a["alpha"] * x).sigmoid(),
    "Tanh": lambda a, x: x.tanh(),
    "Transpose": lambda a, x: x.permute(a["perm"]),
    "Where": lambda a, c, x, y: torch.where(c, x, y),
}
