"""Typed instances of a rule's left side: all small ones where they are few, then drawn ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.verify.choices import Exhaustive, Random, runs
from eqsat_opt.rules.verify.schemes import scheme_of
from eqsat_opt.rules.verify.typing import RankHints, Typing

__all__ = ["Instances", "elements", "find_instances", "smaller_instances"]

_TOO_MANY = 3_000
"""Assignments to try before an enumeration up to a bound is given up."""
_IN_VAIN = 1_500
"""Draws in a row without a new instance after which there are taken to be no more."""
_HOPELESS = 800
"""The same where no instance was found at all."""
_ASSIGNMENTS = 6
"""Assignments drawn per typing."""
_SURPLUS = 3
"""Instances drawn for each that is kept."""
_SMALLER = 2_000
"""Small instances drawn to make a counterexample smaller."""
_MOST_ELEMENTS = 3_000
"""Larger instances cost time and find nothing that smaller ones do not."""


@dataclass(frozen=True)
class Instances:
    """Instances of one directed rule at which both sides type, smallest first.

    Attributes:
        points: what the variables are.
        guarded: instances met at which the right side does not type.
        complete_to: every instance of the enumerated ranks and attributes with extents up to this
            is among the points; 0 if there were too many.
        largest_extent: greatest extent of an operand.
    """

    points: tuple[Bindings, ...]
    guarded: int
    complete_to: int
    largest_extent: int


def elements(bindings: Bindings) -> int:
    """Number of elements of all operands."""
    return sum(type_.static_size() for type_ in bindings.types.values())


def _key(bindings: Bindings) -> str:
    return f"{sorted(bindings.types.items(), key=str)}{sorted(bindings.attrs.items(), key=str)}"


def _size(bindings: Bindings) -> tuple[int, str]:
    return elements(bindings), _key(bindings)


def _accepted(rule: Rule, typing: Typing) -> Bindings | None:
    bindings = typing.bindings()
    if any(d < 1 for t in bindings.types.values() for d in t.static_shape()):
        return None
    if elements(bindings) > _MOST_ELEMENTS:
        return None
    try:
        for root in rule.lhs:
            type_of(root, bindings)
    except (IllTyped, Undefined, ZeroDivisionError):
        return None
    fits = all(holds(c, bindings, lambda *_: True) for c in rule.when)
    return bindings if fits else None


def _typed(rule: Rule, hints: RankHints, chooser: Exhaustive | Random) -> Typing | None:
    typing = Typing(rule, hints, chooser, scheme_of)
    try:
        typing.run()
    except (IllTyped, Undefined, ZeroDivisionError):
        return None
    return typing


def _typings(rule: Rule, hints: RankHints) -> Iterator[Typing | None]:
    for chooser in runs():
        yield _typed(rule, hints, chooser)


def _enumerate(rule: Rule, hints: RankHints, bound: int, most: int) -> dict[str, Bindings] | None:
    """All instances with extents up to ``bound``; ``None`` if they are more than ``most``."""
    found: dict[str, Bindings] = {}
    work = 0
    for typing in _typings(rule, hints):
        work += 4
        if work > _TOO_MANY:
            return None
        if typing is None:
            continue
        for _ in typing.extents.assignments(bound):
            work += 1
            if work > _TOO_MANY:
                return None
            bindings = _accepted(rule, typing)
            if bindings is not None:
                found[_key(bindings)] = bindings
                if len(found) > most:
                    return None
    return found


def _draw(
    rule: Rule, hints: RankHints, rng: np.random.Generator, most: tuple[int, int] = (3, 5)
) -> Iterator[Bindings | None]:
    """Instances of random typings with extents from a pool of one to three sizes each.

    The sizes go up to the first of ``most``, in four assignments out of ten up to the second.
    """
    chooser = Random(rng)
    while True:
        typing = _typed(rule, hints, chooser)
        if typing is None:
            yield None
            continue
        count = len(typing.extents.free())
        for _ in range(_ASSIGNMENTS):
            high = most[0] if rng.random() < 0.6 else most[1]
            pool = rng.integers(0, high + 1, size=rng.integers(1, 4))
            values = [int(v) for v in rng.choice(pool, size=count)] if count else []
            accepted = _accepted(rule, typing) if typing.extents.assign(values) else None
            yield accepted
            if accepted is not None:
                break  # another typing tells more than other extents


class _Coverage:
    """Pairs of values, of attributes and extents, that some instance combines."""

    def __init__(self) -> None:
        self._pairs: set[tuple[tuple[str, Any], tuple[str, Any]]] = set()

    def grows_by(self, bindings: Bindings) -> bool:
        """Add an instance; whether it combines two values that none did before."""
        before = len(self._pairs)
        self._pairs.update(combinations(sorted(_features(bindings), key=str), 2))
        return len(self._pairs) > before


def _features(bindings: Bindings) -> Iterator[tuple[str, Any]]:
    for name, value in bindings.attrs.items():
        if isinstance(value, tuple) and all(isinstance(part, int) for part in value):
            yield name, len(value)
            yield from ((f"{name}[{i}]", part) for i, part in enumerate(value))
        else:
            yield name, str(value)
    for name, type_ in bindings.types.items():
        yield f"{name}.rank", type_.rank
        # Larger extents are alike: only whether two of them agree would matter.
        yield from ((f"{name}.dim({i})", min(d, 3)) for i, d in enumerate(type_.static_shape()))


def _right_types(rule: Rule, bindings: Bindings) -> bool:
    try:
        for root in rule.rhs:
            type_of(root, bindings)
    except (IllTyped, Undefined, ZeroDivisionError):
        return False
    return True


def find_instances(rule: Rule, *, limit: int, seed: int = 0, bound: int = 3) -> Instances:
    """About ``limit`` instances: all up to the greatest feasible extent, and drawn ones.

    Args:
        rule: one direction of it.
        limit: how many, at most; where all small ones are among them, two thirds of it more.
        seed: of what is drawn.
        bound: greatest extent to enumerate to.
    """
    hints = RankHints(rule)
    met: dict[str, Bindings] = {}
    complete = 0
    for extent in range(1, bound + 1):
        every = _enumerate(rule, hints, extent, limit)
        if every is None:
            break
        met, complete = every, extent
    found = {key: bindings for key, bindings in met.items() if _right_types(rule, bindings)}
    seen = set(met)
    limit = max(limit, len(found) + 2 * limit // 3)
    coverage = _Coverage()
    spare: dict[str, Bindings] = {}
    in_vain = draws = 0
    for drawn in _draw(rule, hints, np.random.default_rng(seed)):
        if len(found) >= limit or in_vain > (_IN_VAIN if found else _HOPELESS):
            break
        in_vain += 1
        if drawn is None or (key := _key(drawn)) in seen:
            continue
        seen.add(key)
        if not _right_types(rule, drawn):
            continue
        in_vain = 0
        draws += 1
        # An instance that combines no two values for the first time waits.
        kept = found if coverage.grows_by(drawn) else spare
        kept[key] = drawn
        if draws >= _SURPLUS * limit:
            break
    guarded = len(seen) - len(found) - len(spare)
    for key in list(spare)[: max(0, limit - len(found))]:
        found[key] = spare[key]
    points = tuple(sorted(found.values(), key=_size))
    largest = max(
        (d for b in points for t in b.types.values() for d in t.static_shape()), default=0
    )
    return Instances(points, guarded, complete, largest)


def smaller_instances(rule: Rule, than: Bindings, *, seed: int = 0) -> Iterator[Bindings]:
    """Instances with fewer elements than ``than``, drawn from small sizes."""
    rng = np.random.default_rng(seed)
    limit = elements(than)
    seen: set[str] = set()
    for count, drawn in enumerate(_draw(rule, RankHints(rule), rng, (2, 3))):
        if count >= _SMALLER:
            return
        if drawn is None or elements(drawn) >= limit or (key := _key(drawn)) in seen:
            continue
        seen.add(key)
        if _right_types(rule, drawn):
            yield drawn
