"""The lazy measuring loop: extract, measure the unmeasured kernels of the answer, repeat.

Unmeasured kernels are priced at a lower bound, so an answer that is fully measured is optimal over
all measured prices, although many kernels were never measured. That holds for every objective that
does not fall when a price rises, under any limits: sums, critical paths and products, but not for a
ratio that divides by time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Extraction, Problem, extract
from eqsat_opt.extract.alternatives import alternatives
from eqsat_opt.extract.engine import conclude
from eqsat_opt.extract.extraction import Choice, active_order, broken, measured
from eqsat_opt.extract.objective import Ratio, without_limits
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.form_search import form_search
from eqsat_opt.select.choosing.forms import ConvertedValue, MadeValue, Placed
from eqsat_opt.select.choosing.priced_problem import PricedProblem, translated
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.choosing.timing import stream_times
from eqsat_opt.select.tiling.candidates import Selected, Selection

__all__ = ["ChoiceResult", "choose", "placed", "selected"]

_GAP = 1e-3
"""Relative gap below which a proof has no meaning for the device: prices are good to some
percent."""

_MOMENT_S = 1.0
"""Time for a tighter bound where the gap is small already, s."""

_SEARCH, _MEASURING, _PROOF = 0.4, 0.7, 0.8
"""Shares of the time left: for the search of a round, its kernels, and the last answer's proof."""

_FOREVER_S = 1e6

_ROUND_PATIENCE = 8
"""Number of neighbourhoods without a gain after which a round ends: the next one has other
prices."""

_ALTERNATIVES_S = 1.5


@dataclass(frozen=True)
class ChoiceResult:
    """The result of selection.

    Attributes:
        best: the cheapest selection.
        original: the model before the search, tiled with the same kernels.
        alternatives: further good selections, for the race.
        placed: the best selection and the alternatives, with the forms of all values and with
            conversions.
        original_placed: the same for ``original``.
        extraction: cost, bound and gap of ``best``.
        original_cost: objective of ``original``.
        original_breaks: a sentence about a limit that ``original`` breaks; empty if it keeps all.
        metrics, original_metrics, alternative_metrics: totals by metric.
        rounds: number of rounds of measuring.
        sources: number of different kernels of the answer and of the original, by the source of
            their price after the last round.
        measuring_s: seconds spent measuring.
        priced: the candidates to choose from, with the kernels as they were priced.
        own: the candidates of the model as it was loaded.
        problem: the last extraction problem over all candidates.
        prices: price of every offer.
    """

    best: Selection
    original: Selection
    alternatives: tuple[Selection, ...]
    placed: tuple[Placed, ...]
    original_placed: Placed
    extraction: Extraction
    original_cost: float
    original_breaks: str
    metrics: Mapping[str, float]
    original_metrics: Mapping[str, float]
    alternative_metrics: tuple[Mapping[str, float], ...]
    rounds: int
    sources: Mapping[str, int]
    measuring_s: float
    priced: PricedCandidates = field(repr=False)
    own: PricedCandidates = field(repr=False)
    problem: PricedProblem = field(repr=False)
    prices: Mapping[Offer, Quote] = field(repr=False)

    @property
    def unmeasured(self) -> int:
        """Number of kernels of the answer and of the original that have only a lower bound."""
        return self.sources.get("bound", 0)


def placed(priced: PricedCandidates, problem: PricedProblem, extraction: Extraction) -> Placed:
    """Return kernels and conversions that an extraction chose in ``problem``, operands first."""
    result: list[MadeValue | ConvertedValue] = []
    for cls in active_order(problem.problem, extraction.choice):
        node, way = extraction.choice[cls]
        item, conversion = problem.index[node], problem.conversion_number(node)
        number = problem.offer_number(node, way)
        if conversion is not None:
            one = priced.conversions[conversion]
            how = one.implementations[number]
            result.append(ConvertedValue(one.cls, one.made, one.read, *how))
        elif item >= 0:
            (own, form), _ = problem.value_of.get(cls, ((cls, None), False))
            run = priced.implementations[item][number] if priced.implementations[item] else ()
            chosen = Selected(priced.candidates.items[item], *run)
            result.append(MadeValue(own, form or priced.interface, chosen))
    return tuple(result)


