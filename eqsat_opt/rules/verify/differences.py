"""Instances and values at which both sides of a rule differ, and smaller ones that still do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from eqsat_opt.rules.bindings import Bindings
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.verify.evaluation import (
    IntegerNumbers,
    Numbers,
    Program,
    TwoFieldNumbers,
    Values,
    program,
)
from eqsat_opt.rules.verify.instances import Found, shrunk_instances, smaller_instances

__all__ = ["Wrong", "first_wrong", "smallest"]

Wrong = tuple[Found, Numbers, Values]
"""An instance at which both sides differ, on which numbers, and at which values."""
_REDRAWS = 8
"""Draws of values, should they divide by 0."""
_LEAST_DEFINED = 0.05
"""Share of the elements that two prime fields must have compared."""


@dataclass
class _Tally:
    """Elements that were compared, of all."""

    defined: int = 0
    all: int = 0


def _refute(
    sides: Program, bindings: Bindings, numbers: Numbers, seed: int, tally: _Tally
) -> Values | None:
    """The values at which both sides differ, if they do."""
    for attempt in range(_REDRAWS):
        values = numbers.draw(bindings, seed + 1000 * attempt)
        try:
            for left, right in sides.run(values, numbers.domain):
                if left.shape != right.shape or numbers.wrong(left, right).any():
                    return values
                tally.all += left.size
                tally.defined += left.size
                if isinstance(numbers, TwoFieldNumbers):
                    both = numbers.domain.defined(left) & numbers.domain.defined(right)
                    tally.defined -= int(left.size - both.sum())
        except ZeroDivisionError:
            continue
        return None
    return None


def first_wrong(
    rule: Rule, points: Sequence[Found], kind: Callable[[int], Numbers], seeds: Sequence[int]
) -> Wrong | bool:
    """The smallest instance at which both sides differ; otherwise whether anything was compared."""
    tally = _Tally()
    draws = [(kind(seed), seed) for seed in seeds]
    for bindings in points:
        sides = program(rule, bindings, draws[0][0].dtype)
        for numbers, seed in draws:
            values = _refute(sides, bindings, numbers, seed, tally)
            if values is not None:
                return bindings, numbers, values
    return tally.defined > _LEAST_DEFINED * tally.all


def smallest(rule: Rule, wrong: Wrong, seed: int) -> Wrong:
    """The smallest of some instances at which the same numbers differ."""
    for found in smaller_instances(rule, wrong[0], seed=seed):
        wrong = _smaller(rule, wrong, found, seed) or wrong
    while True:
        nearby = (_smaller(rule, wrong, one, seed) for one in shrunk_instances(rule, wrong[0]))
        smaller = next((one for one in nearby if one is not None), None)
        if smaller is None:
            return wrong
        wrong = smaller


def _smaller(rule: Rule, wrong: Wrong, found: Found, seed: int) -> Wrong | None:
    """The same difference at ``found``, if it is there and that is smaller."""
    numbers = wrong[1]
    whole = any(t.dtype == "int64" for t in found.types.values())
    if isinstance(numbers, IntegerNumbers) != whole:
        return None
    if found.origin.elements >= wrong[0].origin.elements:
        return None
    values = _refute(program(rule, found, numbers.dtype), found, numbers, seed, _Tally())
    return (found, numbers, values) if values is not None else None
