"""Layers with random weights that keep activations alive.

Random weights hide wrong rewrites in two ways: activations of deep nets drift to values that no
longer depend on the input, and branches fade until a dropped one goes unnoticed. So each layer is
scaled by the activations that reach it: a convolution ends with zero mean and unit deviation per
channel, as after a trained batch normalization, and a matrix product with unit deviation. Weights
that follow a rectifier directly into a vector are centred over their inputs (weight
standardization, Brock et al. 2021, "Characterizing signal propagation ..."), because a common
positive mean would otherwise drown what depends on the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eqsat_opt.lab.zoo._evaluate import Attribute
from eqsat_opt.lab.zoo._tracer import Array, TracedValue, Tracer

__all__ = ["Convolution", "GraphBuilder", "Linear", "TracedValue"]

_EPSILON = 1e-5
_BIAS_STD = 0.2
# Rectifiers of centred inputs amplify small differences, such as round-off, from layer to layer
# (Yang et al. 2019, "A mean field theory of batch normalization"): 84 times through inception_v3,
# 19 times with convolution biases drawn like this. Larger ones would drown the input instead.
_CONV_BIAS_MEAN = 0.3
_CONV_BIAS_STD = 0.4
# Weight of the whole tensor's statistics in those of a channel, as a number of positions. It
# matters for channels with few positions.
_PRIOR_POSITIONS = 8


class Convolution(Protocol):
    """A convolution with its normalization, folded or not (`GraphBuilder.conv`, `.conv_bn`)."""

    def __call__(
        self,
        x: TracedValue,
        channels: int,
        kernel: int,
        *,
        stride: int = 1,
        gain: float = 1.0,
    ) -> TracedValue:
        """Return the normalised convolution; `gain` is the deviation of its output."""
        ...


class Linear(Protocol):
    """A map of the last axis to `features` numbers (`GraphBuilder.linear`)."""

    def __call__(
        self, x: TracedValue, features: int, *, gain: float = 1.0, bias: bool = True
    ) -> TracedValue:
        """Return the mapped value; `gain` is the deviation of its output."""
        ...


@dataclass(frozen=True)
class _Normalization:
    """Parameters of a batch normalization, each of shape (channels,)."""

    gamma: Array
    beta: Array
    mean: Array
    variance: Array

    @property
    def scale(self) -> Array:
        scale: Array = self.gamma / np.sqrt(self.variance + np.float32(_EPSILON))
        return scale

    @property
    def shift(self) -> Array:
        return self.beta - self.mean * self.scale


class GraphBuilder(Tracer):
    """A tracer with the layers of the benchmark models.

    Images are (batch, channels, height, width), sequences (batch, tokens, features).
    """

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name, seed)
        self._scalars: dict[float, TracedValue] = {}

    # Convolutional layers

    def conv(
        self,
        x: TracedValue,
        channels: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        gain: float = 1.0,
    ) -> TracedValue:
        """Add a convolution with bias, as a folded batch normalization leaves it.

        `pad=None` keeps the size at stride 1 (odd kernels), `pad=0` is VALID.
        """
        weight, attributes = self._kernel(x, channels, kernel, stride, pad=pad, groups=groups)
        raw = self.evaluate("Conv", x.sample, weight, **attributes)
        norm = self._normalization(raw, gain)
        weight *= norm.scale[:, None, None, None]
        sample = raw * norm.scale[:, None, None] + norm.shift[:, None, None]
        inputs = (
            x,
            self.initializer(weight, "conv_weight"),
            self.initializer(norm.shift, "conv_bias"),
        )
        return self.record("Conv", inputs, attributes, sample)

    def conv_bn(
        self,
        x: TracedValue,
        channels: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        pad: int | None = None,
        groups: int = 1,
        gain: float = 1.0,
    ) -> TracedValue:
        """Add a convolution without bias and an explicit BatchNormalization node."""
        weight, attributes = self._kernel(x, channels, kernel, stride, pad=pad, groups=groups)
        raw = self.op("Conv", x, self.initializer(weight, "conv_weight"), **attributes)
        norm = self._normalization(raw.sample, gain)
        return self.op(
            "BatchNormalization",
            raw,
            self.initializer(norm.gamma, "bn_gamma"),
            self.initializer(norm.beta, "bn_beta"),
            self.initializer(norm.mean, "bn_mean"),
            self.initializer(norm.variance, "bn_variance"),
            epsilon=_EPSILON,
        )

    def max_pool(
        self, x: TracedValue, kernel: int, stride: int, *, pad: int | None = None
    ) -> TracedValue:
        """Add max pooling over square windows; `pad` as in `conv`."""
        return self.op("MaxPool", x, **_window((kernel, kernel), stride, pad))

    def average_pool(
        self, x: TracedValue, kernel: int, stride: int, *, pad: int | None = None
    ) -> TracedValue:
        """Add average pooling over square windows, padding not counted; `pad` as in `conv`."""
        window = _window((kernel, kernel), stride, pad)
        return self.op("AveragePool", x, **window, count_include_pad=0)

    def classifier(self, x: TracedValue, classes: int) -> TracedValue:
        """Add global average pooling, flattening and a fully connected layer."""
        return self.gemm(self.flatten(self.op("GlobalAveragePool", x)), classes)

    def flatten(self, x: TracedValue) -> TracedValue:
        """Flatten images to vectors, (batch, channels * height * width)."""
        return self.op("Flatten", x, axis=1)

    def gemm(self, x: TracedValue, features: int) -> TracedValue:
        """Add a fully connected layer after a rectifier, (batch, inputs) to (batch, features)."""
        weight = self.normal((features, x.shape[1]))
        weight -= weight.mean(axis=1, keepdims=True)
        raw = self.evaluate("Gemm", x.sample, weight, transB=1)
        scale = np.float32(1 / raw.std())
        weight *= scale
        bias = self.normal((features,), _BIAS_STD)
        inputs = (
            x,
            self.initializer(weight, "gemm_weight"),
            self.initializer(bias, "gemm_bias"),
        )
        return self.record("Gemm", inputs, {"transB": 1}, raw * scale + bias)

    # Matrix products

    def linear(
        self, x: TracedValue, features: int, *, gain: float = 1.0, bias: bool = True
    ) -> TracedValue:
        """Add a MatMul with a weight of its own and, unless `bias` is false, an Add of a bias."""
        y = self.matmul(x, self.projection(x, features, gain=gain))
        return self.add(y, self.bias(features, gain=gain)) if bias else y

    def projection(
        self, x: TracedValue, features: int, *, gain: float = 1.0, centred: bool = False
    ) -> TracedValue:
        """Draw a weight W of shape (x.shape[-1], features) for which x·W has deviation `gain`."""
        weight = self.normal((x.shape[-1], features))
        if centred:
            weight -= weight.mean(axis=0)
        weight *= np.float32(gain / self.evaluate("MatMul", x.sample, weight).std())
        return self.initializer(weight, "weight")

    def bias(self, features: int, *, gain: float = 1.0) -> TracedValue:
        """Draw a small random bias of shape (features,) next to activations of deviation `gain`."""
        return self.initializer(self.normal((features,), gain * _BIAS_STD), "bias")

    def gains(self, features: int) -> TracedValue:
        """Draw random factors of shape (features,) near 1."""
        return self.initializer(self._gains(features), "gain")

    def layer_norm(self, x: TracedValue, *, spread: float = 1.0) -> TracedValue:
        """Add a LayerNormalization over the last axis, with gain and bias.

        `spread` scales how far gains stray from 1 and biases from 0. In a chain of many layers they
        must stray little, or their common part drowns the input.
        """
        features = x.shape[-1]
        return self.op(
            "LayerNormalization",
            x,
            self.initializer(self._gains(features, spread), "ln_gamma"),
            self.initializer(self.normal((features,), spread * _BIAS_STD), "ln_beta"),
            axis=-1,
            epsilon=_EPSILON,
        )

    def matmul(self, a: TracedValue, b: TracedValue) -> TracedValue:
        """Add a matrix product with numpy broadcasting of leading axes."""
        return self.op("MatMul", a, b)

    def reshape(self, x: TracedValue, shape: tuple[int, ...]) -> TracedValue:
        """Reshape to constant dimensions."""
        return self.op("Reshape", x, self.initializer(np.array(shape, np.int64), "shape"))

    def transpose(self, x: TracedValue, *permutation: int) -> TracedValue:
        """Permute the axes."""
        return self.op("Transpose", x, perm=permutation)

    # Pointwise operators and concatenation

    def add(self, a: TracedValue, b: TracedValue) -> TracedValue:
        """Add a sum with broadcasting."""
        return self.op("Add", a, b)

    def mul(self, a: TracedValue, b: TracedValue) -> TracedValue:
        """Add a product with broadcasting."""
        return self.op("Mul", a, b)

    def relu(self, x: TracedValue) -> TracedValue:
        """Add a rectifier."""
        return self.op("Relu", x)

    def sigmoid(self, x: TracedValue) -> TracedValue:
        """Add a logistic function."""
        return self.op("Sigmoid", x)

    def tanh(self, x: TracedValue) -> TracedValue:
        """Add a hyperbolic tangent."""
        return self.op("Tanh", x)

    def gelu(self, x: TracedValue) -> TracedValue:
        """Add exact GELU, x · (1 + erf(x / √2)) · ½ as PyTorch exports it below opset 20."""
        erf = self.op("Erf", self.op("Div", x, self.scalar(2**0.5)))
        return self.mul(self.mul(x, self.add(erf, self.scalar(1.0))), self.scalar(0.5))

    def concat(self, values: Sequence[TracedValue], axis: int = 1) -> TracedValue:
        """Add one concatenation of all values."""
        return self.op("Concat", *values, axis=axis)

    # Weights

    def normal(self, shape: tuple[int, ...], std: float = 1.0) -> Array:
        """Draw normal float32 numbers with mean 0."""
        array = self.rng.standard_normal(shape, dtype=np.float32)
        if std != 1.0:
            array *= np.float32(std)
        return array

    def scalar(self, value: float) -> TracedValue:
        """Return a constant of rank 0, with one initializer per number."""
        if value not in self._scalars:
            self._scalars[value] = self.initializer(np.array(value, np.float32), "scalar")
        return self._scalars[value]

    def _gains(self, n: int, spread: float = 1.0) -> Array:
        return self.rng.uniform(1 - 0.2 * spread, 1 + 0.2 * spread, n).astype(np.float32)

    def _kernel(
        self,
        x: TracedValue,
        channels: int,
        kernel: int | tuple[int, int],
        stride: int,
        pad: int | None,
        groups: int,
    ) -> tuple[Array, dict[str, Attribute]]:
        height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
        inputs = x.shape[1] // groups
        weight = self.normal((channels, inputs, height, width), (inputs * height * width) ** -0.5)
        window = _window((height, width), stride, pad)
        return weight, {**window, "dilations": (1, 1), "group": groups}

    def _normalization(self, raw: Array, gain: float) -> _Normalization:
        """Draw gains and shifts to go with the measured statistics of (batch, channels, h, w)."""
        channels = raw.shape[1]
        n_positions = raw.size // channels
        trust = np.float32(n_positions / (n_positions + _PRIOR_POSITIONS))
        own_mean, own_variance = raw.mean(axis=(0, 2, 3)), raw.var(axis=(0, 2, 3))
        return _Normalization(
            gamma=self._gains(channels) * np.float32(gain),
            beta=self.normal((channels,), gain * _CONV_BIAS_STD)
            + np.float32(gain * _CONV_BIAS_MEAN),
            mean=trust * own_mean + (1 - trust) * raw.mean(),
            variance=trust * own_variance + (1 - trust) * raw.var(),
        )


def _window(kernel: tuple[int, int], stride: int, pad: int | None) -> dict[str, Attribute]:
    pads = tuple(k // 2 for k in kernel) if pad is None else (pad, pad)
    return {"kernel_shape": kernel, "strides": (stride, stride), "pads": pads + pads}
