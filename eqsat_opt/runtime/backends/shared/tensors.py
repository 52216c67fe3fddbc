"""Descriptions of tensors that libraries take."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

__all__ = ["StridedTensor"]


class StridedTensor(NamedTuple):
    """A tensor in memory, described by its extents and strides; in JSON a list of both.

    Both are by axis, and strides are in elements. The axes of images are batch, channels, height
    and width.
    """

    dims: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.dims)
