"""A module to export, with example inputs, names and the axes whose sizes stay symbolic."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

__all__ = ["Builder", "Exportable", "Keywords", "randomise"]

Builder = Callable[[], "Exportable"]


@dataclass(frozen=True)
class Exportable:
    """A module in evaluation mode, an example of each input, and the names of symbolic axes.

    An axis that is called "" is symbolic without a name of its own, since it follows from others.
    """

    module: nn.Module
    inputs: Mapping[str, Tensor]
    axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    outputs: Sequence[str] = ("output",)
    output_axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


class Keywords(nn.Module):
    """A module that takes keywords, called by position; of its results those that are named."""

    def __init__(self, model: nn.Module, keywords: Sequence[str], results: Sequence[str]) -> None:
        super().__init__()
        self.model = model
        self.keywords = tuple(keywords)
        self.results = tuple(results)

    def forward(self, *args: Tensor) -> Tensor | tuple[Tensor, ...]:
        result = self.model(**dict(zip(self.keywords, args, strict=True)))
        picked = tuple(_flat([result[name] for name in self.results]))
        return picked[0] if len(picked) == 1 else picked


def _flat(values: Sequence[object]) -> list[Tensor]:
    flat: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            flat.append(value)
        elif isinstance(value, (tuple, list)):
            flat += _flat(value)
    return flat


def randomise(module: nn.Module, seed: int = 0) -> nn.Module:
    """Give a module random values wherever fresh ones are all equal; return it for evaluation.

    Scales of one and biases of zero fold away, which flatters every optimiser and hides mistakes.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*module.named_parameters(), *module.named_buffers()]:
            if not value.is_floating_point() or value.numel() == 0:
                continue
            if name.endswith(("running_var",)) or (value.dim() == 1 and name.endswith("weight")):
                value.uniform_(0.5, 1.5, generator=generator)
            elif name.endswith(("running_mean", "bias")):
                value.normal_(0.0, 0.1, generator=generator)
            elif isinstance(value, nn.Parameter) and bool((value == value.flatten()[0]).all()):
                value.normal_(0.0, 0.2, generator=generator)
    return module.eval()
