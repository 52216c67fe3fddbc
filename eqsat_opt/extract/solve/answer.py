"""The best known solution and bound of a part, and the search settings: shared by all stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat_opt.extract.extraction import relative_gap
from eqsat_opt.extract.instance import Instance, active_classes
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy
from eqsat_opt.extract.trees import cheapest_trees

__all__ = ["Answer", "Method", "Settings", "first_answer", "overload"]

Method = Literal["auto", "greedy", "local", "lns", "exact"]

_ROUNDING = 1e-7  # of bounds: the solver counts in integers, some 1e-11 of the cost per option
_MULTIPLIERS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)  # of a limited metric, see _greedies


@dataclass(frozen=True)
class Settings:
    """How hard to search.

    `capacity` holds the largest total of each limited metric; with limits the parts are not
    independent, so there must be one part only. `patience` counts neighbourhoods without a gain.
    An `interruptible` search answers Ctrl-C with the best so far.
    """

    method: Method
    gap: float
    seed: int
    deterministic: bool
    capacity: tuple[float, ...] = ()
    patience: int = 24
    interruptible: bool = False


@dataclass(frozen=True)
class Answer:
    """Best known solution of a part (`[n_classes]` options, or None), its cost and a bound."""

    choice: list[int] | None
    cost: float
    lower_bound: float

    def closed(self, gap: float) -> bool:
        """Whether the gap is small enough to stop."""
        return (
            math.isfinite(self.cost)
            and relative_gap(self.cost, self.lower_bound) <= gap + _ROUNDING
        ) or math.isinf(self.lower_bound)

    def better(self, part: Instance, choice: Sequence[int] | None, settings: Settings) -> Answer:
        """This answer, or the given choice if that is strictly cheaper and keeps the limits."""
        if choice is None:
            return self
        cost = part.evaluate(choice)
        if cost >= self.cost or overload(part, choice, settings.capacity):
            return self
        return Answer(list(choice), cost, min(self.lower_bound, cost))

    def bounded(self, lower_bound: float) -> Answer:
        """This answer with another bound, if that one is higher."""
        bound = max(self.lower_bound, lower_bound)
        return Answer(self.choice, self.cost, min(bound, self.cost))


def overload(part: Instance, choice: Sequence[int], capacity: Sequence[float]) -> bool:
    """Whether a complete choice exceeds a limit."""
    if not capacity:
        return False
    order = active_classes(part.children, choice, part.roots) or ()
    return any(
        math.fsum(part.load[choice[c]][column] for c in order) > limit * (1 + 1e-12)
        for column, limit in enumerate(capacity)
    )


def first_answer(part: Instance, start: Mapping[int, int], settings: Settings) -> Answer:
    """Best of the given solution and the greedies; the given one wins ties.

    Args:
        part: what to solve.
        start: class to option (numbers of the problem); need not fit the part completely.
        settings: limits to respect.
    """
    answer = Answer(None, math.inf, part.trivial_bound())
    if start:
        answer = answer.better(part, _completed(part, start), settings)
    for choice in _greedies(part, settings.capacity):
        answer = answer.better(part, choice, settings)
    return answer


def _completed(part: Instance, start: Mapping[int, int]) -> list[int]:
    """A choice that follows the given one wherever the part still has its options."""
    cost = [
        0.0 if start.get(part.class_ids[c]) == part.option_ids[i] else part.cost[i]
        for i, c in enumerate(part.option_class)
    ]
    return cheapest_trees(part.members, part.option_class, part.children, cost)[1]


def _greedies(part: Instance, capacity: Sequence[float]) -> list[list[int] | None]:
    """Greedy choices; under limits also for costs with a share of what is limited added."""
    choices = [tree_greedy(part), sharing_greedy(part)]
    if capacity:
        scale = math.fsum(part.cost) or 1.0
        for multiplier in _MULTIPLIERS:
            cost = [
                c
                + multiplier
                * scale
                * sum(used / (limit or 1.0) for used, limit in zip(load, capacity, strict=True))
                for c, load in zip(part.cost, part.load, strict=True)
            ]
            choices.append(cheapest_trees(part.members, part.option_class, part.children, cost)[1])
    return choices
