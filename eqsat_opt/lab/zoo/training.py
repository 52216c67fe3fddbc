"""Training steps: the loss and its derivatives by the weights, which are inputs.

Weights are drawn with unit deviation, as other inputs are, and each layer divides by the root of
its fan-in: the parametrisation of Jacot et al. 2018 ("Neural tangent kernel", §3).
"""

from __future__ import annotations

from itertools import pairwise

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["cnn_training", "mlp_training"]


def mlp_training(
    seed: int,
    *,
    batch: int = 64,
    features: int = 784,
    hidden: tuple[int, ...] = (1024, 1024),
    classes: int = 10,
) -> ModelProto:
    """Build forward and backward pass of fully connected layers under a squared error.

    The inputs are x (batch, features), target (batch, classes) and a weight per layer; the outputs
    are the loss and the derivative by each weight.
    """
    b = GraphBuilder("mlp_training", seed)
    x, target = b.input("x", (batch, features)), b.input("target", (batch, classes))
    widths = (features, *hidden, classes)
    weights = [b.input(f"w{i}", shape) for i, shape in enumerate(pairwise(widths))]
    inner: list[TracedValue] = []
    read = [x]
    for w in weights:
        if inner:
            read.append(b.relu(inner[-1]))
        inner.append(_scaled(b, b.matmul(read[-1], w), w.shape[0]))
    loss, error = _squared_error(b, inner[-1], target)
    derivatives: dict[str, TracedValue] = {}
    for i in reversed(range(len(weights))):
        scaled = _scaled(b, error, widths[i])
        derivatives[f"dw{i}"] = b.matmul(b.transpose(read[i], 1, 0), scaled)
        if i:
            back = b.matmul(scaled, b.transpose(weights[i], 1, 0))
            error = _through_relu(b, back, inner[i - 1])
    return b.model({"loss": loss, **derivatives})


def cnn_training(
    seed: int,
    *,
    batch: int = 8,
    image_size: int = 32,
    channels: tuple[int, ...] = (16, 32, 32),
    classes: int = 10,
) -> ModelProto:
    """Build forward and backward pass of 3x3 convolutions, of stride 2 after the first.

    The inputs are x (batch, 3, 32, 32), target (batch, classes), kernels k0, k1 … and the weight w
    of the last, linear layer; the outputs are the loss and the derivative by each kernel and by w.
    """
    b = GraphBuilder("cnn_training", seed)
    x = b.input("x", (batch, 3, image_size, image_size))
    target = b.input("target", (batch, classes))
    channels = (3, *channels)
    strides = (1, *[2] * (len(channels) - 2))
    kernels = [b.input(f"k{i}", (o, c, 3, 3)) for i, (c, o) in enumerate(pairwise(channels))]
    inner: list[TracedValue] = []
    read = [x]
    for k, stride in zip(kernels, strides, strict=True):
        y = b.op("Conv", read[-1], k, **_window(stride))
        inner.append(_scaled(b, y, 9 * k.shape[1]))
        read.append(b.relu(inner[-1]))
    flat = b.flatten(read[-1])
    w = b.input("w", (flat.shape[1], classes))
    loss, error = _squared_error(b, _scaled(b, b.matmul(flat, w), w.shape[0]), target)
    scaled = _scaled(b, error, w.shape[0])
    derivatives = {"dw": b.matmul(b.transpose(flat, 1, 0), scaled)}
    back = b.reshape(b.matmul(scaled, b.transpose(w, 1, 0)), read[-1].shape)
    for i in reversed(range(len(kernels))):
        stride = strides[i]
        error = _scaled(b, _through_relu(b, back, inner[i]), 9 * channels[i])
        derivatives[f"dk{i}"] = _kernel_derivative(b, read[i], error, stride)
        if i:
            unread = read[i].shape[2] - 1 - stride * (error.shape[2] - 1)
            back = b.op(
                "ConvTranspose",
                error,
                kernels[i],
                **_window(stride),
                output_padding=(unread, unread),
            )
    return b.model({"loss": loss, **derivatives})


def _window(stride: int) -> dict[str, tuple[int, ...]]:
    return {"kernel_shape": (3, 3), "strides": (stride, stride), "pads": (1, 1, 1, 1)}


def _kernel_derivative(
    b: GraphBuilder, x: TracedValue, error: TracedValue, stride: int
) -> TracedValue:
    """Convolve data with errors over the batch, in place of channels: (O, C, 3, 3)."""
    # Elements that a stride does not reach are cut off by less padding at the end.
    unread = x.shape[2] - 1 - stride * (error.shape[2] - 1)
    found = b.op(
        "Conv",
        b.transpose(x, 1, 0, 2, 3),
        b.transpose(error, 1, 0, 2, 3),
        kernel_shape=error.shape[2:],
        strides=(1, 1),
        pads=(1, 1, 1 - unread, 1 - unread),
        dilations=(stride, stride),
    )
    return b.transpose(found, 1, 0, 2, 3)


def _scaled(b: GraphBuilder, x: TracedValue, fan_in: int) -> TracedValue:
    return b.mul(x, b.scalar(fan_in**-0.5))


def _squared_error(
    b: GraphBuilder, y: TracedValue, target: TracedValue
) -> tuple[TracedValue, TracedValue]:
    """Return the mean over the batch, and its derivative by y."""
    off = b.op("Sub", y, target)
    loss = b.op("ReduceMean", b.mul(off, off), axes=(0, 1), keepdims=0)
    return loss, b.mul(off, b.scalar(2 / off.sample.size))


def _through_relu(b: GraphBuilder, back: TracedValue, before: TracedValue) -> TracedValue:
    """Return the derivative by the input of a rectifier."""
    is_open = b.op("Greater", before, b.scalar(0.0))
    return b.mul(back, b.op("Cast", is_open, to=1))
