"""AutoGraph: graphs for several streams, chosen by a measurement (Zhao et al., AAAI 2023).

A graph is cut into parts where few substitutions are lost. Every part, and every group of adjacent
parts that is not too large, is searched by itself with relaxed backtracking. The cost there is the
sum of the kernels and a share of their longest chain (equation 1). A dynamic program, which takes
next any part that reads no other, puts the best parts together (equation 2). The best whole graphs
are measured, and those that are faster than all before are cut and searched again (algorithm 1).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.errors import OptionError
from eqsat_opt.extract.objective import Objective
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.rewriting.decoding import decoded
from eqsat_opt.lab.search.rewriting.groups import Group, adjacent_groups, best_sequences
from eqsat_opt.lab.search.rewriting.parts import Part, part_of, running_values, whole_of
from eqsat_opt.lab.search.rewriting.splitting import capacities, split
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult, SearchTrace

__all__ = ["AutoGraph"]


@dataclass(frozen=True)
class AutoGraph:
    """The search and its parameters.

    Attributes:
        size_l: operators of a part, at most.
        size_u: operators of a group of adjacent parts, at most.
        alpha: weight of the longest chain in addition to the sum.
        beta: a graph of a part is followed if it costs less than this many times the best.
        candidates: whole graphs that are measured for each graph that is cut.
        visits: graphs of one part whose substitutions are listed.
        dp: whether groups of parts are searched too; without, each part alone.
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
                f"size_u is {self.size_u}, less than size_l, which is {self.size_l}; a group of "
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
        number = {key: i for i, part in enumerate(parts) for key in part}
        reads = {
            i: {number[c] for key in part for c in operators[key]} - {i}
            for i, part in enumerate(parts)
        }
        # Single parts come first: if the budget ends, there is an answer for all of them.
        groups = [frozenset((i,)) for i in reads]
        if self.dp:
            groups = adjacent_groups(reads, [len(part) for part in parts], self.size_u)
        found: dict[Group, list[_Searched]] = {}
        with run:
            run.tick()
            for group in groups:
                if run.is_spent:
                    break
                inside = [value[key] for i in sorted(group) for key in parts[i]]
                part = guide.on(part_of(graph, inside))
                search = _PartRun(
                    part, Budget(self.visits, length=length), run, keep=self.candidates
                )
                with search:
                    backtrack(search, part.start, self.beta)
                run.duplicates += search.duplicates
                run.pruned += search.pruned
                found[group] = [
                    _Searched(part.graph, state.value, part.outcome(state).graph, state.steps)
                    for state in search.kept
                ]
        for i, own_part in enumerate(parts):  # parts that the budget has not reached
            if frozenset((i,)) not in found:
                part = guide.on(part_of(graph, [value[key] for key in own_part]))
                found[frozenset((i,))] = [_Searched(part.graph, part.start.value, part.graph, ())]
        costs = {group: [one.value for one in kept] for group, kept in found.items()}
        chosen = best_sequences(reads, costs, self.candidates)
        wholes = []
        for _, sequence in chosen:
            used = [found[group][place] for group, place in sequence]
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
