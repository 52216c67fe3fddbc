"""Gradient operators of onnxruntime-training, read as plain operators.

No released runtime has these operators, so the graph of plain operators is the reference. The
schemas and kernels of onnxruntime-training 1.19 define their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat_opt.ir.graph.graph import Node, attributes
from eqsat_opt.ir.onnx.mapping import Untranslatable, expect
from eqsat_opt.ir.values.dims import Dim
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.training.derivatives.table import DERIVATIVES, TapeApplication
from eqsat_opt.training.reverse import by_definition
from eqsat_opt.training.tape import Tape, TapeValue, one_of

__all__ = ["LOWERINGS", "Given", "Lowering"]


@dataclass(frozen=True)
class Given:
    """A gradient operator to lower.

    Attributes:
        tape: where plain operators are written.
        operands: its operands, ``None`` for those that are absent.
        attrs: its attributes.
        dims: a function of the number of an operand to its elements, which are sizes.
    """

    tape: Tape
    operands: Sequence[TapeValue | None]
    attrs: Mapping[str, Any]
    dims: Callable[[int], tuple[Dim, ...]]

    def has(self, number: int) -> bool:
        """Return whether an operand is present."""
        return number < len(self.operands) and self.operands[number] is not None

    def __getitem__(self, number: int) -> TapeValue:
        value = self.operands[number] if self.has(number) else None
        if value is None:
            raise Untranslatable
        return value

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        return float(self.attrs.get(name, default))

    def derivative(
        self,
        op: str,
        gradient: TapeValue,
        *operands: TapeValue,
        result: TapeValue | None = None,
        **attrs: Any,
    ) -> Sequence[TapeValue | None]:
        """Return the gradients of an operator of the registry.

        Args:
            op: its name.
            gradient: the gradient of its result.
            operands: its operands.
            result: its result, which is computed again if it is not given.
            attrs: its attributes.
        """
        if result is None:
            result = self.tape.apply(op, *operands, **attrs)
        names = tuple(one.name for one in operands)
        node = Node(op, names, (result.name,), attributes(**attrs))
        wanted = frozenset(range(len(operands)))
        one = TapeApplication(node, operands, result, gradient, wanted=wanted)
        derive = DERIVATIVES.get(op, by_definition)
        parts = zip(derive(one), operands, strict=True)
        return [part and part.summed_to(operand.shape) for part, operand in parts]


Lowering = Callable[[Given], Sequence[TapeValue | None]]
"""A function of a gradient operator that returns its outputs; ``None`` is one that nobody reads."""

LOWERINGS: dict[str, Lowering] = {}
"""Gradient operator to its lowering."""


def _lowers(*ops: str) -> Callable[[Lowering], Lowering]:
    def add(function: Lowering) -> Lowering:
        LOWERINGS.update(dict.fromkeys(ops, function))
        return function

    return add


# ** functions of one element **


def _by_result(op: str, **attrs: float) -> None:
    """Register the gradient of a function of one element, given dY and the result Y."""

    @_lowers(f"{op}Grad")
    def lowering(given: Given) -> Sequence[TapeValue | None]:
        named = {name: given.number(name, default) for name, default in attrs.items()}
        # The slope is a function of the result alone, which takes the operand's place.
        return given.derivative(op, given[0], given[1], result=given[1], **named)


for _op in ("Relu", "Sigmoid", "Tanh"):
    _by_result(_op)
_by_result("LeakyRelu", alpha=0.01)


def _by_operand(name: str, op: str, **attrs: Any) -> None:
    """Register the gradient of a function of one element, given dY and the operand X."""

    @_lowers(name)
    def lowering(given: Given) -> Sequence[TapeValue | None]:
        named = {key: given.attrs.get(key, default) for key, default in attrs.items()}
        return given.derivative(op, given[0], given[1], **named)


_by_operand("GeluGrad", "Gelu", approximate="none")
_by_operand("FastGeluGrad", "Gelu", approximate="tanh")
_by_operand("QuickGeluGrad", "Swish", alpha=1.702)
_by_operand("EluGrad", "Elu", alpha=1.0)
_by_operand("AbsGrad", "Abs")
_by_operand("SinGrad", "Sin")
_by_operand("CosGrad", "Cos")
_by_operand("LogGrad", "Log")


@_lowers("BiasGeluGrad_dX", "BiasFastGeluGrad_dX")
def _bias_gelu(given: Given) -> Sequence[TapeValue | None]:
    x = given[1] + given[2]
    return given.derivative("Gelu", given[0], x, approximate="none")


# ** losses and softmax **


@_lowers("SoftmaxGrad", "SoftmaxGrad_13")
def _softmax(given: Given) -> Sequence[TapeValue | None]:
    axis = int(given.number("axis", -1)) % given[1].rank
    return given.derivative("Softmax", given[0], given[1], result=given[1], axis=axis)


@_lowers("LogSoftmaxGrad", "LogSoftmaxGrad_13")
def _log_softmax(given: Given) -> Sequence[TapeValue | None]:
    axis = int(given.number("axis", -1)) % given[1].rank
    return given.derivative("LogSoftmax", given[0], given[1], result=given[1], axis=axis)


def _chosen(
    given: Given, labels: TapeValue, weights: int, ignored: int
) -> tuple[TapeValue, TapeValue]:
    """Return places of classes with an axis of 1, and their weights: 0 for an ignored class."""
    column = labels.cast("int64").reshape(labels.shape[0], 1, *labels.shape[1:])
    like = given[0] if given[0].rank else given[1]
    weight = given.tape.scalar(1.0, like.dtype).expand(column.shape)
    index: TapeValue | None = None
    if given.has(ignored):
        index = given[ignored].reshape().cast("int64")
    elif "ignore_index" in given.attrs:
        index = given.tape.scalar(given.attrs["ignore_index"], "int64")
    if index is not None:
        is_ignored = column.apply("Equal", index)
        column = one_of(is_ignored, 0, column, "int64")
        weight = one_of(is_ignored, 0.0, weight, like.dtype)
    if given.has(weights):
        weight = weight * given[weights].apply("Gather", column, axis=0)
    return column, weight


@_lowers("SoftmaxCrossEntropyLossInternal")
def _cross_entropy(given: Given) -> Sequence[TapeValue | None]:
    column, weight = _chosen(given, given[1], weights=2, ignored=3)
    logarithms = given[0].apply("LogSoftmax", axis=1)
    losses = -logarithms.apply("GatherElements", column, axis=1) * weight
    reduction = _text(given, "reduction", "mean")
    axes = range(losses.rank)
    if reduction == "none":
        return [losses.reshape(*given[1].shape), logarithms]
    total = losses.sum(axes)
    return [total / weight.sum(axes) if reduction == "mean" else total, logarithms]


@_lowers("SoftmaxCrossEntropyLossInternalGrad", "SoftmaxCrossEntropyLossGrad")
def _cross_entropy_gradient(given: Given) -> Sequence[TapeValue | None]:
    gradient, logarithms, labels = given[0], given[1], given[2]
    column, weight = _chosen(given, labels, weights=3, ignored=4)
    reduction = _text(given, "reduction", "mean")
    scale = gradient.reshape(*column.shape) * weight if reduction == "none" else gradient * weight
    if reduction == "mean":
        scale = scale / weight.sum(range(weight.rank))
    zeros = given.tape.filled(0.0, logarithms.type)
    ones = given.tape.filled(1.0, TensorType(logarithms.dtype, column.shape))
    right = zeros.apply("ScatterElements", column, ones, axis=1, reduction="none")
    result = (logarithms.apply("Exp") - right) * scale
    return [result + given[5] if given.has(5) else result]


def _text(given: Given, name: str, default: str) -> str:
    value = given.attrs.get(name, default)
    return value.decode() if isinstance(value, bytes) else str(value)


# ** normalisations **


@_lowers("LayerNormalizationGrad")
def _layer_normalisation(given: Given) -> Sequence[TapeValue | None]:
    """Return r (g - mean g - n mean(g n)) and sums, for the saved mean and reciprocal deviation."""
    gradient, x, scale, mean, reciprocal = (given[number] for number in range(5))
    axes = range(int(given.number("axis", -1)) % x.rank, x.rank)
    return _normalised(gradient, (x - mean) * reciprocal, scale, reciprocal, axes=axes)


@_lowers("InvertibleLayerNormalizationGrad")
def _invertible_normalisation(given: Given) -> Sequence[TapeValue | None]:
    gradient, y, scale, shift, reciprocal = (given[number] for number in range(5))
    axes = range(int(given.number("axis", -1)) % y.rank, y.rank)
    return _normalised(gradient, (y - shift) / scale, scale, reciprocal, axes=axes)


@_lowers("SimplifiedLayerNormalizationGrad")
def _root_mean_square(given: Given) -> Sequence[TapeValue | None]:
    gradient, x, scale, reciprocal = (given[number] for number in range(4))
    axes = range(int(given.number("axis", -1)) % x.rank, x.rank)
    normal, inner = x * reciprocal, gradient * scale
    back = (inner - normal * (inner * normal).mean(axes)) * reciprocal
    return [back, (gradient * normal).summed_to(scale.shape)]


def _normalised(
    gradient: TapeValue,
    normal: TapeValue,
    scale: TapeValue,
    reciprocal: TapeValue,
    axes: Sequence[int],
) -> Sequence[TapeValue | None]:
    inner = gradient * scale
    back = inner - inner.mean(axes) - normal * (inner * normal).mean(axes)
    return [
        back * reciprocal,
        (gradient * normal).summed_to(scale.shape),
        gradient.summed_to(scale.shape),
    ]


@_lowers("BatchNormInternal")
def _batch_normalisation(given: Given) -> Sequence[TapeValue | None]:
    x, scale, shift, mean, variance = (given[number] for number in range(5))
    epsilon, share = given.number("epsilon", 1e-5), given.number("momentum", 0.9)
    axes, column = (0, *range(2, x.rank)), (-1, *(1,) * (x.rank - 2))
    own = x.mean(axes, keepdims=False)
    centred = x.apply("Center", axes=axes)
    spread = (centred * centred).mean(axes, keepdims=False)
    reciprocal = (spread + epsilon).apply("Rsqrt")
    shape = (*scale.shape, *column[1:])
    normal = centred * reciprocal.reshape(*shape)
    return [
        normal * scale.reshape(*shape) + shift.reshape(*shape),
        mean * share + own * (1.0 - share),
        variance * share + spread * (1.0 - share),
        own,
        reciprocal,
    ]


@_lowers("BatchNormalizationGrad")
def _batch_normalisation_gradient(given: Given) -> Sequence[TapeValue | None]:
    gradient, x, scale, mean, reciprocal = (given[number] for number in range(5))
    shape = (*scale.shape, *(1,) * (x.rank - 2))
    axes = (0, *range(2, x.rank))
    column = reciprocal.reshape(*shape)
    normal = (x - mean.reshape(*shape)) * column
    back, *sums = _normalised(gradient, normal, scale.reshape(*shape), column, axes=axes)
    return [back, *(total and total.reshape(*scale.shape) for total in sums)]


# ** contractions and movement **


@_lowers("ConvGrad")
def _conv(given: Given) -> Sequence[TapeValue | None]:
    gradient, x, weight = given[0], given[1], given[2]
    axes = x.rank - 2
    expect(_text(given, "auto_pad", "NOTSET") == "NOTSET")
    attrs = {
        "strides": tuple(given.attrs.get("strides", (1,) * axes)),
        "pads": tuple(given.attrs.get("pads", (0,) * (2 * axes))),
        "dilations": tuple(given.attrs.get("dilations", (1,) * axes)),
        "group": int(given.number("group", 1)),
    }
    parts = given.derivative("Conv", gradient, x, weight, result=gradient, **attrs)
    return [*parts, gradient.sum([0, *range(2, x.rank)])]


@_lowers("GatherGrad")
def _gather(given: Given) -> Sequence[TapeValue | None]:
    shape, places, gradient = given.dims(0), given[1], given[2]
    axis = int(given.number("axis", 0)) % len(shape)
    x = given.tape.filled(0.0, TensorType(gradient.dtype, shape))
    return given.derivative("Gather", gradient, x, places, result=gradient, axis=axis)[:1]


@_lowers("GatherElementsGrad")
def _gather_elements(given: Given) -> Sequence[TapeValue | None]:
    gradient, shape, places = given[0], given.dims(1), given[2]
    axis = int(given.number("axis", 0)) % len(shape)
    zeros = given.tape.filled(0.0, TensorType(gradient.dtype, shape))
    return [zeros.apply("ScatterElements", places, gradient, axis=axis, reduction="add")]


@_lowers("ReduceSumTraining")
def _sum(given: Given) -> Sequence[TapeValue | None]:
    axes = [axis for axis in given.dims(1) if isinstance(axis, int)]
    expect(len(axes) == len(given.dims(1)))
    x, keepdims = given[0], bool(given.number("keepdims", 1))
    if not axes and given.number("noop_with_empty_axes", 0):
        return [x]
    return [x.sum(sorted(axis % x.rank for axis in axes) or range(x.rank), keepdims=keepdims)]


@_lowers("DropoutGrad")
def _dropout(given: Given) -> Sequence[TapeValue | None]:
    gradient, mask = given[0], given[1]
    kept = 1.0 - given[2].reshape().cast(gradient.dtype) if given.has(2) else 0.5
    scaled = gradient / kept
    return [scaled.masked(mask)]


# ** optimisers and accumulation **


@_lowers("InPlaceAccumulator")
def _accumulator(given: Given) -> Sequence[TapeValue | None]:
    return [given[0] + given[1].cast(given[0].dtype)]


@_lowers("InPlaceAccumulatorV2")
def _accumulator_or_new(given: Given) -> Sequence[TapeValue | None]:
    gradient = given[1].cast(given[0].dtype)
    total = given[0] + gradient
    done = given.tape.constant(np.ones((1,), np.bool_))
    if not given.has(2):
        return [done, total]
    return [done, one_of(given[2].reshape(), gradient, total, gradient.dtype)]


@_lowers("ZeroGradient")
def _zero(given: Given) -> Sequence[TapeValue | None]:
    return [given.tape.filled(0.0, given[0].type)]


@_lowers("SGDOptimizer")
def _sgd(given: Given) -> Sequence[TapeValue | None]:
    step = -(given[2] * given[0].reshape())
    return [given[1] + step, step]


@_lowers("AdamOptimizer")
def _adam(given: Given) -> Sequence[TapeValue | None]:
    """Return the next count, moments and weights; outputs that mixed precision adds are not read.

    The decay is added to the step (mode 0), or the weight is decayed after the step (mode 1).
    """
    rate, count, weight, gradient, first, second = (given[number] for number in range(6))
    expect(not any(given.has(number) for number in range(6, len(given.operands))))
    alpha, beta = given.number("alpha", 0.9), given.number("beta", 0.999)
    epsilon, decay = given.number("epsilon", 1e-8), given.number("lambda", 0.0)
    first = first * alpha + gradient * (1.0 - alpha)
    second = second * beta + gradient * gradient * (1.0 - beta)
    rate, number = rate.reshape().cast(weight.dtype), count.reshape().cast(weight.dtype)
    one, two = first, second
    if given.number("do_bias_correction", 1):
        one = first / (1.0 - weight.number(alpha).apply("Pow", number))
        two = second / (1.0 - weight.number(beta).apply("Pow", number))
    if given.number("weight_decay_mode", 0):
        step = one / (two.apply("Sqrt") + epsilon) * -rate
        step = step - (weight + step) * (rate * decay)
    else:
        step = (one / (two.apply("Sqrt") + epsilon) + weight * decay) * -rate
    return [count + 1, first, second, weight + step, step]
