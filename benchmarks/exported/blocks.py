"""Networks of images, volumes, points and graphs in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exported.module import Builder, Exportable, randomise

__all__ = ["BLOCKS"]

_BATCH = 2


class _Detector(nn.Module):
    """Boxes and scores of a grid at two scales, the best by TopK, decoded from distances."""

    def __init__(self, width: int = 16, classes: int = 5) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.SiLU(),
            nn.Conv2d(width, width, 3, 2, 1), nn.BatchNorm2d(width), nn.SiLU(),
        )  # fmt: skip
        self.down = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1), nn.Hardswish())
        self.lateral = nn.Conv2d(width, width, 1)
        self.boxes = nn.Conv2d(width, 4, 1)
        self.scores = nn.Conv2d(width, classes, 1)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        fine = self.stem(pixels)
        coarse = self.down(fine)
        # The coarse level joins the fine one, as in feature pyramids.
        fine = self.lateral(fine) + functional.interpolate(coarse, size=fine.shape[2:])
        boxes, scores = [], []
        for stride, level in ((4, fine), (8, coarse)):
            height, width = level.shape[2:]
            y = (torch.arange(height, device=level.device) + 0.5) * stride
            x = (torch.arange(width, device=level.device) + 0.5) * stride
            ys, xs = torch.meshgrid(y, x, indexing="ij")
            centres = torch.stack([xs, ys], -1).reshape(1, -1, 2)
            distances = self.boxes(level).flatten(2).transpose(1, 2).exp() * stride
            boxes.append(
                torch.cat([centres - distances[..., :2], centres + distances[..., 2:]], -1)
            )
            scores.append(self.scores(level).flatten(2).transpose(1, 2).sigmoid())
        every_box, every_score = torch.cat(boxes, 1), torch.cat(scores, 1)
        best, labels = every_score.max(-1)
        top, places = best.topk(20, 1)
        index = places.unsqueeze(-1).expand(-1, -1, 4)
        return every_box.gather(1, index), top, labels.gather(1, places)


class _UpNet(nn.Module):
    """A U-Net of diffusion: time embedding, group norms, attention in the middle, skips."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(
            nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width)
        )
        self.first = nn.Conv2d(4, width, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(4))
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(4))
        self.down = nn.Conv2d(width, width, 3, 2, 1)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.cross = nn.MultiheadAttention(width, 4, kdim=24, vdim=24, batch_first=True)
        self.geglu = nn.Linear(width, 8 * width)
        self.back = nn.Linear(4 * width, width)
        self.merge = nn.Conv2d(2 * width, width, 1)
        self.last = nn.Conv2d(width, 4, 3, padding=1)

    def _residual(self, x: Tensor, time: Tensor, index: int) -> Tensor:
        y = self.convs[index](functional.silu(self.norms[index](x)))
        return x + y + time[:, :, None, None]

    def forward(self, sample: Tensor, timestep: Tensor, text: Tensor) -> Tensor:
        half = self.width // 2
        rates = torch.exp(-torch.arange(half, dtype=torch.float32) * (9.2 / half))
        angles = timestep[:, None].float() * rates[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        x = self.first(sample)
        skip = self._residual(x, time, 0)
        x = self._residual(self.down(skip), time, 1)
        batch, channels, height, width = x.shape
        tokens = x.reshape(batch, channels, height * width).transpose(1, 2)
        tokens = tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0]
        tokens = tokens + self.cross(tokens, text, text, need_weights=False)[0]
        value, gate = self.geglu(tokens).chunk(2, -1)
        tokens = tokens + self.back(value * functional.gelu(gate))
        x = tokens.transpose(1, 2).reshape(batch, channels, height, width)
        x = functional.interpolate(self._residual(x, time, 2), scale_factor=2.0, mode="nearest")
        x = self.merge(torch.cat([x, skip], 1))
        return self.last(functional.silu(self._residual(x, time, 3)))


class _GraphConvolution(nn.Module):
    """Messages along edges, summed at their ends by scatter, with degrees as scales."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.second = nn.Linear(width, width)
        self.head = nn.Linear(width, 4)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        ones = torch.ones_like(target, dtype=nodes.dtype)
        degree = torch.zeros_like(nodes[:, 0]).scatter_add(0, target, ones).clamp(min=1.0)
        x = nodes
        for layer in (self.first, self.second):
            messages = layer(x)[source]
            index = target[:, None].expand(-1, messages.shape[1])
            summed = torch.zeros(nodes.shape[0], messages.shape[1], dtype=nodes.dtype).scatter_add(
                0, index, messages
            )
            x = functional.relu(summed / degree[:, None])
        return self.head(x)


class _GraphAttention(nn.Module):
    """Attention over neighbours of a dense adjacency, masked with minus infinity."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.project = nn.Linear(8, width)
        self.left = nn.Linear(width, 1)
        self.right = nn.Linear(width, 1)

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Tensor:
        x = self.project(nodes)
        scores = functional.leaky_relu(self.left(x) + self.right(x).transpose(1, 2), 0.2)
        scores = scores.masked_fill(adjacency < 0.5, -1e9)
        return functional.elu(scores.softmax(-1) @ x)


