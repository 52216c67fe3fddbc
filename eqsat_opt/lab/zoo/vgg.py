"""VGG-16 and VGG-19: plain chains of 3x3 convolutions."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["vgg16", "vgg19"]


def vgg16(
    seed: int,
    *,
    image_size: int = 224,
    width: int = 64,
    hidden: int = 4096,
    classes: int = 1000,
) -> ModelProto:
    """Build VGG-16: image (1, 3, 224, 224) to scores (1, classes), torchvision's topology."""
    b = GraphBuilder("vgg16", seed)
    image = b.input("image", (1, 3, image_size, image_size))
    return _chain(b, image, (2, 2, 3, 3, 3), width=width, hidden=hidden, classes=classes)


def vgg19(
    seed: int,
    *,
    image_size: int = 224,
    width: int = 64,
    hidden: int = 4096,
    classes: int = 1000,
) -> ModelProto:
    """Build VGG-19: image (1, 3, 224, 224) to scores (1, classes), torchvision's topology."""
    b = GraphBuilder("vgg19", seed)
    image = b.input("image", (1, 3, image_size, image_size))
    return _chain(b, image, (2, 2, 4, 4, 4), width=width, hidden=hidden, classes=classes)


def _chain(
    b: GraphBuilder,
    x: TracedValue,
    stages: tuple[int, ...],
    *,
    width: int,
    hidden: int,
    classes: int,
) -> ModelProto:
    for multiple, n_convs in zip((1, 2, 4, 8, 8), stages, strict=True):
        for _ in range(n_convs):
            x = b.relu(b.conv(x, multiple * width, 3))
        x = b.max_pool(x, 2, 2, pad=0)
    x = b.flatten(x)
    for _ in range(2):
        x = b.relu(b.gemm(x, hidden))
    return b.model({"scores": b.gemm(x, classes)})
