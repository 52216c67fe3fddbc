"""A frame in which a graph costs as much as its best assignment of algorithms to kernels.

"Energy-Aware DNN Graph Optimization" (Wang et al., 2020, §3.3) calls this the inner search. Two
numbers describe a kernel under an algorithm, mostly time and energy. The objective is a function of
their totals: a sum, a product of powers, or a ratio, which is the mean power.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from eqsat_opt.cost.metrics import TIME
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.lab.search.frame import ChosenKernel, Frame, PricedGraph
from eqsat_opt.lab.search.pricing.assignment import Point, improved
from eqsat_opt.lab.search.pricing.goals import Goal
from eqsat_opt.lab.search.pricing.pricing import ImplementationRow, Quoted
from eqsat_opt.lab.search.pricing.tiling import Cover
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.rewriting import RewriteTrial, Rewritten, rewritten
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.rewriting.terms import OUTPUT, Term, TermGraph

__all__ = ["AssignedFrame", "Inner"]

Inner = Literal["walk", "exact", "off"]


@dataclass
class AssignedFrame(Frame):
    """Graphs under the best assignment that the inner search finds.

    Attributes:
        goal: the objective.
        inner: ``walk`` is the published search, ``exact`` an optimal assignment; ``off`` leaves
            each kernel its fastest algorithm.
        radius: radius of the walk; 0 for that of the goal.
        is_over: whether the time of the search is over, which ends walks of a radius above 2.
    """

    goal: Goal = field(kw_only=True)
    inner: Inner = field(default="walk", kw_only=True)
    radius: int = field(default=0, kw_only=True)
    is_over: Callable[[], bool] = field(default=lambda: False, kw_only=True, repr=False)
    _walked: dict[tuple[int, ...], list[int]] = field(default_factory=dict, init=False, repr=False)
    _points: dict[int, _Ways] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def start(self) -> State:
        """The original graph."""
        graph = self.terms.start()
        return State(self.terms, RewriteTrial(graph.key, self._least(graph, None), graph.size))

    def attempt(self, state: State, substitution: Substitution) -> RewriteTrial:
        """Evaluate a graph after a substitution, with an assignment of its own."""
        made = rewritten(self.terms, state.graph, substitution)
        self.terms.remember(made.new.values())
        value = self._least(made.graph, (state, made))
        for key in made.new:
            del self.terms.known[key]
        return RewriteTrial(made.graph.key, value, made.graph.size)

    def outcome(self, state: State, cover: Cover | None = None) -> PricedGraph:
        """Return a graph with its kernels under the assignment, valued by the objective."""
        found = super().outcome(state, cover)
        ways = [self._ways(self._rows_of(one)) for one in found.kernels.values()]
        kernels = {}
        for (name, one), way, place in zip(
            found.kernels.items(), ways, self._assigned(ways), strict=True
        ):
            quoted = way.rows[place].quoted
            assert quoted is not None
            kernels[name] = replace(
                one,
                backend=quoted.backend,
                implementation=quoted.implementation,
                metrics=quoted.metrics,
            )
        metrics = {
            name: math.fsum(one.metrics[name] for one in kernels.values()) for name in found.metrics
        }
        is_broken = self.objective.broken_limit(metrics) is not None
        value = math.inf if is_broken else self.objective.value(metrics)
        return replace(found, kernels=kernels, metrics=metrics, value=value)

    def totals(self, state: State, inner: Inner) -> Point:
        """Return the totals of a graph under the assignment that an inner search finds."""
        ways = self._of(state.graph, None)
        return _totals([way.points for way in ways], self._assigned(ways, inner))

    def _rows_of(self, one: ChosenKernel) -> tuple[ImplementationRow, ...]:
        if one.kernel is not None:
            return self.prices.rows(one.kernel)
        quoted = Quoted(one.backend, one.implementation, one.metrics)
        return (self.prices.valuation.row(quoted),)

    def _ways(self, rows: tuple[ImplementationRow, ...]) -> _Ways:
        """Return cached figures of the rows of a kernel, which are always the same object."""
        known = self._points.get(id(rows))
        if known is None:
            points = tuple(self.goal.point(row.metrics) for row in rows)
            fastest = min(range(len(rows)), key=lambda i: (rows[i].metrics.get(TIME, 0.0), i))
            known = self._points[id(rows)] = _Ways(rows, points, fastest)
        return known

    def _of(self, graph: TermGraph, before: tuple[State, Rewritten] | None) -> list[_Ways]:
        known = self.terms.known
        if self.level == "operators":
            live = (known[key] for key in graph.order)
            found = (self._operator(term) for term in live if term.runs)
            return [self._ways(rows) for rows in found if rows[0].quoted is not None]
        old = None if before is None else (self.cover(before[0]), before[1])
        ways = self.covering.cover(graph, old).ways
        priced = [way for way in ways if way.row.quoted is not None]
        return [
            self._ways((way.row,) if way.kernel is None else self.prices.rows(way.kernel))
            for way in priced
        ]

    def _operator(self, term: Term) -> tuple[ImplementationRow, ...]:
        if term.op in (OPAQUE, OUTPUT):
            return (term.row,)
        operands = [self.terms.known[key] for key in term.operands]
        return self.prices.operator(
            term.op, term.attrs, [(one.type, one.const, one.key) for one in operands]
        )

    def _least(self, graph: TermGraph, before: tuple[State, Rewritten] | None) -> float:
        ways = self._of(graph, before)
        return self.goal.value(*_totals([way.points for way in ways], self._assigned(ways)))

    def _assigned(self, ways: Sequence[_Ways], inner: Inner | None = None) -> list[int]:
        """Return the number of each kernel's algorithm."""
        inner = inner or self.inner
        chosen = [way.fastest for way in ways]
        if inner == "off":
            return chosen
        # Kernels with a single algorithm are added up as one kernel without a choice.
        free = [i for i, way in enumerate(ways) if len(way.points) > 1]
        fixed = _totals([way.points for way in ways if len(way.points) == 1])
        choices = [*(ways[i].points for i in free), (fixed,)]
        if inner == "exact":
            assert self.goal.solve is not None
            found = self.goal.solve(choices)
        else:
            key = tuple(map(id, ways))
            found = self._walked.get(key, [])
            if not found:
                start = [*(chosen[i] for i in free), 0]
                radius = self.radius or self.goal.radius
                found = improved(choices, self.goal.value, radius, start, is_over=self.is_over)
                if radius > 2:  # it may take long, and not end a second time
                    self._walked[key] = found
        for i, place in zip(free, found, strict=False):
            chosen[i] = place
        return chosen


@dataclass(frozen=True)
class _Ways:
    """The algorithms of a kernel.

    Attributes:
        rows: a row for each algorithm.
        points: the point of each row under the goal.
        fastest: number of the fastest algorithm, which a library takes by default.
    """

    rows: tuple[ImplementationRow, ...]
    points: tuple[Point, ...]
    fastest: int


def _totals(choices: Sequence[Sequence[Point]], chosen: Sequence[int] | None = None) -> Point:
    places = chosen or [0] * len(choices)
    points = [choices[i][place] for i, place in enumerate(places)]
    return math.fsum(a for a, _ in points), math.fsum(b for _, b in points)
