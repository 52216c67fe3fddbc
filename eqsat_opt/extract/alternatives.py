"""Further good solutions, for a race on the device where prices were only estimates."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np

from eqsat_opt.extract.engine import conclude, price, raise_choice, solve_priced
from eqsat_opt.extract.extraction import Extraction
from eqsat_opt.extract.objective import Objective
from eqsat_opt.extract.parts import Settings
from eqsat_opt.extract.problem import FloatArray, IntArray, Problem

__all__ = ["alternatives"]

_PENALTY = 0.05  # added to the price of an implementation for each solution that used it


def alternatives(
    problem: Problem,
    objective: Objective,
    extraction: Extraction,
    k: int,
    *,
    time_limit_s: float = 5.0,
    seed: int = 0,
) -> tuple[Extraction, ...]:
    """Up to `k` solutions that differ from the extraction and from each other, cheapest first.

    Two sources take turns: what was used becomes dearer (solutions that differ in many places),
    and one dear implementation is forbidden (the best neighbours). Local search only, no solver.

    Args:
        problem: what to choose from.
        objective: what to minimise.
        extraction: the solution to deviate from; its bound is the bound of all solutions.
        k: how many solutions to return at most.
        time_limit_s: stop trying after this time.
        seed: of local search.
    """
    if k < 1 or not extraction.choice:
        return ()
    deadline = time.perf_counter() + time_limit_s
    cost = price(problem, objective)
    used = np.zeros(len(cost))
    used[_rows(problem, extraction)] += 1
    found = {_key(extraction): extraction}
    forbidden = _replaceable(problem, cost, extraction)
    for attempt in range(4 * k):
        if len(found) > k or time.perf_counter() > deadline:
            break
        if attempt % 2 == 0:
            prices = cost * (1 + _PENALTY * used)
        else:
            row = next(forbidden, None)
            if row is None:
                continue
            prices = cost.copy()
            prices[row] = np.inf
        solution = solve_priced(
            problem,
            prices,
            objective,
            incumbent=extraction.choice,
            settings=Settings("local", 0.0, seed, True),
            time_limit_s=max(0.0, deadline - time.perf_counter()),
        )
        if solution.rows is None:
            continue
        choice = raise_choice(problem, solution.rows)
        other = conclude(problem, objective, choice, extraction.lower_bound, "feasible")
        used[_rows(problem, other)] += 1
        found.setdefault(_key(other), other)
    del found[_key(extraction)]
    return tuple(sorted(found.values(), key=lambda e: e.cost))


def _key(extraction: Extraction) -> tuple[tuple[int, tuple[int, int]], ...]:
    return tuple(sorted(extraction.choice.items()))


def _rows(problem: Problem, extraction: Extraction) -> IntArray:
    rows = [int(problem.impl_ptr[n]) + i for n, i in extraction.choice.values()]
    return np.array(rows, dtype=np.int64)


def _replaceable(problem: Problem, cost: FloatArray, extraction: Extraction) -> Iterator[int]:
    """Used implementations whose class has another one, dearest first."""
    owner = problem.implementation_node()
    count = np.bincount(problem.node_class[owner], minlength=problem.n_classes)
    rows = [int(r) for r in _rows(problem, extraction) if count[problem.node_class[owner[r]]] > 1]
    return iter(sorted(rows, key=lambda row: (-cost[row], row)))
