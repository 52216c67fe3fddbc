"""Derivatives of pools."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from eqsat_opt.ir.values.types import numpy_dtype
from eqsat_opt.training.derivatives.table import TapeApplication, derives, no_derivative
from eqsat_opt.training.tape import TapeValue

__all__: list[str] = []


def _pads(one: TapeApplication) -> tuple[list[int], list[int], list[int]]:
    """Return pads before and after, and unread elements, along each spatial axis.

    Windows read the data with these pads, less the unread elements at its end: in ceil mode, more
    than the pads of the operator.
    """
    attrs, before, after, unread = one.attrs, [], [], []
    pairs = zip(one.operand.shape[2:], one.result.shape[2:], strict=True)
    for axis, (size, count) in enumerate(pairs):
        read = (count - 1) * attrs["strides"][axis] + 1
        read = read + (attrs["kernel"][axis] - 1) * attrs["dilations"][axis]
        more = read - attrs["pads"][axis] - size
        if not isinstance(more, int):
            raise no_derivative(one.node, "strides over an open size; fix it with --fix-shape")
        before.append(attrs["pads"][axis])
        after.append(max(more, 0))
        unread.append(max(-more, 0))
    return before, after, unread


def _channels(one: TapeApplication) -> int:
    channels = one.operand.shape[1]
    if not isinstance(channels, int):
        raise no_derivative(one.node, "an open number of channels")
    return channels


def _windows_back(one: TapeApplication, windows: TapeValue, kernel: TapeValue) -> TapeValue:
    """Return elements of windows added up at the places from which they were read."""
    before, after, unread = _pads(one)
    return windows.apply(
        "ConvTranspose",
        kernel,
        strides=one.attrs["strides"],
        pads=(*before, *after),
        dilations=one.attrs["dilations"],
        group=_channels(one),
        output_padding=tuple(unread),
    )


@derives("AveragePool")
def _average(one: TapeApplication) -> Sequence[TapeValue | None]:
    size, channels = one.attrs["kernel"], _channels(one)
    ones = np.ones((channels, 1, *size), numpy_dtype(one.operand.dtype))
    share = one.gradient * _weights(one)
    return [_windows_back(one, share, one.operand.tape.constant(ones))]


def _weights(one: TapeApplication) -> TapeValue | float:
    """Return the reciprocal of the number of elements of each window."""
    attrs = one.attrs
    is_whole = attrs["count_include_pad"] or not any(attrs["pads"])
    if is_whole and not attrs["ceil"]:
        return float(1.0 / prod(attrs["kernel"]))
    plane = tuple(size for size in one.operand.shape[2:] if isinstance(size, int))
    if len(plane) < one.operand.rank - 2:
        raise no_derivative(one.node, "windows of an open plane that are not all full")
    count = np.ones((), np.float64)
    for axis, size in enumerate(plane):
        count = np.multiply.outer(count, _counted(one, axis, size))
    reciprocals = (1.0 / np.maximum(count, 1)).astype(numpy_dtype(one.operand.dtype))
    return one.operand.tape.constant(reciprocals)


def _counted(one: TapeApplication, axis: int, size: int) -> np.ndarray[Any, Any]:
    """Return the number of elements along an axis that each window counts."""
    attrs, windows = one.attrs, one.result.shape[2 + axis]
    assert isinstance(windows, int)
    before = attrs["pads"][axis]
    first = np.arange(windows)[:, None] * attrs["strides"][axis] - before
    places = first + np.arange(attrs["kernel"][axis]) * attrs["dilations"][axis]
    low, high = 0, size
    if attrs["count_include_pad"]:
        low, high = -before, size + attrs["pads"][axis + len(attrs["kernel"])]
    return np.asarray(((places >= low) & (places < high)).sum(axis=1))


@derives("MaxPool")
def _maximum(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return gradients that go to the maxima of windows, in equal shares to equal ones."""
    if _is_tiling(one):
        return [_tiles(one)]
    x, attrs = one.operand, one.attrs
    before, after, _ = _pads(one)
    lowest = float(np.finfo(numpy_dtype(x.dtype)).min)
    padded = x
    if any((*before, *after)):
        padded = x.apply("Pad", pads=(0, 0, *before, 0, 0, *after), value=lowest)
    channels, size = _channels(one), prod(attrs["kernel"])
    # A kernel for each pixel of a window, which reads it.
    pixels = np.eye(size).reshape(size, 1, *attrs["kernel"])
    rows = np.tile(pixels, (channels, *(1,) * (x.rank - 1)))
    kernel = x.tape.constant(rows.astype(numpy_dtype(x.dtype)))
    read = padded.apply(
        "Conv",
        kernel,
        strides=attrs["strides"],
        pads=(0,) * (2 * len(before)),
        dilations=attrs["dilations"],
        group=channels,
    )
    samples, positions = one.result.shape[0], one.result.shape[2:]
    by_pixel = (samples, channels, size, *positions)
    by_window = (samples, channels, 1, *positions)
    is_chosen = read.reshape(*by_pixel).apply("Equal", one.result.reshape(*by_window))
    share = one.gradient.reshape(*by_window) / is_chosen.cast(x.dtype).sum([2], keepdims=True)
    chosen = share.expand(by_pixel).masked(is_chosen)
    return [_windows_back(one, chosen.reshape(samples, channels * size, *positions), kernel)]


def _is_tiling(one: TapeApplication) -> bool:
    """Return whether windows neither overlap nor leave elements unread."""
    attrs = one.attrs
    before, after, unread = _pads(one)
    if tuple(attrs["kernel"]) != tuple(attrs["strides"]) or set(attrs["dilations"]) != {1}:
        return False
    return not any((*before, *after, *unread))


def _tiles(one: TapeApplication) -> TapeValue:
    x, kernel = one.operand, one.attrs["kernel"]
    split, whole = [*x.shape[:2]], [*x.shape[:2]]
    for windows, size in zip(one.result.shape[2:], kernel, strict=True):
        split += [windows, size]
        whole += [windows, 1]
    tiles = x.reshape(*split)
    is_chosen = tiles.apply("Equal", one.result.reshape(*whole))
    axes = range(3, len(split), 2)
    count = is_chosen.cast(x.dtype).sum(axes, keepdims=True)
    share = one.gradient.reshape(*whole) / count
    return share.expand(tuple(split)).masked(is_chosen).reshape(*x.shape)
