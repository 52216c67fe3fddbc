"""The PyTorch models that are exported for the comparison with other optimisers.

Architectures follow their papers; weights are random. Two things make random weights fit to judge
an optimiser: normalisation layers get scales and shifts of their own, so that folding them wrongly
shows, and BatchNorm statistics are those of real activations, so that no layer dies or saturates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MODELS", "TorchModel", "build"]

_SEED = 0
_TOKENS = 128
_VOCABULARY = 8192


@dataclass(frozen=True)
class TorchModel:
    """A module in evaluation mode and one example of each input, by name."""

    module: nn.Module
    inputs: dict[str, Tensor]


class ConvNorm(nn.Sequential):
    """Convolution without bias, BatchNorm, activation; "same" padding for odd kernels."""

    def __init__(
        self,
        c_in: int,
        c_out: int,
        kernel: int,
        stride: int = 1,
        groups: int = 1,
        act: type[nn.Module] | None = nn.ReLU,
    ) -> None:
        conv = nn.Conv2d(c_in, c_out, kernel, stride, kernel // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(c_out), *([act()] if act else []))


class Residual(nn.Module):
    """activation(body(x) + skip(x))."""

    def __init__(
        self, body: nn.Module, skip: nn.Module | None = None, act: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.body = body
        self.skip = skip or nn.Identity()
        self.act = act or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.body(x) + self.skip(x))


class Pooled(nn.Sequential):
    """Global average pool and a linear classifier."""

    def __init__(self, channels: int, classes: int = 1000) -> None:
        super().__init__(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def resnet(blocks: Sequence[int], bottleneck: bool) -> nn.Module:
    """ResNet (He et al. 2016), the stride in the 3x3 convolution."""
    layers: list[nn.Module] = [ConvNorm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    c_in = 64
    for stage, count in enumerate(blocks):
        width = 64 << stage
        c_out = width * 4 if bottleneck else width
        for block in range(count):
            stride = 2 if stage and not block else 1
            if bottleneck:
                body = nn.Sequential(
                    ConvNorm(c_in, width, 1),
                    ConvNorm(width, width, 3, stride),
                    ConvNorm(width, c_out, 1, act=None),
                )
            else:
                body = nn.Sequential(
                    ConvNorm(c_in, width, 3, stride), ConvNorm(width, width, 3, act=None)
                )
            fits = stride == 1 and c_in == c_out
            skip = None if fits else ConvNorm(c_in, c_out, 1, stride, act=None)
            layers.append(Residual(body, skip, nn.ReLU()))
            c_in = c_out
    return nn.Sequential(*layers, Pooled(c_in))


class SqueezeExcite(nn.Module):
    """Channel gates from globally pooled features (Hu et al. 2018)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.SiLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Sigmoid(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


def inverted_residual(
    c_in: int,
    c_out: int,
    kernel: int,
    stride: int,
    expansion: int,
    act: type[nn.Module],
    squeeze: bool,
) -> nn.Module:
    """Expand, depthwise, (squeeze-excite,) project; a residual where shapes allow it."""
    width = c_in * expansion
    layers: list[nn.Module] = [ConvNorm(c_in, width, 1, act=act)] if expansion > 1 else []
    layers.append(ConvNorm(width, width, kernel, stride, groups=width, act=act))
    if squeeze:
        layers.append(SqueezeExcite(width, max(c_in // 4, 1)))
    layers.append(ConvNorm(width, c_out, 1, act=None))
    body = nn.Sequential(*layers)
    return Residual(body) if stride == 1 and c_in == c_out else body


def mobile(
    stages: Iterable[tuple[int, int, int, int, int]],
    head: int,
    act: type[nn.Module],
    squeeze: bool,
) -> nn.Module:
    """Stages of inverted residuals: (expansion, channels, blocks, stride, kernel)."""
    layers: list[nn.Module] = [ConvNorm(3, 32, 3, 2, act=act)]
    c_in = 32
    for expansion, c_out, count, stride, kernel in stages:
        for block in range(count):
            step = 1 if block else stride
            layers.append(inverted_residual(c_in, c_out, kernel, step, expansion, act, squeeze))
            c_in = c_out
    return nn.Sequential(*layers, ConvNorm(c_in, head, 1, act=act), Pooled(head))


def mobilenet_v2() -> nn.Module:
    """MobileNetV2 (Sandler et al. 2018, table 2)."""
    stages = [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 32, 3, 2, 3),
        (6, 64, 4, 2, 3),
        (6, 96, 3, 1, 3),
        (6, 160, 3, 2, 3),
        (6, 320, 1, 1, 3),
    ]
    return mobile(stages, 1280, nn.ReLU6, squeeze=False)


def efficientnet_b0() -> nn.Module:
    """EfficientNet-B0 (Tan and Le 2019, table 1)."""
    stages = [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    ]
    return mobile(stages, 1280, nn.SiLU, squeeze=True)


class DenseLayer(nn.Module):
    """Pre-activation bottleneck whose output is appended to its input's channels."""

    def __init__(self, c_in: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(c_in),
            nn.ReLU(),
            ConvNorm(c_in, 4 * growth, 1),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def densenet121() -> nn.Module:
    """DenseNet-121 (Huang et al. 2017)."""
    growth, channels = 32, 64
    layers: list[nn.Module] = [ConvNorm(3, channels, 7, 2), nn.MaxPool2d(3, 2, 1)]
    blocks = (6, 12, 24, 16)
    for index, count in enumerate(blocks):
        for _ in range(count):
            layers.append(DenseLayer(channels, growth))
            channels += growth
        layers += [nn.BatchNorm2d(channels), nn.ReLU()]
        if index + 1 < len(blocks):
            layers += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
            channels //= 2
    return nn.Sequential(*layers, Pooled(channels))


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of [N, C, H, W]."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7, LayerNorm, pointwise MLP in channels-last, layer scale, residual."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels)
        )
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.depthwise(x).permute(0, 2, 3, 1)
        return x + (self.weight * self.mlp(self.norm(y))).permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """ConvNeXt (Liu et al. 2022) of half the tiny variant's depth and two thirds of its width."""
    widths, depths = (64, 128, 256, 512), (2, 2, 4, 2)
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0], eps=1e-6)]
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if stage:
            narrow = widths[stage - 1]
            layers += [ChannelNorm(narrow, eps=1e-6), nn.Conv2d(narrow, width, 2, 2)]
        layers += [ConvNextBlock(width) for _ in range(depth)]
    return nn.Sequential(*layers, Pooled(widths[-1]))


