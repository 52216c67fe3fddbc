"""DCGAN: a generator of images, and the discriminator that judges them."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["dcgan"]

_ABSENT = TracedValue("", np.zeros(0, np.float32))


def dcgan(seed: int, *, noise: int = 100, width: int = 16, size: int = 64) -> ModelProto:
    """Build both networks: noise (1, 100) to an image (1, 3, 256, 256) and how real it looks.

    The networks are a linear map to 8 · width planes, two upsamplings by 2 with convolutions, four
    strided convolutions, and a linear map. The source is Collage `dcgan.py`, where batch
    normalizations are left out.
    """
    b = GraphBuilder("dcgan", seed)
    x = b.linear(b.input("noise", (1, noise)), 8 * width * size * size)
    x = b.reshape(x, (1, 8 * width, size, size))
    for channels in (8 * width, 4 * width):
        x = b.relu(b.conv(_doubled(b, x), channels, 3))
    image = b.tanh(b.conv(x, 3, 3))
    x = image
    for multiple in (1, 2, 4, 8):
        x = b.relu(b.conv(x, multiple * width, 3, stride=2))
    return b.model({"image": image, "real": _judged(b, b.flatten(x))})


def _judged(b: GraphBuilder, x: TracedValue) -> TracedValue:
    """Add a linear map to one probability.

    A single number has no deviation by which the weight could be scaled.
    """
    n = x.shape[1]
    weight = b.normal((n, 1), n**-0.5)
    y = b.matmul(x, b.initializer(weight - weight.mean(), "weight"))
    return b.sigmoid(b.add(y, b.bias(1)))


def _doubled(b: GraphBuilder, x: TracedValue) -> TracedValue:
    """Repeat each pixel as a square of four."""
    sample = x.sample.repeat(2, axis=2).repeat(2, axis=3)
    sizes = b.initializer(np.array(sample.shape, np.int64), "sizes")
    attributes = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return b.record("Resize", (x, _ABSENT, _ABSENT, sizes), attributes, sample)
