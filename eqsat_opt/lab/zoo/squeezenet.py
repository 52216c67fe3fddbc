"""SqueezeNet with complex bypass, the variant of the graph-substitution papers."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["squeezenet"]


def squeezenet(
    seed: int, *, image_size: int = 222, width: int = 16, classes: int = 1000
) -> ModelProto:
    """Build SqueezeNet; `width` is the number of squeeze channels of the first fire module.

    The model maps an image (1, 3, 222, 222) to (1, classes, 1, 1), as in MetaFlow
    `code/squeezenet.h`.
    """
    b = GraphBuilder("squeezenet", seed)
    image = b.input("image", (1, 3, image_size, image_size))
    x = b.relu(b.conv(image, 6 * width, 7, stride=2))
    stages = ((1, 1, 2), (2, 3, 3, 4), (4,))
    for squeezes in stages:
        x = b.max_pool(x, 3, 2, pad=0)
        for squeeze in squeezes:
            x = _fire(b, x, squeeze * width)
    x = b.relu(b.conv(x, classes, 1))
    return b.model({"scores": b.op("GlobalAveragePool", x)})


def _fire(b: GraphBuilder, x: TracedValue, squeeze: int) -> TracedValue:
    expand = 4 * squeeze
    s = b.relu(b.conv(x, squeeze, 1))
    y = b.concat([b.relu(b.conv(s, expand, 3)), b.relu(b.conv(s, expand, 1))])
    bypass = x if x.shape == y.shape else b.relu(b.conv(x, 2 * expand, 1))
    return b.add(y, bypass)
