"""Which rule broke the model? Bisection over the rules that matched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["find_guilty"]


def find_guilty(rules: Sequence[Rule], is_wrong: Callable[[Sequence[Rule]], bool]) -> Rule | None:
    """The rule whose addition to the ones before it first makes the result wrong.

    Args:
        rules: in the order in which they are added.
        is_wrong: repeats the whole search with a subset and compares outputs.

    Returns:
        ``None`` if the model is wrong without any rule, or right with all of them.
    """
    if is_wrong([]) or not is_wrong(rules):
        return None
    good, bad = 0, len(rules)
    while bad - good > 1:
        middle = (good + bad) // 2
        if is_wrong(rules[:middle]):
            bad = middle
        else:
            good = middle
    return rules[bad - 1]
