"""Derivatives of matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.values.dims import Dim, dim_product
from eqsat_opt.training.derivatives.table import TapeApplication, defines, derives, no_derivative
from eqsat_opt.training.tape import TapeValue

__all__ = ["conv_data_gradient", "conv_weight_gradient"]

_COLUMNS = 128
"""Least number of columns, channels times pixels of the kernel, from which the gradient of a weight
is a product of matrices: with fewer, runtimes take longer to make the columns than they save.
"""


@derives("MatMul")
def _matmul(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return gradient bᵀ and aᵀ gradient, summed over what broadcasts.

    The gradient of a matrix by which a batch is multiplied is one product over all its rows.
    """
    a, b = one.operands
    left = a if a.rank > 1 else a.reshape(1, *a.shape)
    right = b if b.rank > 1 else b.reshape(*b.shape, 1)
    batch = one.result.shape[: one.result.rank - (a.rank > 1) - (b.rank > 1)]
    rows, columns = left.shape[-2], right.shape[-1]
    gradient = one.gradient.reshape(*batch, rows, columns)
    results: list[TapeValue | None] = [None, None]
    if 0 in one.wanted:
        results[0] = (gradient @ right.turned()).summed_to(left.shape).reshape(*a.shape)
    if 1 in one.wanted:
        if right.rank == 2 and left.rank > 2:
            count = dim_product(left.shape[:-1])
            left = left.reshape(count, left.shape[-1])
            gradient = gradient.reshape(count, columns)
        results[1] = (left.turned() @ gradient).summed_to(right.shape).reshape(*b.shape)
    return results


