"""The best known solution and bound of a part, and the search settings, shared by all stages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat_opt.extract.extraction import relative_gap
from eqsat_opt.extract.instance import Instance
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy
from eqsat_opt.extract.trees import cheapest_trees

__all__ = ["Answer", "EffortSettings", "Method", "first_answer"]

Method = Literal["auto", "greedy", "local", "lns", "exact"]

_ROUNDING = 1e-7  # of bounds: the solver's integers lose about 1e-11 of the cost per option


@dataclass(frozen=True)
class EffortSettings:
    """Settings of the effort of a search.

    `patience` counts neighbourhoods without a gain. An `interruptible` search answers Ctrl-C with
    the best so far.
    """

    method: Method
    gap: float
    seed: int
    deterministic: bool
    patience: int = 24
    interruptible: bool = False


@dataclass(frozen=True)
class Answer:
    """Best known solution of a part (`[n_classes]` options, or None), its cost and a bound."""

    choice: list[int] | None
    cost: float
    lower_bound: float

    def closed(self, gap: float) -> bool:
        """Return whether the gap is small enough to stop."""
        return (
            math.isfinite(self.cost)
            and relative_gap(self.cost, self.lower_bound) <= gap + _ROUNDING
        ) or math.isinf(self.lower_bound)

    def better(self, part: Instance, choice: Sequence[int] | None) -> Answer:
        """Return this answer, or the given choice if that is strictly cheaper."""
        if choice is None:
            return self
        cost = part.evaluate(choice)
        if cost >= self.cost:
            return self
        return Answer(list(choice), cost, min(self.lower_bound, cost))

    def bounded(self, lower_bound: float) -> Answer:
        """Return this answer with another bound, if that one is higher."""
        bound = max(self.lower_bound, lower_bound)
        return Answer(self.choice, self.cost, min(bound, self.cost))


def first_answer(part: Instance, start: Mapping[int, int], until_s: float = math.inf) -> Answer:
    """Return the best of the given solution and the greedies; the given one wins ties.

    The given one need not fit the part completely. After `until_s`, a moment of
    `time.perf_counter`, the greedy that sees sharing is left out.
    """
    answer = Answer(None, math.inf, part.trivial_bound())
    if start:
        answer = answer.better(part, _completed(part, start))
    answer = answer.better(part, tree_greedy(part))
    return answer.better(part, sharing_greedy(part, until_s=until_s))


def _completed(part: Instance, start: Mapping[int, int]) -> list[int]:
    """Return a choice that follows the given one wherever the part still has its options."""
    cost = [
        0.0 if start.get(part.class_ids[c]) == part.option_ids[i] else part.cost[i]
        for i, c in enumerate(part.option_class)
    ]
    return cheapest_trees(part.members, part.option_class, part.children, cost)[1]
