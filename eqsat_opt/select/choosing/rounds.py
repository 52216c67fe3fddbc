"""One round of the measuring loop: the extraction problems under its prices, and their solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Extraction, Problem, extract
from eqsat_opt.extract.engine import conclude
from eqsat_opt.extract.extraction import Choice, broken, measured
from eqsat_opt.extract.objective import Ratio, without_limits
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.form_search import form_search
from eqsat_opt.select.choosing.priced_problem import PricedProblem, translated
from eqsat_opt.select.choosing.pricing import PricedCandidates

__all__ = ["PROVEN_GAP", "Round", "pose", "proven", "searched"]

PROVEN_GAP = 1e-3
"""Relative gap below which a proof has no meaning for the device: prices are good to some
percent."""

_MOMENT_S = 1.0
"""Time for a tighter bound where the gap is small already, s."""

_FOREVER_S = 1e6

_ROUND_PATIENCE = 8
"""Number of neighbourhoods without a gain after which a round ends: the next one has other
prices."""


def _offers(
    priced: PricedCandidates, problem: PricedProblem, extraction: Extraction
) -> list[Offer]:
    result = []
    for node, way in extraction.choice.values():
        item, conversion = problem.index[node], problem.conversion_number(node)
        if conversion is not None:
            offers = priced.conversions[conversion].offers
        else:
            offers = priced.offers[item] if item >= 0 else ()
        if offers:
            result.append(offers[problem.offer_number(node, way)])
    return result


@dataclass(frozen=True)
class Round:
    """The extraction problems under the prices of one round.

    Attributes:
        own, priced: see `choose`.
        objective: the objective.
        price: the price of an offer in this round.
        plain: the problem of the model as it was loaded.
        full: the problem of all candidates.
        original: the best kernels for the model as it was loaded.
        breaks: a sentence about a limit that ``original`` breaks; empty if it keeps all.
        unchanged: the original as a choice in ``full``.
        search: solves ``full``.
    """

    own: PricedCandidates
    priced: PricedCandidates
    objective: AnyObjective
    price: Callable[[Offer], Quote]
    plain: PricedProblem
    full: PricedProblem
    original: Extraction
    breaks: str
    unchanged: Choice
    search: Callable[..., Extraction]

    def solve(self, **options: Any) -> Extraction:
        """Solve ``full``; options are those of `extract`."""
        return self.search(**options)

    def incumbent(self, *known: tuple[Choice, PricedProblem] | None) -> Choice:
        """Return the best known choice: the original, or an answer of an earlier round."""
        before = (translated(*one, self.full) for one in known if one is not None)
        rank = partial(_rank, self.full.problem, self.objective)
        return min(filter(None, (*before, self.unchanged)), key=rank)

    def unsearched(self, choice: Choice) -> Extraction:
        """Return a choice as the answer where there is no time to search.

        Raises:
            ExtractionError: the choice breaks a limit.
        """
        if _rank(self.full.problem, self.objective, choice)[0]:
            raise ExtractionError(_none_in_time(self.breaks))
        return conclude(
            self.full.problem, self.objective, choice=choice, lower_bound=0.0, open_status="greedy"
        )

    def offers(self, extraction: Extraction) -> list[Offer]:
        """Return the offers that an extraction chose in ``full``."""
        return _offers(self.priced, self.full, extraction)

    @property
    def original_offers(self) -> list[Offer]:
        """The offers of the original."""
        return _offers(self.own, self.plain, self.original)


def pose(
    own: PricedCandidates,
    priced: PricedCandidates,
    pricer: AnyPricer,
    objective: AnyObjective,
    price: Callable[[Offer], Quote],
    *,
    deadline: Deadline,
    seed: int,
    told: Mapping[str, float],
) -> Round:
    """Build the problems of a round, and tile the original.

    Raises:
        ExtractionError: there is no way to tile the original, or the objective divides by 0.
    """
    is_ratio = isinstance(objective, Ratio)
    quoted = partial(
        PricedCandidates.problem, price=price, given=pricer.metrics, settled=not is_ratio
    )
    plain, full = quoted(own), quoted(priced)
    base = quoted(priced, only=priced.is_original)
    tile = partial(_tiled, objective=objective, deadline=deadline, seed=seed)
    (original, breaks), (start, _) = tile(plain.problem, told=told), tile(base.problem)
    unchanged = translated(start.choice, base, full)
    assert unchanged is not None, "what may be chosen for the original is there for the result"
    search: Callable[..., Extraction]
    if priced.conversions and not is_ratio:
        search = form_search(priced, full, quoted, objective, seed=seed)
    else:
        search = partial(extract, full.problem, objective, seed=seed)
    return Round(
        own=own,
        priced=priced,
        objective=objective,
        price=price,
        plain=plain,
        full=full,
        original=original,
        breaks=breaks,
        unchanged=unchanged,
        search=search,
    )


def _tiled(
    problem: Problem,
    objective: AnyObjective,
    deadline: Deadline,
    seed: int,
    told: Mapping[str, float] = MappingProxyType({}),
) -> tuple[Extraction, str]:
    """Return the original with the best kernels, and a sentence about a limit that it breaks.

    The sentence is empty if no limit is broken. One is broken only if no tiling that keeps all
    limits was found.

    Raises:
        ExtractionError: there is no way to tile it, or the objective divides by 0.
    """
    free = without_limits(objective)
    limit_s = _seconds(deadline)
    found = extract(problem, free, method="local", time_limit_s=limit_s, seed=seed)
    if found.status == "infeasible":
        if isinstance(objective, Ratio):
            raise ExtractionError(
                "the objective divides by 0 on this model; minimise what is above the / alone, or "
                "divide by another metric"
            )
        raise ExtractionError("the original graph has no kernels; please report this model")
    if told:
        metrics = {**found.metrics, **told}
        found = replace(found, metrics=metrics, cost=objective.value(metrics))
    if not objective.is_limited:
        return found, ""
    metrics = {**measured(problem, objective, found.choice), **told}
    breaks = broken(problem, objective, found.choice, metrics) or ""
    if breaks:
        with suppress(ExtractionError):
            within = extract(problem, objective, time_limit_s=limit_s, seed=seed)
            if within.status != "infeasible" and not objective.broken_limit(
                {**within.metrics, **told}
            ):
                return within, ""
    return replace(found, metrics=metrics), breaks


def searched(
    solve: Callable[..., Extraction],
    known: Choice,
    objective: AnyObjective,
    deadline: Deadline,
    breaks: str,
) -> Extraction:
    """Run the search of a round, from a known solution.

    Args:
        solve: the extraction, which still needs a start and limits.
        known: the solution to start from; it may break a limit.
        objective: the objective, for its limits.
        deadline: deadline of the search.
        breaks: a sentence about a limit that the original breaks.

    Raises:
        ExtractionError: no graph keeps the limits, or none was found in time.
    """
    try:
        found = solve(
            incumbent=known,
            method="lns",
            patience=_ROUND_PATIENCE,
            time_limit_s=_seconds(deadline),
        )
    except ExtractionError:
        if not objective.is_limited:
            raise
        # Neighbourhoods need a solution to start from; without one the solver has to find it.
        try:
            found = solve(incumbent=known, time_limit_s=_seconds(deadline))
        except ExtractionError as error:
            raise ExtractionError(_none_in_time(breaks)) from error
    if found.status == "infeasible":
        raise ExtractionError(
            f"no graph in the e-graph keeps the limits{_of_original(breaks)}; loosen them, or "
            "allow more rules or e-nodes"
        )
    return found


def _none_in_time(breaks: str) -> str:
    return (
        f"no graph within the limits was found in time{_of_original(breaks)}; loosen them, or "
        "allow more time with --budget"
    )


def _of_original(breaks: str) -> str:
    return f" (of the original, {breaks})" if breaks else ""


def proven(
    solve: Callable[..., Extraction], best: Extraction, deadline: Deadline, gap: float
) -> Extraction:
    """Return ``best`` or a better solution, with a tighter bound.

    The bound becomes as tight as a race can distinguish, and tighter if that is quick.

    Args:
        solve: the extraction, which still needs a start and limits.
        best: the known solution.
        deadline: deadline of the search for a bound.
        gap: relative gap below which only a moment is spent.
    """
    if best.gap > gap:
        best = solve(incumbent=best.choice, gap=gap, time_limit_s=_seconds(deadline))
    if PROVEN_GAP < best.gap <= gap:
        moment_s = min(_MOMENT_S, deadline.left_s)
        nearer = solve(incumbent=best.choice, time_limit_s=moment_s)
        if nearer.gap < best.gap:
            return nearer
    return best


def _seconds(deadline: Deadline) -> float:
    """Return the time left as a finite number of seconds."""
    return min(deadline.left_s, _FOREVER_S)


def _rank(problem: Problem, objective: AnyObjective, choice: Choice) -> tuple[bool, float]:
    """Return whether a choice breaks a limit at the prices of ``problem``, and its objective."""
    metrics = measured(problem, objective, choice)
    is_broken = broken(problem, objective, choice, metrics) is not None
    return is_broken, objective.value(metrics)
