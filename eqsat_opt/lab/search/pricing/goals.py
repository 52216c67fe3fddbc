"""Goals over the totals of two numbers, which algorithms of kernels trade against each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from eqsat_opt.cost.metrics import ENERGY, TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.objective import Objective, Product, Ratio, without_limits
from eqsat_opt.lab.search.pricing.assignment import Point, best_on_hull, least_ratio
from eqsat_opt.lab.search.pricing.own_cost import OwnCost, SearchObjective

__all__ = ["Goal", "OwnGoal", "cover_goal", "given_goal", "own_goal"]

OwnGoal = Literal["linear", "product", "power"]

_ROUNDING = 1e-9
"""Relative error up to which totals in another order may differ."""


@dataclass(frozen=True)
class Goal:
    """An objective over the totals of two numbers.

    Attributes:
        point: the two numbers of a kernel, from its metrics.
        value: the objective value of the totals.
        solve: returns an assignment that is optimal among the corners of the hull, and so, without
            a limit, among all; ``None`` where no exact method is known.
        radius: number of kernels in which the paper's walk changes an assignment at once: its d.
        sign: -1 where the first number is better if it is larger, as the denominator of a ratio.
    """

    point: Callable[[Mapping[str, float]], Point]
    value: Callable[[float, float], float]
    solve: Callable[[Sequence[Sequence[Point]]], list[int]] | None
    radius: int
    sign: int = 1


def given_goal(objective: SearchObjective) -> Goal:
    """Build the goal of a comparison's objective, in which a sum may have a limit on one total.

    Raises:
        OptionError: it is a function, has other limits, or reads the critical path, which the
            totals of two numbers do not determine.
    """
    limits = objective.totals_limited
    if isinstance(objective, OwnCost):
        raise OptionError(
            "no assignment of algorithms is known for a cost of your own; give a sum, a product or "
            "a ratio, or another search"
        )
    if objective.needs_path or objective.caps or len(limits) > isinstance(objective, Objective):
        raise OptionError(
            "the energy search reads totals only; give an objective without critical_path and "
            "without limits, of which a sum may have one, on a total"
        )
    if isinstance(objective, Product):
        (first, p), (second, q) = objective.exponents.items()

        def powers(a: float, b: float) -> float:
            return math.pow(a, p) * math.pow(b, q)

        return Goal(
            lambda metrics: (metrics[first], metrics[second]),
            powers,
            lambda choices: best_on_hull(choices, powers),
            radius=2,
        )
    if isinstance(objective, Ratio):
        return Goal(
            lambda metrics: (
                _sum(objective.denominator, metrics),
                _sum(objective.numerator, metrics),
            ),
            _ratio,
            least_ratio,
            radius=2,
            sign=-1,
        )
    weights = objective.weights
    if limits:
        ((name, most),) = limits.items()

        def within(total: float, value: float) -> float:
            return math.inf if total > most * (1 + _ROUNDING) else value

        return Goal(
            lambda metrics: (metrics[name], _sum(weights, metrics)),
            within,
            lambda choices: best_on_hull(choices, within),
            radius=2,
        )
    return Goal(
        lambda metrics: (_sum(weights, metrics), 0.0),
        lambda total, _: total,
        _least_of_each,
        radius=1,
    )


def cover_goal(objective: SearchObjective) -> Goal | None:
    """Return the goal by which kernels are chosen together; ``None`` where each is chosen alone.

    A cover is chosen without the limits that two totals do not determine; its value counts them.
    """
    if isinstance(objective, OwnCost):
        return None
    if not isinstance(objective, Objective):
        return given_goal(without_limits(objective))
    if objective.needs_path or len(objective.totals_limited) != 1:
        return None
    return given_goal(replace(objective, caps={}))


def own_goal(kind: OwnGoal, weight: float, original: Point) -> Goal:
    """Build a goal of the paper, under which the original costs 1.

    Args:
        kind: ``linear`` weighs time and energy, ``product`` raises them to the power of the
            weights, ``power`` weighs the mean power and the energy.
        weight: weight of the first of the two; the second has the rest to 1.
        original: time and energy of the original, both positive.
    """
    time, energy = original
    rest = 1 - weight

    def linear(a: float, b: float) -> float:
        return weight * a / time + rest * b / energy

    def product(a: float, b: float) -> float:
        return float((a / time) ** weight * (b / energy) ** rest)

    def power(a: float, b: float) -> float:
        if a <= 0:
            return math.inf
        return weight * (b / a) / (energy / time) + rest * b / energy

    def point(metrics: Mapping[str, float]) -> Point:
        return metrics[TIME], metrics[ENERGY]

    if kind == "power":
        return Goal(point, power, least_ratio if weight == 1 else None, radius=2)
    value = linear if kind == "linear" else product
    return Goal(
        point,
        value,
        lambda choices: best_on_hull(choices, value),
        radius=1 if kind == "linear" else 2,
    )


def _sum(weights: Mapping[str, float], metrics: Mapping[str, float]) -> float:
    return math.fsum(weight * metrics[name] for name, weight in weights.items())


def _ratio(below: float, above: float) -> float:
    return above / below if below > 0 else math.inf


def _least_of_each(choices: Sequence[Sequence[Point]]) -> list[int]:
    return [min(range(len(points)), key=points.__getitem__) for points in choices]
