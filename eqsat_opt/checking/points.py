"""Points at which a trace is tried: values of its symbols at which assumptions hold.

They are drawn and repaired until they fit. The replay looks itself whether assumptions hold, so a
fault here can leave a step untried, which is counted, but shows none.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

from eqsat_opt.checking.expressions import Environment, Numbers, Undefined, numbers_in

__all__ = ["HIGHEST", "TRIES", "Points"]

HIGHEST = 64
"""Greatest value of a symbol."""
TRIES = 40
"""Drawings per step."""
_LOW = 3
_REPAIRS = 24


class Points:
    """A source of points for the steps of a trace.

    Args:
        nodes: the table of nodes.
        seed: seed of the drawings.

    Attributes:
        highest: greatest value that is drawn next.
    """

    def __init__(self, nodes: Sequence[Any], seed: int) -> None:
        self._nodes = nodes
        self._seed = seed
        self._numbers = Numbers(nodes, "", exact=True)
        self.highest = HIGHEST
        self._symbols: dict[int, frozenset[str]] = {}

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
            match self._nodes[place]:
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
                node = self._nodes[condition]
                for part in node[1:] if node[0] == "and" else [condition]:
                    if within.isdisjoint(self._free(part)):
                        found[part] = None
            pending += [(part, within) for part in inner]
        return list(found)

    def at(
        self,
        what: str,
        assumptions: Sequence[int],
        named: Sequence[int],
        wishes: Sequence[int] = (),
    ) -> Iterator[tuple[Environment, int]]:
        """Yield values at which assumptions should hold, with the number of the try.

        Args:
            what: the step, which decides the drawings.
            assumptions: formulas.
            named: whatever else has symbols that need values.
            wishes: further formulas, each of which is tried to be met in turn.
        """
        names = sorted(frozenset().union(*map(self._free, (*assumptions, *named))))
        for number in range(TRIES):
            draw = random.Random(f"{self._seed} {what} {number}")
            highest = draw.choice((2, 3, 3, 4, 6, 16, HIGHEST)) if number < TRIES // 2 else _LOW
            highest = min(highest, self.highest)
            at = {name: draw.choice((1, draw.randint(0, highest))) for name in names}
            turn = number % (len(wishes) + 1)
            if (
                self._repaired(at, [*assumptions, *wishes[turn : turn + 1]], draw, highest)
                or (turn < len(wishes) and self._repaired(at, assumptions, draw, highest))
            ) and max(map(abs, at.values()), default=0) <= HIGHEST:
                yield at, number

    def _repaired(
        self, at: Environment, assumptions: Sequence[int], draw: random.Random, highest: int
    ) -> bool:
        """Change values until all assumptions hold; return whether they do."""
        for _ in range(_REPAIRS):
            broken = [one for one in assumptions if not self._numbers.met(one, at)]
            if not broken:
                return True
            for one in broken:
                self._repair(one, at, draw, highest)
        return False

    def _repair(self, formula: int, at: Environment, draw: random.Random, highest: int) -> None:
        """Change one value so that one formula holds, where that is easy to see."""
        match self._nodes[formula]:
            case ["and", *parts]:
                for part in parts:
                    self._repair(part, at, draw, highest)
            case ["or", *parts] if parts:
                self._repair(draw.choice(parts), at, draw, highest)
            case [">=0" | "=0" as kind, value]:
                slopes = self._slopes(value, at)
                if not slopes:
                    for name in self._free(value):
                        if draw.random() < 0.5:
                            at[name] = draw.randint(0, highest)
                    return
                name, slope = draw.choice(slopes)
                try:
                    now = self._numbers.integer(value, at)
                except Undefined:
                    at[name] = draw.randint(1, highest)
                    return
                if kind == "=0" and now % slope == 0:
                    at[name] -= now // slope
                elif kind == ">=0" and now < 0:
                    at[name] += (-now + abs(slope) - 1) // abs(slope) * (1 if slope > 0 else -1)
                    if draw.random() < 0.5:
                        at[name] += draw.randint(0, 2) * (1 if slope > 0 else -1)

    def _slopes(self, value: int, at: Environment) -> list[tuple[str, int]]:
        """Return the symbols in which a polynomial is linear, with their factors at a point."""
        node = self._nodes[value]
        if node[0] != "poly":
            return []
        found: dict[str, int] = {}
        for coefficient, *factors in node[1:]:
            for i, factor in enumerate(factors):
                if self._nodes[factor][0] != "symbol":
                    continue
                try:
                    for other in factors[:i] + factors[i + 1 :]:
                        coefficient *= self._numbers.integer(other, at)
                except Undefined:
                    continue
                name = self._nodes[factor][1]
                found[name] = found.get(name, 0) + coefficient
                break
        return [(name, slope) for name, slope in found.items() if slope]

    def _free(self, node: int) -> frozenset[str]:
        """Return the symbols of a node that are not bound inside of it."""
        known = self._symbols
        if node not in known:

            def free(*inner: int) -> frozenset[str]:
                return frozenset().union(*map(self._free, inner))

            def scoped(bound: Sequence[Any], *inner: int) -> frozenset[str]:
                return free(*inner) - {name for name, _ in bound} | free(*(e for _, e in bound))

            match self._nodes[node]:
                case ["symbol", name]:
                    known[node] = frozenset([name])
                case ["poly", *terms]:
                    known[node] = free(*(factor for _, *factors in terms for factor in factors))
                case ["read", _, *inner] | ["whole" | ">=0" | "=0" | "and" | "or", *inner]:
                    known[node] = free(*inner)
                case ["sum", bound, where, body]:
                    known[node] = scoped(bound, where, body)
                case ["max" | "min", *cases]:
                    known[node] = frozenset().union(*(scoped(*case) for case in cases))
                case ["if" | "choose" | "quotient" | "pick" | "broadcast", *inner]:
                    known[node] = free(*inner)
                case other:
                    known[node] = free(*numbers_in(other))
        return known[node]
