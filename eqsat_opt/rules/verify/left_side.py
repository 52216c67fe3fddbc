"""Typed instances of a rule's left side, in an order that depends on the left side alone.

Rules with one left side (the mutants of a rule, and a rule that is looked at twice) share what was
found, so typing is paid for once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.rules.bindings import Bindings, Undefined, holds, type_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Term
from eqsat_opt.rules.verify.choices import Chooser, Decisions, Drawing
from eqsat_opt.rules.verify.closure import closure
from eqsat_opt.rules.verify.hints import Hints
from eqsat_opt.rules.verify.schemes import scheme_of
from eqsat_opt.rules.verify.templates import Instance, Template
from eqsat_opt.rules.verify.typing import Typing

__all__ = ["REFUSED", "Found", "LeftSide", "Sizes", "left_side"]

_TOO_MANY = 3_000
"""Assignments to try before an enumeration up to a bound is given up."""
_ASSIGNMENTS = 6
"""Assignments drawn per typing."""
_BARREN = 5
"""Times that a typing is drawn before it is given up, should none of its assignments fit."""
_MOST_ELEMENTS = 3_000
"""Larger instances cost time and find nothing that smaller ones do not."""
_NEGATIVE = 0.3
"""Share of the assignments in which an unknown that may be negative is."""
_REMEMBERED = 4
"""Left sides."""
REFUSED = (IllTyped, Undefined, ZeroDivisionError)
"""What says that an instance does not type."""
_CONFUSED = (*REFUSED, ArithmeticError, LookupError, TypeError, ValueError)
"""What a scheme may raise on a right side, whose attributes may be anything."""


@dataclass
class Found(Bindings):
    """An instance at which the left side types and the conditions hold.

    Attributes:
        origin: the typing and the extents that gave it.
    """

    origin: Instance = field(kw_only=True, compare=False, repr=False)


@dataclass(frozen=True)
class Sizes:
    """Bounds of the extents that are drawn.

    Attributes:
        most: in six assignments out of ten.
        some: in the others.
        longest: of one extent, which is then greater than ``some``; 0 if none is.
    """

    most: int
    some: int
    longest: int = 0


class _Replayed:
    """An endless sequence that everyone reads from its start, and that is computed once."""

    def __init__(self, source: Iterator[Found | None]) -> None:
        self._source = source
        self._made: list[Found | None] = []

    def __iter__(self) -> Iterator[Found | None]:
        position = 0
        while True:
            if position == len(self._made):
                self._made.append(next(self._source))
            yield self._made[position]
            position += 1


@dataclass(frozen=True)
class _Enumeration:
    """All instances up to some extents, unless they were more than ``most``, or too much work."""

    found: dict[Any, Found] | None
    most: int

    def settles(self, most: int) -> bool:
        """Whether it answers the question for ``most``, too."""
        return self.found is not None or most <= self.most


class LeftSide:
    """What was found so far of a left side under the conditions of its rule."""

    def __init__(self, lhs: tuple[Term, ...], when: tuple[Condition, ...]) -> None:
        """Find nothing yet."""
        self._lhs, self._when = lhs, when
        self._hints = Hints(lhs, when)
        self._decisions = Decisions(self._typed)
        self._known: dict[Any, Bindings | None] = {}
        self._enumerated: dict[int, _Enumeration] = {}
        self._sequences: dict[Any, _Replayed] = {}

    def _typed(self, chooser: Chooser) -> Template | None:
        typing = Typing(self._when, self._hints, chooser, scheme_of)
        try:
            typing.run(self._lhs)
        except REFUSED:
            return None
        return Template(typing)

    def _accepted(self, instance: Instance | None) -> Found | None:
        if instance is None or instance.elements > _MOST_ELEMENTS:
            return None
        key = instance.key
        if key not in self._known:
            bindings = instance.bindings()
            self._known[key] = bindings if self._fits(bindings) else None
        known = self._known[key]
        return Found(known.types, known.attrs, origin=instance) if known is not None else None

    def _fits(self, bindings: Bindings) -> bool:
        try:
            for root in self._lhs:
                type_of(root, bindings)
        except REFUSED:
            return False
        return all(holds(c, bindings, lambda *_: True) for c in self._when)

    def shrunk(self, found: Found) -> Iterator[Found]:
        """Smaller instances of the same typing."""
        smaller = map(self._accepted, found.origin.shrunk())
        return (one for one in smaller if one is not None)

    def emptied(self, found: Found) -> Iterator[Found]:
        """Instances of the same typing with an extent of 0."""
        empty = map(self._accepted, found.origin.emptied())
        return (one for one in empty if one is not None)

    def every(self, bound: int, most: int) -> dict[Any, Found] | None:
        """All instances with extents up to ``bound``; ``None`` if they are more than ``most``."""
        if bound not in self._enumerated or not self._enumerated[bound].settles(most):
            self._enumerated[bound] = self._enumerate(bound, most)
        found = self._enumerated[bound].found
        return found if found is not None and len(found) <= most else None

    def _enumerate(self, bound: int, most: int) -> _Enumeration:
        found: dict[Any, Found] = {}
        work = 0
        for template in self._decisions.core():
            work += 4
            for instance in template.all(bound) if template is not None else ():
                work += 1
                one = self._accepted(instance)
                if one is not None:
                    found.setdefault(one.origin.key, one)
                if work > _TOO_MANY or len(found) > most:
                    return _Enumeration(None, most)
            if work > _TOO_MANY:
                return _Enumeration(None, most)
        return _Enumeration(found, most)

    def drawn(self, seed: int, sizes: Sizes) -> Iterator[Found | None]:
        """Instances of random typings with extents from a pool of one to three sizes each.

        What may be negative sometimes is. ``None`` stands for an attempt in vain.
        """
        key = seed, sizes
        if key not in self._sequences:
            source = self._draw(self._decisions, random.Random(seed), sizes)
            self._sequences[key] = _Replayed(source)
        return iter(self._sequences[key])

    def guided(self, rhs: tuple[Term, ...], seed: int, sizes: Sizes) -> Iterator[Found | None]:
        """Instances like those of :meth:`drawn` at which ``rhs`` is likely to type.

        No scheme knows all that types, so these are to be mixed with those.
        """

        def typed(chooser: Chooser) -> Template | None:
            typing = Typing(self._when, self._hints, chooser, scheme_of)
            try:
                typing.run(self._lhs)
                typing.run_right(rhs)
            except _CONFUSED:
                return None
            return Template(typing)

        return self._draw(Decisions(typed), random.Random(f"guided {seed}"), sizes)

    def _draw(
        self, decisions: Decisions[Template], rng: random.Random, sizes: Sizes
    ) -> Iterator[Found | None]:
        drawing = Drawing(decisions, rng)
        uniform = rng.random
        fertile: set[Template] = set()
        vain: Counter[Template] = Counter()
        while True:
            template = drawing.next()
            if template is None:
                yield None
                continue
            for _ in range(_ASSIGNMENTS):
                most = sizes.most if uniform() < 0.6 else sizes.some
                count = int(uniform() * 3) + 1
                pool = [int(uniform() * (most + 1)) for _ in range(count)]
                values = [
                    low if low < 0 and uniform() < _NEGATIVE else pool[int(uniform() * count)]
                    for low in template.lows
                ]
                if sizes.longest and values:
                    longer = sizes.some + 1 + int(uniform() * (sizes.longest - sizes.some))
                    values[int(uniform() * len(values))] = longer
                found = self._accepted(template.at(values))
                yield found
                if found is not None:
                    fertile.add(template)
                    break  # another typing tells more than other extents
            else:
                vain[template] += 1
                if vain[template] >= _BARREN and template not in fertile:
                    drawing.give_up()


@lru_cache(_REMEMBERED)
def _remembered(lhs: tuple[Term, ...], when: tuple[Condition, ...], _thread: int) -> LeftSide:
    return LeftSide(lhs, when)


def left_side(rule: Rule) -> LeftSide:
    """That of a rule at the limit of its tolerances; one that was asked for recently is the same.

    Threads share none, because a sequence is computed by whoever reads it.
    """
    limit = closure(rule)
    return _remembered(limit.lhs, limit.when, threading.get_ident())
