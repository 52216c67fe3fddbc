"""Questions about an objective that decide how a search and a race go."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.cost.metrics import ENERGY, TIME, with_ties_broken
from eqsat_opt.extract import AnyObjective, Objective

__all__ = [
    "is_by_clock",
    "is_measured",
    "is_time_alone",
    "ties_broken",
]


def ties_broken(objective: AnyObjective) -> AnyObjective:
    """The same; a sum without time prefers, among graphs that cost the same, fewer launches."""
    if not isinstance(objective, Objective) or objective.weighs(TIME):
        return objective
    return replace(objective, weights=with_ties_broken(objective.weights))


def is_measured(objective: AnyObjective) -> bool:
    """Whether measuring kernels tells something that it is about."""
    return objective.uses(TIME) or objective.uses(ENERGY)


def is_by_clock(objective: AnyObjective) -> bool:
    """Whether a race can judge: only a sum with time in it has the clock for a measure."""
    return isinstance(objective, Objective) and objective.weights.get(TIME, 0.0) > 0


def is_time_alone(objective: AnyObjective) -> bool:
    """Whether time alone is minimised, without limits."""
    return (
        isinstance(objective, Objective)
        and not objective.is_limited
        and {name for name, weight in objective.weights.items() if weight} == {TIME}
    )
