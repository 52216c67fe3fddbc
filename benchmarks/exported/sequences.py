"""Networks of sequences in plain PyTorch: recurrences, sound, recommendations, experts."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.exported.module import Builder, Exportable, randomise

__all__ = ["SEQUENCES"]

_BATCH = 2


class _Conformer(nn.Module):
    """One conformer block with relative positions (Gulati et al. 2020) after strides."""

    def __init__(self, width: int = 48, heads: int = 4) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.stem = nn.Sequential(
            nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 8, 3, 2), nn.ReLU()
        )
        self.inside = nn.Linear(8 * 7, width)
        self.ffs = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 96), nn.SiLU(), nn.Linear(96, width)
            )
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
        q, k, v = (t.reshape(batch, steps, self.heads, -1).transpose(1, 2) for t in (q, k, v))
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
    """Embeddings, products of pairs, a cross network, a perceptron (Naumov et al. 2019)."""

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
        self.encode = nn.Sequential(
            nn.Linear(40, 32), nn.BatchNorm1d(32), nn.Mish(), nn.Linear(32, 8)
        )
        self.decode = nn.Sequential(nn.Linear(8, 32), nn.Softplus(), nn.Linear(32, 40))

    def forward(self, series: Tensor) -> Tensor:
        z = self.encode(series)
        return self.decode(torch.cumsum(z, 1) % 2.0) + series.argmax(1, keepdim=True)


def _plain(module: nn.Module, axes: dict[str, dict[int, str]], **inputs: Tensor) -> Exportable:
    return Exportable(randomise(module), inputs, axes)


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


SEQUENCES: dict[str, Builder] = {
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
    "experts_dense": lambda: _plain(
        _Experts(), {"tokens": {0: "batch", 1: "sequence"}}, tokens=torch.randn(_BATCH, 6, 32)
    ),
    "autoencoder_cumsum": lambda: _plain(
        _Torsion(), {"series": {0: "batch"}}, series=torch.randn(_BATCH, 40)
    ),
}
"""Builders by name."""
