"""The lazy measuring loop: extract, measure the unmeasured kernels of the answer, repeat.

Unmeasured kernels carry a lower bound, so when the answer is fully measured it is optimal over all
measured prices, though much was never measured. That holds for every objective that does not fall
when a price rises, under every limit: sums, critical paths and products, but not for a ratio that
divides by time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Extraction, Problem, extract
from eqsat_opt.extract.alternatives import alternatives
from eqsat_opt.extract.engine import conclude
from eqsat_opt.extract.extraction import Choice, broken, measured
from eqsat_opt.extract.objective import Ratio, without_limits
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.candidates import Selected, Selection
from eqsat_opt.select.pricing import PricedCandidates, PricedProblem

__all__ = ["ChoiceResult", "choose", "selected"]

_GAP = 1e-3
"""Prices are good to some percent, so a proof beyond this says nothing about the device."""

_MOMENT_S = 1.0
"""For a nearer bound where the gap is small already."""

_SEARCH, _MEASURING, _PROOF = 0.4, 0.7, 0.8
"""Shares of the time left: for the search of a round, its kernels, and the last answer's proof."""

_FOREVER_S = 1e6

_ROUND_PATIENCE = 8
"""Neighbourhoods without a gain in a round of measuring: the next round will move the prices."""

_ALTERNATIVES_S = 1.5


@dataclass(frozen=True)
class ChoiceResult:
    """What selection found.

    Attributes:
        best: the cheapest selection.
        original: the model as it came, tiled with the same kernels.
        alternatives: further good selections, for the race.
        extraction: cost, bound and gap of ``best``.
        original_cost: objective of ``original``.
        original_breaks: a sentence about a limit that ``original`` breaks; empty if it keeps all.
        metrics, original_metrics, alternative_metrics: totals by metric.
        rounds: rounds of measuring.
        unmeasured: kernels of the answer that only have a bound, after the last round.
        measuring_s: seconds spent measuring.
        priced: what could be chosen, with the kernels as they were priced.
        own: the same of the model as it was loaded.
        problem: the last extraction problem over all of it.
        prices: of all that is offered.
    """

    best: Selection
    original: Selection
    alternatives: tuple[Selection, ...]
    extraction: Extraction
    original_cost: float
    original_breaks: str
    metrics: Mapping[str, float]
    original_metrics: Mapping[str, float]
    alternative_metrics: tuple[Mapping[str, float], ...]
    rounds: int
    unmeasured: int
    measuring_s: float
    priced: PricedCandidates = field(repr=False)
    own: PricedCandidates = field(repr=False)
    problem: PricedProblem = field(repr=False)
    prices: Mapping[Offer, Quote] = field(repr=False)


def selected(priced: PricedCandidates, problem: PricedProblem, extraction: Extraction) -> Selection:
    """What an extraction chose from ``priced``, whose problem is ``problem``."""
    selection = {}
    for cls, (node, way) in extraction.choice.items():
        item = problem.index[node]
        run = priced.implementations[item][way] if priced.implementations[item] else ()
        selection[cls] = Selected(priced.candidates.items[item], *run)
    return selection


def _offers(
    priced: PricedCandidates, problem: PricedProblem, extraction: Extraction
) -> list[Offer]:
    chosen = ((priced.offers[problem.index[n]], way) for n, way in extraction.choice.values())
    return [offers[way] for offers, way in chosen if offers]


