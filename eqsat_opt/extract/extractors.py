"""The extractors by name, each with what it guarantees; tests hold them to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract.engine import conclude, extract, price, raise_choice
from eqsat_opt.extract.extraction import Extraction
from eqsat_opt.extract.greedy import sharing_greedy, tree_greedy
from eqsat_opt.extract.instance import Instance, from_problem
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.parts import Method
from eqsat_opt.extract.problem import Problem

__all__ = ["EXTRACTORS", "Extractor", "Guarantee"]

Guarantee = Literal["optimal", "tree-optimal", "none"]


@dataclass(frozen=True)
class Extractor:
    """A way to extract.

    Attributes:
        run: extracts under an objective. `tree` and `sharing` raise `ExtractionError` on limits.
        guarantee: `optimal` (least DAG cost unless the time limit strikes, which the status tells),
            `tree-optimal` (least cost with shared classes paid at each use) or `none`.
    """

    run: Callable[[Problem, Objective], Extraction]
    guarantee: Guarantee


def _engine(method: Method) -> Callable[[Problem, Objective], Extraction]:
    def run(problem: Problem, objective: Objective) -> Extraction:
        return extract(problem, objective, method=method)

    return run


def _alone(
    greedy: Callable[[Instance], list[int] | None],
) -> Callable[[Problem, Objective], Extraction]:
    """A greedy on the unsimplified problem."""

    def run(problem: Problem, objective: Objective) -> Extraction:
        if objective.limits or objective.critical_path:
            raise ExtractionError("this extractor knows no limits; use auto or exact")
        instance = from_problem(problem, price(problem, objective), objective)
        choice = greedy(instance)
        if choice is None:
            raise ExtractionError("the e-graph is too large for this extractor; use tree or auto")
        if any(choice[root] < 0 for root in problem.roots):
            return extract(problem, objective, method="greedy")
        rows = {c: instance.option_ids[i] for c, i in enumerate(choice) if i >= 0}
        return conclude(
            problem,
            objective,
            raise_choice(problem, rows),
            instance.trivial_bound(),
            "greedy",
        )

    return run


EXTRACTORS: Mapping[str, Extractor] = MappingProxyType(
    {
        "tree": Extractor(_alone(tree_greedy), "tree-optimal"),
        "sharing": Extractor(_alone(sharing_greedy), "none"),
        "greedy": Extractor(_engine("greedy"), "none"),
        "local": Extractor(_engine("local"), "none"),
        "auto": Extractor(_engine("auto"), "optimal"),
        "exact": Extractor(_engine("exact"), "optimal"),
    }
)
"""Name to extractor, from the cheapest to the most thorough."""
