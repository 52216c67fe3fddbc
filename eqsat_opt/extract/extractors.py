"""The extractors by name, each with its guarantee, which tests enforce."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, Protocol

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.engine import conclude, extract, price
from eqsat_opt.extract.extraction import Choice, Extraction, TracePoint, broken, measured
from eqsat_opt.extract.instance import Instance, from_problem
from eqsat_opt.extract.objective import AnyObjective, Objective
from eqsat_opt.extract.problem import Problem
from eqsat_opt.extract.solve.greedy import sharing_greedy, tree_greedy
from eqsat_opt.extract.solve.weighted_sum import raise_choice

__all__ = ["EXTRACTORS", "ExtractFunction", "Extractor", "Guarantee", "best_greedy"]

Guarantee = Literal["optimal", "tree-optimal", "none"]


class ExtractFunction(Protocol):
    """Function that extracts under an objective, with the arguments of `extract`."""

    def __call__(
        self,
        problem: Problem,
        objective: AnyObjective,
        *,
        incumbent: Choice | None = None,
        time_limit_s: float = 10.0,
        gap: float = 0.0,
        seed: int = 0,
        deterministic: bool = False,
        interruptible: bool = False,
        progress: Callable[[TracePoint], None] | None = None,
    ) -> Extraction: ...


@dataclass(frozen=True)
class Extractor:
    """A way to extract.

    Attributes:
        run: function that extracts under an objective.
        guarantee: `optimal` (least cost unless the time limit or the gap strikes, as the status
            shows), `tree-optimal` (least cost with shared classes paid at each use) or `none`.
        anytime: whether it is never worse than the better greedy nor than the incumbent. One that
            is not supports neither incumbents nor limits and raises `ExtractionError` on them.
    """

    run: ExtractFunction
    guarantee: Guarantee
    anytime: bool


def _alone(greedy: Callable[[Instance], list[int] | None]) -> ExtractFunction:
    """Return a greedy on the unsimplified problem; it is repeatable and too fast for a limit."""

    def run(
        problem: Problem,
        objective: AnyObjective,
        *,
        incumbent: Choice | None = None,
        **_limits: Any,
    ) -> Extraction:
        if not isinstance(objective, Objective) or objective.needs_path:
            raise ExtractionError("this extractor knows weighted sums only; use auto or exact")
        if objective.limits or objective.caps:
            raise ExtractionError("this extractor knows no limits; use auto or exact")
        if incumbent is not None:
            raise ExtractionError("this extractor knows no incumbent; use greedy, auto or exact")
        start_s = time.perf_counter()
        instance = from_problem(problem, price(problem, objective))
        choice = greedy(instance)
        if choice is None:
            raise ExtractionError("the e-graph is too large for this extractor; use tree or auto")
        if any(choice[root] < 0 for root in problem.roots):
            return extract(problem, objective, method="greedy")
        rows = {c: instance.option_ids[i] for c, i in enumerate(choice) if i >= 0}
        chosen = raise_choice(problem, rows)
        found = conclude(problem, objective, chosen, instance.trivial_bound(), open_status="greedy")
        return replace(found, stages_s={"greedy": time.perf_counter() - start_s})

    return run


EXTRACTORS: Mapping[str, Extractor] = MappingProxyType(
    {
        "tree": Extractor(_alone(tree_greedy), "tree-optimal", anytime=False),
        "sharing": Extractor(_alone(sharing_greedy), "none", anytime=False),
        "greedy": Extractor(partial(extract, method="greedy"), "none", anytime=True),
        "local": Extractor(partial(extract, method="local"), "none", anytime=True),
        "lns": Extractor(partial(extract, method="lns"), "none", anytime=True),
        "auto": Extractor(partial(extract, method="auto"), "optimal", anytime=True),
        "exact": Extractor(partial(extract, method="exact"), "optimal", anytime=True),
    }
)
"""Extractors by name, from the cheapest to the most thorough."""


def best_greedy(problem: Problem, objective: AnyObjective) -> float | None:
    """Return the value of the better of the two customary greedies, the baseline for all others.

    They follow the weighted sum alone; a critical path is added to what they choose.

    Returns:
        None where they find nothing: they break a limit, or there is no weighted sum to follow.
    """
    if not isinstance(objective, Objective) or not any(objective.weights.values()):
        return None
    values = []
    for name in ("tree", "sharing"):
        try:
            found = EXTRACTORS[name].run(problem, Objective(objective.weights))
        except ExtractionError:
            continue  # too large for this one
        if found.status != "infeasible":
            metrics = measured(problem, objective, found.choice)
            if not broken(problem, objective, found.choice, metrics):
                values.append(objective.value(metrics))
    return min(values, default=None)