def choose(
    priced: PricedCandidates,
    own: PricedCandidates,
    pricer: AnyPricer,
    objective: AnyObjective,
    *,
    measure: bool = True,
    rounds: int = 10,
    deadline: Deadline | None = None,
    gap: float = 0.0,
    n_alternatives: int = 2,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> ChoiceResult:
    """Extract under measured prices, with the original as incumbent.

    Args:
        priced: candidates on the saturated e-graph.
        own: candidates on the model as it was loaded, which says what the original costs.
        pricer: knows prices and measures what it does not know.
        objective: what to minimise, under which limits. The original may break them; the answer
            does not.
        measure: whether to measure; only where the objective or a limit depends on prices.
        rounds: of measuring, at most.
        deadline: by when to have ended; no limit if not given.
        gap: relative gap of the last answer below which a proof is worth a moment only.
        n_alternatives: further selections for the race.
        seed: of the extraction.
        progress: called with a text now and then.

    Raises:
        ExtractionError: no graph keeps the limits, or none was found in time; the objective divides
            by 0; or the original graph cannot be tiled, which is a defect of the candidates.
    """
    measure = measure and any(map(objective.uses, pricer.metrics))
    deadline = deadline or Deadline.never()
    pricer.recall(chain.from_iterable(priced.offers))
    fine = min(_GAP, gap)
    done, measuring_s = 0, 0.0

    def goes_on(wanted: Sequence[Offer]) -> bool:
        return measure and bool(wanted) and done < rounds and not deadline.expired

    known: Mapping[int, tuple[int, int]] | None = None
    while True:
        quoted = partial(PricedCandidates.problem, price=pricer.price, given=pricer.metrics)
        plain, full = quoted(own), quoted(priced)
        base = quoted(priced, only=priced.is_original)
        tile = partial(_tiled, objective=objective, deadline=deadline.share(_SEARCH), seed=seed)
        (original, breaks), (start, _) = tile(plain.problem), tile(base.problem)
        # Nodes keep their numbers while prices change, so the last answer is where the next search
        # starts.
        unchanged = {c: (full.node_of[base.index[n]], i) for c, (n, i) in start.choice.items()}
        rank = partial(_rank, full.problem, objective)
        known = min(filter(None, (known, unchanged)), key=rank)
        if deadline.expired:
            if rank(known)[0]:
                raise ExtractionError(_none_in_time(breaks))
            best = conclude(
                full.problem, objective, choice=known, lower_bound=0.0, open_status="greedy"
            )
            break
        solve = partial(extract, full.problem, objective, gap=fine, seed=seed)
        best = _searched(
            solve, known, objective=objective, deadline=deadline.share(_SEARCH), breaks=breaks
        )
        wanted = _unmeasured(pricer, _offers(priced, full, best), _offers(own, plain, original))
        if not goes_on(wanted) and best.gap > fine:
            # Only the last answer is worth a proof; a better one may need kernels that are not
            # measured yet.
            best = _proven(solve, best, deadline.share(_PROOF), gap)
            wanted = _unmeasured(pricer, _offers(priced, full, best))
        if not goes_on(wanted):
            break
        known = best.choice
        done += 1
        measuring_s += _measure(
            pricer, wanted, done=done, deadline=deadline.share(_MEASURING), progress=progress
        )
    others = alternatives(
        full.problem,
        objective,
        best,
        n_alternatives,
        time_limit_s=min(deadline.left_s, _ALTERNATIVES_S),
        seed=seed,
    )
    prices = {
        offer: pricer.price(offer)
        for offer in dict.fromkeys(chain.from_iterable((*priced.offers, *own.offers)))
    }
    answer = {*_offers(priced, full, best), *_offers(own, plain, original)}
    return ChoiceResult(
        best=selected(priced, full, best),
        original=selected(own, plain, original),
        alternatives=tuple(selected(priced, full, other) for other in others),
        extraction=best,
        original_cost=original.cost,
        original_breaks=breaks,
        metrics=best.metrics,
        original_metrics=original.metrics,
        alternative_metrics=tuple(other.metrics for other in others),
        rounds=done,
        unmeasured=sum(prices[offer].is_bound for offer in answer),
        measuring_s=measuring_s,
        priced=priced,
        own=own,
        problem=full,
        prices=prices,
    )


def _tiled(
    problem: Problem, objective: AnyObjective, deadline: Deadline, seed: int
) -> tuple[Extraction, str]:
    """The original with the best kernels, and a sentence about a limit that it breaks, if it does.

    It breaks one only where no way to tile it that keeps all of them was found.

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
    if not objective.is_limited:
        return found, ""
    metrics = measured(problem, objective, found.choice)
    breaks = broken(problem, objective, found.choice, metrics) or ""
    if breaks:
        with suppress(ExtractionError):
            within = extract(problem, objective, time_limit_s=limit_s, seed=seed)
            if within.status != "infeasible":
                return within, ""
    return replace(found, metrics=metrics), breaks


def _searched(
    solve: Callable[..., Extraction],
    known: Choice,
    objective: AnyObjective,
    deadline: Deadline,
    breaks: str,
) -> Extraction:
    """The search of a round, from a known solution.

    Args:
        solve: the extraction, but for what to start from and its limits.
        known: where to start; it may break a limit.
        objective: whether there are limits.
        deadline: of the search.
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


def _proven(
    solve: Callable[..., Extraction], best: Extraction, deadline: Deadline, gap: float
) -> Extraction:
    """``best`` or a better one, with a bound as near as a race can tell, and nearer if it is quick.

    Args:
        solve: the extraction, but for what to start from and its limits.
        best: what is known.
        deadline: of the search for a bound.
        gap: relative gap from which on only a moment is spent.
    """
    if best.gap > gap:
        best = solve(incumbent=best.choice, gap=gap, time_limit_s=_seconds(deadline))
    if _GAP < best.gap <= gap:
        moment_s = min(_MOMENT_S, deadline.left_s)
        nearer = solve(incumbent=best.choice, time_limit_s=moment_s)
        if nearer.gap < best.gap:
            return nearer
    return best


def _seconds(deadline: Deadline) -> float:
    """What is left, as a finite number."""
    return min(deadline.left_s, _FOREVER_S)


def _unmeasured(pricer: AnyPricer, *answers: Sequence[Offer]) -> list[Offer]:
    """Offers in the answers that have only a bound, each once."""
    offers = dict.fromkeys(chain.from_iterable(answers))
    return [offer for offer in offers if not pricer.is_known(offer)]


def _rank(problem: Problem, objective: AnyObjective, choice: Choice) -> tuple[bool, float]:
    """Whether a choice breaks a limit under the prices of ``problem``, and its objective."""
    metrics = measured(problem, objective, choice)
    is_broken = broken(problem, objective, choice, metrics) is not None
    return is_broken, objective.value(metrics)


def _measure(
    pricer: AnyPricer,
    offers: Sequence[Offer],
    done: int,
    deadline: Deadline,
    progress: Callable[[str], None] | None,
) -> float:
    """Measure one round; seconds that it took."""

    def report(n: int, total: int) -> None:
        if progress is not None:
            progress(f"round {done}: kernel {n} of {total}")

    start = time.perf_counter()
    pricer.measure(offers, report, deadline=deadline)
    return time.perf_counter() - start
