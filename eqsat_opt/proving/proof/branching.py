"""Enumeration of all ways through a function that makes choices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from eqsat_opt.ir.ops import IllTyped

__all__ = ["Choices"]


class Choices:
    """Depth-first enumeration of all ways through a function that asks for choices."""

    def __init__(self, path: Sequence[int]) -> None:
        """Follow ``path`` and take the first option beyond it."""
        self.path = list(path)
        self.counts: list[int] = []
        self.made: dict[str, Any] = {}

    def pick(self, name: str, options: Sequence[Any]) -> Any:
        """The option for ``name``; the same one every time within a run."""
        if name not in self.made:
            if not options:
                raise IllTyped(f"nothing fits {name}")
            place = len(self.counts)
            if place == len(self.path):
                self.path.append(0)
            self.counts.append(len(options))
            self.made[name] = options[self.path[place]]
        return self.made[name]

    @property
    def combinations(self) -> int:
        """Options of all choices but those of ranks, which mostly exclude each other."""
        counts = zip(self.made, self.counts, strict=True)
        return prod(count for name, count in counts if not name.startswith("rank "))

    def next_path(self) -> list[int] | None:
        """The path after this one, or ``None`` after the last."""
        path = self.path[: len(self.counts)]
        while path and path[-1] + 1 == self.counts[len(path) - 1]:
            path.pop()
        if not path:
            return None
        path[-1] += 1
        return path
