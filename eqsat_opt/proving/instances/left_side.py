"""Typed instances of a rule's left side, in an order that depends on the left side alone.

Rules with the same left side (such as mutants of a rule, or a rule that is checked twice) share the
instances found, so that they are typed once.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import islice, permutations
from typing import TYPE_CHECKING, Any

from eqsat_opt.ir.values.types import FLOATS, INTEGERS
from eqsat_opt.proving.numbers.evaluation import Remembering
from eqsat_opt.proving.typing.choices import Chooser, Decisions, Drawing
from eqsat_opt.proving.typing.closure import closure
from eqsat_opt.proving.typing.hints import Hints
from eqsat_opt.proving.typing.landmarks import Landmarks, landmarks
from eqsat_opt.proving.typing.most_general import Typing
from eqsat_opt.proving.typing.schemes import scheme_of
from eqsat_opt.proving.typing.templates import Instance, Template
from eqsat_opt.rules.bindings import REFUSED, Bindings, fits, holds
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import Condition, Expr, Term

if TYPE_CHECKING:
    from eqsat_opt.proving.instances.models_z3 import Model

__all__ = ["Found", "LeftSide", "Sizes", "left_side"]

_TOO_MANY = 3_000
"""Number of assignments to try before an enumeration up to a bound is given up."""
_ASSIGNMENTS = 6
"""Number of assignments drawn per typing."""
_BARREN = 5
"""Number of times that a typing is drawn before it is given up, if none of its assignments fit."""
_MOST_ELEMENTS = 3_000
"""Most elements of an instance; larger ones cost time and find nothing that smaller ones do not."""
_MOST_PINNED = 20_000
"""Most elements of an instance whose sizes are given."""
_TIMES = 6
"""Least limit on the elements of an instance with a long extent, as a multiple of it."""
_TOGETHER = 0.6
"""Probability, where attributes are large, that a second extent is about as long.

