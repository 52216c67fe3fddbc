"""Residual networks: ResNet-18 and 50, ResNeXt-50, and the wide blocks of OCGGS."""

from __future__ import annotations

from onnx import ModelProto

from eqsat_opt.lab.zoo._builder import Convolution, GraphBuilder, TracedValue

__all__ = ["ocggs_resnet", "resnet18", "resnet50", "resnet50_bn", "resnext50"]

_BLOCKS = (3, 4, 6, 3)


def resnet18(
    seed: int,
    *,
    image_size: int = 224,
    width: int = 64,
    blocks: tuple[int, ...] = (2, 2, 2, 2),
    classes: int = 1000,
) -> ModelProto:
    """Build ResNet-18 with batch normalization folded into the convolutions.

    The model maps an image (1, 3, 224, 224) to scores (1, classes), with torchvision's basic block
    of two 3x3 convolutions.
    """
    b = GraphBuilder("resnet18", seed)
    x = b.input("image", (1, 3, image_size, image_size))
    x = b.max_pool(b.relu(b.conv(x, width, 7, stride=2)), 3, 2)
    for stage, n_blocks in enumerate(blocks):
        channels = width * 2**stage
        for block in range(n_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            y = b.relu(b.conv(x, channels, 3, stride=stride))
            y = b.conv(y, channels, 3, gain=n_blocks**-0.5)
            x = b.relu(b.add(y, b.conv(x, channels, 1, stride=stride) if stride > 1 else x))
    return b.model({"scores": b.classifier(x, classes)})


def ocggs_resnet(seed: int, *, n: int = 8, channels: int = 256, image_size: int = 14) -> ModelProto:
    """Build `n` residual blocks whose shortcuts are rectified 1x1 convolutions.

    They map features (1, channels, 14, 14) to the same shape. Each block has seven operators, or
    five where an activation is part of its convolution. The source is OCGGS `examples/resnet.py`.
    """
    b = GraphBuilder("ocggs_resnet", seed)
    x = b.input("features", (1, channels, image_size, image_size))
    for _ in range(n):
        y = b.conv(b.relu(b.conv(x, channels, 3)), channels, 3)
        x = b.relu(b.add(y, b.relu(b.conv(x, channels, 1))))
    return b.model({"result": x})


def resnet50(
    seed: int,
    *,
    image_size: int = 224,
    width: int = 64,
    blocks: tuple[int, ...] = _BLOCKS,
    classes: int = 1000,
    strided: int = 3,
) -> ModelProto:
    """Build ResNet-50 with batch normalization folded into the convolutions.

    The model maps an image (1, 3, 224, 224) to scores (1, classes). The kernels of extent `strided`
    stride: 3 in torchvision's bottleneck; 1 in that of He et al. 2016, where the projecting
    shortcut and the first convolution are siblings.
    """
    if strided not in (1, 3):
        raise ValueError(f"strided is {strided}; give 1 or 3, the extent of a bottleneck's kernels")
    b = GraphBuilder("resnet50", seed)
    return _bottleneck_net(
        b, b.conv, image_size, width, blocks=blocks, classes=classes, strided=strided
    )


def resnet50_bn(
    seed: int,
    *,
    image_size: int = 224,
    width: int = 64,
    blocks: tuple[int, ...] = _BLOCKS,
    classes: int = 1000,
) -> ModelProto:
    """Build ResNet-50 with explicit BatchNormalization nodes; otherwise as `resnet50`."""
    b = GraphBuilder("resnet50_bn", seed)
    return _bottleneck_net(b, b.conv_bn, image_size, width, blocks=blocks, classes=classes)


def resnext50(
    seed: int,
    *,
    image_size: int = 224,
    width: int = 128,
    blocks: tuple[int, ...] = _BLOCKS,
    groups: int = 32,
) -> ModelProto:
    """Build ResNeXt-50 (32 groups) in TASO's form.

    The model maps an image (1, 3, 224, 224) to features (1, 2048, 7, 7): it has no head, and the
    projecting shortcuts are rectified. The source is TASO `examples/resnext50.py`.
    """
    b = GraphBuilder("resnext50", seed)
    x = b.input("image", (1, 3, image_size, image_size))
    x = b.max_pool(b.relu(b.conv(x, width // 2, 7, stride=2)), 3, 2)
    for stage, n_blocks in enumerate(blocks):
        for block in range(n_blocks):
            channels = width * 2**stage
            stride = 2 if stage > 0 and block == 0 else 1
            y = b.relu(b.conv(x, channels, 1))
            y = b.relu(b.conv(y, channels, 3, stride=stride, groups=groups))
            y = b.conv(y, 2 * channels, 1, gain=n_blocks**-0.5)
            if block == 0:
                x = b.relu(b.conv(x, 2 * channels, 1, stride=stride))
            x = b.relu(b.add(x, y))
    return b.model({"features": x})


def _bottleneck_net(
    b: GraphBuilder,
    conv: Convolution,
    image_size: int,
    width: int,
    *,
    blocks: tuple[int, ...],
    classes: int,
    strided: int = 3,
) -> ModelProto:
    x = b.input("image", (1, 3, image_size, image_size))
    x = b.max_pool(b.relu(conv(x, width, 7, stride=2)), 3, 2)
    for stage, n_blocks in enumerate(blocks):
        for block in range(n_blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            # The branches of a stage add up along the identity shortcuts.
            branch_gain = n_blocks**-0.5
            x = _bottleneck(
                b,
                conv,
                x,
                channels=width * 2**stage,
                stride=stride,
                strided=strided,
                branch_gain=branch_gain,
                project=block == 0,
            )
    return b.model({"scores": b.classifier(x, classes)})


def _bottleneck(
    b: GraphBuilder,
    conv: Convolution,
    x: TracedValue,
    channels: int,
    stride: int,
    *,
    strided: int,
    branch_gain: float,
    project: bool,
) -> TracedValue:
    y = b.relu(conv(x, channels, 1, stride=stride if strided == 1 else 1))
    y = b.relu(conv(y, channels, 3, stride=stride if strided == 3 else 1))
    y = conv(y, 4 * channels, 1, gain=branch_gain)
    shortcut = conv(x, 4 * channels, 1, stride=stride) if project else x
    return b.relu(b.add(y, shortcut))
