"""Properties of an objective that decide on measuring and racing."""

from __future__ import annotations

from dataclasses import replace

from eqsat_opt.cost.metrics import ENERGY, PEAK, TIME, with_ties_broken
from eqsat_opt.extract import AnyObjective, Objective

__all__ = [
    "is_by_clock",
    "is_measured",
    "is_time_alone",
    "ties_broken",
]


def ties_broken(objective: AnyObjective) -> AnyObjective:
    """Return the objective, with ties of a sum broken by tiny weights of launches and bytes.

    A sum that weighs time or energy has no such ties and is returned unchanged, as are products and
    ratios, and a peak, which is no sum.
    """
    if not isinstance(objective, Objective) or objective.weighs(TIME) or objective.weighs(PEAK):
        return objective
    return replace(objective, weights=with_ties_broken(objective.weights))


def is_measured(objective: AnyObjective) -> bool:
    """Return whether the objective uses a metric that is measured: time or energy."""
    return objective.uses(TIME) or objective.uses(ENERGY)


def is_by_clock(objective: AnyObjective) -> bool:
    """Return whether a race can decide: only for a sum with time in it."""
    return isinstance(objective, Objective) and objective.weights.get(TIME, 0.0) > 0


def is_time_alone(objective: AnyObjective) -> bool:
    """Return whether time alone is minimised, without limits."""
    return (
        isinstance(objective, Objective)
        and not objective.is_limited
        and {name for name, weight in objective.weights.items() if weight} == {TIME}
    )
