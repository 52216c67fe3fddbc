"""Derivatives of reductions, and of normalisations over axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from eqsat_opt.ir.values.dims import Dim, dim_product
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.training.derivatives.table import TapeApplication, defines, derives
from eqsat_opt.training.tape import TapeValue, one_of

__all__ = ["divided_by_count"]


def _kept(shape: tuple[Dim, ...], axes: Sequence[int]) -> tuple[Dim, ...]:
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def divided_by_count(value: TapeValue, counted: tuple[Dim, ...]) -> TapeValue:
    """Return a value divided by the number of elements of a shape, which may be symbolic."""
    count = dim_product(counted)
    if isinstance(count, int):
        return value * (1.0 / count)
    ones = value.tape.filled(1.0, TensorType(value.dtype, counted))
    return value / ones.sum(range(len(counted)))


def _spread(one: TapeApplication, axes: Sequence[int]) -> TapeValue:
    """Return the gradient with the reduced axes as axes of size 1."""
    return one.gradient.reshape(*_kept(one.operand.shape, axes))


@derives("ReduceSum")
def _sum(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [_spread(one, one.attrs["axes"]).expand(one.operand.shape)]


@derives("ReduceMean")
def _mean(one: TapeApplication) -> Sequence[TapeValue | None]:
    axes, shape = one.attrs["axes"], one.operand.shape
    part = divided_by_count(_spread(one, axes), tuple(shape[axis] for axis in axes))
    return [part.expand(shape)]


@derives("GlobalAveragePool")
def _average(one: TapeApplication) -> Sequence[TapeValue | None]:
    shape = one.operand.shape
    return [divided_by_count(one.gradient, shape[2:]).expand(shape)]


def _chosen(one: TapeApplication, axes: Sequence[int]) -> TapeValue:
    """Return gradients that go to the elements equal to the extremum, in equal shares."""
    x = one.operand
    is_chosen = x.apply("Equal", one.result.reshape(*_kept(x.shape, axes)))
    count = is_chosen.cast(x.dtype).sum(axes, keepdims=True)
    share = _spread(one, axes) / count
    return share.expand(x.shape).masked(is_chosen)


@derives("ReduceMax", "ReduceMin")
def _extremum(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [_chosen(one, one.attrs["axes"])]


@derives("GlobalMaxPool")
def _global_maximum(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [_chosen(one, range(2, one.operand.rank))]


@derives("ReduceProd")
def _product(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return products of all other elements, also where one element is 0."""
    x, axes = one.operand, one.attrs["axes"]
    is_zero = x.apply("Equal", 0.0)
    others = one_of(is_zero, 1.0, x, x.dtype)
    rest = others.apply("ReduceProd", axes=tuple(axes), keepdims=1)
    zeros = is_zero.cast(x.dtype).sum(axes, keepdims=True)
    beside_zero = one_of(zeros.apply("Equal", 1.0), rest, 0.0, x.dtype)
    elsewhere = one_of(zeros.apply("Equal", 0.0), rest, 0.0, x.dtype) / others
    return [_spread(one, axes) * one_of(is_zero, beside_zero, elsewhere, x.dtype)]


@derives("CumSum")
def _cumulative(one: TapeApplication) -> Sequence[TapeValue | None]:
    attrs = one.attrs
    return [one.gradient.apply("CumSum", **{**attrs, "reverse": 1 - attrs["reverse"]})]


@derives("Softmax")
def _softmax(one: TapeApplication) -> Sequence[TapeValue | None]:
    weighted = one.gradient * one.result
    return [weighted - one.result * weighted.sum([one.attrs["axis"]], keepdims=True)]


@derives("LogSoftmax")
def _log_softmax(one: TapeApplication) -> Sequence[TapeValue | None]:
    total = one.gradient.sum([one.attrs["axis"]], keepdims=True)
    return [one.gradient - one.result.apply("Exp") * total]


@derives("Center")
def _center(one: TapeApplication) -> Sequence[TapeValue | None]:
    return [one.gradient - one.gradient.mean(one.attrs["axes"])]


@derives("RmsN")
def _root_mean_square(one: TapeApplication) -> Sequence[TapeValue | None]:
    """Return r (g - y mean(g y)), where y = r x and r is the reciprocal of the root."""
    x, axes = one.operand, one.attrs["axes"]
    reciprocal = ((x * x).mean(axes) + one.attrs["epsilon"]).apply("Rsqrt")
    common = (one.gradient * one.result).mean(axes)
    return [(one.gradient - one.result * common) * reciprocal]


def _per_channel(x: TapeValue, parameter: TapeValue) -> TapeValue:
    return parameter.reshape(1, *parameter.shape, *(1,) * (x.rank - 2))


@defines("LayerNormalization")
def layer_normalisation(operands: Sequence[TapeValue], attrs: Mapping[str, Any]) -> TapeValue:
    """Return the normalised operand, times a scale, plus a shift if there is one."""
    x, scale, *shift = operands
    axes = tuple(range(attrs["axis"], x.rank))
    centred = x.apply("Center", axes=axes)
    scaled = centred.apply("RmsN", axes=axes, epsilon=attrs["epsilon"]) * scale
    return scaled + shift[0] if shift else scaled


@defines("RMSNormalization")
def root_mean_square_normalisation(
    operands: Sequence[TapeValue], attrs: Mapping[str, Any]
) -> TapeValue:
    """Return the operand over its root mean square, times a scale."""
    x, scale = operands
    axes = tuple(range(attrs["axis"], x.rank))
    return x.apply("RmsN", axes=axes, epsilon=attrs["epsilon"]) * scale


@defines("InstanceNormalization")
def instance_normalisation(operands: Sequence[TapeValue], attrs: Mapping[str, Any]) -> TapeValue:
    """Return each channel of each sample normalised, times a scale, plus a shift."""
    x, scale, shift = operands
    axes = tuple(range(2, x.rank))
    normal = x.apply("Center", axes=axes).apply("RmsN", axes=axes, epsilon=attrs["epsilon"])
    return normal * _per_channel(x, scale) + _per_channel(x, shift)


@defines("BatchNormalization")
def batch_normalisation(operands: Sequence[TapeValue], attrs: Mapping[str, Any]) -> TapeValue:
    """Return each channel normalised by given statistics, times a scale, plus a shift."""
    x, scale, shift, mean, variance = operands
    epsilon: float = attrs["epsilon"]
    factor = scale * (variance + epsilon).apply("Rsqrt")
    return x * _per_channel(x, factor) + _per_channel(x, shift - mean * factor)


@defines("LRN")
def local_response_normalisation(
    operands: Sequence[TapeValue], attrs: Mapping[str, Any]
) -> TapeValue:
    """Return x (bias + alpha/size S)^-beta, where S sums squares over neighbouring channels."""
    (x,) = operands
    size = attrs["size"]
    before = (size - 1) // 2
    # Sums over a window are differences of sums from the beginning, but cancel; slices do not.
    squares = (x * x).apply(
        "Pad", pads=(0, before, *(0,) * (x.rank - 1), size - 1 - before, *(0,) * (x.rank - 2)),
        value=0.0,
    )  # fmt: skip
    channels = x.shape[1]
    assert isinstance(channels, int)
    total: TapeValue = squares.apply("Slice", axis=1, lo=0, hi=channels)
    for place in range(1, size):
        total = total + squares.apply("Slice", axis=1, lo=place, hi=place + channels)
    alpha, beta, bias = (float(attrs[name]) for name in ("alpha", "beta", "bias"))
    scale: TapeValue = (total * (alpha / size) + bias).apply("Pow", -beta)
    return x * scale
