"""The check that a rule which replaces constants by their targets moves results little.

Such a rule is an equation at the targets (:mod:`eqsat_opt.proving.typing.closure`). Elsewhere
within its tolerance it may move a result by a few times the tolerance, but not by more: the
distance of a constant from its target, times a large number, may be of any size. Even a small
difference may grow to any size when it is summed or multiplied along an axis, so instances with one
very long extent are tried as well. A function may magnify it, as an exponential of large numbers
does; so results at large operands may move by as much as rounding to that tolerance after the last
function would explain, and not by what the function makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, permutations, product

import numpy as np

from eqsat_opt.ir.ops.domains import FLOAT
from eqsat_opt.proving.checks.bounds import bounded_results
from eqsat_opt.proving.checks.differences import Wrong
from eqsat_opt.proving.instances.search import Found, long_instances
from eqsat_opt.proving.numbers.evaluation import Program, Values, program
from eqsat_opt.proving.numbers.reals import RealNumbers, literals
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
_MAGNIFIED = 4
"""Number of instances, the largest, that are evaluated at large operands."""
_SIZE = 1e4
"""Size of large operands, such as logits."""
_RATIOS = 5
"""Number of ratios at which two large operands cancel."""
_DRAWS = (0, 1)
"""Kinds of real values small enough that exponentials do not magnify a movement of them."""


def first_moved(rule: Rule, points: Sequence[Found], seed: int) -> Wrong | None:
    """Find an instance within the tolerances of ``rule`` at which it moves a result too far."""
    near = [condition for condition in rule.when if condition.kind == "near"]
    if not near:
        return None
    some = points[:: max(1, len(points) // _POINTS)]
    for point in some[-_MAGNIFIED:]:
        large = [*_large(point, rule, seed)]
        for condition in near:
            for found in _within(rule, condition, point):
                both = program(rule, found, RealNumbers.dtype)
                values = _first_magnified(both, large, condition.args[2])
                if values is not None:
                    return found, RealNumbers(0), values
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


def _large(found: Found, rule: Rule, seed: int) -> Iterator[Values]:
    """Yield large values of each operand, of two that cancel, and values at numbers of the rule.

    Two operands cancel at a ratio of numbers of the rule, in every element or in some: what treats
    all elements alike, as softmax does, shows no movement that they share.
    """
    rng = np.random.default_rng(seed)
    ordinary = RealNumbers(0).draw(found, seed)
    names = [name for name, value in ordinary.items() if value.dtype.kind == "f"]
    shapes = {name: ordinary[name].shape for name in names}
    numbers = {1.0, *map(abs, literals(rule)), *_targets(rule)}
    special = sorted({a / b for a in numbers for b in numbers})
    for name in names:
        yield {**ordinary, name: rng.standard_normal(shapes[name]) * _SIZE}
    for one, other in permutations(names, 2):
        for ratio, sign in product(sorted(special, key=_plainness)[:_RATIOS], (1.0, -1.0)):
            for share in (1.0, 0.5):
                large = {
                    shape: _SIZE * (rng.random(shape) < share)
                    for shape in dict.fromkeys(shapes.values())
                }
                near = {n: large[shapes[n]] + rng.standard_normal(shapes[n]) for n in (one, other)}
                near[other] += (ratio - 1.0) * large[shapes[other]]
                yield {**ordinary, one: near[one], other: sign * near[other]}
    yield {**ordinary, **{name: rng.choice(special, shapes[name]) for name in names}}


def _targets(rule: Rule) -> set[float]:
    """Return the numbers, except 0, that constants of a rule are near."""
    sides = (side for c in rule.when if c.kind == "near" for side in c.args[:2])
    found = (one.args[0] if isinstance(one, Expr) else one for one in sides)
    return {abs(float(one)) for one in found if isinstance(one, int | float) and one}


def _plainness(ratio: float) -> tuple[float, float]:
    """Return a key by which ratios are in order of their distance from 1."""
    return abs(np.log(ratio)), ratio


def _first_magnified(both: Program, draws: Sequence[Values], tolerance: float) -> Values | None:
    """Return the first values at which a result moves further than its sums and products do."""
    far = []
    for values in draws:
        pairs = [(np.asarray(a), np.asarray(b)) for a, b in both.run(values, FLOAT)]
        if any((np.abs(a - b) > _MOST * tolerance * np.abs(a)).any() for a, b in pairs):
            far.append((values, pairs))
    if not far:
        return None
    given = [values for values, _ in far]
    bounds = bounded_results(both, given, "float64", roundoffs=(tolerance,), sensitive=False)[0]
    for place, (values, pairs) in enumerate(far):
        for (left, right), (bounded, _) in zip(pairs, bounds, strict=True):
            error = bounded.error[..., place] + tolerance * np.abs(left)
            kept = np.isfinite(left) & ~bounded.left[..., place]
            if (kept & ~(np.abs(left - right) <= _MOST * error)).any():
                return values
    return None


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
