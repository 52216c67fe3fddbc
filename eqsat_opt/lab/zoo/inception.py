"""Inception-v3 in the form of the TASO and MetaFlow benchmarks, and its last block alone."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import GraphBuilder, TracedValue

__all__ = ["inception_e", "inception_v3"]


def inception_v3(seed: int, *, image_size: int = 299, width: int = 16) -> ModelProto:
    """Build Inception-v3; all channel counts are multiples of `width`.

    The model maps an image (1, 3, 299, 299) to features (1, 2048, 1, 1), with flat 4-ary and 6-ary
    concatenations as in TASO `examples/inceptionv3.py`.
    """
    net = _Inception(GraphBuilder("inception_v3", seed), width)
    b = net.b
    x = b.input("image", (1, 3, image_size, image_size))
    x = net.conv(x, 2, 3, stride=2, pad=0)
    x = net.conv(x, 2, 3, pad=0)
    x = net.conv(x, 4, 3)
    x = b.max_pool(x, 3, 2, pad=0)
    x = net.conv(x, 5, 1)
    x = net.conv(x, 12, 3, pad=0)
    x = b.max_pool(x, 3, 2, pad=0)
    for pooled in (2, 4, 4):
        x = net.block_a(x, pooled)
    x = net.block_b(x)
    for inner in (8, 10, 10, 12):
        x = net.block_c(x, inner)
    x = net.block_d(x)
    for _ in range(2):
        x = net.block_e(x)
    return b.model({"features": b.average_pool(x, x.shape[2], 1, pad=0)})


def inception_e(seed: int, *, n: int = 1, width: int = 16, image_size: int = 8) -> ModelProto:
    """Build `n` blocks E of Inception-v3; all channel counts are multiples of `width`.

    They map features (1, 1280, 8, 8) to (1, 2048, 8, 8), with a max pool and nested concatenations
    as in OCGGS `examples/inceptionv3E.py`.
    """
    net = _Inception(GraphBuilder("inception_e", seed), width)
    b = net.b
    x = b.input("features", (1, 80 * width, image_size, image_size))
    for _ in range(n):
        shallow = net.chain(x, (24, 1))
        deep = net.chain(x, (28, 1), (24, 3))
        branches = [
            net.chain(x, (20, 1)),
            b.concat([net.chain(shallow, (24, (1, 3))), net.chain(shallow, (24, (3, 1)))]),
            b.concat([net.chain(deep, (24, (1, 3))), net.chain(deep, (24, (3, 1)))]),
            net.chain(b.max_pool(x, 3, 1), (12, 1)),
        ]
        x = b.concat(branches)
    return b.model({"result": x})


class _Inception:
    """The five block types; channel counts are in units of `width`."""

    def __init__(self, b: GraphBuilder, width: int) -> None:
        self.b = b
        self._width = width

    def conv(
        self,
        x: TracedValue,
        units: int,
        kernel: int | tuple[int, int],
        *,
        stride: int = 1,
        pad: int | None = None,
    ) -> TracedValue:
        b = self.b
        return b.relu(b.conv(x, units * self._width, kernel, stride=stride, pad=pad))

    def chain(self, x: TracedValue, *layers: tuple[int, int | tuple[int, int]]) -> TracedValue:
        for units, kernel in layers:
            x = self.conv(x, units, kernel)
        return x

    def block_a(self, x: TracedValue, pooled: int) -> TracedValue:
        branches = [
            self.chain(x, (4, 1)),
            self.chain(x, (3, 1), (4, 5)),
            self.chain(x, (4, 1), (6, 3), (6, 3)),
            self.chain(self.b.average_pool(x, 3, 1), (pooled, 1)),
        ]
        return self.b.concat(branches)

    def block_b(self, x: TracedValue) -> TracedValue:
        branches = [
            self.conv(x, 24, 3, stride=2, pad=0),
            self.conv(self.chain(x, (4, 1), (6, 3)), 6, 3, stride=2, pad=0),
            self.b.max_pool(x, 3, 2, pad=0),
        ]
        return self.b.concat(branches)

    def block_c(self, x: TracedValue, n: int) -> TracedValue:
        branches = [
            self.chain(x, (12, 1)),
            self.chain(x, (n, 1), (n, (1, 7)), (12, (7, 1))),
            self.chain(x, (n, 1), (n, (7, 1)), (n, (1, 7)), (n, (7, 1)), (12, (1, 7))),
            self.chain(self.b.average_pool(x, 3, 1), (12, 1)),
        ]
        return self.b.concat(branches)

    def block_d(self, x: TracedValue) -> TracedValue:
        deep = self.chain(x, (12, 1), (12, (1, 7)), (12, (7, 1)))
        branches = [
            self.conv(self.chain(x, (12, 1)), 20, 3, stride=2, pad=0),
            self.conv(deep, 12, 3, stride=2, pad=0),
            self.b.max_pool(x, 3, 2, pad=0),
        ]
        return self.b.concat(branches)

    def block_e(self, x: TracedValue) -> TracedValue:
        shallow = self.chain(x, (24, 1))
        deep = self.chain(x, (28, 1), (24, 3))
        branches = [
            self.chain(x, (20, 1)),
            self.chain(shallow, (24, (1, 3))),
            self.chain(shallow, (24, (3, 1))),
            self.chain(deep, (24, (1, 3))),
            self.chain(deep, (24, (3, 1))),
            self.chain(self.b.average_pool(x, 3, 1), (12, 1)),
        ]
        return self.b.concat(branches)
