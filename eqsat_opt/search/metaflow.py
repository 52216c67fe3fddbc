"""MetaFlow's relaxed backtracking search (Jia et al., MLSys 2019, §4.2, Algorithm 1).

Graphs wait in a queue, cheapest first. Each substitution on the cheapest gives a new graph, which
waits too if it costs less than α times the best so far: so a search may pass through graphs that
cost more. What the paper leaves open is taken from its source: all places of a rule are tried,
graphs seen before are dropped, and so are those that have become too expensive while they waited.
TASO's limit on size stops rules that make graphs grow without end.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from typing import ClassVar, Literal

from eqsat_opt.cost.operators import graph_cost_us
from eqsat_opt.errors import OptionError
from eqsat_opt.search.decoding import decode
from eqsat_opt.search.hashing import TasoHash
from eqsat_opt.search.matching import Matching, Rewrite
from eqsat_opt.search.rewriting import Trial, Workbench, rewritten
from eqsat_opt.search.search import Frame, SearchBudget, SearchResult, SearchTrace, StopReason
from eqsat_opt.search.terms import PICOSECONDS, TermGraph, Terms

__all__ = ["MetaFlow"]


@dataclass(frozen=True, slots=True)
class _Step:
    """The rewrite that makes a graph of another one; both ``None`` for the original."""

    parent: _Visited | None
    rewrite: Rewrite | None


@dataclass(frozen=True, slots=True)
class _Visited:
    """A graph that was taken from the queue, and how it was reached."""

    graph: TermGraph
    step: _Step


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

    def run(self, frame: Frame, budget: SearchBudget, seed: int = 0) -> SearchResult:
        """The cheapest graph found; that of ``frame`` if none is cheaper. Nothing is drawn."""
        return _Run(self, frame, budget).result()


class _Run:
    """One search under way."""

    def __init__(self, settings: MetaFlow, frame: Frame, budget: SearchBudget) -> None:
        self._started = time.perf_counter()
        self._settings = settings
        self._budget = budget
        self._frame = frame
        self._terms = Terms(frame.graph, frame.cost)
        start = self._terms.start()
        self._matching = Matching(self._terms, frame.rules)
        self._limit = settings.growth * start.size
        self._best_ps = start.cost_ps
        self._best = _Step(None, None)
        self._start = start
        self._queue: list[tuple[int, int, _Step]] = [(start.cost_ps, 0, self._best)]
        self._pushed = 0
        self._taso = TasoHash(self._terms.known) if settings.hash == "taso" else None
        self._seen: set[object] = {start.key if self._taso is None else self._taso(start, {})}
        self._trace: list[SearchTrace] = []
        self._graphs = self._tried = self._duplicates = self._pruned = 0

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def _is_late(self) -> bool:
        return bool(self._budget.time_s) and self._elapsed() > self._budget.time_s

    def _search(self) -> StopReason:
        alpha = self._settings.alpha
        while self._queue:
            if self._budget.graphs and self._graphs >= self._budget.graphs:
                return "graphs"
            cost_ps, _, step = heapq.heappop(self._queue)
            if cost_ps > alpha * self._best_ps:
                continue
            self._graphs += 1
            if not self._expand(_Visited(self._graph_of(step), step)):
                return "time"
        return "exhausted"

    def _graph_of(self, step: _Step) -> TermGraph:
        if step.parent is None or step.rewrite is None:
            return self._start
        made = rewritten(self._terms, step.parent.graph, step.rewrite)
        self._terms.remember(made.new.values())
        return made.graph

    def _expand(self, visited: _Visited) -> bool:
        """Try every substitution on a graph; whether there was time to."""
        bench = Workbench(self._terms, visited.graph)
        for rewrite in self._matching.rewrites(visited.graph):
            if self._is_late():
                return False
            self._tried += 1
            trial, identity = self._attempt(bench, rewrite)
            if not (
                trial.cost_ps < self._settings.alpha * self._best_ps and trial.size < self._limit
            ):
                self._pruned += 1
                continue
            if identity in self._seen:
                self._duplicates += 1
                continue
            self._seen.add(identity)
            step = _Step(visited, rewrite)
            self._pushed += 1
            heapq.heappush(self._queue, (trial.cost_ps, self._pushed, step))
            if trial.cost_ps < self._best_ps:
                self._best_ps, self._best = trial.cost_ps, step
                self._trace.append(
                    SearchTrace(
                        self._graphs, self._tried, self._elapsed(), trial.cost_ps / PICOSECONDS
                    )
                )
        return True

    def _attempt(self, bench: Workbench, rewrite: Rewrite) -> tuple[Trial, object]:
        if self._taso is None:
            trial = bench.attempt(rewrite)
            return trial, trial.key
        made = rewritten(self._terms, bench.graph, rewrite)
        trial = Trial(made.graph.key, made.graph.cost_ps, made.graph.size)
        return trial, self._taso(made.graph, made.new)

    def result(self) -> SearchResult:
        """Search, and build the best graph."""
        cost = self._frame.cost
        original_us = graph_cost_us(self._frame.graph, cost)
        stopped_by = self._search()
        graph, steps = self._frame.graph, self._steps(self._best)
        if steps:
            graph = decode(self._terms, self._graph_of(self._best))
        return SearchResult(
            graph=graph,
            cost_us=graph_cost_us(graph, cost) if steps else original_us,
            original_cost_us=original_us,
            steps=steps,
            trace=tuple(self._trace),
            graphs=self._graphs,
            tried=self._tried,
            duplicates=self._duplicates,
            pruned=self._pruned,
            compared=self._matching.compared,
            stopped_by=stopped_by,
            time_s=self._elapsed(),
        )

    def _steps(self, step: _Step) -> tuple[str, ...]:
        names: list[str] = []
        while step.parent is not None and step.rewrite is not None:
            names.append(step.rewrite.rule)
            step = step.parent.step
        return tuple(reversed(names))
