"""The lazy measuring loop: extract, measure the unmeasured kernels of the answer, repeat.

Unmeasured kernels are priced at a lower bound, so an answer that is fully measured is optimal over
all measured prices, although many kernels were never measured. That holds for every objective that
does not fall when a price rises, under any limits: sums, critical paths and products, but not for a
ratio that divides by time.

Bounds are optimistic. So an answer of which kernels remain unmeasured when the time ends is chosen
again by expected prices, with a margin on kernels that the original does not have; its lower bound
still rests on the lower bounds of prices.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from types import MappingProxyType

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.cost.quotes import AnyPricer, Quote
from eqsat_opt.cost.roofline import Roofline
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import AnyObjective, Extraction
from eqsat_opt.extract.alternatives import alternatives
from eqsat_opt.extract.engine import conclude
from eqsat_opt.extract.extraction import Choice, active_order
from eqsat_opt.runtime.backends.protocol import Offer
from eqsat_opt.select.choosing.forms import ConvertedValue, MadeValue, Placed
from eqsat_opt.select.choosing.priced_problem import PricedProblem
from eqsat_opt.select.choosing.pricing import PricedCandidates
from eqsat_opt.select.choosing.rounds import PROVEN_GAP, Round, pose, proven, searched
from eqsat_opt.select.choosing.timing import stream_times
from eqsat_opt.select.tiling.candidates import Selected, Selection

__all__ = ["ChoiceResult", "choose", "placed", "selected"]

_SEARCH, _MEASURING, _PROOF = 0.4, 0.7, 0.8
"""Shares of the time left: for the search of a round, its kernels, and the last answer's proof."""

_ALTERNATIVES_S = 1.5

_MARGIN = 1.2
"""Factor on the expected time of a new kernel in an answer that is not measured any more: the best
of many expectations is likely to be one that errs."""


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
        peaks: rates that probes of the device reached; ``None`` where none were measured.
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
    peaks: Roofline | None = None

    @property
    def unmeasured(self) -> int:
        """Number of kernels of the answer and of the original that were not measured."""
        return self.sources.get("bound", 0) + self.sources.get("expected", 0)


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
        objective: the objective and its limits. The original may break them; the answer
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
    fine = min(PROVEN_GAP, gap)
    done, measuring_s = 0, 0.0
    posed = partial(pose, own, priced, pricer, objective, seed=seed, told=told)

    def goes_on(wanted: Sequence[Offer]) -> bool:
        return measure and bool(wanted) and done < rounds and not deadline.expired

    known: tuple[Choice, PricedProblem] | None = None
    while True:
        round_ = posed(pricer.price, deadline=deadline.share(_SEARCH))
        # The next search starts from the last answer, under the current prices.
        incumbent = round_.incumbent(known)
        if deadline.expired:
            best = round_.unsearched(incumbent)
            break
        solve = partial(round_.solve, gap=fine)
        best = searched(
            solve,
            incumbent,
            objective=objective,
            deadline=deadline.share(_SEARCH),
            breaks=round_.breaks,
        )
        wanted = _unmeasured(pricer, round_.offers(best), round_.original_offers)
        if not goes_on(wanted):
            if best.gap > fine:
                # Only the last answer is worth a proof; a better one may need kernels that are not
                # measured yet.
                share = deadline.share(_SEARCH if measure and wanted else _PROOF)
                best = proven(solve, best, share, gap)
                wanted = _unmeasured(pricer, round_.offers(best))
            if not goes_on(wanted):
                break
        known = best.choice, round_.full
        done += 1
        measuring_s += _measure(
            pricer,
            wanted,
            done=done,
            deadline=deadline.share(_MEASURING),
            progress=progress,
        )
    if measure and _unmeasured(pricer, round_.offers(best)):
        price = _with_margin(pricer, frozenset(own.all_offers))
        round_, best = _expected(
            partial(posed, price), bounded=round_, best=best, deadline=deadline, objective=objective
        )
    full, plain, original = round_.full, round_.plain, round_.original
    others = alternatives(
        full.problem,
        objective,
        best,
        n_alternatives,
        time_limit_s=min(deadline.left_s, _ALTERNATIVES_S),
        seed=seed,
    )
    prices = {
        offer: round_.price(offer) for offer in dict.fromkeys((*priced.all_offers, *own.all_offers))
    }
    used = {*round_.offers(best), *round_.original_offers}

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
        original_breaks=round_.breaks,
        metrics=metrics(full, best),
        original_metrics=metrics(plain, original),
        alternative_metrics=tuple(metrics(full, other) for other in others),
        rounds=done,
        sources=Counter(prices[offer].source for offer in used),
        measuring_s=measuring_s,
        priced=priced,
        own=own,
        problem=full,
        prices=prices,
        peaks=pricer.peaks,
    )


def _with_margin(pricer: AnyPricer, own: Collection[Offer]) -> Callable[[Offer], Quote]:
    """Return expected prices, with a margin on kernels that the original does not have."""

    def price(offer: Offer) -> Quote:
        quote = pricer.expect(offer)
        if quote.source != "expected" or offer in own:
            return quote
        return replace(quote, metrics={k: _MARGIN * v for k, v in quote.metrics.items()})

    return price


def _expected(
    pose: Callable[..., Round],
    bounded: Round,
    best: Extraction,
    deadline: Deadline,
    objective: AnyObjective,
) -> tuple[Round, Extraction]:
    """Choose again by expected prices, and keep the lower bound.

    Args:
        pose: poses the problems under expected prices.
        bounded: the last round under lower bounds of prices.
        best: its answer.
        deadline: deadline of the choice; without time left, the better of the last answer and the
            original is chosen.
        objective: the objective. Where expected prices keep no limit, the last answer stays.
    """
    share = deadline.share(_SEARCH)
    try:
        round_ = pose(deadline=share)
        incumbent = round_.incumbent((best.choice, bounded.full))
        if deadline.expired:
            found = round_.unsearched(incumbent)
        else:
            found = searched(
                round_.solve, incumbent, objective=objective, deadline=share, breaks=round_.breaks
            )
    except ExtractionError:
        return bounded, best
    answer = conclude(
        round_.full.problem,
        objective,
        choice=found.choice,
        lower_bound=best.lower_bound,
        open_status="feasible",
    )
    return round_, replace(answer, stages_s=best.stages_s)


def _unmeasured(pricer: AnyPricer, *answers: Sequence[Offer]) -> list[Offer]:
    """Return the offers in the answers that have only a bound, each once."""
    offers = dict.fromkeys(chain.from_iterable(answers))
    return [offer for offer in offers if not pricer.is_known(offer)]


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