def selected(priced: PricedCandidates, problem: PricedProblem, extraction: Extraction) -> Selection:
    """Return the candidate and implementation that was chosen for each class.

    Conversions are left out. If a class is made in several forms, the first one is returned; it
    needs nothing that comes later, so the result is a selection too.
    """
    selection: dict[int, Selected] = {}
    for one in placed(priced, problem, extraction):
        if isinstance(one, MadeValue):
            selection.setdefault(one.cls, one.run)
    order = extraction.choice if not problem.value_of else selection
    return {cls: selection[cls] for cls in order}


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
    streams: int = 1,
    seed: int = 0,
    told: Mapping[str, float] = MappingProxyType({}),
    progress: Callable[[str], None] | None = None,
) -> ChoiceResult:
    """Extract under measured prices, with the original as incumbent.

    Args:
        priced: candidates on the saturated e-graph.
        own: candidates on the model as it was loaded, which give the cost of the original.
        pricer: the source of prices, which measures those that it does not know.
        objective: what to minimise, under which limits. The original may break them; the answer
            does not.
        measure: whether to measure; only where the objective or a limit depends on prices.
        rounds: greatest number of rounds of measuring.
        deadline: time at which to end; no limit if not given.
        gap: relative gap of the last answer below which a proof is worth a moment only.
        n_alternatives: number of further selections for the race.
        streams: number of streams on which kernels run; with several, the metrics include the
            longest chain and the end of a schedule.
        seed: random seed of the extraction.
        told: totals of the original that were read from its file.
        progress: function that is called with a text from time to time.

    Raises:
        ExtractionError: no graph keeps the limits, or none was found in time; the objective divides
            by 0; or the original graph cannot be tiled, which is a defect of the candidates.
    """
    measure = measure and any(map(objective.uses, pricer.metrics))
    deadline = deadline or Deadline.never()
    pricer.recall(priced.all_offers)
    fine = min(_GAP, gap)
    done, measuring_s = 0, 0.0

    def goes_on(wanted: Sequence[Offer]) -> bool:
        return measure and bool(wanted) and done < rounds and not deadline.expired

    known: tuple[Choice, PricedProblem] | None = None
    while True:
        quoted = partial(
            PricedCandidates.problem,
            price=pricer.price,
            given=pricer.metrics,
            settled=not isinstance(objective, Ratio),
        )
        plain, full = quoted(own), quoted(priced)
        base = quoted(priced, only=priced.is_original)
        tile = partial(_tiled, objective=objective, deadline=deadline.share(_SEARCH), seed=seed)
        (original, breaks), (start, _) = tile(plain.problem, told=told), tile(base.problem)
        unchanged = translated(start.choice, base, full)
        assert unchanged is not None, "what may be chosen for the original is there for the result"
        rank = partial(_rank, full.problem, objective)
        # The next search starts from the last answer, under the current prices.
        before = known and translated(*known, full)
        incumbent = min(filter(None, (before, unchanged)), key=rank)
        if deadline.expired:
            if rank(incumbent)[0]:
                raise ExtractionError(_none_in_time(breaks))
            best = conclude(
                full.problem, objective, choice=incumbent, lower_bound=0.0, open_status="greedy"
            )
            break
        solve: Callable[..., Extraction]
        if priced.conversions and not isinstance(objective, Ratio):
            solve = partial(form_search(priced, full, quoted, objective, seed=seed), gap=fine)
        else:
            solve = partial(extract, full.problem, objective, gap=fine, seed=seed)
        best = _searched(
            solve, incumbent, objective=objective, deadline=deadline.share(_SEARCH), breaks=breaks
        )
        wanted = _unmeasured(pricer, _offers(priced, full, best), _offers(own, plain, original))
        if not goes_on(wanted) and best.gap > fine:
            # Only the last answer is worth a proof; a better one may need kernels that are not
            # measured yet.
            best = _proven(solve, best, deadline.share(_PROOF), gap)
            wanted = _unmeasured(pricer, _offers(priced, full, best))
        if not goes_on(wanted):
            break
        known = best.choice, full
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
        offer: pricer.price(offer) for offer in dict.fromkeys((*priced.all_offers, *own.all_offers))
    }
    answer = {*_offers(priced, full, best), *_offers(own, plain, original)}

    def metrics(problem: PricedProblem, one: Extraction) -> Mapping[str, float]:
        if streams == 1:
            return one.metrics
        times = stream_times(problem.problem, one.choice, streams, pricer.event_us)
        return {**one.metrics, **times}

    return ChoiceResult(
        best=selected(priced, full, best),
        original=selected(own, plain, original),
        alternatives=tuple(selected(priced, full, other) for other in others),
        placed=tuple(placed(priced, full, one) for one in (best, *others)),
        original_placed=placed(own, plain, original),
        extraction=best,
        original_cost=original.cost,
        original_breaks=breaks,
        metrics=metrics(full, best),
        original_metrics=metrics(plain, original),
        alternative_metrics=tuple(metrics(full, other) for other in others),
        rounds=done,
        sources=Counter(prices[offer].source for offer in answer),
        measuring_s=measuring_s,
        priced=priced,
        own=own,
        problem=full,
        prices=prices,
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


def _searched(
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


def _proven(
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
    if _GAP < best.gap <= gap:
        moment_s = min(_MOMENT_S, deadline.left_s)
        nearer = solve(incumbent=best.choice, time_limit_s=moment_s)
        if nearer.gap < best.gap:
            return nearer
    return best


def _seconds(deadline: Deadline) -> float:
    """Return the time left as a finite number of seconds."""
    return min(deadline.left_s, _FOREVER_S)


def _unmeasured(pricer: AnyPricer, *answers: Sequence[Offer]) -> list[Offer]:
    """Return the offers in the answers that have only a bound, each once."""
    offers = dict.fromkeys(chain.from_iterable(answers))
    return [offer for offer in offers if not pricer.is_known(offer)]


def _rank(problem: Problem, objective: AnyObjective, choice: Choice) -> tuple[bool, float]:
    """Return whether a choice breaks a limit at the prices of ``problem``, and its objective."""
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
    """Measure the kernels of one round; return the time that it took, s."""

    def report(n: int, total: int) -> None:
        if progress is not None:
            progress(f"round {done}: kernel {n} of {total}")

    start = time.perf_counter()
    pricer.measure(offers, report, deadline=deadline)
    return time.perf_counter() - start
