"""Extraction over forms, helped by the problem in which every value is in every form.

In that one nothing has to be converted, so what it costs at least bounds what anything costs with
forms, and it is as easy as a problem without them. What it chooses, with the best forms for just
these candidates, is a good place to start from.
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
"""Shares of the time left: for the problem as it is, for the one without forms, and for the forms
of what that chooses; what is left then is for the problem as it is again."""


def form_search(
    priced: PricedCandidates,
    full: PricedProblem,
    quoted: Callable[..., PricedProblem],
    objective: AnyObjective,
    seed: int = 0,
) -> FormSearch:
    """How to extract from candidates with forms.

    Args:
        priced: the candidates.
        full: their problem.
        quoted: `PricedCandidates.problem` with the same prices.
        objective: what to minimise; no ratio.
        seed: of the extractions.
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
    """Called like `extract`, but for the problem and the objective.

    Attributes:
        full: the problem.
        relaxed: the same with every value in every form, under the same prices.
        restricted: the problem with some candidates only, by their numbers.
        objective: what to minimise; it rises with every metric, so it is no ratio.
        seed: of the extractions.
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
        """The cheapest solution found, with the better one of both bounds.

        Args:
            incumbent: a known solution.
            gap: relative gap at which to stop.
            time_limit_s: limit of all searches together.
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

        # A critical path is as hard without forms, so that a second problem only takes time.
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
        """A bound, and a choice of the full problem where one was found."""
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
        """The better one of what was found and a choice, with the better bound."""
        best = conclude(
            self.full.problem,
            self.objective,
            found.choice if choice is None else choice,
            max(bound, found.lower_bound),
            open_status="feasible",
        )
        return replace(best, trace=found.trace, stages_s=found.stages_s)


def _better(search: FormSearch, one: Choice | None, other: Choice | None) -> Choice | None:
    """The choice that keeps the limits and costs less."""
    problem, objective = search.full.problem, search.objective

    def rank(choice: Choice) -> tuple[bool, float]:
        metrics = measured(problem, objective, choice)
        return broken(problem, objective, choice, metrics) is not None, objective.value(metrics)

    return min((choice for choice in (one, other) if choice), key=rank, default=None)
