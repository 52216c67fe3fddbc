"""Delta debugging: the items that make something fail, none of which can be left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["needed_items"]

T = TypeVar("T")


def needed_items(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> tuple[T, ...]:
    """Find items with which something fails, none of which can be left out.

    There are several where one shows only through others. A subset is tried a number of times that
    is logarithmic in the number of items, for each item that is found.

    Args:
        items: in the order in which they are added.
        fails: tries a subset; subsets of a failing one may pass, supersets fail.

    Returns:
        The items; none if it fails without any, or passes with all.
    """
    if fails([]) or not fails(items):
        return ()
    needed: list[T] = []
    while items and not (needed and fails(needed)):
        good, bad = 0, len(items)
        while bad - good > 1:
            middle = (good + bad) // 2
            if fails([*items[:middle], *needed]):
                bad = middle
            else:
                good = middle
        needed.insert(0, items[bad - 1])
        items = items[: bad - 1]
    return tuple(needed)
