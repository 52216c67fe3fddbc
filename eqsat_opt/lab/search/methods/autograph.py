"""AutoGraph: graphs for several streams, chosen by a measurement (Zhao et al., AAAI 2023).

A graph is cut into parts where few substitutions are lost. Every part, and every run of adjacent
parts that is not too large, is searched by itself with relaxed backtracking. The cost there is the
sum of the kernels and a share of their longest chain (equation 1). A dynamic program over suffixes
of the graph puts the best parts together (equation 2). The best whole graphs are measured, and
those that are faster than all before are cut and searched again (algorithm 1).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.objective import Objective
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.rewriting.decoding import decoded
from eqsat_opt.lab.search.rewriting.parts import Part, part_of, running_values, whole_of
from eqsat_opt.lab.search.rewriting.splitting import capacities, split
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult, SearchTrace

__all__ = ["AutoGraph", "best_sequences"]


@dataclass(frozen=True)
class AutoGraph:
    """The search and its parameters.

    Attributes:
        size_l: operators of a part, at most.
        size_u: operators of a run of adjacent parts, at most.
        alpha: weight of the longest chain in addition to the sum.
        beta: a graph of a part is followed if it costs less than this many times the best.
        candidates: whole graphs that are measured for each graph that is cut.
        visits: graphs of one part whose substitutions are listed.
        dp: whether runs of parts are searched too; without, each part alone.
    """

    name: ClassVar[str] = "autograph"
    exact: ClassVar[bool] = False

    size_l: int = 40
    size_u: int = 120
    alpha: float = 0.25
    beta: float = 1.1
    candidates: int = 20
    visits: int = 30
    dp: bool = True

    def __post_init__(self) -> None:
        for name in ("size_l", "candidates", "visits"):
            if getattr(self, name) < 1:
                raise OptionError(f"{name} is {getattr(self, name)}; give at least 1")
        if self.size_u < self.size_l:
            raise OptionError(
                f"size_u is {self.size_u}, less than size_l, which is {self.size_l}; a run of "
                "parts holds one part at least, so give as many operators or more"
            )
        if not 0 <= self.alpha < float("inf"):
            raise OptionError(
                f"alpha is {self.alpha:g}; give a finite weight of the longest chain, 0 for none"
            )
        if not self.beta >= 1:
            raise OptionError(
                f"beta is {self.beta:g}; give at least 1, which follows cheaper graphs only"
            )

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Return the fastest graph that was measured; the search is deterministic."""
        guide = frame.guided(Objective({TIME: 1.0}, critical_path=self.alpha))
        run = Run(guide, budget)
        board, start = frame.measures, guide.start
        first = board.measure(frame.outcome(frame.start))
        best, fastest = decoded(guide.terms, start.graph)[0], first
        steps: tuple[str, ...] = ()
        seen = {start.key}
        queue: list[tuple[float, int, Graph, tuple[str, ...]]] = [(first.time_us, 0, best, ())]
        trace: list[SearchTrace] = []
        while queue and not run.is_spent:
            _, _, graph, before = heapq.heappop(queue)
            for found in self._improved(guide, run, graph, budget.length):
                if not run.may_take(len(before) + len(found.steps)):
                    continue
                own = frame.on(found.graph)
                if own.start.key in seen:
                    run.duplicates += 1
                    continue
                seen.add(own.start.key)
                reading = board.measure(own.outcome(own.start))
                if not reading.is_below(fastest):
                    continue
                best, fastest, steps = found.graph, reading, (*before, *found.steps)
                heapq.heappush(queue, (reading.time_us, len(seen), best, steps))
                trace.append(run.moment(own.start.value))
        outcome = frame.judged(best) if steps else frame.outcome(frame.start)
        return run.result(
            outcome=outcome,
            original=frame.outcome(frame.start),
            steps=steps,
            trace=tuple(trace),
            notes=(f"autograph: {fastest.time_us:.4g} µs, the original {first.time_us:.4g} µs",),
        )

    def _improved(self, guide: Frame, run: Run, graph: Graph, length: int) -> list[_Whole]:
        """Return the whole graphs of least cost by equation 2."""
        own = guide.on(graph)
        graph, names = decoded(own.terms, own.start.graph)
        operators = running_values(own.terms, own.start.graph)
        matches = (one.matched for one in own.substitutions(own.start))
        parts = split(operators, capacities(operators, matches), self.size_l).parts
        value = {key: _value_of(own, names, key) for key in operators}
        # Single parts come first: if the budget ends, there is an answer for all of them.
        sizes = [len(part) for part in parts]
        spans = [(i, i + 1) for i in range(len(parts))]
        if self.dp:
            spans += sorted(
                ((i, j) for i in range(len(parts)) for j in range(i + 2, len(parts) + 1)
                 if sum(sizes[i:j]) <= self.size_u),
                key=lambda span: span[1] - span[0],
            )  # fmt: skip
        found: dict[tuple[int, int], list[_Searched]] = {}
        with run:
            run.tick()
            for begin, end in spans:
                if run.is_spent:
                    break
                inside = [value[key] for part in parts[begin:end] for key in part]
                part = guide.on(part_of(graph, inside))
                search = _PartRun(
                    part, Budget(self.visits, length=length), run, keep=self.candidates
                )
                with search:
                    backtrack(search, part.start, self.beta)
                run.duplicates += search.duplicates
                run.pruned += search.pruned
                found[begin, end] = [
                    _Searched(part.graph, state.value, part.outcome(state).graph, state.steps)
                    for state in search.kept
                ]
        for i in range(len(parts)):  # parts that the budget has not reached
            if (i, i + 1) not in found:
                part = guide.on(part_of(graph, [value[key] for key in parts[i]]))
                found[i, i + 1] = [_Searched(part.graph, part.start.value, part.graph, ())]
        chosen = best_sequences(
            len(parts), {span: [one.value for one in kept] for span, kept in found.items()},
            self.candidates,
        )  # fmt: skip
        wholes = []
        for _, sequence in chosen:
            used = [found[span][number] for span, number in sequence]
            pairs = [(one.before, one.after) for one in used]
            steps = tuple(name for one in used for name in one.steps)
            if steps:
                wholes.append(_Whole(whole_of(graph, pairs), steps))
        return wholes


