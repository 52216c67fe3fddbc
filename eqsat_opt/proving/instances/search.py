"""Instances of a rule: all small ones where they are few, then drawn ones that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations, islice, product
from typing import Any

from eqsat_opt.ir.values.types import FLOATS, StaticType
from eqsat_opt.proving.instances.courses import courses
from eqsat_opt.proving.instances.left_side import Found, LeftSide, Sizes, left_side
from eqsat_opt.proving.typing.closure import closure
from eqsat_opt.rules.bindings import REFUSED, Bindings, operator, types_of
from eqsat_opt.rules.rule import Rule
from eqsat_opt.rules.term import applied

__all__ = [
    "USUAL_POINTS",
    "Found",
    "Instances",
    "empty_instances",
    "find_instances",
    "long_instances",
    "shrunk_instances",
    "smaller_instances",
    "varied",
]

USUAL_POINTS = 64
"""Instances per direction by default; all checks of a rule share one drawing."""

_IN_VAIN = 1_500
"""Number of draws in a row without a new instance after which drawing ends."""
_ENOUGH = 300
"""Draws in a row without a new instance after which drawing ends once the limit is reached.

Only coverage can still grow then.
"""
_HOPELESS = 800
"""Draws in a row without an instance after which drawing ends, if none was found at all."""
_MISGUIDED = 60
"""Number of draws in a row without a find after which a guide is no longer used."""
_SCARCE = 24
"""Number of drawn instances below which z3 is asked for others."""
_MODELS = 96
"""Most instances that z3 is asked for."""
_SURPLUS = 3
"""Number of instances drawn for each that is kept."""
_MOST_RESULTS = 1 << 20
"""Most elements of a result."""
_LARGEST = 50_000
"""Largest attribute, such as a pad or dilation; what is padded is evaluated as well."""
_SMALLER = 6_000
"""Number of small instances drawn to make a counterexample smaller."""
_SIZES = Sizes(3, 5)
"""Extents that are drawn."""
_LONG_SIZES = Sizes(1, 2, long=True)
"""Extents of some instances in which a few extents are larger than in all others."""
_LARGE_SIZES = Sizes(1, 2, long=True, large=True)
"""Extents of some instances whose attributes, too, are beside and beyond the rule's numbers."""
_LONG_SHARE = 0.12
"""Share of the limit for each of the two kinds with long extents."""
_LEAST = 30
"""Least number of instances to reach, with long extents where few have small ones."""
_LONG_EACH = 2
"""Long instances for each number beyond the usual ones that the rule may treat specially."""
_HIGH_SIZES = Sizes(3, 3, high=True)
"""Extents of some instances of high rank."""
_HIGH_SHARE = 0.1
_HIGH = 6
"""Rank from which on ranks are high."""
_TRIES = 10
"""Number of draws that are allowed for each instance of a special kind."""
_AT_LEAST = 40
"""Number of draws without a find after which the search for a special kind ends.

A quarter of the allowed draws applies where that is more.
"""
_OF_EACH_TYPE = 3
"""Fewest instances of each element type that the rule is open to."""
_MORE_TYPES = 400
"""Most draws to find instances of element types that are rare."""
_FEWEST_COURSES = 12
"""Least number of courses of a group of sizes that are looked for, those at the fewest sizes first.

A quarter of the limit applies where that is more.
"""
_PIN_TRIES = 18
"""Number of draws for a proposal of sizes."""
_PROPOSALS = 4
"""Number of proposals of a course that are tried."""
_RANKINGS = 2
"""Number of combinations of ranks, the commonest, at which sizes are given."""
_OF_EACH_COURSE = 3
"""Fewest instances of each course: what a course changes may not show at extents of 1."""
_SMALL_SIZES = Sizes(2, 3)
"""Extents of smaller counterexamples."""


@dataclass(frozen=True)
class Instances:
    """Instances of one directed rule at which both sides type, smallest first.

    Attributes:
        points: the instances.
        guarded: number of instances met at which the right side does not type.
        complete_to: every instance of the enumerated ranks and attributes with extents up to this
            is among the points; 0 if there were too many.
        largest_extent: greatest extent of an operand.
    """

    points: tuple[Found, ...]
    guarded: int
    complete_to: int
    largest_extent: int


