"""The check that a rule which replaces constants by their targets moves results little.

Such a rule is an equation at the targets (:mod:`eqsat_opt.proving.typing.closure`). Elsewhere
within its tolerance it may move a result by a few times the tolerance, but not by more: the
distance of a constant from its target, times a large number, may be of any size. Even a small
difference may grow to any size when it is summed or multiplied along an axis, so instances with one
very long extent are tried as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from eqsat_opt.proving.checks.differences import Wrong
from eqsat_opt.proving.instances.search import Found, long_instances
from eqsat_opt.proving.numbers.evaluation import Program, Values, program
from eqsat_opt.proving.numbers.reals import RealNumbers
from eqsat_opt.rules.bindings import fits
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr

__all__ = ["first_moved"]

_POINTS = 16
_MOST = 16.0
"""Most movement of a result, in tolerances, relative to the values that it is made from."""
_WITHIN = 0.9
"""Share of the tolerance by which constants are moved."""
_LONG = 4_096
"""The extent that counts as long; channels, rows and windows of large models do not exceed it."""
_STRETCHED = 8
"""Number of instances whose extents are made long, one after the other."""
_MOST_LONG = 32
_DRAWS = (0, 1)
"""Kinds of real values small enough that exponentials do not magnify a movement of them."""


def first_moved(rule: Rule, points: Sequence[Found], seed: int) -> Wrong | None:
    """Find an instance within the tolerances of ``rule`` at which it moves a result too far."""
    near = [condition for condition in rule.when if condition.kind == "near"]
    if not near:
        return None
    some = points[:: max(1, len(points) // _POINTS)]
    long = long_instances(rule, points[:: max(1, len(points) // _STRETCHED)], _LONG)
    for point in (*some, *islice(long, _MOST_LONG)):
        drawn = [*_drawn(point, seed)]  # constants are attributes: values do not depend on them
        for condition in near:
            for found in _within(rule, condition, point):
                both = program(rule, found, RealNumbers.dtype)
                for numbers, values in drawn:
                    if _moves(both, numbers, values, condition.args[2]):
                        return found, numbers, values
    return None


def _drawn(found: Found, seed: int) -> Iterator[tuple[RealNumbers, Values]]:
    """Yield real values of some kinds, and values of both signs whose products stay in range."""
    for draw in _DRAWS:
        numbers = RealNumbers(draw)
        yield numbers, numbers.draw(found, seed + draw)
    numbers = RealNumbers(0)
    values = numbers.draw(found, seed)
    yield numbers, {n: v if v.dtype == bool else np.sign(v) for n, v in values.items()}
    # Movements add up along ones, and are visible beside values near 0.
    for nothing in values:
        yield (
            numbers,
            {
                n: v if v.dtype == bool else v * 1e-3 if n == nothing else np.ones_like(v)
                for n, v in values.items()
            },
        )


def _moves(both: Program, numbers: RealNumbers, values: Values, tolerance: float) -> bool:
    numbers.domain.restart(list(values.values()))
    sides = both.sides(values, numbers.domain)
    exact = next(sides)
    # Intermediate results of the right side set no scale: they may be the ones too large.
    allowed = _MOST * tolerance * numbers.domain.greatest
    return any(
        (np.isfinite(left) & ~(np.abs(left - right) <= allowed)).any()
        for left, right in zip(exact, next(sides), strict=True)
    )


def _within(rule: Rule, condition: Condition, point: Found) -> Iterator[Found]:
    """Yield instances with constants off their targets, at which the rule still applies."""
    sides = [side for side in condition.args[:2] if isinstance(side, Expr)]
    names = [str(leaf.args[0]) for side in sides for leaf in side.leaves() if leaf.kind == "attr"]
    movable = {n: v for n, v in point.attrs.items() if isinstance(v, float)}
    tried: set[tuple[str, ...]] = set()
    for name in (name for name in names if name in movable):
        alike = tuple(n for n, value in movable.items() if value == movable[name])
        for moved in ((name,), alike):
            if moved in tried:
                continue
            tried.add(moved)
            for sign in (1.0, -1.0):
                factor = 1.0 + sign * _WITHIN * condition.args[2]
                changes = {n: movable[n] * factor for n in moved}
                found = replace(point, attrs={**point.attrs, **changes})
                if fits(rule.roots, rule.when, found):
                    yield found
