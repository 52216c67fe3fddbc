"""The check that a rule holds where an extent is 0: equal shapes, and equal sums over nothing."""

from __future__ import annotations

from itertools import islice

import numpy as np

from eqsat_opt.proving.checks.counterexample import Refutation, refutation_at
from eqsat_opt.proving.checks.exact import first_mistyped
from eqsat_opt.proving.instances.search import (
    USUAL_POINTS,
    Found,
    empty_instances,
    find_instances,
    varied,
)
from eqsat_opt.proving.numbers.evaluation import FloatNumbers, IntegerNumbers
from eqsat_opt.rules.rule import Numerics, Rule

__all__ = ["empty_difference"]

_EMPTIED = 8
"""Number of instances from which empty ones are made."""
_MOST = 60
"""Most empty instances that are tried, per direction."""


def empty_difference(
    rule: Rule, *, seed: int = 0, max_points: int = USUAL_POINTS
) -> Refutation | None:
    """Find an empty instance at which both sides of a directed rule differ; ``None`` if none does.

    In the class relaxed only the types have to agree.
    """
    some = varied(find_instances(rule, limit=max_points, seed=seed).points, _EMPTIED)
    empty: dict[object, Found] = {one.origin.key: one for one in empty_instances(rule, some)}
    tried = list(islice(empty.values(), _MOST))
    mistyped = first_mistyped(rule, tried)
    if mistyped is not None or rule.numerics is Numerics.RELAXED:
        return mistyped
    with np.errstate(all="ignore"):
        for one in tried:
            numbers = IntegerNumbers(seed) if one.whole else FloatNumbers(seed)
            found = refutation_at(rule, one, numbers, numbers.draw(one, seed))
            if found is not None:
                return found
    return None