def _size(found: Found) -> tuple[int, str]:
    return found.origin.elements, str(found.origin.key)


class _Coverage:
    """The pairs of values, of attributes and extents, that some instance combines."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Any], int] = {}
        self._beside: list[int] = []

    def grows_by(self, bindings: Bindings) -> bool:
        """Add an instance, and return whether it combines two values that none did before."""
        present = []
        for feature in _features(bindings):
            number = self._numbers.setdefault(feature, len(self._numbers))
            if number == len(self._beside):
                self._beside.append(0)
            present.append(number)
        together = 0
        for number in present:
            together |= 1 << number
        grows = False
        for number in present:
            grows = grows or bool(together & ~self._beside[number])
            self._beside[number] |= together
        return grows


def _features(bindings: Bindings) -> Iterator[tuple[str, Any]]:
    for name, value in bindings.attrs.items():
        if isinstance(value, tuple) and all(isinstance(part, int) for part in value):
            yield name, len(value)
            yield from ((f"{name}[{i}]", part) for i, part in enumerate(value))
        else:
            yield name, str(value)
    for name, type_ in bindings.static_types.items():
        yield f"{name}.rank", type_.rank
        # Larger extents are alike: only their equality would matter.
        yield from ((f"{name}.dim({i})", min(d, 3)) for i, d in enumerate(type_.shape))


class _Search:
    """The search for instances of a rule, in the order in which they are met.

    Where the right side seldom types, every second draw is one at which it probably does.
    """

    def __init__(self, rule: Rule, side: LeftSide, seed: int, sizes: Sizes) -> None:
        self.rule = rule
        self._drawn = side.drawn(seed, sizes)
        self._special = {
            one: side.drawn(seed, one) for one in (_LONG_SIZES, _LARGE_SIZES, _HIGH_SIZES)
        }
        self._usual = sizes
        self._guided = {
            one: side.guided(rule.rhs, seed, one) for one in (sizes, _LONG_SIZES, _LARGE_SIZES)
        }
        self._seen: set[Any] = set()
        self._draws = self._misguided = 0
        self.typed = self.guarded = 0

    def add(self, found: Found) -> bool:
        """Count an instance, and return whether it is new and the right side types."""
        if found.origin.key in self._seen:
            return False
        self._seen.add(found.origin.key)
        types = _types(self.rule, found)
        self.typed += types
        self.guarded += not types
        return types

    def next(self) -> Found | None:
        """Return the next new instance at which both sides type, if this attempt found one."""
        self._draws += 1
        if self.guarded <= self.typed or self._draws % 2 or self._misguided > _MISGUIDED:
            found = next(self._drawn)
        else:
            found = next(self._guided[self._usual])
            self._misguided = self._misguided + 1 if found is None else 0
        return found if found is not None and self.add(found) else None

    def next_special(self, sizes: Sizes) -> Found | None:
        """Return the next new instance with the special extents or ranks of ``sizes``, if any."""
        self._draws += 1
        of = self._guided if self.guarded > self.typed and self._draws % 2 else self._special
        found = next(of.get(sizes, self._special[sizes]))
        return found if found is not None and self.add(found) else None


def _types(rule: Rule, found: Found) -> bool:
    """Return whether the right side has a type, and no result is too large to evaluate."""
    try:
        if any(
            isinstance(type_, StaticType) and type_.size > _MOST_RESULTS
            for root in rule.roots
            for type_ in types_of(root, found)
        ):
            return False
        return not any(
            isinstance(part, int) and abs(part) > _LARGEST
            for term in applied(rule.roots)
            for value in operator(term, found)[1].values()
            for part in (value if isinstance(value, tuple) else (value,))
        )
    except REFUSED:
        return False


def _special(search: _Search, sizes: Sizes, count: int) -> Iterator[Found]:
    """Yield up to ``count`` new instances of a kind, unless there seem to be none.

    Little more than half of the instances of high rank may have the same rank.
    """
    met = 0
    ranks: Counter[int] = Counter()
    for tried in range(_TRIES * count):
        found = search.next_special(sizes)
        rank = _rank(found) if found is not None and sizes.high else _HIGH
        if found is not None and rank >= _HIGH and (not sizes.high or 2 * ranks[rank] <= count):
            yield found
            met += 1
            ranks[rank] += 1
        if met == count or (not met and tried > max(_AT_LEAST, _TRIES * count // 4)):
            return


def _rank(found: Found) -> int:
    return max((type_.rank for type_ in found.types.values()), default=0)


def _missing(search: _Search, kept: Sequence[Found], dtypes: Sequence[str]) -> Iterator[Found]:
    """Yield instances of the element types of which there are too few."""
    met = Counter(dtype for one in kept for dtype in {t.dtype for t in one.types.values()})
    wanted = {dtype for dtype in dtypes if met[dtype] < _OF_EACH_TYPE}
    if not any(one.whole for one in kept):
        wanted &= FLOATS
    for _ in range(_MORE_TYPES if wanted else 0):
        found = search.next()
        of = {type_.dtype for type_ in found.types.values()} & wanted if found is not None else None
        if found is not None and of:
            yield found
            met.update(of)
            wanted -= {dtype for dtype in of if met[dtype] >= _OF_EACH_TYPE}
        if not wanted:
            return


def _meeting(search: _Search, side: LeftSide, kept: Sequence[Found], most: int) -> Iterator[Found]:
    """Yield instances of courses of the rule's sizes that few instances take yet."""
    ranks = Counter(_ranks(found) for found in kept)
    usual = [dict(one) for one, _ in ranks.most_common(_RANKINGS)]
    for group in courses(search.rule):
        taken = Counter(key for found in kept for key in group.of(found))
        legal = {_signs(one) for one in map(group.at, kept) if one is not None}
        oddity = partial(_oddity, legal)
        rare = [
            (wanted.key, sorted(wanted.values, key=oddity)[:_PROPOSALS])
            for wanted in group.wanted
            if taken[wanted.key] < _OF_EACH_COURSE
        ]
        rare.sort(key=lambda one: oddity(one[1][0]))
        for key, proposals in rare[:most]:
            for values, named in product(proposals, usual):
                missing = _OF_EACH_COURSE - taken[key]
                if missing <= 0:
                    break
                free = {n: rank for n, rank in named.items() if n not in group.ranked}
                # A softmax over one key, or a sum of one addend, hides much.
                drawn = sorted(side.pinned(group.pins(values), free, _PIN_TRIES), key=_ones)
                for one in islice(filter(search.add, drawn), missing):
                    yield one
                    taken.update(group.of(one))


