"""Networks written in plain PyTorch: detection, diffusion, graphs, recurrences, sound."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exported.module import Builder, Exportable, randomise

__all__ = ["BLOCKS"]

_BATCH = 2


class _Detector(nn.Module):
    """Boxes and scores of a grid at two scales, the best of them by TopK, decoded from distances."""

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
        self.time = nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
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
            summed = torch.zeros(
                nodes.shape[0], messages.shape[1], dtype=nodes.dtype
            ).scatter_add(0, index, messages)
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


class _Conformer(nn.Module):
    """One conformer block with relative positions (Gulati et al. 2020) after two strided convolutions."""

    def __init__(self, width: int = 48, heads: int = 4) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU()
        )
        self.inside = nn.Linear(8 * 7, width)
        self.ffs = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 96), nn.SiLU(), nn.Linear(96, width))
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.bias = nn.Parameter(torch.zeros(heads, 1, width // heads))
        self.out = nn.Linear(width, width)
        self.glu = nn.Conv1d(width, 2 * width, 1)
        self.depthwise = nn.Conv1d(width, width, 7, padding=3, groups=width)
        self.batch = nn.BatchNorm1d(width)
        self.pointwise = nn.Conv1d(width, width, 1)

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        x = self.stem(features.unsqueeze(1))
        batch, channels, steps, bins = x.shape
        x = self.inside(x.transpose(1, 2).reshape(batch, steps, channels * bins))
        x = x + 0.5 * self.ffs[0](x)
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (
            t.reshape(batch, steps, self.heads, -1).transpose(1, 2) for t in (q, k, v)
        )
        scores = (q + self.bias) @ k.transpose(2, 3) * (self.width // self.heads) ** -0.5
        alive = torch.arange(steps)[None] < (lengths[:, None] // 4)
        scores = scores.masked_fill(~alive[:, None, None], -1e4)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, steps, self.width))
        y = functional.glu(self.glu(x.transpose(1, 2)), 1)
        y = functional.silu(self.batch(self.depthwise(y)))
        x = x + self.pointwise(y).transpose(1, 2)
        return x + 0.5 * self.ffs[1](x)


class _Vocoder(nn.Module):
    """Transposed convolutions and dilated residual stacks, as HiFi-GAN (Kong et al. 2020)."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Conv1d(16, width, 7, padding=3)
        self.ups = nn.ModuleList(
            nn.ConvTranspose1d(width >> i, width >> (i + 1), 8, 4, 2) for i in range(2)
        )
        self.stacks = nn.ModuleList(
            nn.Conv1d(width >> (i + 1), width >> (i + 1), 3, padding=d, dilation=d)
            for i in range(2) for d in (1, 3, 5)
        )  # fmt: skip
        self.last = nn.Conv1d(width >> 2, 1, 7, padding=3)

    def forward(self, mel: Tensor) -> Tensor:
        x = self.first(mel)
        for index, up in enumerate(self.ups):
            x = up(functional.leaky_relu(x, 0.1))
            for layer in list(self.stacks)[3 * index : 3 * index + 3]:
                x = x + layer(functional.leaky_relu(x, 0.1))
        return torch.tanh(self.last(functional.leaky_relu(x)))


class _Recurrent(nn.Module):
    """Convolutions over a line of text, a recurrence in both directions, a label per step."""

    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d((4, 1)),
        )  # fmt: skip
        self.recurrence = kind(32 * 4, 32, num_layers=2, bidirectional=True)
        self.head = nn.Linear(64, 20)

    def forward(self, line: Tensor) -> Tensor:
        x = self.convs(line)
        x = x.flatten(1, 2).permute(2, 0, 1)
        return self.head(self.recurrence(x)[0]).log_softmax(-1)


