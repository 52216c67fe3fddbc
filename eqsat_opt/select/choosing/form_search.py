"""Extraction over forms, helped by the relaxation in which every value is in every form.

In the relaxation nothing has to be converted. A lower bound on its cost is therefore one on the
cost of any solution with forms, and it is as easy to solve as a problem without forms. The
candidates that it chooses, with the best forms for these candidates alone, are a good starting
point.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Extraction, extract
from eqsat_opt.extract.engine import conclude
from eqsat_opt.extract.extraction import Choice, broken, measured
from eqsat_opt.select.choosing.priced_problem import PricedProblem, translated
from eqsat_opt.select.choosing.pricing import PricedCandidates

__all__ = ["FormSearch", "form_search"]

_FIRST, _RELAXED, _LIFTED = 0.4, 0.4, 0.3
"""Shares of the time left: for the full problem, for the relaxation, and for the forms of the
candidates that the relaxation chooses; the rest is for the full problem again."""


def form_search(
    priced: PricedCandidates,
    full: PricedProblem,
    quoted: Callable[..., PricedProblem],
    objective: AnyObjective,
    seed: int = 0,
) -> FormSearch:
    """Return a search for the best extraction from candidates with forms.

    Args:
        priced: the candidates.
        full: their problem.
        quoted: `PricedCandidates.problem` with the same prices.
        objective: the objective, which is no ratio.
        seed: random seed of the extractions.
    """

    def restricted(numbers: Collection[int]) -> PricedProblem:
        only = np.zeros(len(priced.candidates.items), dtype=np.bool_)
        only[list(numbers)] = True
        return quoted(priced, only=only)

    return FormSearch(
        full,
        relaxed=lambda: quoted(priced, with_forms=False),
        restricted=restricted,
        objective=objective,
        seed=seed,
    )


@dataclass(frozen=True)
class FormSearch:
    """A function like `extract` with a fixed problem and objective.

    Attributes:
        full: the problem.
        relaxed: the same with every value in every form, under the same prices.
        restricted: the problem with some candidates only, by their numbers.
        objective: the objective; it rises with every metric, so it is no ratio.
        seed: random seed of the extractions.
    """

    full: PricedProblem
    relaxed: Callable[[], PricedProblem]
    restricted: Callable[[Collection[int]], PricedProblem]
    objective: AnyObjective
    seed: int = 0

    def __call__(
        self,
        *,
        incumbent: Choice | None = None,
        gap: float = 0.0,
        time_limit_s: float = 10.0,
        **settings: Any,
    ) -> Extraction:
        """Return the cheapest solution found, with the better one of both bounds.

        Args:
            incumbent: a known solution.
            gap: relative gap at which to stop.
            time_limit_s: limit of all searches together, s.
            settings: further arguments of `extract`.

        Raises:
            ExtractionError: no solution within the limits was found in time.
        """
        end = time.perf_counter() + time_limit_s

        def solved(start: Choice | None, share: float) -> Extraction:
            left_s = max(0.0, share * (end - time.perf_counter()))
            return extract(
                self.full.problem,
                self.objective,
                incumbent=start,
                gap=gap,
                time_limit_s=left_s,
                seed=self.seed,
                **settings,
            )

        # A critical path is as hard without forms, so the relaxation would only take time.
        if self.objective.needs_path or not self._has_conversions:
            return solved(incumbent, 1.0)
        known: Extraction | None = None
        try:
            known = solved(incumbent, _FIRST)
        except ExtractionError:
            if not self.objective.is_limited:
                raise
        if known is not None and (known.gap <= gap or known.status == "infeasible"):
            return known
        bound, lifted = self._from_relaxed(gap, end)
        best = _better(self, known.choice if known else incumbent, lifted)
        if known is not None:
            known = self._bounded(known, best, bound)
            bound = known.lower_bound
            if known.gap <= gap:
                return known
        found = solved(best, 1.0)
        return found if found.status == "infeasible" else self._bounded(found, found.choice, bound)

    @property
    def _has_conversions(self) -> bool:
        nodes = range(len(self.full.index))
        return any(self.full.conversion_number(node) is not None for node in nodes)

    def _from_relaxed(self, gap: float, end: float) -> tuple[float, Choice | None]:
        """Return a lower bound, and a choice of the full problem if one was found."""
        relaxed = self.relaxed()
        left_s = end - time.perf_counter()
        try:
            found = extract(
                relaxed.problem,
                self.objective,
                gap=gap / 2,
                time_limit_s=max(0.0, _RELAXED * left_s),
                seed=self.seed,
            )
        except ExtractionError:
            return 0.0, None
        if found.status == "infeasible":
            return 0.0, None
        restricted = self.restricted({relaxed.index[node] for node, _ in found.choice.values()})
        left_s = end - time.perf_counter()
        try:
            formed = extract(
                restricted.problem,
                self.objective,
                gap=gap / 2,
                time_limit_s=max(0.0, _LIFTED * left_s),
                seed=self.seed,
            )
        except ExtractionError:
            return found.lower_bound, None
        if formed.status == "infeasible":
            return found.lower_bound, None
        return found.lower_bound, translated(formed.choice, restricted, self.full)

    def _bounded(self, found: Extraction, choice: Choice | None, bound: float) -> Extraction:
        """Return the better one of a found solution and a choice, with the better bound."""
        best = conclude(
            self.full.problem,
            self.objective,
            found.choice if choice is None else choice,
            max(bound, found.lower_bound),
            open_status="feasible",
        )
        return replace(best, trace=found.trace, stages_s=found.stages_s)


def _better(search: FormSearch, one: Choice | None, other: Choice | None) -> Choice | None:
    """Return the choice that keeps the limits and costs less."""
    problem, objective = search.full.problem, search.objective

    def rank(choice: Choice) -> tuple[bool, float]:
        metrics = measured(problem, objective, choice)
        return broken(problem, objective, choice, metrics) is not None, objective.value(metrics)

    return min((choice for choice in (one, other) if choice), key=rank, default=None)