@dataclass(frozen=True)
class _Searched:
    """A graph of a part.

    Attributes:
        before: the original part.
        value: its mixed cost.
        after: the graph in place of the part.
        steps: names of the rules that led to it.
    """

    before: Part
    value: float
    after: Part
    steps: tuple[str, ...]


@dataclass(frozen=True)
class _Whole:
    graph: Graph
    steps: tuple[str, ...]


class _PartRun(Run):
    """The search of one part, which keeps several of the best graphs.

    Attributes:
        kept: the best graphs, cheapest first.
    """

    def __init__(self, frame: Frame, budget: Budget, whole: Run, *, keep: int) -> None:
        super().__init__(frame, budget, part_of=whole)
        self.kept: list[State] = [frame.start]
        self._keep = keep

    def consider(self, state: State) -> None:
        """Keep a graph if it is among the best."""
        super().consider(state)
        if not state.is_result:
            return
        self.kept = heapq.nsmallest(
            self._keep, [*self.kept, state], key=lambda one: (one.value, one.length)
        )


def _value_of(frame: Frame, names: Mapping[bytes, str], key: bytes) -> str:
    """Return the name of the first value that an operator computes."""
    term = frame.terms.known[key]
    if term.op != OPAQUE:
        return names[key]
    return next(filter(None, frame.terms.opaque_node(term).outputs))


Span = tuple[int, int]
"""Number of the first part of a run, and of the first part after it."""


def best_sequences(
    count: int, values: Mapping[Span, Sequence[float]], most: int
) -> list[tuple[float, tuple[tuple[Span, int], ...]]]:
    """Return the cheapest ways to take parts 0 to ``count`` - 1 in runs (equation 2).

    Parts are in a fixed order, so a suffix of them is identified by its first part and is solved
    once.

    Args:
        count: number of parts.
        values: run to the costs of its graphs.
        most: number of ways, at most.

    Returns:
        The total, and for each run the number of its graph; cheapest first.
    """
    left: list[list[tuple[float, tuple[tuple[Span, int], ...]]]] = [[] for _ in range(count + 1)]
    left[count] = [(0.0, ())]
    for begin in reversed(range(count)):
        ways = (
            (value + total, ((span, number), *rest))
            for span, graphs in values.items()
            if span[0] == begin
            for number, value in enumerate(graphs)
            for total, rest in left[span[1]]
        )
        left[begin] = heapq.nsmallest(most, ways, key=lambda way: way[0])
    return left[0]