class UNet(nn.Module):
    """U-Net (Ronneberger et al. 2015): halving encoder, transposed convolutions, skips."""

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 256), classes: int = 8) -> None:
        super().__init__()
        c_ins = (3, *widths[:-1])
        self.down = nn.ModuleList(
            self._double(c_in, c) for c_in, c in zip(c_ins, widths, strict=True)
        )
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(deep, c, 2, 2) for deep, c in pairs)
        self.merge = nn.ModuleList(self._double(2 * c, c) for _, c in pairs)
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def _double(c_in: int, c_out: int) -> nn.Module:
        return nn.Sequential(ConvNorm(c_in, c_out, 3), ConvNorm(c_out, c_out, 3))

    def forward(self, x: Tensor) -> Tensor:
        skips: list[Tensor] = []
        for level, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for up, merge, skip in zip(self.up, self.merge, skips[-2::-1], strict=True):
            x = merge(torch.cat([skip, up(x)], 1))
        return self.head(x)


class Tagger(nn.Module):
    """Embedding, two-layer bidirectional LSTM, a label per token."""

    def __init__(self, width: int = 256, labels: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(_VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, labels)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.embed(tokens))[0])


class HiddenStates(nn.Module):
    """A `transformers` model that takes keywords and returns one tensor."""

    def __init__(self, model: nn.Module, keywords: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.keywords = tuple(keywords)

    def forward(self, *args: Tensor) -> Tensor:
        return self.model(**dict(zip(self.keywords, args, strict=True))).last_hidden_state


def _bert() -> nn.Module:
    config = transformers.BertConfig(
        num_hidden_layers=4, vocab_size=_VOCABULARY, initializer_range=0.04
    )
    return transformers.BertModel(config, add_pooling_layer=False)


def _distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        n_layers=4, vocab_size=_VOCABULARY, initializer_range=0.04
    )
    return transformers.DistilBertModel(config)


