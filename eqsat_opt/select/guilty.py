"""Which rules broke the model? Bisection over all that were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["find_guilty"]


def find_guilty(
    rules: Sequence[Rule], is_wrong: Callable[[Sequence[Rule]], bool]
) -> tuple[Rule, ...]:
    """Rules that make the result wrong, none of which can be spared.

    They are several where a wrong rule shows only through what others make of it.

    Args:
        rules: in the order in which they are added.
        is_wrong: repeats the whole search with a subset and compares outputs.

    Returns:
        Nothing if the model is wrong without any rule, or right with all of them.
    """
    if is_wrong([]) or not is_wrong(rules):
        return ()
    needed: list[Rule] = []
    while rules and not (needed and is_wrong(needed)):
        good, bad = 0, len(rules)
        while bad - good > 1:
            middle = (good + bad) // 2
            if is_wrong([*rules[:middle], *needed]):
                bad = middle
            else:
                good = middle
        needed.insert(0, rules[bad - 1])
        rules = rules[: bad - 1]
    return tuple(needed)