class _Streaming(nn.Module):
    """One step of a recurrent detector of voices: states go in and come out."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 16, 32, 16)
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 1)

    def forward(self, sound: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = functional.relu(self.conv(functional.pad(sound.unsqueeze(1), (8, 8), mode="reflect")))
        x, (h, c) = self.lstm(x.transpose(1, 2), (h, c))
        return self.head(x.mean(1)).sigmoid(), h, c


class _Recommender(nn.Module):
    """Embeddings, their pairwise products, a cross network and a perceptron (Naumov et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(6))
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.cross = nn.Linear(112, 112)
        self.top = nn.Sequential(nn.Linear(112 + 21, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        parts = [self.bottom(dense)] + [t(sparse[:, i]) for i, t in enumerate(self.tables)]
        stacked = torch.stack(parts, 1)
        products = stacked @ stacked.transpose(1, 2)
        rows, columns = torch.tril_indices(7, 7, -1)
        flat = stacked.flatten(1)
        crossed = flat * self.cross(flat) + flat
        return self.top(torch.cat([crossed, products[:, rows, columns]], 1)).sigmoid()


class _SuperResolution(nn.Module):
    """Convolutions, a shuffle of pixels, and the bicubic picture added."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 32, 5, padding=2), nn.PReLU(32), nn.Conv2d(32, 32, 3, padding=1),
            nn.PReLU(32), nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2),
        )  # fmt: skip

    def forward(self, picture: Tensor) -> Tensor:
        large = functional.interpolate(picture, scale_factor=2, mode="bilinear", align_corners=False)
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
        self.turn = nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(16, 9))
        self.body = nn.Sequential(nn.Conv1d(3, 32, 1), nn.BatchNorm1d(32), nn.ReLU(), nn.Conv1d(32, 64, 1))
        self.head = nn.Linear(64, 8)

    def forward(self, points: Tensor) -> Tensor:
        turn = self.turn(points.transpose(1, 2)).reshape(-1, 3, 3)
        x = self.body((points @ turn).transpose(1, 2))
        return self.head(x.max(2).values)


class _Experts(nn.Module):
    """A switch over four perceptrons: all are computed, gates of the best two weigh them."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.inside = nn.Parameter(torch.randn(4, width, 64) * 0.1)
        self.outside = nn.Parameter(torch.randn(4, 64, width) * 0.1)

    def forward(self, tokens: Tensor) -> Tensor:
        scores = self.gate(tokens).softmax(-1)
        top, index = scores.topk(2, -1)
        gates = torch.zeros_like(scores).scatter(-1, index, top / top.sum(-1, keepdim=True))
        hidden = functional.gelu(torch.einsum("btd,edh->beth", tokens, self.inside))
        return torch.einsum("beth,ehd,bte->btd", hidden, self.outside, gates)


class _Torsion(nn.Module):
    """A fully connected autoencoder with running statistics and a cumulative sum."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(40, 32), nn.BatchNorm1d(32), nn.Mish(), nn.Linear(32, 8))
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.Softplus(), nn.Linear(32, 40))

    def forward(self, series: Tensor) -> Tensor:
        z = self.encode(series)
        return self.decode(torch.cumsum(z, 1) % 2.0) + series.argmax(1, keepdim=True)


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
    return _plain(
        _GraphAttention(), axes, nodes=torch.randn(_BATCH, 9, 8), adjacency=adjacency
    )


def _conformer() -> Exportable:
    axes = {"features": {0: "batch", 1: "frames"}, "lengths": {0: "batch"}}
    return _plain(
        _Conformer(),
        axes,
        features=torch.randn(_BATCH, 64, 31),
        lengths=torch.tensor([60, 40]),
    )


def _streaming() -> Exportable:
    return Exportable(
        randomise(_Streaming()),
        {
            "sound": torch.randn(_BATCH, 512),
            "h": torch.randn(1, _BATCH, 32),
            "c": torch.randn(1, _BATCH, 32),
        },
        {"sound": {0: "batch"}, "h": {1: "batch"}, "c": {1: "batch"}},
        ("probability", "hn", "cn"),
        {"probability": {0: "batch"}, "hn": {1: "batch"}, "cn": {1: "batch"}},
    )


BLOCKS: dict[str, Builder] = {
    "detector_topk": _detector,
    "diffusion_unet": _diffusion,
    "graph_convolution": _graph,
    "graph_attention": _graph_attention,
    "conformer": _conformer,
    "vocoder": lambda: _plain(
        _Vocoder(), {"mel": {0: "batch", 2: "frames"}}, mel=torch.randn(_BATCH, 16, 20)
    ),
    "crnn_lstm": lambda: _plain(
        _Recurrent(nn.LSTM), {"line": {0: "batch", 3: "width"}}, line=torch.rand(_BATCH, 1, 32, 64)
    ),
    "crnn_gru": lambda: _plain(
        _Recurrent(nn.GRU), {"line": {0: "batch", 3: "width"}}, line=torch.rand(_BATCH, 1, 32, 64)
    ),
    "crnn_rnn": lambda: _plain(
        _Recurrent(nn.RNN), {"line": {0: "batch"}}, line=torch.rand(_BATCH, 1, 32, 64)
    ),
    "streaming_lstm": _streaming,
    "recommender": lambda: _plain(
        _Recommender(),
        {"dense": {0: "batch"}, "sparse": {0: "batch"}},
        dense=torch.randn(_BATCH, 13),
        sparse=torch.randint(0, 50, (_BATCH, 6)),
    ),
    "super_resolution": lambda: _picture(_SuperResolution(), size=24),
    "three_d": lambda: _plain(
        _ThreeD(), {"volume": {0: "batch"}}, volume=torch.randn(_BATCH, 1, 8, 16, 16)
    ),
    "shufflenet": lambda: _picture(_Shuffle()),
    "pointnet": lambda: _plain(
        _PointNet(), {"points": {0: "batch", 1: "n"}}, points=torch.randn(_BATCH, 40, 3)
    ),
    "experts_dense": lambda: _plain(
        _Experts(), {"tokens": {0: "batch", 1: "sequence"}}, tokens=torch.randn(_BATCH, 6, 32)
    ),
    "autoencoder_cumsum": lambda: _plain(
        _Torsion(), {"series": {0: "batch"}}, series=torch.randn(_BATCH, 40)
    ),
}
"""Builders by name."""