A window and its data are an example.
"""
_OTHERS = 2
"""Greatest length of the other extents beside one that is very long."""
_LOOKED_AT = 30
"""Number of typings, and of instances of each, that are searched for an instance with floats."""
_NEGATIVE = 0.3
"""Share of the assignments in which an unknown is negative, if it may be."""
_PLURAL = 0.75
"""Share of the assignments beside given sizes in which no other size is drawn as 0 or 1."""
_REMEMBERED = 4
"""Number of left sides that are cached."""
_FEW = (1, 2, 2, 3)
"""Extents to draw for operands of many axes."""
_CONFUSED = (*REFUSED, ArithmeticError, LookupError, TypeError, ValueError)
"""Errors that a scheme may raise on a right side or a given size, which may be any number."""


@dataclass
class Found(Remembering):
    """An instance at which the left side types and the conditions hold.

    Attributes:
        origin: typing and extents that the instance was made from, or formulas and their model.
    """

    origin: Instance | Model = field(kw_only=True, compare=False, repr=False)

    @property
    def whole(self) -> bool:
        """Whether some operand has integers and none has floating-point numbers."""
        dtypes = {type_.dtype for type_ in self.types.values()}
        return not dtypes.isdisjoint(INTEGERS) and dtypes.isdisjoint(FLOATS)


@dataclass(frozen=True)
class Sizes:
    """The extents that are drawn.

    Attributes:
        most: greatest extent in six assignments out of ten.
        some: greatest extent in the others.
        long: whether up to three extents are larger than these: beside or beyond the numbers of the
            rule, or a few times as large as the attributes of the instance.
        high: whether ranks are high.
        large: whether attributes that count something are large as well, and long extents occur
            together.
    """

    most: int
    some: int
    long: bool = False
    high: bool = False
    large: bool = False


_PINNED = Sizes(2, 3)
"""Extents beside those that are given."""
_MOST_RELATED = 600
"""Largest extent that is made of given ones."""


def _unrelated(*_: str) -> bool:
    return True


class _Replayed:
    """An endless sequence that is computed once and read by many readers, each from its start."""

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
    """All instances up to some extents; ``None`` if they exceed ``most`` or take too much work."""

    found: dict[Any, Found] | None
    most: int

    def settles(self, most: int) -> bool:
        """Return whether the result also answers the question for the limit ``most``."""
        return self.found is not None or most <= self.most


class LeftSide:
    """The instances found so far for a left side under the conditions of its rule."""

    def __init__(
        self, lhs: tuple[Term, ...], when: tuple[Condition, ...], marks: Landmarks
    ) -> None:
        """Find the element types to draw, and no instances yet."""
        self._lhs, self._when = lhs, when
        self.marks = marks
        self._known: dict[Any, Bindings | None] = {}
        self._dtypes = self._admitted()
        self.dtypes = tuple(dict.fromkeys(self._dtypes))
        self._decisions = Decisions(partial(self._typed, self._hints()))
        self._high = Decisions(partial(self._typed, self._hints(high=True)))
        self._large = Decisions(partial(self._typed, self._hints(large=True)))
        self._enumerated: dict[int, _Enumeration] = {}
        self._sequences: dict[Any, _Replayed] = {}

    def _hints(self, high: bool = False, large: bool = False) -> Hints:
        hints = Hints(lhs=self._lhs, when=self._when, marks=self.marks, high=high, large=large)
        hints.dtypes = self._dtypes
        return hints

    def _admitted(self) -> tuple[str, ...]:
        """Return the element types to draw.

        Those that operators refuse, although they take floats, are left out.
        """
        hints = Hints(self._lhs, self._when, self.marks)
        every, floats = hints.dtypes, tuple(d for d in hints.dtypes if d in FLOATS)
        if not floats or len(floats) == len(every):
            return every
        hints.dtypes = floats
        for template in islice(Decisions(partial(self._typed, hints)).core(), _LOOKED_AT):
            for instance in islice(template.all(3), _LOOKED_AT) if template is not None else ():
                found = self._accepted(instance)
                if found is not None:
                    fit = {d: self._fits(_retyped(found, floats[0], d)) for d in every}
                    return tuple(d for d in every if d in floats or fit[d])
        return every

    def _typed(self, hints: Hints, chooser: Chooser) -> Template | None:
        typing = Typing(self._when, hints, chooser, scheme_of)
        try:
            typing.run(self._lhs)
        except REFUSED:
            return None
        return Template(typing)

    def _accepted(
        self, instance: Instance | Model | None, most: int = _MOST_ELEMENTS
    ) -> Found | None:
        if instance is None or instance.elements > most:
            return None
        key = instance.key
        if key not in self._known:
            bindings = instance.bindings()
            self._known[key] = bindings if self._fits(bindings) else None
        known = self._known[key]
        return Found(known.types, known.attrs, origin=instance) if known is not None else None

    def _fits(self, bindings: Bindings) -> bool:
        return fits(self._lhs, self._when, bindings)

    def modelled(self, rule: Rule, seed: int) -> Iterator[Found | None]:
        """Yield instances that z3 finds for a rule with this left side, or ``None`` for failures.

        Args:
            rule: the rule at the limit of its tolerances.
            seed: seed of everything drawn.

        Returns:
            An empty sequence where z3 is not installed.
        """
        if find_spec("z3") is None:
            return iter(())
        from eqsat_opt.proving.instances.models_z3 import models  # proofs are slow to import

        found = models(rule, Hints(self._lhs, self._when), seed=seed)
        return (self._accepted(one) for one in found)

    def shrunk(self, found: Found) -> Iterator[Found]:
        """Yield smaller instances of the same typing."""
        smaller = (self._accepted(one) for one in found.origin.shrunk())
        return (one for one in smaller if one is not None)

    def emptied(self, found: Found) -> Iterator[Found]:
        """Yield instances of the same typing with an extent of 0."""
        empty = (self._accepted(one) for one in found.origin.emptied())
        return (one for one in empty if one is not None)

    def stretched(self, found: Found, extent: int) -> Iterator[Found]:
        """Yield instances of the same typing with one long extent and otherwise small ones."""
        most = _TIMES * _OTHERS**3 * extent
        for instance in found.origin.stretched(extent, _OTHERS):
            if (one := self._accepted(instance, most)) is not None:
                yield one

    def every(self, bound: int, most: int) -> dict[Any, Found] | None:
        """Return all instances with extents up to ``bound``; ``None`` if more than ``most``."""
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
        """Yield instances of random typings with extents from a pool of one to three sizes each.

        Numbers that may be negative sometimes are. A failed attempt yields ``None``.
        """
        key = seed, sizes
        if key not in self._sequences:
            decisions = self._decisions_for(sizes)
            rng = random.Random(f"large {seed}" if sizes.large else seed)
            source = self._draw(decisions, rng, sizes)
            self._sequences[key] = _Replayed(source)
        return iter(self._sequences[key])

    def _decisions_for(self, sizes: Sizes) -> Decisions[Template]:
        if sizes.large:
            return self._large
        return self._high if sizes.high else self._decisions

    def guided(self, rhs: tuple[Term, ...], seed: int, sizes: Sizes) -> Iterator[Found | None]:
        """Yield instances like those of :meth:`drawn` at which ``rhs`` is likely to type.

        No scheme covers everything that types, so these are to be mixed with the others.
        """
        hints = self._hints(large=sizes.large)
        decisions = Decisions(partial(self._attempted, hints, self._when, rhs))
        return self._draw(decisions, random.Random(f"guided {seed}"), sizes)

    def pinned(
        self, pins: tuple[Condition, ...], ranks: Mapping[str, int], tries: int
    ) -> Iterator[Found]:
        """Yield instances at which some sizes have given values, from a few draws.

        Other sizes are small, or sums, differences, products and quotients of the given ones.

        Args:
            pins: equations of a size and a whole number.
            ranks: ranks of operands.
            tries: number of draws.
        """
        related = _related([pin.args[1].args[0] for pin in pins])
        given = (*(Expr("rank", (name,)) == rank for name, rank in ranks.items()), *pins)
        rng = random.Random(" ".join(map(str, given)))
        for found in islice(
            self._draw(self._decided(given, related), rng, _PINNED, related), tries
        ):
            if found is not None and all(holds(pin, found, _unrelated) for pin in pins):
                yield found

    def _decided(
        self, pins: tuple[Condition, ...], related: tuple[int, ...]
    ) -> Decisions[Template]:
        """Return the typings of the left side at which some sizes have given values."""
        when = (*self._when, *pins)
        marks = replace(self.marks, counts=related, drawn=())
        hints = Hints(lhs=self._lhs, when=when, marks=marks, even=True)
        # Sizes are the point here, and attributes that are no whole numbers fit floats only.
        hints.dtypes = tuple(d for d in self._dtypes if d in FLOATS) or self._dtypes
        return Decisions(partial(self._attempted, hints, when, ()))

    def _attempted(
        self, hints: Hints, when: tuple[Condition, ...], rhs: tuple[Term, ...], chooser: Chooser
    ) -> Template | None:
        """Return the typing by some decisions; ``None`` where numbers fit no scheme."""
        typing = Typing(when, hints, chooser, scheme_of)
        try:
            typing.run(self._lhs)
            typing.run_right(rhs)
        except _CONFUSED:
            return None
        return Template(typing)

    def _draw(
        self,
        decisions: Decisions[Template],
        rng: random.Random,
        sizes: Sizes,
        beside: tuple[int, ...] = (),
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
                values = _small(template, sizes, uniform, beside)
                most = _MOST_PINNED if beside else _MOST_ELEMENTS
                if sizes.long and values:
                    most = max(most, _TIMES * self._lengthen(values, template, sizes, uniform))
                found = self._accepted(template.at(values), most)
                yield found
                if found is not None:
                    fertile.add(template)
                    break  # another typing is more informative
            else:
                vain[template] += 1
                if vain[template] >= _BARREN and template not in fertile:
                    drawing.give_up()

    def _lengthen(
        self, values: list[int], template: Template, sizes: Sizes, uniform: Callable[[], float]
    ) -> int:
        """Make some extents long, and return the longest of them."""
        reach = template.reach
        anywhere = (6 + int(uniform() * 15), 3 + int(uniform() * 6))
        steps = (reach, reach + 1, 2 * reach + 1, 3 * reach + 2, *anywhere)
        longest = 0
        for _ in range(1 + int(uniform() * 1.5) + int(uniform() * 1.3)):
            pool = steps if uniform() < 0.5 else self.marks.counts or steps
            value = pool[int(uniform() * len(pool))]
            places = (template.named if sizes.large else ()) or range(len(values))
            values[places[int(uniform() * len(places))]] = value
            if sizes.large and uniform() < _TOGETHER:
                values[int(uniform() * len(values))] = value + int(uniform() * 3)
            longest = max(longest, value)
        return longest


def _retyped(bindings: Bindings, dtype: str, to: str) -> Bindings:
    """Replace one element type by another in all types and attributes."""
    types = {n: replace(t, dtype=to) if t.dtype == dtype else t for n, t in bindings.types.items()}
    return Bindings(types, {n: to if v == dtype else v for n, v in bindings.attrs.items()})


def _related(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return sizes that others may have to be where these are given."""
    found = {*sizes}
    for a, b in permutations(sizes, 2):
        found |= {a + b, a - b, a * b, a // b if b else a}
    return tuple(sorted(size for size in found if 1 <= size <= _MOST_RELATED))


def _small(
    template: Template,
    sizes: Sizes,
    uniform: Callable[[], float],
    beside: tuple[int, ...] = (),
) -> list[int]:
    """Draw extents from a pool of one to three sizes; where there are many axes, few are long.

    Some are among the sizes ``beside``, if there are any.
    """
    if sizes.high:
        return [_FEW[int(uniform() * len(_FEW))] if low >= 0 else low for low in template.lows]
    most = sizes.most if uniform() < 0.6 else sizes.some
    count = int(uniform() * 3) + 1
    # Beside given sizes, an extent of 1 hides much: a softmax over one key is 1.
    least = 2 if beside and uniform() < _PLURAL else 0
    pool = [least + int(uniform() * (most + 1 - least)) for _ in range(count)]
    if beside:
        pool += [beside[int(uniform() * len(beside))] for _ in range(count)]
        count = len(pool)
    return [
        low if low < 0 and uniform() < _NEGATIVE else pool[int(uniform() * count)]
        for low in template.lows
    ]


@lru_cache(_REMEMBERED)
def _remembered(
    lhs: tuple[Term, ...], when: tuple[Condition, ...], marks: Landmarks, _thread: int
) -> LeftSide:
    return LeftSide(lhs, when, marks)


def left_side(rule: Rule) -> LeftSide:
    """Return the left side of a rule at the limit of its tolerances; recent ones are cached.

    Each thread has its own cache, because reading a sequence computes it.
    """
    limit = closure(rule)
    return _remembered(limit.lhs, limit.when, landmarks(rule), threading.get_ident())
