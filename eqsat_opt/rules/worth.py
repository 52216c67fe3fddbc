"""Conditions under which a rule of the book is explored, although it holds elsewhere as well.

The conditions of a rule are those of its truth. Conditions of its use are no part of the equation:
the verifier judges the rule without them, at instances that are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Var

__all__ = ["explored"]

_MOST_ROWS = 32
"""Most rows of a product that is also tried as a convolution: with more, products are fast."""
_LEAST_WEIGHT = 1 << 22
"""Least elements of the weight of such a product: smaller ones stay in the caches."""


def _streamed(rank: int, fewest: int) -> tuple[Condition, ...]:
    """Return the conditions for a product that mainly reads its weight."""
    x, w = Var("x"), Var("w", const=True)
    rows = prod((x.dim(i) for i in range(1, rank - 1)), start=x.dim(0))
    return (
        (w.dim(0) * w.dim(1) >= _LEAST_WEIGHT).because("small weights stay in the caches"),
        (rows >= fewest).because("one row needs no transposes"),
        (rows <= _MOST_ROWS).because("a product of many rows is fast as it is"),
    )


_WORTH: Mapping[str, tuple[Condition, ...]] = {
    f"form/{what}-as-{pixels}-{rank}d": _streamed(rank, fewest)
    for rank in (2, 3)
    for what in ("product", "sum")
    for pixels, fewest in (("pixel", 1), ("pixels", 2))
}
"""Rule of the book to conditions on its variables."""


def explored(rule: Rule) -> Rule:
    """Return a rule of the book as it is explored: where it may pay."""
    worth = _WORTH.get(rule.name)
    return rule if worth is None else replace(rule, when=(*rule.when, *worth))
