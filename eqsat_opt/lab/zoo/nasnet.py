"""NasNet-A in the form of the TASO benchmarks, and a single cell of it."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["nasnet_a", "nasnet_cell"]


def nasnet_a(
    seed: int,
    *,
    image_size: int = 224,
    channels: int = 128,
    cells: int = 5,
    stages: int = 3,
) -> ModelProto:
    """Build NasNet-A: `stages` times `cells` normal cells and one reduction.

    The model maps an image (1, 3, 224, 224) to features (1, 5120, 7, 7). Both inputs of a stage's
    first cell are the stage's input, so the two inputs of a cell always have one size. The source
    is TASO `examples/nasnet_a.py`, with the stem of its later form.
    """
    b = GraphBuilder("nasnet_a", seed)
    x = b.input("image", (1, 3, image_size, image_size))
    x = b.max_pool(b.relu(b.conv(x, channels // 2, 7, stride=2)), 3, 2)
    for _ in range(stages):
        previous = current = x
        for _ in range(cells):
            previous, current = current, _normal_cell(b, previous, current, channels)
        channels *= 2
        x = _reduction_cell(b, previous, current, channels)
    return b.model({"features": x})


def nasnet_cell(seed: int, *, image_size: int = 28, channels: int = 128) -> ModelProto:
    """Build one normal cell: the two inputs (1, channels, 28, 28) to 5 · channels.

    AutoGraph shows on this cell that merging branches can cost parallelism (Fig. 8).
    """
    b = GraphBuilder("nasnet_cell", seed)
    shape = (1, channels, image_size, image_size)
    previous, current = b.input("previous", shape), b.input("current", shape)
    return b.model({"result": _normal_cell(b, previous, current, channels)})


def _squeeze(b: GraphBuilder, x: TracedValue, channels: int) -> TracedValue:
    return b.relu(b.conv(x, channels, 1))


def _separable(b: GraphBuilder, x: TracedValue, kernel: int, stride: int = 1) -> TracedValue:
    """Add one depthwise and one 1x1 convolution with no activation between or after."""
    channels = x.shape[1]
    return b.conv(b.conv(x, channels, kernel, stride=stride, groups=channels), channels, 1)


def _normal_cell(
    b: GraphBuilder, previous: TracedValue, current: TracedValue, channels: int
) -> TracedValue:
    current = _squeeze(b, current, channels)
    previous = _squeeze(b, previous, channels)
    sums = [
        b.add(_separable(b, current, 3), current),
        b.add(_separable(b, previous, 3), _separable(b, current, 3)),
        b.add(b.average_pool(current, 3, 1), previous),
        b.add(b.average_pool(previous, 3, 1), b.average_pool(previous, 3, 1)),
        b.add(_separable(b, previous, 3), _separable(b, previous, 3)),
    ]
    return b.concat(sums)


def _reduction_cell(
    b: GraphBuilder, previous: TracedValue, current: TracedValue, channels: int
) -> TracedValue:
    current = _squeeze(b, current, channels)
    previous = _squeeze(b, previous, channels)
    first = b.add(_separable(b, previous, 7, 2), _separable(b, current, 5, 2))
    second = b.add(b.max_pool(current, 3, 2), _separable(b, previous, 7, 2))
    third = b.add(b.average_pool(current, 3, 2), _separable(b, previous, 5, 2))
    fourth = b.add(b.max_pool(current, 3, 2), _separable(b, first, 3))
    fifth = b.add(b.average_pool(first, 3, 1), second)
    return b.concat([first, second, third, fourth, fifth])