def _gpt2() -> nn.Module:
    config = transformers.GPT2Config(
        n_layer=4,
        vocab_size=_VOCABULARY,
        initializer_range=0.04,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    return transformers.GPT2Model(config)


def _t5() -> nn.Module:
    config = transformers.T5Config(num_layers=4, vocab_size=_VOCABULARY, use_cache=False)
    # torch.export cannot lower T5's fused attention ("Cannot view a tensor with shape ...").
    config._attn_implementation = "eager"
    return transformers.T5EncoderModel(config)


def _vit() -> nn.Module:
    config = transformers.ViTConfig(num_hidden_layers=4, initializer_range=0.04)
    return transformers.ViTModel(config, add_pooling_layer=False)


def _images(module: nn.Module, size: int = 224) -> TorchModel:
    return TorchModel(module, {"pixels": torch.randn(1, 3, size, size)})


def _text(module: nn.Module, mask: bool = True) -> TorchModel:
    inputs = {"tokens": torch.randint(0, _VOCABULARY, (1, _TOKENS))}
    keywords = ["input_ids"]
    if mask:
        inputs["mask"] = torch.ones(1, _TOKENS, dtype=torch.long)
        keywords.append("attention_mask")
    return TorchModel(HiddenStates(module, keywords), inputs)


MODELS: dict[str, Callable[[], TorchModel]] = {
    "resnet18": lambda: _images(resnet((2, 2, 2, 2), bottleneck=False)),
    "resnet50": lambda: _images(resnet((3, 4, 6, 3), bottleneck=True)),
    "mobilenet_v2": lambda: _images(mobilenet_v2()),
    "efficientnet_b0": lambda: _images(efficientnet_b0()),
    "densenet121": lambda: _images(densenet121()),
    "convnext": lambda: _images(convnext()),
    "unet": lambda: _images(UNet(), 128),
    "vit": lambda: TorchModel(
        HiddenStates(_vit(), ["pixel_values"]), {"pixels": torch.randn(1, 3, 224, 224)}
    ),
    "bert": lambda: _text(_bert()),
    "distilbert": lambda: _text(_distilbert()),
    # Without a mask GPT-2 looks for packed sequences, which the legacy exporter cannot write.
    "gpt2": lambda: _text(_gpt2(), mask=False),
    "t5_encoder": lambda: _text(_t5()),
    "lstm": lambda: TorchModel(Tagger(), {"tokens": torch.randint(0, _VOCABULARY, (1, 64))}),
}


def build(name: str) -> TorchModel:
    """The model `name` with random weights that are the same at every call.

    Raises:
        KeyError: there is no such model.
    """
    torch.manual_seed(_SEED)
    model = MODELS[name]()
    with torch.no_grad():
        _randomise_vectors(model.module)
        _calibrate(model)
    model.module.eval()
    return model


def _randomise_vectors(module: nn.Module) -> None:
    """Scales around 1 and biases around 0: fresh ones are all equal, which hides mistakes."""
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1:
            if name.endswith("weight"):
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0.0, 0.1)


def _calibrate(model: TorchModel) -> None:
    """Set BatchNorm statistics to those of the activations on random images."""
    norms = [layer for layer in model.module.modules() if isinstance(layer, nn.BatchNorm2d)]
    if not norms:
        return
    model.module.eval()
    for norm in norms:
        norm.momentum = None  # plain average over the batches seen
        norm.reset_running_stats()
        norm.train()
    for _ in range(4):
        model.module(*(torch.randn(4, *value.shape[1:]) for value in model.inputs.values()))
    for norm in norms:
        norm.momentum = 0.1
