"""Where the attributes and ranks of an instance come from: every combination, or random ones.

Typing the left side of a rule takes decisions: which rank, which axis, which strides. It is written
as a straight-line procedure that asks a chooser, and run again for each combination.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

import numpy as np

__all__ = ["Chooser", "Exhaustive", "Random", "runs"]

T = TypeVar("T")


class Chooser(Protocol):
    """Takes one decision after another."""

    def choose(self, options: Sequence[T], core: int = 0) -> T:
        """One of ``options``; the first ``core`` (0: all) are what an enumeration covers."""
        ...

    def prefer(self, options: Sequence[T]) -> T:
        """One of ``options``, of which the first is the usual one."""
        ...


class Random:
    """Independent decisions; the core, or the usual option, is as likely as all others."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def choose(self, options: Sequence[T], core: int = 0) -> T:
        """One of ``options``."""
        if 0 < core < len(options):
            options = options[:core] if self._rng.random() < 0.5 else options[core:]
        return options[int(self._rng.integers(len(options)))]

    def prefer(self, options: Sequence[T]) -> T:
        """One of ``options``, of which the first is the usual one."""
        return self.choose(options, core=1)


class Exhaustive:
    """Replays the decisions of a path, and takes the first option from there on."""

    def __init__(self, path: Sequence[int]) -> None:
        self._path = path
        self.taken: list[tuple[int, int]] = []

    def choose(self, options: Sequence[T], core: int = 0) -> T:
        """One of the core of ``options``."""
        count = min(core, len(options)) if core else len(options)
        index = self._path[len(self.taken)] if len(self.taken) < len(self._path) else 0
        self.taken.append((index, count))
        return options[index]

    def prefer(self, options: Sequence[T]) -> T:
        """One of ``options``, in order."""
        return self.choose(options)


def runs() -> Iterator[Exhaustive]:
    """One chooser per combination of decisions, in lexicographic order.

    The caller runs its procedure with a chooser before it asks for the next; a procedure that gives
    up early skips all combinations of the decisions it did not reach.
    """
    path: list[int] | None = []
    while path is not None:
        chooser = Exhaustive(path)
        yield chooser
        taken = chooser.taken
        while taken and taken[-1][0] + 1 >= taken[-1][1]:
            taken.pop()
        path = [index for index, _ in taken] if taken else None
        if path:
            path[-1] += 1
