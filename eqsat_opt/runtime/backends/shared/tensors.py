"""Descriptions of tensors that libraries take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

__all__ = ["Tensor", "tensor_from_json", "tensor_to_json"]


@dataclass(frozen=True)
class Tensor:
    """A tensor in memory, described by its extents and strides.

    Both are by axis, and strides are in elements. The axes of images are batch, channels, height
    and width.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.dims)


def tensor_to_json(tensor: Tensor) -> list[list[int]]:
    """Return the lists of extents and strides; `tensor_from_json` gives back an equal value."""
    return [list(tensor.dims), list(tensor.strides)]


def tensor_from_json(value: Sequence[Sequence[int]]) -> Tensor:
    """Return the tensor whose lists `tensor_to_json` returned."""
    dims, strides = value
    return Tensor(tuple(dims), tuple(strides))