def _signs(values: Sequence[int]) -> tuple[int, ...]:
    """Return in which order sizes are, and which are negative or 0."""
    return tuple((a > b) - (a < b) for a, b in combinations((*values, 0), 2))


def _oddity(legal: Collection[tuple[int, ...]], values: Sequence[int]) -> int:
    """Return how many sizes are in the opposite order than at the likest of some instances.

    An operator may demand that order, as that of the bounds of a slice, which no expression tells.
    """
    signs = _signs(values)
    counts = (sum(a * b < 0 for a, b in zip(signs, one, strict=True)) for one in legal)
    return min(counts, default=0)


def _ones(found: Found) -> int:
    """Return the number of extents that are 1."""
    return sum(shape.count(1) for shape in (t.shape for t in found.static_types.values()))


def _ranks(found: Found) -> tuple[tuple[str, int], ...]:
    return tuple((name, type_.rank) for name, type_ in found.types.items())


def varied(points: Sequence[Found], count: int) -> list[Found]:
    """Choose up to ``count`` instances, of every size, whose attributes differ much."""
    chosen: list[Found] = []
    seen: set[tuple[str, Any]] = set()
    for part in range(min(count, len(points))):
        several = points[part * len(points) // count : (part + 1) * len(points) // count]
        features = [{*_features(point)} for point in several or points[part : part + 1]]
        most = max(range(len(features)), key=lambda i: len(features[i] - seen))
        chosen.append((several or points[part : part + 1])[most])
        seen |= features[most]
    return chosen


@lru_cache(maxsize=8)
def find_instances(rule: Rule, *, limit: int, seed: int = 0, bound: int = 3) -> Instances:
    """Find about ``limit`` instances: all up to the greatest feasible extent, and drawn ones.

    Args:
        rule: one direction of a rule.
        limit: approximate number of instances. Further ones have long extents, large attributes or
            high ranks. If all small instances are among them, half as many are added.
        seed: seed of everything drawn.
        bound: greatest extent to enumerate to.
    """
    side = left_side(rule)
    met: dict[Any, Found] = {}
    complete = 0
    for extent in range(1, bound + 1):
        every = side.every(extent, limit)
        if every is None:
            break
        met, complete = every, extent
    search = _Search(rule, side, seed, _SIZES)
    kept = [found for found in met.values() if search.add(found)]
    limit = max(limit, len(kept) + limit // 2)
    coverage = _Coverage()
    spare: list[Found] = []
    in_vain = stale = 0
    while len(kept) < limit and len(kept) + len(spare) < _SURPLUS * limit:
        enough = len(kept) + len(spare) >= limit
        if enough and stale > limit // 2:
            break
        found = search.next()
        if found is None:
            in_vain += 1
            if in_vain > (_ENOUGH if enough else _IN_VAIN if kept else _HOPELESS):
                break
            continue
        in_vain = 0
        # An instance that combines no two values for the first time is kept in reserve.
        grows = coverage.grows_by(found)
        (kept if grows else spare).append(found)
        stale = 0 if grows else stale + 1
    kept += spare[: max(0, limit - len(kept))]
    if len(kept) < min(limit, _SCARCE):
        modelled = side.modelled(closure(rule), seed)
        new = (one for one in modelled if one is not None and search.add(one))
        kept += islice(new, min(limit, _MODELS))
    if kept:
        long = max(round(_LONG_SHARE * limit), _LEAST - len(kept))
        long += _LONG_EACH * sum(count > _SIZES.some for count in side.marks.counts)
        kept += [*_special(search, _LONG_SIZES, long)]
        kept += [*_special(search, _LARGE_SIZES, long)]
        kept += [*_special(search, _HIGH_SIZES, round(_HIGH_SHARE * limit))]
        kept += [*_missing(search, kept, side.dtypes)]
        kept += [*_meeting(search, side, kept, max(_FEWEST_COURSES, limit // 4))]
    points = tuple(sorted(kept, key=_size))
    largest = max((d for b in points for t in b.static_types.values() for d in t.shape), default=0)
    return Instances(points, search.guarded, complete, largest)


def smaller_instances(rule: Rule, than: Found, *, seed: int = 0) -> Iterator[Found]:
    """Yield instances with fewer elements than ``than``, drawn from small sizes."""
    search = _Search(rule, left_side(rule), seed, _SMALL_SIZES)
    in_vain = 0
    for _ in range(_SMALLER):
        found = search.next()
        in_vain = in_vain + 1 if found is None else 0
        if in_vain > _IN_VAIN:
            return
        if found is not None and found.origin.elements < than.origin.elements:
            yield found


def shrunk_instances(rule: Rule, than: Found) -> Iterator[Found]:
    """Yield instances with one or two smaller extents than ``than``, and all else equal."""
    return (found for found in left_side(rule).shrunk(than) if _types(rule, found))


def long_instances(rule: Rule, like: Sequence[Found], extent: int) -> Iterator[Found]:
    """Yield instances with one extent as long as given, and otherwise small ones.

    They are typed like some of ``like``. No two have the same types and attributes.
    """
    side = left_side(rule)
    seen: set[Any] = set()
    for found in (found for one in like for found in side.stretched(one, extent)):
        if found.origin.key not in seen and _types(rule, found):
            seen.add(found.origin.key)
            yield found


def empty_instances(rule: Rule, like: Sequence[Found]) -> Iterator[Found]:
    """Yield instances with an extent of 0, and all else equal to one of ``like``."""
    side = left_side(rule)
    return (e for one in like for e in side.emptied(one) if _types(rule, e))