class _SuperResolution(nn.Module):
    """Convolutions, a shuffle of pixels, and the bicubic picture added."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 5, padding=2), nn.PReLU(32), nn.Conv2d(32, 32, 3, padding=1),
            nn.PReLU(32), nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip

    def forward(self, picture: Tensor) -> Tensor:
        large = functional.interpolate(
            picture, scale_factor=2, mode="bilinear", align_corners=False
        )
        return (self.body(picture) + large).clamp(0, 1)


class _ThreeD(nn.Module):
    """Convolutions and pools in three dimensions, as for scans and clips."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2),
            nn.Conv3d(8, 16, 3, padding=1), nn.InstanceNorm3d(16, affine=True), nn.LeakyReLU(0.1),
            nn.ConvTranspose3d(16, 8, 2, 2), nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(8, 3),
        )  # fmt: skip

    def forward(self, volume: Tensor) -> Tensor:
        return self.body(volume)


class _Shuffle(nn.Module):
    """Channels split, one half convolved, both shuffled (Ma et al. 2018)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        half = width // 2
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU())
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
                nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False),
                nn.BatchNorm2d(half),
                nn.Conv2d(half, half, 1, bias=False), nn.BatchNorm2d(half), nn.ReLU(),
            )
            for _ in range(4)
        )  # fmt: skip
        self.head = nn.Linear(width, 10)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.stem(pixels)
        for branch in self.branches:
            kept, changed = x.chunk(2, 1)
            x = torch.cat([kept, branch(changed)], 1)
            batch, channels, height, width = x.shape
            x = x.reshape(batch, 2, channels // 2, height, width).transpose(1, 2)
            x = x.reshape(batch, channels, height, width)
        return self.head(x.mean((2, 3)))


class _PointNet(nn.Module):
    """A perceptron per point, the largest over points, and a learned rotation before."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = nn.Sequential(
            nn.Conv1d(3, 16, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 9)
        )
        self.body = nn.Sequential(
            nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1)
        )
        self.head = nn.Linear(64, 8)

    def forward(self, points: Tensor) -> Tensor:
        turn = self.turn(points.transpose(1, 2)).reshape(-1, 3, 3)
        x = self.body((points @ turn).transpose(1, 2))
        return self.head(x.max(2).values)


def _picture(module: nn.Module, channels: int = 3, size: int = 64, free: bool = True) -> Exportable:
    axes = {0: "batch", **({2: "height", 3: "width"} if free else {})}
    return Exportable(
        randomise(module),
        {"pixels": torch.rand(_BATCH, channels, size, size)},
        {"pixels": axes},
        output_axes={"output": {0: "batch"}},
    )


def _plain(module: nn.Module, axes: dict[str, dict[int, str]], **inputs: Tensor) -> Exportable:
    return Exportable(randomise(module), inputs, axes)


def _detector() -> Exportable:
    return Exportable(
        randomise(_Detector()),
        {"pixels": torch.rand(_BATCH, 3, 64, 64)},
        {"pixels": {0: "batch", 2: "height", 3: "width"}},
        ("boxes", "scores", "labels"),
        {name: {0: "batch"} for name in ("boxes", "scores", "labels")},
    )


def _diffusion() -> Exportable:
    return Exportable(
        randomise(_UpNet()),
        {
            "sample": torch.randn(_BATCH, 4, 16, 16),
            "timestep": torch.tensor([3, 500]),
            "encoder_hidden_states": torch.randn(_BATCH, 7, 24),
        },
        {
            "sample": {0: "batch", 2: "height", 3: "width"},
            "timestep": {0: "batch"},
            "encoder_hidden_states": {0: "batch", 1: "sequence"},
        },
        ("noise",),
        {"noise": {0: "batch", 2: "height", 3: "width"}},
    )


def _graph() -> Exportable:
    edges = torch.randint(0, 10, (2, 30))
    axes = {"nodes": {0: "num_nodes"}, "edges": {1: "num_edges"}}
    return _plain(_GraphConvolution(), axes, nodes=torch.randn(10, 8), edges=edges)


def _graph_attention() -> Exportable:
    axes = {"nodes": {0: "batch", 1: "n"}, "adjacency": {0: "batch", 1: "n", 2: "n"}}
    adjacency = (torch.rand(_BATCH, 9, 9) > 0.5).float()
    return _plain(_GraphAttention(), axes, nodes=torch.randn(_BATCH, 9, 8), adjacency=adjacency)


BLOCKS: dict[str, Builder] = {
    "detector_topk": _detector,
    "diffusion_unet": _diffusion,
    "graph_convolution": _graph,
    "graph_attention": _graph_attention,
    "super_resolution": lambda: _picture(_SuperResolution(), size=24),
    "three_d": lambda: _plain(
        _ThreeD(), {"volume": {0: "batch"}}, volume=torch.randn(_BATCH, 1, 8, 16, 16)
    ),
    "shufflenet": lambda: _picture(_Shuffle()),
    "pointnet": lambda: _plain(
        _PointNet(), {"points": {0: "batch", 1: "n"}}, points=torch.randn(_BATCH, 40, 3)
    ),
}
"""Builders by name."""
