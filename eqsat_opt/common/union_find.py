"""Union-find: classes of keys that are joined one after another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

__all__ = ["UnionFind"]

Key = TypeVar("Key", bound=Any)


class UnionFind(Generic[Key]):
    """A partition of keys that can be ordered; the smallest key of a class represents it.

    A key that was never joined is a class of its own, and need not be declared.
    """

    def __init__(self) -> None:
        self._above: dict[Key, Key] = {}

    def find(self, key: Key) -> Key:
        """Return the representative of the class of a key."""
        above = self._above
        while (parent := above.get(key, key)) != key:
            above[key] = above.get(parent, parent)
            key = parent
        return key

    def join(self, keys: Iterable[Key]) -> bool:
        """Make one class of the classes of some keys; return whether there were several."""
        found = {self.find(key) for key in keys}
        if len(found) < 2:
            return False
        self._above.update(dict.fromkeys(found, min(found)))
        return True

    def classes(self, keys: Iterable[Key]) -> list[list[Key]]:
        """Return the given keys by class, classes and keys in the order of the keys."""
        found: dict[Key, list[Key]] = {}
        for key in keys:
            found.setdefault(self.find(key), []).append(key)
        return list(found.values())