@defines("Attention")
def attention(operands: Sequence[TapeValue], attrs: Mapping[str, Any]) -> TapeValue:
    """Return softmax(scale q kᵀ + mask) v; heads of q share those of k and v."""
    q, k, v, *mask = operands
    heads, groups = q.shape[1], k.shape[1]
    if isinstance(heads, int) and isinstance(groups, int) and heads != groups:
        k, v = (one.apply("Repeat", axis=1, repeats=heads // groups) for one in (k, v))
    scale: float = attrs["scale"]
    logits = q @ k.turned() * scale
    if mask:
        logits = logits + mask[0]
    return logits.apply("Softmax", axis=3) @ v


defines("MaskedAttention")(attention)


# ** convolutions **

_Spans = list[tuple[int, Dim, int]]


def _spans(
    sizes: Sequence[Dim], windows: Sequence[Dim], kernel: Sequence[Dim], attrs: Mapping[str, Any]
) -> _Spans | None:
    """Return pad before, pad after and unread elements along each spatial axis.

    The windows of a convolution read exactly the data with these pads, less the unread elements at
    its end. It is ``None`` where strided windows over open sizes leave open what is read.
    """
    found: _Spans = []
    for axis, (size, count, width) in enumerate(zip(sizes, windows, kernel, strict=True)):
        before = attrs["pads"][axis]
        read = (count - 1) * attrs["strides"][axis] + (width - 1) * attrs["dilations"][axis] + 1
        after = read - before - size
        if not isinstance(after, int):
            return None
        found.append((before, max(after, 0), max(-after, 0)))
    return found


def _spans_of(one: TapeApplication, kernel: Sequence[Dim]) -> _Spans:
    found = _spans(one.operand.shape[2:], one.result.shape[2:], kernel, one.attrs)
    if found is None:
        raise no_derivative(one.node, "strides over an open size; fix it with --fix-shape")
    return found


def conv_data_gradient(
    gradient: TapeValue, weight: TapeValue, spans: _Spans, attrs: Mapping[str, Any]
) -> TapeValue:
    """Return the gradient of the data of a convolution, a transposed convolution."""
    return gradient.apply(
        "ConvTranspose",
        weight,
        strides=attrs["strides"],
        pads=(*(before for before, _, _ in spans), *(after for _, after, _ in spans)),
        dilations=attrs["dilations"],
        group=attrs["group"],
        output_padding=tuple(unread for _, _, unread in spans),
    )


def conv_weight_gradient(
    x: TapeValue,
    gradient: TapeValue,
    spans: _Spans,
    weight: tuple[Dim, ...],
    attrs: Mapping[str, Any],
) -> TapeValue:
    """Return the gradient of the weight of a convolution: a product over samples and positions.

    It is one of matrices where that pays: without groups and strides, from :data:`_COLUMNS` columns
    on. Elsewhere it is a convolution of the data with the gradient as kernel, which exchanges
    samples with channels, and strides with dilations.

    Args:
        x: the data, [N, C, *sizes].
        gradient: the gradient of the result, [N, O, *windows].
        spans: the part that the windows read.
        weight: the shape of the weight, [O, C / group, *kernel].
        attrs: the attributes of the convolution.
    """
    axes = range(2, x.rank)
    if any(unread for _, _, unread in spans):
        for axis, (_, _, unread) in zip(axes, spans, strict=True):
            size = x.shape[axis]
            if unread:
                assert isinstance(size, int)
                x = x.apply("Slice", axis=axis, lo=0, hi=size - unread)
    kernel = weight[2:]
    is_plain = attrs["group"] == 1 and set(attrs["strides"]) == {1}
    columns = dim_product(weight[1:])
    if is_plain and (dim_product(kernel) == 1 or _is_least(columns)):
        return _weight_product(x, gradient, spans, weight, dilations=attrs["dilations"])
    group, channels = attrs["group"], weight[1]
    samples = x.reshape(x.shape[0], group, channels, *x.shape[2:])
    samples = samples.transpose(2, 1, 0, *range(3, samples.rank))
    samples = samples.reshape(channels, group * x.shape[0], *x.shape[2:])
    pads = (*(before for before, _, _ in spans), *(after for _, after, _ in spans))
    turned = samples.apply(
        "Conv",
        gradient.transpose(1, 0, *axes),
        strides=attrs["dilations"],
        pads=pads,
        dilations=attrs["strides"],
        group=group,
    )
    return turned.transpose(1, 0, *axes)


def _is_least(columns: Dim) -> bool:
    return isinstance(columns, int) and columns >= _COLUMNS


def _weight_product(
    x: TapeValue,
    gradient: TapeValue,
    spans: _Spans,
    weight: tuple[Dim, ...],
    dilations: Sequence[int],
) -> TapeValue:
    kernel = [size for size in weight[2:] if isinstance(size, int)]
    widths = (*(before for before, _, _ in spans), *(after for _, after, _ in spans))
    if any(widths):
        half = len(spans)
        x = x.apply("Pad", pads=(0, 0, *widths[:half], 0, 0, *widths[half:]), value=0.0)
    axes = range(2, x.rank)
    pixels = x.transpose(0, *axes, 1)
    parts = [pixels]
    for axis, (size, dilation) in enumerate(zip(kernel, dilations, strict=True), start=1):
        parts = [
            _window(part, axis, place * dilation, gradient.shape[1 + axis])
            for part in parts
            for place in range(size)
        ]
    count = dim_product((gradient.shape[0], *gradient.shape[2:]))
    rows = [part.reshape(count, x.shape[1]) for part in parts]
    columns = rows[0] if len(rows) == 1 else x.tape.apply("Concat", *rows, axis=1)
    outputs = gradient.transpose(1, 0, *axes).reshape(gradient.shape[1], count)
    product = (outputs @ columns).reshape(weight[0], *kernel, weight[1])
    return product.transpose(0, product.rank - 1, *range(1, product.rank - 1))


def _window(x: TapeValue, axis: int, begin: int, count: Dim) -> TapeValue:
    if x.shape[axis] == count:
        return x
    end = begin + count
    if isinstance(end, int):
        return x.apply("Slice", axis=axis, lo=begin, hi=end)
    return x.apply("StridedSlice", axis=axis, cut=(begin, end, 1))


@derives("Conv")
def _conv(one: TapeApplication) -> Sequence[TapeValue | None]:
    x, weight, *bias = one.operands
    spans, attrs = _spans_of(one, weight.shape[2:]), one.attrs
    results: list[TapeValue | None] = [None] * len(one.operands)
    if 0 in one.wanted:
        results[0] = conv_data_gradient(one.gradient, weight, spans, attrs)
    if 1 in one.wanted:
        results[1] = conv_weight_gradient(
            x, one.gradient, spans=spans, weight=weight.shape, attrs=attrs
        )
    if bias and 2 in one.wanted:
        results[2] = one.gradient.sum([0, *range(2, x.rank)])
    return results


@derives("ConvTranspose")
def _deconv(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return gradients as those of the convolution whose data gradient this operator is."""
    x, weight, *bias = one.operands
    attrs = {name: one.attrs[name] for name in ("strides", "pads", "dilations", "group")}
    spans = _spans(one.result.shape[2:], x.shape[2:], weight.shape[2:], attrs)
    if spans is None:
        raise no_derivative(one.node, "strides over an open size; fix it with --fix-shape")
    results: list[TapeValue | None] = [None] * len(one.operands)
    if 0 in one.wanted:
        results[0] = _read_windows(one.gradient, weight, spans, attrs)
    if 1 in one.wanted:
        results[1] = conv_weight_gradient(
            one.gradient, x, spans=spans, weight=weight.shape, attrs=attrs
        )
    if bias and 2 in one.wanted:
        results[2] = one.gradient.sum([0, *range(2, x.rank)])
    return results


def _read_windows(
    gradient: TapeValue, weight: TapeValue, spans: _Spans, attrs: Mapping[str, Any]
) -> TapeValue:
    pads = (*(before for before, _, _ in spans), *(after for _, after, _ in spans))
    for axis, (_, _, unread) in enumerate(spans, start=2):
        size = gradient.shape[axis]
        if unread:
            assert isinstance(size, int)
            gradient = gradient.apply("Slice", axis=axis, lo=0, hi=size - unread)
    return gradient.apply("Conv", weight, **{**attrs, "pads": pads})
