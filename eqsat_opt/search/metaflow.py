"""MetaFlow's relaxed backtracking search (Jia et al., MLSys 2019, §4.2, Algorithm 1).

Graphs wait in a queue, cheapest first. Each substitution on the cheapest gives a new graph, which
waits too if it costs less than α times the best so far: so a search may pass through graphs that
cost more. What the paper leaves open is taken from its source: all places of a rule are tried,
graphs seen before are dropped, and so are those that have become too expensive while they waited.
TASO's limit on size stops rules that make graphs grow without end.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from eqsat_opt.errors import OptionError
from eqsat_opt.search.frame import Frame
from eqsat_opt.search.hashing import TasoHash
from eqsat_opt.search.rewriting import rewritten
from eqsat_opt.search.running import Run
from eqsat_opt.search.search import Budget, SearchResult
from eqsat_opt.search.state import State

__all__ = ["MetaFlow", "backtrack"]


@dataclass(frozen=True)
class MetaFlow:
    """The search and its parameters.

    Attributes:
        alpha: a graph is followed if it costs less than this many times the best; 1 is greedy.
        hash: ``canonical``, or ``taso`` for the lossy hash of the published systems.
        growth: graphs with at least this many times as many operators as the original are dropped.
    """

    name: ClassVar[str] = "metaflow"
    exact: ClassVar[bool] = False

    alpha: float = 1.05
    hash: Literal["canonical", "taso"] = "canonical"
    growth: float = 2.0

    def __post_init__(self) -> None:
        if not self.alpha >= 1:
            raise OptionError(
                f"alpha is {self.alpha:g}; give at least 1, which follows cheaper graphs only"
            )
        if self.hash not in ("canonical", "taso"):
            raise OptionError(f"unknown hash {self.hash!r}; choose canonical or taso")
        if not self.growth > 1:
            raise OptionError(f"growth is {self.growth:g}; give more than 1")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """The cheapest graph found; that of ``frame`` if none is cheaper. Nothing is drawn."""
        run = Run(frame, budget)
        taso = TasoHash(frame.terms.known) if self.hash == "taso" else None
        with run:
            backtrack(run, frame.start, self.alpha, growth=self.growth, taso=taso)
        return run.result()


def backtrack(
    run: Run, start: State, alpha: float, *, growth: float = 2.0, taso: TasoHash | None = None
) -> None:
    """Algorithm 1, from a graph on; the run remembers the best one.

    Args:
        run: of the search; when its budget is spent, it ends this.
        start: the graph.
        alpha: a graph is followed if it costs less than this many times the best.
        growth: graphs with at least this many times as many operators as ``start`` are dropped.
        taso: its hash in place of the canonical key.
    """
    terms = run.frame.terms
    limit = growth * start.size
    queue: list[tuple[float, int, State]] = [(start.value, 0, start)]
    seen: set[object] = {start.key if taso is None else taso(start.graph, {})}
    pushed = 0
    while queue:
        value, _, state = heapq.heappop(queue)
        if value > alpha * run.best.value:
            continue
        for one in run.substitutions(state):
            trial = run.attempt(state, one)
            # A start beyond a limit costs infinitely much, and so may what is on the way from it.
            if not (trial.value < alpha * run.best.value or run.best.value == math.inf):
                run.pruned += 1
                continue
            if trial.size >= limit:
                run.pruned += 1
                continue
            identity: object = trial.key
            if taso is not None:
                made = rewritten(terms, state.graph, one)
                identity = taso(made.graph, made.new)
            if identity in seen:
                run.duplicates += 1
                continue
            seen.add(identity)
            pushed += 1
            found = run.apply(state, one, trial)
            heapq.heappush(queue, (trial.value, pushed, found))
        state.forget()
