"""Replay of a proof's trace: each step is evaluated at random sizes where its assumptions hold.

A trace has every step by which the difference of both sides of a rule was brought to nothing. Each
sum of it, and what the next step made of it, must have the same value at random extents up to 64,
random elements and random functions. Two numbers that differ agree in the field with a probability
of about degree/2^61 (Schwartz-Zippel). A claim that rests on others must find them shown before it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat_opt.checking.expressions import (
    Environment,
    Malformed,
    Numbers,
    TooLarge,
    Undefined,
    free_symbols,
    needs_order,
)

__all__ = ["FORMAT", "Refused", "Replayed", "replay"]

FORMAT = "eqsat-opt trace 1"
_POINTS = 2
"""Points at which each step is evaluated, at least."""
_MAX_POINTS = 5
"""Most points at which a step with many guarded parts is evaluated."""
_TRIES = 40
"""Drawings per step from which these points are taken."""
_REPAIRS = 24
_HIGHEST, _LOW = 64, 3
_TOLERANCE = 1e-8
"""Relative difference of two numbers in double precision that counts as none."""


class Refused(Exception):
    """The error raised where a trace is wrong; its message names the step and the reason."""


@dataclass
class Replayed:
    """Counts of what was checked.

    Attributes:
        steps: steps that were evaluated.
        exact: steps among them that were evaluated in the prime field.
        untried: steps at whose assumptions no point was found.
        claims: sums that vanish.
        largest: the largest extent at which a step was evaluated.
    """

    steps: int = 0
    exact: int = 0
    untried: int = 0
    claims: int = 0
    largest: int = 0

    def __add__(self, other: Replayed) -> Replayed:
        """Return the counts of two traces together."""
        return Replayed(
            self.steps + other.steps,
            self.exact + other.exact,
            self.untried + other.untried,
            claims=self.claims + other.claims,
            largest=max(self.largest, other.largest),
        )


def replay(trace: Mapping[str, Any], *, seed: int = 0) -> Replayed:
    """Check a trace.

    Args:
        trace: the parsed file.
        seed: seed of the sizes and elements.

    Raises:
        Refused: a step is wrong, or rests on what is not shown.
    """
    try:
        if trace["format"] != FORMAT:
            raise Refused(f"the trace has the format {trace['format']!r}, not {FORMAT!r}")
        replayer = _Replayer(trace, seed)
        replayer.check()
    except (Malformed, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Refused(f"the trace is malformed: {type(error).__name__} {error}") from error
    return replayer.found


@dataclass
class _Replayer:
    trace: Mapping[str, Any]
    seed: int
    found: Replayed = field(default_factory=Replayed)
    symbols: dict[int, frozenset[str]] = field(default_factory=dict)
    orders: dict[int, bool] = field(default_factory=dict)
    shown: set[tuple[frozenset[int], int]] = field(default_factory=set)
    highest: int = _HIGHEST

    @property
    def nodes(self) -> Sequence[Any]:
        nodes: Sequence[Any] = self.trace["nodes"]
        return nodes

    def check(self) -> None:
        for number, node in enumerate(self.nodes):
            if any(one >= number or one < 0 for one in _references(node)):
                raise Refused(f"node {number} names one that does not stand before it")
        for number, one in enumerate(self.trace["statements"]):
            what = f"statement {number}"
            for side, sum_ in zip(one["sides"], one["sums"], strict=True):
                self.equal(f"{what}, distribute", one["premises"], side, sum_)
            self.equal(what, one["premises"], *one["sides"])
        for number, (kind, assumptions, before, after) in enumerate(self.trace["steps"]):
            self.equal(f"step {number}, {kind}", assumptions, before, after)
        for number, one in enumerate(self.trace["vanishing"]):
            self.vanishes(f"claim {number}", one)
        for number, (assumptions, sum_) in enumerate(self.trace["roots"]):
            if (frozenset(assumptions), sum_) not in self.shown:
                raise Refused(f"root {number} is not shown by any claim")
        if not self.trace["statements"]:
            raise Refused("the trace states nothing")

    def vanishes(self, what: str, claim: Mapping[str, Any]) -> None:
        """Check one claim that a sum vanishes, and remember it."""
        assumptions, sums, rest = claim["assumptions"], claim["sums"], claim["rest"]
        for number, (before, after) in enumerate(itertools.pairwise(sums)):
            self.equal(f"{what}, step {number}", assumptions, before, after)
        for under, sum_ in rest:
            if sum_ is None:
                self.impossible(f"{what}, branch", under)
            elif (frozenset(under), sum_) not in self.shown:
                raise Refused(f"{what} rests on a claim that is not shown")
        known = set(assumptions)
        match claim["ending"]:
            case "empty":
                if self.nodes[sums[-1]] != ["plus"]:
                    raise Refused(f"{what} ends with a sum that is not empty")
            case "split":
                if not rest or any(sum_ not in (None, sums[-1]) for _, sum_ in rest):
                    raise Refused(f"{what} is split into claims on other sums")
                self.covers(what, assumptions, [[*set(under) - known] for under, _ in rest])
                self.equal(what, assumptions, sums[-1], None)
            case "continued":
                ((under, sum_),) = rest
                if not set(under) <= known:
                    raise Refused(f"{what} continues under other assumptions")
                self.equal(f"{what}, cut", assumptions, sums[-1], sum_)
            case "cleared":
                ((under, _),) = rest
                if not set(under) <= known:
                    raise Refused(f"{what} continues under other assumptions")
                self.equal(f"{what}, denominator", assumptions, sums[-1], None)
            case "by cases":
                self.equal(f"{what}, cases", assumptions, sums[-1], None)
            case other:
                raise Refused(f"{what} ends in a way that is not known: {other!r}")
        self.found.claims += 1
        self.shown.add((frozenset(assumptions), sums[0]))

    # Evaluation -----------------------------------------------------------------------------------

    def equal(self, what: str, assumptions: Sequence[int], left: int, right: int | None) -> None:
        """Check that two numbers agree under assumptions; ``None`` is zero."""
        if left == right:
            return
        pair = [left] if right is None else [left, right]
        exact = not any(needs_order(self.nodes, one, self.orders) for one in pair)
        tried = 0
        wishes = self.guards(pair)
        self.highest = _HIGHEST
        for at, number in self.points(what, assumptions, pair, wishes=wishes):
            numbers = Numbers(self.nodes, f"{self.seed} {number}", exact=exact)
            numbers.positive = number % 2 == 1
            try:
                values = [numbers.value(one, at) for one in pair]
                allowed = 0.0
                if not exact:
                    allowed = _TOLERANCE * max(numbers.size(one, at) for one in pair)
            except TooLarge:
                self.highest = 2
                continue
            except (Undefined, OverflowError):
                continue
            one, other = values if right is not None else (values[0], 0)
            if not (one == other or abs(one - other) <= allowed):
                sizes = ", ".join(f"{name} = {value}" for name, value in sorted(at.items()))
                raise Refused(f"{what}: {one} is not {other}, at {sizes or 'every size'}")
            tried += 1
            self.found.largest = max(self.found.largest, *at.values(), 0)
            if tried >= min(_POINTS + 2 * len(wishes), _MAX_POINTS):
                break
        self.found.steps += 1
        self.found.exact += exact and tried > 0
        self.found.untried += not tried

    def covers(self, what: str, assumptions: Sequence[int], cases: Sequence[Sequence[int]]) -> None:
        """Check that wherever assumptions hold one of some cases does."""
        used = [*assumptions, *(one for case in cases for one in case)]
        for at, number in self.points(what, assumptions, [], used):
            numbers = Numbers(self.nodes, "", exact=True)
            if not any(all(numbers.holds(one, at) for one in case) for case in cases):
                raise Refused(f"{what}: no branch is taken at {at}")
            if number >= _TRIES // 2:
                break

    def impossible(self, what: str, assumptions: Sequence[int]) -> None:
        """Check that no point is found at which assumptions hold."""
        for at, _ in self.points(what, assumptions, []):
            raise Refused(f"{what} is said not to occur, but does at {at}")
        self.found.steps += 1

    def guards(self, numbers: Sequence[int]) -> list[int]:
        """Return conditions on free symbols under which parts of some numbers count."""
        found: dict[int, None] = {}
        pending = [(one, frozenset[str]()) for one in numbers]
        seen: set[tuple[int, frozenset[str]]] = set()
        while pending:
            one = pending.pop()
            if one in seen:
                continue
            seen.add(one)
            place, hidden = one
            match self.nodes[place]:
                case ["if", condition, then, otherwise]:
                    conditions, inner, within = [condition], [then, otherwise], hidden
                case ["sum", bound, where, body]:
                    conditions, inner = [where], [body]
                    within = hidden | {name for name, _ in bound}
                case ["plus" | "times", *inner]:
                    conditions, within = [], hidden
                case _:
                    continue
            for condition in conditions:
                node = self.nodes[condition]
                for part in node[1:] if node[0] == "and" else [condition]:
                    if within.isdisjoint(free_symbols(self.nodes, part, self.symbols)):
                        found[part] = None
            pending += [(part, within) for part in inner]
        return list(found)

    # Points ---------------------------------------------------------------------------------------

    def points(
        self,
        what: str,
        assumptions: Sequence[int],
        others: Sequence[int],
        free: Sequence[int] | None = None,
        wishes: Sequence[int] = (),
    ) -> Iterable[tuple[Environment, int]]:
        """Yield values of all symbols at which the assumptions hold, at most one per try.

        Each wish is tried to be met in turn.
        """
        named = [*assumptions, *others] if free is None else free
        names = sorted(
            frozenset().union(*(free_symbols(self.nodes, one, self.symbols) for one in named))
        )
        numbers = Numbers(self.nodes, "", exact=True)
        for number in range(_TRIES):
            draw = random.Random(f"{self.seed} {what} {number}")
            highest = draw.choice((2, 3, 3, 4, 6, 16, _HIGHEST)) if number < _TRIES // 2 else _LOW
            highest = min(highest, self.highest)
            at = {name: draw.choice((1, draw.randint(0, highest))) for name in names}
            turn = number % (len(wishes) + 1)
            wished = wishes[turn : turn + 1]
            holds = self.repaired(
                at, [*assumptions, *wished], numbers, draw=draw, highest=highest
            ) or (
                bool(wished) and self.repaired(at, assumptions, numbers, draw=draw, highest=highest)
            )
            if holds and max(map(abs, at.values()), default=0) <= _HIGHEST:
                yield at, number

    def repaired(
        self,
        at: Environment,
        assumptions: Sequence[int],
        numbers: Numbers,
        *,
        draw: random.Random,
        highest: int,
    ) -> bool:
        """Change values until all assumptions hold; return whether they do."""
        for _ in range(_REPAIRS):
            broken = []
            for one in assumptions:
                try:
                    holds = numbers.holds(one, at)
                except Undefined:
                    holds = False
                if not holds:
                    broken.append(one)
            if not broken:
                return True
            for one in broken:
                self.repair(one, at, numbers, draw=draw, highest=highest)
        return False

    def repair(
        self,
        formula: int,
        at: Environment,
        numbers: Numbers,
        *,
        draw: random.Random,
        highest: int,
    ) -> None:
        """Change one value so that one formula holds, where that is easy to see."""
        match self.nodes[formula]:
            case ["and", *parts]:
                for part in parts:
                    self.repair(part, at, numbers, draw=draw, highest=highest)
            case ["or", *parts] if parts:
                self.repair(draw.choice(parts), at, numbers, draw=draw, highest=highest)
            case [">=0" | "=0" as kind, value]:
                slopes = self.slopes(value, at, numbers)
                if not slopes:
                    for name in free_symbols(self.nodes, value, self.symbols):
                        if draw.random() < 0.5:
                            at[name] = draw.randint(0, highest)
                    return
                name, slope = draw.choice(slopes)
                try:
                    now = numbers.integer(value, at)
                except Undefined:
                    at[name] = draw.randint(1, highest)
                    return
                if kind == "=0" and now % slope == 0:
                    at[name] -= now // slope
                elif kind == ">=0" and now < 0:
                    at[name] += (-now + abs(slope) - 1) // abs(slope) * (1 if slope > 0 else -1)
                    if draw.random() < 0.5:
                        at[name] += draw.randint(0, 2) * (1 if slope > 0 else -1)

    def slopes(self, value: int, at: Environment, numbers: Numbers) -> list[tuple[str, int]]:
        """Return the symbols in which a polynomial is linear, with their factors at a point."""
        node = self.nodes[value]
        if node[0] != "poly":
            return []
        found: dict[str, int] = {}
        for coefficient, *factors in node[1:]:
            for i, factor in enumerate(factors):
                if self.nodes[factor][0] != "symbol":
                    continue
                try:
                    for other in factors[:i] + factors[i + 1 :]:
                        coefficient *= numbers.integer(other, at)
                except Undefined:
                    continue
                name = self.nodes[factor][1]
                found[name] = found.get(name, 0) + coefficient
                break
        return [(name, slope) for name, slope in found.items() if slope]


def _references(node: Sequence[Any]) -> Iterable[int]:
    """Yield the positions that a node names."""
    match node:
        case ["symbol" | "constant" | "parameter", *_]:
            return
        case ["poly", *terms]:
            for _, *factors in terms:
                yield from factors
        case ["read", _, *inner] | ["call", _, _, *inner]:
            yield from inner
        case ["power", base, _, _]:
            yield base
        case ["sum", bound, where, body]:
            yield from (*(extent for _, extent in bound), where, body)
        case ["max" | "min", *cases]:
            for bound, where, body in cases:
                yield from (*(extent for _, extent in bound), where, body)
        case [_, *inner]:
            yield from inner
