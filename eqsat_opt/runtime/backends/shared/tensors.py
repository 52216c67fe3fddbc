"""Tensors as libraries are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

__all__ = ["Tensor", "tensor_from_json", "tensor_to_json"]


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory: extents, of images in the order batch, channels, height, width; strides.

    Both are by axis, strides in elements.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Their number."""
        return prod(self.dims)


def tensor_to_json(tensor: Tensor) -> list[list[int]]:
    """Two lists; `tensor_from_json` gives back an equal value."""
    return [list(tensor.dims), list(tensor.strides)]


def tensor_from_json(value: Sequence[Sequence[int]]) -> Tensor:
    """What `tensor_to_json` made."""
    dims, strides = value
    return Tensor(tuple(dims), tuple(strides))
