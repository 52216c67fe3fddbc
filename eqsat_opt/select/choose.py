"""The lazy measuring loop: extract, measure the unmeasured kernels of the answer, repeat.

Unmeasured kernels carry a lower bound, so when the answer is fully measured it is optimal over all
measured prices, though much was never measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from eqsat_opt.cost.pricing import Price, Pricer
from eqsat_opt.deadline import Deadline
from eqsat_opt.errors import ExtractionError
from eqsat_opt.extract import Extraction, Objective, extract
from eqsat_opt.extract.alternatives import alternatives
from eqsat_opt.extract.engine import conclude
from eqsat_opt.ir.kernel import Kernel
from eqsat_opt.select.candidates import Candidate
from eqsat_opt.select.pricing import PricedCandidates, PricedProblem

__all__ = ["ChoiceResult", "Selection", "choose"]

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

Selection = Mapping[int, Candidate]
"""Class to the chosen candidate, for every class that is computed."""


@dataclass(frozen=True)
class ChoiceResult:
    """What selection found.

    Attributes:
        best: the cheapest selection.
        original: the model as it came, tiled with the same kernels.
        alternatives: further good selections, for the race.
        extraction: cost, bound and gap of ``best``.
        original_cost: objective of ``original``.
        metrics, original_metrics, alternative_metrics: totals by metric.
        rounds: rounds of measuring.
        unmeasured: kernels of the answer that only have a bound, after the last round.
        measuring_s: seconds spent measuring.
        priced: what could be chosen, with the kernels as they were priced.
        own: the same of the model as it was loaded.
        problem: the last extraction problem over all of it.
        prices: of the kernels of ``best`` and ``original``.
    """

    best: Selection
    original: Selection
    alternatives: tuple[Selection, ...]
    extraction: Extraction
    original_cost: float
    metrics: Mapping[str, float]
    original_metrics: Mapping[str, float]
    alternative_metrics: tuple[Mapping[str, float], ...]
    rounds: int
    unmeasured: int
    measuring_s: float
    priced: PricedCandidates = field(repr=False)
    own: PricedCandidates = field(repr=False)
    problem: PricedProblem = field(repr=False)
    prices: Mapping[Kernel, Price] = field(repr=False)


def _selection(
    priced: PricedCandidates, problem: PricedProblem, extraction: Extraction
) -> Selection:
    items = priced.candidates.items
    return {cls: items[problem.index[node]] for cls, (node, _) in extraction.choice.items()}


def _kernels(
    priced: PricedCandidates, problem: PricedProblem, extraction: Extraction
) -> list[Kernel]:
    chosen = (priced.kernels[problem.index[node]] for node, _ in extraction.choice.values())
    return [kernel for kernel in chosen if kernel is not None]


def choose(
    priced: PricedCandidates,
    own: PricedCandidates,
    pricer: Pricer,
    objective: Objective,
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
        objective: what to minimise.
        measure: whether to measure; only where the objective has time in it.
        rounds: of measuring, at most.
        deadline: by when to have ended; no limit if not given.
        gap: relative gap of the last answer below which a proof is worth a moment only.
        n_alternatives: further selections for the race.
        seed: of the extraction.
        progress: called with a text now and then.

    Raises:
        ExtractionError: if the original graph cannot be tiled, which is a defect of the candidates.
    """
    measure = measure and objective.weights.get("time_us", 0.0) > 0
    deadline = deadline or Deadline.never()
    pricer.recall(kernel for kernel in priced.kernels if kernel is not None)
    fine = min(_GAP, gap)
    done, measuring_s = 0, 0.0

    def goes_on(wanted: Sequence[Kernel]) -> bool:
        return measure and bool(wanted) and done < rounds and not deadline.expired

    known: Mapping[int, tuple[int, int]] | None = None
    while True:
        plain, full = own.problem(pricer.price), priced.problem(pricer.price)
        base = priced.problem(pricer.price, priced.is_original)
        tile_only = partial(
            extract,
            objective=objective,
            method="local",
            time_limit_s=_seconds(deadline.share(_SEARCH)),
            seed=seed,
        )
        original, start = tile_only(plain.problem), tile_only(base.problem)
        if "infeasible" in (original.status, start.status):
            raise ExtractionError("the original graph has no kernels; please report this model")
        # Nodes keep their numbers while prices change, so the last answer is where the next search
        # starts.
        unchanged = {c: (full.node_of[base.index[n]], i) for c, (n, i) in start.choice.items()}
        known = min(filter(None, (known, unchanged)), key=partial(_cost, full, objective))
        if deadline.expired:
            best = conclude(full.problem, objective, known, 0.0, "greedy")
            break
        solve = partial(extract, full.problem, objective, gap=fine, seed=seed)
        best = solve(
            incumbent=known,
            method="lns",
            patience=_ROUND_PATIENCE,
            time_limit_s=_seconds(deadline.share(_SEARCH)),
        )
        wanted = _unmeasured(pricer, _kernels(priced, full, best), _kernels(own, plain, original))
        if not goes_on(wanted) and best.gap > fine:
            # Only the last answer is worth a proof; a better one may need kernels that are not
            # measured yet.
            best = _proven(solve, best, deadline.share(_PROOF), gap)
            wanted = _unmeasured(pricer, _kernels(priced, full, best))
        if not goes_on(wanted):
            break
        known = best.choice
        done += 1
        measuring_s += _measure(pricer, wanted, done, deadline.share(_MEASURING), progress)
    others = alternatives(
        full.problem,
        objective,
        best,
        n_alternatives,
        time_limit_s=min(deadline.left_s, _ALTERNATIVES_S),
        seed=seed,
    )
    prices = {
        k: pricer.price(k) for k in (*_kernels(priced, full, best), *_kernels(own, plain, original))
    }
    return ChoiceResult(
        _selection(priced, full, best),
        _selection(own, plain, original),
        tuple(_selection(priced, full, other) for other in others),
        best,
        original.cost,
        best.metrics,
        original.metrics,
        tuple(other.metrics for other in others),
        done,
        sum(not price.measured for price in prices.values()),
        measuring_s,
        priced,
        own,
        full,
        prices,
    )


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


def _unmeasured(pricer: Pricer, *answers: Sequence[Kernel]) -> list[Kernel]:
    """Kernels of the answers that have only a bound, each once."""
    kernels = dict.fromkeys(kernel for answer in answers for kernel in answer)
    return [kernel for kernel in kernels if not pricer.is_known(kernel)]


def _cost(
    problem: PricedProblem, objective: Objective, choice: Mapping[int, tuple[int, int]]
) -> float:
    """Cost of a choice under the prices of ``problem``; every candidate has one implementation."""
    nodes = [node for node, _ in choice.values()]
    costs = problem.problem.impl_cost[nodes] @ objective.vector(problem.problem.metrics)
    return float(costs.sum())


def _measure(
    pricer: Pricer,
    kernels: Sequence[Kernel],
    done: int,
    deadline: Deadline,
    progress: Callable[[str], None] | None,
) -> float:
    """Measure one round; seconds that it took."""

    def report(n: int, total: int) -> None:
        if progress is not None:
            progress(f"round {done}: kernel {n} of {total}")

    start = time.perf_counter()
    pricer.measure(kernels, report, deadline=deadline)
    return time.perf_counter() - start
