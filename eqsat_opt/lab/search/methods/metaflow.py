"""MetaFlow's relaxed backtracking search (Jia et al., MLSys 2019, §4.2, Algorithm 1).

Graphs wait in a queue, cheapest first. Each substitution on the cheapest gives a new graph, which
waits too if it costs less than α times the best so far: so a search may pass through graphs that
cost more. Details that the paper leaves open follow its source: all places of a rule are tried,
graphs seen before are dropped, and so are those that have become too expensive while they waited.
TASO's limit on size stops rules that make graphs grow without end.

Larger graphs are split first (§4.3): each part is searched by itself, with substitutions that lie
in it, from the best graph of the parts before. Then the surroundings of each cut are searched, with
substitutions that span it, from the smallest parts up. A term that a substitution makes belongs to
the part in which it was made, even when its operands change later.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal
from weakref import WeakKeyDictionary

from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.rewriting.hashing import TasoHash
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.rewriting import rewritten
from eqsat_opt.lab.search.rewriting.splitting import Cut, capacities, split
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult

__all__ = ["MetaFlow", "backtrack"]

Allowed = Callable[[State, Substitution], bool]


@dataclass(frozen=True)
class MetaFlow:
    """The search and its parameters.

    Attributes:
        alpha: a graph is followed if it costs less than this many times the best; 1 is greedy.
        hash: ``canonical``, or ``taso`` for the lossy hash of the published systems.
        growth: graphs with at least this many times as many operators as the original are dropped.
        part: operators of a part, at most (the paper's 30); 0 for no split.
    """

    name: ClassVar[str] = "metaflow"
    exact: ClassVar[bool] = False

    alpha: float = 1.05
    hash: Literal["canonical", "taso"] = "canonical"
    growth: float = 2.0
    part: int = 30

    def __post_init__(self) -> None:
        if not self.alpha >= 1:
            raise OptionError(
                f"alpha is {self.alpha:g}; give at least 1, which follows cheaper graphs only"
            )
        if self.hash not in ("canonical", "taso"):
            raise OptionError(f"unknown hash {self.hash!r}; choose canonical or taso")
        if not self.growth > 1:
            raise OptionError(f"growth is {self.growth:g}; give more than 1")
        if self.part < 0:
            raise OptionError(f"part is {self.part}; give a number of operators, or 0 for no split")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Return the cheapest graph found; that of ``frame`` if none is cheaper.

        The search is deterministic.
        """
        run = Run(frame, budget)
        taso = TasoHash(frame.terms.known) if self.hash == "taso" else None
        with run:
            if not 0 < self.part < frame.start.size:
                backtrack(run, frame.start, self.alpha, growth=self.growth, taso=taso)
            else:
                parts = _Parts(run, self.part)
                for is_allowed in parts.filters():
                    backtrack(
                        run,
                        run.best,
                        self.alpha,
                        growth=self.growth,
                        taso=taso,
                        is_allowed=is_allowed,
                    )
        return run.result()


class _Parts:
    """The part of each term of each graph; inputs and constants belong to no part."""

    def __init__(self, run: Run, size: int) -> None:
        frame = run.frame
        self._known = frame.terms.known
        graph = frame.start.graph
        operators = {key: self._known[key].operands for key in graph.order if self._known[key].runs}
        matches = (one.matched for one in frame.substitutions(frame.start))
        self._split = split(operators, capacities(operators, matches), size)
        self._start = {key: number for number, part in enumerate(self._split.parts) for key in part}
        self._labels = WeakKeyDictionary[State, Mapping[bytes, int]]()

    def _of(self, state: State) -> Mapping[bytes, int]:
        if state.parent is None or state.step is None:
            return self._start
        found = self._labels.get(state)
        if found is None:
            before, step = self._of(state.parent), state.step
            found = {state.moved.get(key, key): number for key, number in before.items()}
            # A substitution across parts belongs to the last of them, which reads the others.
            own = max((before[key] for key in step.matched if key in before), default=-1)
            for term in step.made:
                if term.runs and own >= 0:
                    found.setdefault(term.key, own)
            self._labels[state] = found
        return found

    def _met(self, state: State, one: Substitution) -> set[int]:
        labels = self._of(state)
        return {labels[key] for key in one.matched if key in labels}

    def filters(self) -> Iterator[Allowed]:
        """Yield a filter of substitutions for each part, and then for each cut."""
        for number in range(len(self._split.parts)):
            yield partial(self._lies_in, number)
        for cut in self._split.cuts:
            yield partial(self._spans, cut)

    def _lies_in(self, number: int, state: State, one: Substitution) -> bool:
        return self._met(state, one) == {number}

    def _spans(self, cut: Cut, state: State, one: Substitution) -> bool:
        met = self._met(state, one)
        return bool(met) and cut.spanned_by(met)


def backtrack(
    run: Run,
    start: State,
    alpha: float,
    *,
    growth: float = 2.0,
    taso: TasoHash | None = None,
    is_allowed: Allowed = lambda _state, _one: True,
    drops_waiting: bool = True,
) -> None:
    """Run Algorithm 1 from a graph; the run remembers the best one.

    Args:
        run: the run of the search; when its budget is spent, its exception ends this function.
        start: the graph.
        alpha: a graph is followed if it costs less than this many times the best.
        growth: graphs with at least this many times as many operators as ``start`` are dropped.
        taso: TASO's hash, in place of the canonical key.
        is_allowed: filter for substitutions that are tried.
        drops_waiting: whether a graph is dropped that has become too expensive in the queue.
    """
    terms = run.frame.terms
    limit = growth * start.size
    queue: list[tuple[float, int, State]] = [(start.value, 0, start)]
    seen: set[object] = {start.key if taso is None else taso(start.graph, {})}
    pushed = 0
    while queue:
        value, _, state = heapq.heappop(queue)
        if drops_waiting and value > alpha * run.best.value:
            continue
        for one in run.substitutions(state):
            if not is_allowed(state, one):
                continue
            trial = run.attempt(state, one)
            # A start beyond a limit costs infinitely much, and so may graphs on the way from it.
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
