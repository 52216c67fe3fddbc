"""Union-find over keys, with bounds on a number for each class."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["Classes"]


class Classes:
    """Union-find with a lower and an upper bound per class.

    Attributes:
        changes: number of changes so far.
    """

    def __init__(self) -> None:
        self.changes = 0
        self._up: dict[Hashable, Hashable] = {}
        self._least: dict[Hashable, int] = {}
        self._most: dict[Hashable, int] = {}

    def find(self, key: Hashable) -> Hashable:
        """Return the representative of the class of ``key``."""
        self._up.setdefault(key, key)
        while self._up[key] != key:
            key = self._up[key]
        return key

    def join(self, one: Hashable, other: Hashable) -> None:
        """Merge two classes."""
        a, b = self.find(one), self.find(other)
        if a == b:
            return
        self._up[b] = a
        self.changes += 1
        self.at_least(a, self._least.get(b, 0))
        if b in self._most:
            self.at_most(a, self._most[b])

    def same(self, one: Hashable, other: Hashable) -> bool:
        """Return whether two keys are in one class."""
        return self.find(one) == self.find(other)

    def least(self, key: Hashable) -> int:
        """Return the lower bound of a class, which is 0 or more."""
        return self._least.get(self.find(key), 0)

    def most(self, key: Hashable) -> int | None:
        """Return the upper bound of a class; ``None`` if there is none."""
        return self._most.get(self.find(key))

    def at_least(self, key: Hashable, value: int) -> None:
        """Record that the number of a class is at least ``value``."""
        root = self.find(key)
        if value > self._least.get(root, 0):
            self._least[root] = value
            self.changes += 1

    def at_most(self, key: Hashable, value: int) -> None:
        """Record that the number of a class is at most ``value``."""
        root = self.find(key)
        if value < self._most.get(root, value + 1):
            self._most[root] = value
            self.changes += 1
