"""The constraints of convolutions, pools and channel normalisations on shapes and attributes."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence

from eqsat_opt.ir.ops.linear import window_size
from eqsat_opt.proving.typing.extents import Extent, Shape, apply
from eqsat_opt.proving.typing.most_general import Fresh, Known, Scheme, Typing
from eqsat_opt.proving.typing.open_attributes import (
    DYADIC,
    attribute,
    multiple,
    numbers,
    repeated,
)
from eqsat_opt.rules.term import Apply

__all__ = ["WINDOWS", "pool"]


def _positions(*args: int) -> int:
    return int(window_size(*args))  # type: ignore[arg-type]


def _half(kernel: int, dilation: int) -> int:
    return dilation * (kernel - 1) // 2


def _windows(t: Typing, term: Apply, data: Shape, kernel: Sequence[Extent]) -> Shape:
    """Return the positions of windows; decide strides, dilations and pads.

    Pads are often half of the kernel.
    """
    n = len(kernel)
    strides = numbers(
        t, term, "strides", count=n, usual=repeated(n, 1, 2), each=(1, 2, 3, 1, 2, 3, 4, 5)
    )
    dilations = numbers(t, term, "dilations", count=n, usual=repeated(n, 1), each=(1, 2))
    t.require(len(strides) == n == len(dilations))
    half = tuple(apply(_half, k, d) for k, d in zip(kernel, dilations, strict=True))
    pads = numbers(t, term, "pads", count=2 * n, usual=[(0,) * 2 * n, half * 2], each=(0, 1, 2))
    t.require(len(pads) == 2 * n)
    ceil = attribute(t, term, "ceil", (0, 1), core=1) if "ceil" in term.attrs else 0
    return tuple(
        apply(_positions, data[i], kernel[i], strides[i], pads[i], pads[n + i], dilations[i], ceil)
        for i in range(n)
    )


def _spatial(t: Typing, operand: Known, term: Apply, other: Known | None = None) -> Shape:
    if not isinstance(operand, Fresh):
        t.require(len(operand) >= 3)
        return operand
    given = [t.value(term.attrs[key]) for key in ("strides", "dilations")]
    lengths = [len(value) for value in given if value is not None]
    if other is not None and not isinstance(other, Fresh):
        lengths.insert(0, len(other) - 2)
    return t.fresh(operand, ((lengths[0] if lengths else t.axes) + 2,))


def _data_and_weight(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[Shape, Shape]:
    x, weight = _spatial(t, operands[0], term, operands[1]), operands[1]
    w = t.fresh(weight, (len(x),)) if isinstance(weight, Fresh) else weight
    t.require(len(w) == len(x) >= 3)
    return x, w


def _biases(t: Typing, operands: Sequence[Known], channels: Extent) -> list[Shape]:
    biases = [(channels,) if isinstance(one, Fresh) else one for one in operands[2:]]
    for shape in biases:
        t.equal(shape, (channels,))
    return biases


def _conv(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, w = _data_and_weight(t, operands, term)
    group = attribute(t, term, "group", (1, 2, 3, 3, 3, 4), core=2)
    t.require(isinstance(group, int))
    multiple(t, x[1], group, w[1])
    multiple(t, w[0], group, t.extents.new())
    positions = _windows(t, term, x[2:], w[2:])
    return [x, w, *_biases(t, operands, w[0])], (x[0], w[0], *positions)


def _stretched(
    size: int, kernel: int, stride: int, before: int, after: int, dilation: int, extra: int
) -> int:
    return (size - 1) * stride + extra + (kernel - 1) * dilation + 1 - before - after


def _deconv(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x, w = _data_and_weight(t, operands, term)
    t.equal(x[1], w[0])
    group = attribute(t, term, "group", (1, 2, 3), core=2)
    t.require(isinstance(group, int))
    multiple(t, x[1], group, t.extents.new())
    n = len(x) - 2
    # Results grow with the strides of each axis.
    strides = numbers(
        t, term, "strides", count=n, usual=repeated(n, 1, 2), each=(1, 2, 3) if n < 3 else (1, 1, 2)
    )
    dilations = numbers(t, term, "dilations", count=n, usual=repeated(n, 1), each=(1, 2))
    t.require(len(dilations) == n)
    half = tuple(apply(_half, w[2 + i], dilations[i]) for i in range(n))
    pads = numbers(t, term, "pads", count=2 * n, usual=[(0,) * 2 * n, half * 2], each=(0, 0, 0, 1))
    t.require(len(strides) == n and len(pads) == 2 * n)
    extra = numbers(t, term, "output_padding", count=n, usual=repeated(n, 0, 1), each=(0, 1))
    t.require(len(extra) == n)
    positions = tuple(
        apply(
            _stretched, x[2 + i], w[2 + i], strides[i], pads[i], pads[n + i], dilations[i], extra[i]
        )
        for i in range(n)
    )
    channels = apply(python.mul, w[1], group)
    return [x, w, *_biases(t, operands, channels)], (x[0], channels, *positions)


def pool(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    """Return the shapes of windows over one operand; the kernel is an attribute."""
    x = _spatial(t, operands[0], term)
    n = len(x) - 2
    kernel = numbers(t, term, "kernel", count=n, usual=repeated(n, 2, 3), each=(1, 2, 3))
    t.require(len(kernel) == n)
    if "count_include_pad" in term.attrs:
        attribute(t, term, "count_include_pad", (0, 1))
    return [x], (*x[:2], *_windows(t, term, x[2:], kernel))


def _lrn(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = operands[0]
    x = t.fresh(x, (4, 3)) if isinstance(x, Fresh) else x
    attribute(t, term, "size", (3, 2, 1, 5), core=2)
    for key in ("alpha", "beta", "bias"):
        attribute(t, term, key, DYADIC, core=2)
    return [x], x


def _channelwise(t: Typing, operands: Sequence[Known], term: Apply) -> tuple[list[Shape], Shape]:
    x = operands[0]
    x = t.fresh(x, (4, 3, 2), core=1) if isinstance(x, Fresh) else x
    t.require(len(x) >= 2)
    attribute(t, term, "epsilon", (0.25,))
    shapes = [x]
    for operand in operands[1:]:
        t.equal(shape := (x[1],) if isinstance(operand, Fresh) else operand, (x[1],))
        shapes.append(shape)
    return shapes, x


WINDOWS: dict[str, Scheme] = {
    "Conv": _conv, "ConvTranspose": _deconv, "LRN": _lrn,
    **dict.fromkeys(("BatchNormalization", "InstanceNormalization"), _channelwise),
}  # fmt: skip
"""Operator to scheme."""
