"""A lower bound on the cost of every choice from an e-graph, checked without a solver.

To choose is to take one option for each class that is needed, so that no class needs itself. Two
facts give inequalities: where an option is taken that reads a class, or where a class must be
computed, its derivation leaves every set of classes around it; so an option of the set is taken
that reads nothing of the set. Any sum of such inequalities with multipliers that are not negative
bounds all choices from below (weak duality), wherever the multipliers come from. Numbers are added
exactly: each float is a whole number of the smallest float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["BoundProof", "CheckedBound", "check_bound"]

Option = tuple[int, float, tuple[int, ...]]
"""A class, the cost of computing it in one way, and the classes that this way reads."""

Row = tuple[tuple[int, ...], tuple[int, ...]]
"""A set of classes, and what needs one of them: nothing where a root is among them, a class of the
set, or a class and one of the set that its options read."""

Multipliers = tuple[tuple[int, float], ...]
"""Numbers of rows with their multipliers."""

_UNIT = 1 << 1074
"""Parts of one that the smallest float is."""


@dataclass(frozen=True)
class BoundProof:
    """A problem of choosing, a solution of it, and why no other one costs much less.

    Attributes:
        roots: classes that must be computed.
        options: all that may be chosen.
        chosen: numbers of the options of the solution.
        rows: inequalities.
        tree: cases, each before its own: an option splits a case into the choices that take it,
            which come first, and those that do not; multipliers bound a case.
    """

    roots: tuple[int, ...]
    options: tuple[Option, ...]
    chosen: tuple[int, ...]
    rows: tuple[Row, ...]
    tree: tuple[int | Multipliers, ...]


@dataclass(frozen=True)
class CheckedBound:
    """The numbers that a proof shows.

    Attributes:
        cost: cost of the solution.
        lower_bound: no choice costs less.
        options, classes: how many there are to choose from.
    """

    cost: float
    lower_bound: float
    options: int
    classes: int


def check_bound(proof: BoundProof) -> CheckedBound:
    """Return the cost of a solution and the bound that a proof shows.

    Raises:
        ValueError: the solution is none, a row is no inequality, or the cases do not cover all.
    """
    problem = _Problem(proof)
    cost = sum(problem.cost[number] for number in _solution(proof))
    cases: list[tuple[int, ...]] = [()]  # options that are taken, and complements of others
    bounds = []
    for one in proof.tree:
        if not cases:
            raise ValueError("there are more cases than splits make")
        case = cases.pop()
        if isinstance(one, int):
            if not 0 <= one < len(proof.options):
                raise ValueError(f"the cases are split by option {one}, which is none")
            cases += [(*case, ~one), (*case, one)]
        elif (bound := problem.bound(case, one)) is not None:
            bounds.append(bound)
    if cases:
        raise ValueError("a case has no bound")
    bound = max(0, min([cost, *bounds]))
    return CheckedBound(_rounded(cost), _rounded(bound), len(proof.options), len(problem.members))


class _Problem:
    """The problem with exact costs, in units, and the options of each row."""

    def __init__(self, proof: BoundProof) -> None:
        self.options = proof.options
        self.roots = set(proof.roots)
        self.members: dict[int, list[int]] = {}
        for number, (cls, cost, _) in enumerate(proof.options):
            if not (math.isfinite(cost) and cost >= 0):
                raise ValueError(f"option {number} costs {cost}")
            self.members.setdefault(cls, []).append(number)
        if not self.roots:
            raise ValueError("no class must be computed")
        self.cost = [_exact(cost) for _, cost, _ in proof.options]
        self.rows = [self._row(number, row) for number, row in enumerate(proof.rows)]

    def _row(self, number: int, row: Row) -> tuple[int, list[int], list[int]]:
        """Return a row: how often its options must be taken, those, and those that need them."""
        inside, needed = set(row[0]), row[1]
        if len(needed) > 2 or not (inside & ({needed[-1]} if needed else self.roots)):
            raise ValueError(f"row {number} is about what its set does not hold")
        options = self.options
        leaving = [
            one
            for cls in inside
            for one in self.members.get(cls, ())
            if inside.isdisjoint(options[one][2])
        ]
        if not needed:
            return 1, leaving, []
        users = self.members.get(needed[0], ())
        return 0, leaving, [one for one in users if needed[-1] in (needed[0], *options[one][2])]

    def bound(self, case: Sequence[int], multipliers: Multipliers) -> int | None:
        """Return a bound on the choices of a case, in units; ``None`` where there are none."""
        rest, total = list(self.cost), 0
        for number, multiplier in multipliers:
            if not (0 <= number < len(self.rows) and math.isfinite(multiplier) and multiplier >= 0):
                raise ValueError(f"row {number} is none, or has the multiplier {multiplier}")
            weight = _exact(multiplier)
            times, leaving, needing = self.rows[number]
            total += times * weight
            for one in leaving:
                rest[one] -= weight
            for one in needing:
                rest[one] += weight
        taken = {self.options[one][0]: one for one in case if one >= 0}
        refused = {~one for one in case if one < 0}
        for cls, members in self.members.items():
            own = [one for one in members if one not in refused and taken.get(cls, one) == one]
            is_needed = cls in self.roots or cls in taken
            if is_needed and not own:
                return None
            least = min((rest[one] for one in own), default=0)
            total += least if is_needed else min(least, 0)
        return total


def _solution(proof: BoundProof) -> Sequence[int]:
    """Return the options of the solution; refuse one that is incomplete or needs itself."""
    options, taken = proof.options, {}
    for number in proof.chosen:
        if not 0 <= number < len(options) or options[number][0] in taken:
            raise ValueError(f"option {number} is chosen, but is none or not the only one")
        taken[options[number][0]] = number
    waiting: list[tuple[int, bool]] = [(root, False) for root in proof.roots]
    entered: set[int] = set()
    left: set[int] = set()
    while waiting:
        cls, is_done = waiting.pop()
        if is_done:
            left.add(cls)
        elif cls not in left:
            if cls in entered or cls not in taken:
                raise ValueError(f"class {cls} is not computed, or needs itself")
            entered.add(cls)
            waiting.append((cls, True))
            waiting += [(one, False) for one in options[taken[cls]][2] if one not in left]
    if left != taken.keys():
        raise ValueError("an option is chosen that nothing needs")
    return proof.chosen


def _exact(number: float) -> int:
    over, under = number.as_integer_ratio()
    return over * (_UNIT // under)


def _rounded(units: int) -> float:
    """Return the largest float that is not above a number of units."""
    exact = Fraction(units, _UNIT)
    near = float(exact)
    return near if Fraction(near) <= exact else math.nextafter(near, -math.inf)
