"""Instances and values at which both sides of a rule differ, and smaller ones that still do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from eqsat_opt.ir.ops import Array
from eqsat_opt.proving.instances.search import Found, shrunk_instances, smaller_instances
from eqsat_opt.proving.numbers.evaluation import (
    IntegerNumbers,
    Numbers,
    Program,
    TwoFieldNumbers,
    Values,
    program,
)
from eqsat_opt.proving.numbers.reals import RealNumbers
from eqsat_opt.proving.numbers.terms import computes_alike
from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Numerics, Rule

__all__ = ["Wrong", "first_wrong", "smallest"]

Wrong = tuple[Found, Numbers, Values]
"""An instance at which both sides differ, the numbers on which they do, and the values."""
_REDRAWS = 8
"""Number of draws of values, if each leads to a division by 0."""
_LEAST_COMPARED = 0.05
"""Share of the instances at which every element of a root must have been compared."""


_Compared = list[npt.NDArray[np.bool_]]
"""For each root, which elements were compared."""


def _compared(numbers: Numbers, left: Array, right: Array) -> npt.NDArray[np.bool_]:
    if isinstance(numbers, TwoFieldNumbers):
        return numbers.domain.comparable(left, right)
    if isinstance(numbers, RealNumbers):
        return numbers.compared(left)
    return np.ones(left.shape, dtype=bool)


def _refute(
    sides: Program, bindings: Bindings, numbers: Numbers, seed: int
) -> tuple[Values | None, _Compared]:
    """Look for values at which both sides differ.

    Returns:
        The values, or ``None`` if the sides agree; and the elements that were compared, none of
        them if every draw divides by 0.
    """
    for attempt in range(_REDRAWS):
        values = numbers.draw(bindings, seed + 1000 * attempt)
        compared: _Compared = []
        try:
            for left, right in sides.run(values, numbers.domain):
                if left.shape != right.shape or numbers.wrong(left, right).any():
                    return values, compared
                compared.append(_compared(numbers, left, right))
        except (ZeroDivisionError, OverflowError):
            continue
        return None, compared
    return None, []


def first_wrong(
    rule: Rule, points: Sequence[Found], kind: Callable[[int], Numbers], seeds: Sequence[int]
) -> Wrong | bool:
    """Find the smallest instance at which both sides differ.

    An instance counts for a root if each of its elements was compared in some draw. Once enough
    instances count, no values are drawn where both sides are the same computation, because no
    numbers can distinguish them.

    Returns:
        The difference; without one, whether enough instances count.
    """
    enough = _LEAST_COMPARED * len(points)
    whole = [0] * len(rule.lhs)
    draws = [(kind(seed), seed) for seed in seeds]
    name = draws[0][0].domain.name
    is_bitexact = rule.numerics is Numerics.BITEXACT  # others hardly ever compute alike
    for bindings in points:
        sides = program(rule, bindings, draws[0][0].dtype)
        if is_bitexact and min(whole) > enough and computes_alike(sides, bindings, name):
            continue
        seen: list[Array | None] = [None] * len(rule.lhs)
        for numbers, seed in draws:
            values, compared = _refute(sides, bindings, numbers, seed)
            if values is not None:
                return bindings, numbers, values
            for root, elements in enumerate(compared):
                before = seen[root]
                seen[root] = elements if before is None else before | elements
        for root, ever in enumerate(seen):
            whole[root] += ever is not None and bool(ever.all())
    return min(whole) > enough


def smallest(rule: Rule, wrong: Wrong, seed: int) -> Wrong:
    """Return the smallest difference found on the same kind of numbers."""
    for found in smaller_instances(rule, wrong[0], seed=seed):
        wrong = _smaller(rule, wrong, found, seed) or wrong
    while True:
        nearby = (_smaller(rule, wrong, one, seed) for one in shrunk_instances(rule, wrong[0]))
        smaller = next((one for one in nearby if one is not None), None)
        if smaller is None:
            return wrong
        wrong = smaller


def _smaller(rule: Rule, wrong: Wrong, found: Found, seed: int) -> Wrong | None:
    """Return the difference at ``found``; ``None`` if there is none, or it is not smaller."""
    numbers = wrong[1]
    if isinstance(numbers, IntegerNumbers) != found.whole:
        return None
    if found.origin.elements >= wrong[0].origin.elements:
        return None
    sides = program(rule, found, numbers.dtype)
    for other in range(seed, seed + _REDRAWS):
        values = _refute(sides, found, numbers, other)[0]
        if values is not None:
            return found, numbers, values
    return None
