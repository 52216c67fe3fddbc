"""Choices of a typing, and the enumeration of all ways through a function that makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any, Protocol

from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.ops.integers import Formula

__all__ = ["Choices", "Chooser"]


class Chooser(Protocol):
    """Decides what a typing leaves open.

    Attributes:
        made: what was chosen, by name.
    """

    made: dict[str, Any]

    def pick(self, name: str, options: Sequence[Any]) -> Any:
        """The option for ``name``; the same one every time within a run.

        Raises:
            IllTyped: if there is none.
        """
        ...

    def number(self, key: str, name: str) -> int | None:
        """A value for the integer ``name``, an attribute ``key``; ``None``: it stays a symbol."""
        ...

    def assumed(self, premises: Sequence[Formula]) -> Iterable[Formula]:
        """What is to hold beyond the premises, which may leave cases open."""
        ...


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

    def number(self, _key: str, _name: str) -> None:
        """Every integer stays a symbol."""

    def assumed(self, _premises: Sequence[Formula]) -> tuple[Formula, ...]:
        """Nothing: all cases are covered by one form."""
        return ()

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
