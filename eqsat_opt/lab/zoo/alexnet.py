"""AlexNet with its local response normalizations."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["alexnet"]

# Published constants (Krizhevsky et al. 2012, §3.3) suit activations of images with values up to
# 255. Inputs of unit deviation need this gain, or the normalization divides by a constant.
_GAIN_BEFORE_LRN = 200.0


def alexnet(
    seed: int,
    *,
    image_size: int = 227,
    width: int = 16,
    hidden: int = 4096,
    classes: int = 1000,
) -> ModelProto:
    """Build AlexNet; all channel counts are multiples of `width`.

    The model maps an image (1, 3, 227, 227) to scores (1, classes), with the two-group convolutions
    of the original.
    """
    b = GraphBuilder("alexnet", seed)
    x = b.input("image", (1, 3, image_size, image_size))
    x = b.relu(b.conv(x, 6 * width, 11, stride=4, pad=0, gain=_GAIN_BEFORE_LRN))
    x = b.max_pool(_lrn(b, x), 3, 2, pad=0)
    x = b.relu(b.conv(x, 16 * width, 5, groups=2, gain=_GAIN_BEFORE_LRN))
    x = b.max_pool(_lrn(b, x), 3, 2, pad=0)
    x = b.relu(b.conv(x, 24 * width, 3))
    x = b.relu(b.conv(x, 24 * width, 3, groups=2))
    x = b.relu(b.conv(x, 16 * width, 3, groups=2))
    x = b.flatten(b.max_pool(x, 3, 2, pad=0))
    for _ in range(2):
        x = b.relu(b.gemm(x, hidden))
    return b.model({"scores": b.gemm(x, classes)})


def _lrn(b: GraphBuilder, x: TracedValue) -> TracedValue:
    # ONNX divides alpha by the window size; the paper does not.
    return b.op("LRN", x, size=5, alpha=5e-4, beta=0.75, bias=2.0)
