"""Replay of a proof's trace: each step is evaluated at random sizes where its assumptions hold.

A trace has every step by which the difference of both sides of a rule was brought to nothing. Each
sum of it, and what the next step made of it, must have the same value at random extents up to 64,
random elements and random functions. Two numbers that differ agree in the field with a probability
of about degree/2^61 (Schwartz-Zippel). A claim that rests on others must find them shown before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from eqsat_opt.checking.expressions import (
    Environment,
    Malformed,
    Numbers,
    TooLarge,
    Undefined,
    needs_order,
)
from eqsat_opt.checking.points import HIGHEST, TRIES, Points

__all__ = ["FORMAT", "Refused", "Replayed", "replay"]

FORMAT = "eqsat-opt trace 1"
_POINTS = 2
"""Points at which each step is evaluated, at least."""
_MAX_POINTS = 5
"""Most points at which a step with many guarded parts is evaluated."""
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
        both = zip(astuple(self), astuple(other), strict=True)
        largest = max(self.largest, other.largest)
        return replace(Replayed(*map(sum, both)), largest=largest)


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


class _Replayer:
    def __init__(self, trace: Mapping[str, Any], seed: int) -> None:
        self.trace, self.seed = trace, seed
        self.nodes: Sequence[Any] = trace["nodes"]
        self.points = Points(self.nodes, seed)
        self.numbers = Numbers(self.nodes, "", exact=True)
        self.found = Replayed()
        self.orders: dict[int, bool] = {}
        self.shown: set[tuple[frozenset[int], int]] = set()

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
            case "continued" | "cleared" as ending:
                ((under, sum_),) = rest
                if not set(under) <= known:
                    raise Refused(f"{what} continues under other assumptions")
                after = sum_ if ending == "continued" else None
                self.equal(f"{what}, {ending}", assumptions, sums[-1], after)
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
        wishes = self.points.guards(pair)
        self.points.highest = HIGHEST
        for at, number in self.places(what, assumptions, pair, wishes):
            numbers = Numbers(self.nodes, f"{self.seed} {number}", exact=exact)
            numbers.positive = number % 2 == 1
            try:
                values = [numbers.value(one, at) for one in pair]
                allowed = 0.0
                if not exact:
                    allowed = _TOLERANCE * max(numbers.size(one, at) for one in pair)
            except TooLarge:
                self.points.highest = 2
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
        used = [one for case in cases for one in case]
        for at, number in self.places(what, assumptions, used):
            if not any(all(self.numbers.holds(one, at) for one in case) for case in cases):
                raise Refused(f"{what}: no branch is taken at {at}")
            if number >= TRIES // 2:
                break

    def impossible(self, what: str, assumptions: Sequence[int]) -> None:
        """Check that no point is found at which assumptions hold."""
        for at, _ in self.places(what, assumptions, []):
            raise Refused(f"{what} is said not to occur, but does at {at}")
        self.found.steps += 1

    def places(
        self, what: str, assumptions: Sequence[int], used: Sequence[int], wishes: Sequence[int] = ()
    ) -> Iterator[tuple[Environment, int]]:
        """Yield values of symbols at which assumptions hold, with the numbers of the tries."""
        for at, number in self.points.at(what, assumptions, used, wishes):
            if all(self.numbers.met(one, at) for one in assumptions):
                yield at, number


def _references(node: Sequence[Any]) -> Iterator[int]:
    """Yield the positions that a node names."""
    match node:
        case ["symbol" | "constant" | "parameter", *_]:
            return
        case ["poly", *terms]:
            yield from _wholes([factors for _, *factors in terms])
        case ["power", base, _, _]:
            yield base
        case [_, *inner]:
            yield from _wholes(inner)


def _wholes(value: Any) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _wholes(one)
