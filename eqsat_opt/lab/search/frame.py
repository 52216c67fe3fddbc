"""The frame of all searches: one graph, the same rules, kernels, prices and objective for each.

A search lists the substitutions of a graph, tries them, follows some and returns a graph with its
kernels. The level decides how a graph is priced: each operator as a kernel of its own, as fused
kernels, or as fused kernels on several streams.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from eqsat_opt.cost.metrics import METRICS, TIME
from eqsat_opt.extract.objective import CRITICAL_PATH
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.graph.kernel import Kernel
from eqsat_opt.lab.search.pricing.board import Board, SimulatedBoard
from eqsat_opt.lab.search.pricing.outcome import ChosenKernel, PricedGraph
from eqsat_opt.lab.search.pricing.own_cost import SearchObjective
from eqsat_opt.lab.search.pricing.pricing import MILLIONTHS, ImplementationRow, PriceCache
from eqsat_opt.lab.search.pricing.streaming import StreamDevice, StreamedKernels, Streams
from eqsat_opt.lab.search.pricing.tiling import Cover, Covering
from eqsat_opt.lab.search.rewriting.decoding import decoded
from eqsat_opt.lab.search.rewriting.matching import Matching, Substitution
from eqsat_opt.lab.search.rewriting.rewriting import RewriteTrial, Rewritten, rewritten
from eqsat_opt.lab.search.rewriting.state import State
from eqsat_opt.lab.search.rewriting.terms import Term, TermGraph, Terms
from eqsat_opt.rules.rule import Rule
from eqsat_opt.runtime.backends.protocol import Backend
from eqsat_opt.runtime.plan.simulation import simulate
from eqsat_opt.runtime.plan.streams import Schedule

__all__ = ["LEVELS", "ChosenKernel", "Frame", "Level", "PricedGraph"]

Level = Literal["operators", "kernels", "streams"]
LEVELS: tuple[Level, ...] = ("operators", "kernels", "streams")

_COVERS = 64
"""Number of cached covers, for graphs whose substitutions are being tried."""


@dataclass
class Frame:
    """The complete input of a search; one frame serves one run, since it caches results.

    Attributes:
        graph: the normalised graph, of single operators.
        rules: the rules, read both ways where they are bidirectional.
        prices: prices of kernels on one device, for one objective.
        level: kind of kernels that are priced.
        profile: the device whose streams level ``streams`` needs.
        backends: backends whose patterns are kernels, at levels above operators.
        joins: whether a contraction may be fused with a value that another kernel computes.
        board: the board that measures whole outcomes; by default the simulation of the profile.
    """

    graph: Graph
    rules: tuple[Rule, ...]
    prices: PriceCache
    level: Level = "operators"
    profile: StreamDevice | None = field(default=None, kw_only=True)
    backends: Sequence[Backend] = field(default=(), kw_only=True)
    joins: bool = field(default=True, kw_only=True)
    board: Board | None = field(default=None, kw_only=True)
    _covers: dict[bytes, tuple[Cover, ...]] = field(default_factory=dict, init=False, repr=False)

    @property
    def objective(self) -> SearchObjective:
        """The objective that is minimised."""
        return self.prices.valuation.objective

    @cached_property
    def terms(self) -> Terms:
        """All terms of all graphs."""
        return Terms(self.graph, self.prices)

    @cached_property
    def matching(self) -> Matching:
        """The index that finds substitutions."""
        return Matching(self.terms, self.rules)

    @cached_property
    def start(self) -> State:
        """The original graph."""
        graph = self.terms.start()
        if self.level == "operators":
            value = self.prices.valuation.value(graph.costs, graph.length)
        else:
            value = self._cheapest(self._remembered(graph.key, self._solved(graph)))[0]
        return State(self.terms, RewriteTrial(graph.key, value, graph.size))

    @cached_property
    def covering(self) -> Covering:
        """The solver that finds the kernels of graphs."""
        return self._covering(joins=self.joins)

    def _covering(self, *, joins: bool) -> Covering:
        return Covering(self.terms, self.backends, joins=joins, adds_up=self.level != "streams")

    @cached_property
    def streams(self) -> Streams:
        """The streams of the device."""
        return Streams.of(self.profile)

    def guided(self, objective: SearchObjective, *, joins: bool = True) -> Frame:
        """Return the frame with another objective, all kernels on one stream."""
        level: Level = "operators" if self.level == "operators" else "kernels"
        prices = PriceCache.of(self.prices.pricer, objective, self.prices.sizes)
        return replace(self, prices=prices, level=level, joins=joins)

    def on(self, graph: Graph) -> Frame:
        """Return the frame with another graph."""
        return replace(self, graph=graph)

    def judged(self, graph: Graph) -> PricedGraph:
        """Return another graph with its kernels and costs in this frame."""
        other = self.on(graph)
        return other.outcome(other.start)

    @cached_property
    def measures(self) -> Board:
        """The board on which whole outcomes are measured.

        Raises:
            OptionError: nothing can be measured here.
        """
        if self.board is not None:
            return self.board
        return SimulatedBoard(self.streams)

    def _sized(self, kernel: Kernel | None) -> Kernel | None:
        return None if kernel is None else self.prices.sized(kernel)

    def _value(self, cover: Cover) -> float:
        """Return the objective value of the kernels of a graph."""
        if self.level == "kernels":
            return cover.value
        return self._value_on_streams(cover, self._placed(cover).makespan_us)

    def _value_on_streams(self, cover: Cover, makespan_us: float) -> float:
        valuation = self.prices.valuation
        length = cover.length if valuation.needs_path else 0
        return self._value_in(makespan_us, cover.costs, length)

    def _value_in(self, makespan_us: float, costs: Sequence[int], length: int) -> float:
        """Return the objective value if the last kernel ends after a time."""
        valuation = self.prices.valuation
        if TIME in valuation.columns:
            place = valuation.columns.index(TIME)
            costs = (*costs[:place], round(makespan_us * MILLIONTHS), *costs[place + 1 :])
        return valuation.value(costs, length)

    def scheduled(self, outcome: PricedGraph, placed: Schedule) -> PricedGraph:
        """Return an outcome with the same kernels on given streams.

        Args:
            outcome: an outcome on one stream.
            placed: a schedule of its kernels, numbered in the order of the outcome.
        """
        kernels = outcome.kernels.values()
        loads = [self.streams.load(one.kernel, one.quoted) for one in kernels]
        event_us = self.streams.profile.event_us.value
        makespan_us = simulate(placed, loads, event_us).makespan_us
        valuation = self.prices.valuation
        rows = (valuation.row(one.quoted).costs for one in kernels)
        costs = tuple(map(sum, zip(valuation.nothing, *rows, strict=True)))
        length = round(outcome.metrics.get(CRITICAL_PATH, 0.0) * MILLIONTHS)
        return PricedGraph(
            graph=outcome.graph,
            kernels=_on_streams(list(outcome.kernels.items()), placed),
            streams=placed.streams,
            metrics={**outcome.metrics, TIME: makespan_us},
            value=self._value_in(makespan_us, costs, length),
        )

    def _placed(self, cover: Cover) -> StreamedKernels:
        """Assign the kernels of a cover, by number, to streams."""
        number = {way.root: i for i, way in enumerate(cover.ways)}
        loads = [self.streams.load(self._sized(way.kernel), way.row.quoted) for way in cover.ways]
        return self.streams.place(loads, [[number[c] for c in way.reads] for way in cover.ways])

    @cached_property
    def _coverings(self) -> tuple[Covering, ...]:
        """Solvers for kernels of least sum, and for kernels with fewer dependences.

        The second one exists only where streams or the longest chain matter.
        """
        matters = self.level == "streams" or self.prices.valuation.needs_path
        if not (matters and self.joins):
            return (self.covering,)
        return self.covering, self._covering(joins=False)

    def _solved(
        self, graph: TermGraph, before: tuple[Sequence[Cover], Rewritten] | None = None
    ) -> tuple[Cover, ...]:
        """Return a cover by each of `_coverings`."""
        if before is None:
            return tuple(one.cover(graph) for one in self._coverings)
        olds, made = before
        return tuple(
            one.cover(graph, (old, made)) for one, old in zip(self._coverings, olds, strict=True)
        )

    def _cheapest(self, covers: Sequence[Cover]) -> tuple[float, Cover]:
        """Return the least value of several covers of a graph, and its cover."""
        valued = [(self._value(cover), cover) for cover in covers]
        return min(valued, key=lambda one: one[0])

    def cover(self, state: State) -> Cover:
        """Return the kernels of a graph whose sum is least."""
        return self._covers_of(state)[0]

    def _covers_of(self, state: State) -> tuple[Cover, ...]:
        known = self._covers.get(state.key)
        return known or self._remembered(state.key, self._solved(state.graph))

    def _remembered(self, key: bytes, covers: tuple[Cover, ...]) -> tuple[Cover, ...]:
        if len(self._covers) >= _COVERS:
            del self._covers[next(iter(self._covers))]
        self._covers[key] = covers
        return covers

    def substitutions(
        self, state: State, *, within: Set[bytes] | None = None, after: State | None = None
    ) -> Sequence[Substitution]:
        """List every place of a graph where a rule applies, by rule and then by place.

        Args:
            state: the graph.
            within: keys of terms; a match of any other term that is no input or constant is left
                out.
            after: the same state, to find only substitutions that its last step has made possible.
        """
        if after is not None and after.parent is not None:
            found = self.matching.around(state.graph, after.touched)
        else:
            found = self.matching.rewrites(state.graph)
        return found if within is None else [one for one in found if one.matched <= within]

    def attempt(self, state: State, substitution: Substitution) -> RewriteTrial:
        """Evaluate a graph after a substitution, without building it."""
        if self.level == "operators":
            return state.bench.attempt(substitution)
        made = rewritten(self.terms, state.graph, substitution)
        self.terms.remember(made.new.values())
        value, _ = self._cheapest(self._solved(made.graph, (self._covers_of(state), made)))
        for key in made.new:  # most graphs are never used again
            del self.terms.known[key]
        return RewriteTrial(made.graph.key, value, made.graph.size)

    def apply(
        self, state: State, substitution: Substitution, trial: RewriteTrial | None = None
    ) -> State:
        """Return the graph after a substitution; ``trial`` is the result of `attempt`, if known."""
        return State(self.terms, trial or self.attempt(state, substitution), state, substitution)

    def outcome(self, state: State, cover: Cover | None = None) -> PricedGraph:
        """Return a graph with its kernels and all their costs.

        Args:
            state: the graph.
            cover: a cover of it, above level ``operators``; the cheapest one where none is given.
        """
        if state.key == self.start.key:
            graph, names = self.graph, self.terms.names
        else:
            graph, names = decoded(self.terms, state.graph)
        if self.level != "operators":
            chosen = cover or self._cheapest(self._covers_of(state))[1]
            return self._covered(graph, names, chosen)
        kernels: dict[str, ChosenKernel] = {}
        rows: list[ImplementationRow] = []
        for key in state.graph.order:
            term = self.terms.known[key]
            quoted = term.row.quoted
            if not term.runs or quoted is None:
                continue
            rows.append(term.row)
            writes = self._written(term, names)
            kernels[writes[-1]] = ChosenKernel(
                kernel=self._sized(self.terms.kernel(term)),
                backend=quoted.backend,
                implementation=quoted.implementation,
                reads=tuple(names[c] for c in dict.fromkeys(term.operands)),
                writes=writes,
                metrics=quoted.metrics,
            )
        return PricedGraph(
            graph=graph,
            kernels=kernels,
            streams=1,
            metrics=self._metrics(rows, state.graph.length),
            value=self.prices.valuation.value(state.graph.costs, state.graph.length),
        )

    def _covered(self, graph: Graph, names: Mapping[bytes, str], cover: Cover) -> PricedGraph:
        kernels: list[tuple[str, ChosenKernel] | None] = []
        for way in cover.ways:
            quoted = way.row.quoted
            if quoted is None:
                kernels.append(None)
                continue
            root = self.terms.known.get(way.root)
            keys = tuple(sorted(way.covers)) if root is None else ()
            writes = (
                tuple(names[key] for key in keys) if root is None else self._written(root, names)
            )
            chosen = ChosenKernel(
                kernel=self._sized(way.kernel),
                backend=quoted.backend,
                implementation=quoted.implementation,
                reads=tuple(names[key] for key in way.operands),
                writes=writes,
                metrics=quoted.metrics,
            )
            kernels.append((writes[-1], chosen))
        metrics = self._metrics([way.row for way in cover.ways], cover.length)
        if self.level == "kernels":
            found = dict(one for one in kernels if one is not None)
            return PricedGraph(graph, found, streams=1, metrics=metrics, value=cover.value)
        placed = self._placed(cover)
        return PricedGraph(
            graph=graph,
            kernels=_on_streams(kernels, placed.schedule),
            streams=placed.schedule.streams,
            metrics={**metrics, TIME: placed.makespan_us},
            value=self._value_on_streams(cover, placed.makespan_us),
        )

    def _written(self, term: Term, names: Mapping[bytes, str]) -> tuple[str, ...]:
        if term.op == OPAQUE:
            return tuple(filter(None, self.terms.opaque_node(term).outputs))
        return (names[term.key],)

    def _metrics(self, rows: Sequence[ImplementationRow], length: int) -> dict[str, float]:
        quotes = [row.quoted.metrics for row in rows if row.quoted is not None]
        found = {
            name: math.fsum(metrics[name] for metrics in quotes)
            for name in METRICS
            if name in self.prices.valuation.metrics
        }
        if self.prices.valuation.needs_path:
            found[CRITICAL_PATH] = length / MILLIONTHS
        return found


def _on_streams(
    kernels: Sequence[tuple[str, ChosenKernel] | None], schedule: Schedule
) -> dict[str, ChosenKernel]:
    """Return kernels in submission order; entries that are ``None`` do not run."""
    recorder = {event: n for n in schedule.order for event in schedule.records[n]}
    found: dict[str, ChosenKernel] = {}
    for number in schedule.order:
        one = kernels[number]
        if one is not None:
            waited = (kernels[recorder[event]] for event in schedule.waits[number])
            waits = tuple(other[0] for other in waited if other is not None)
            found[one[0]] = replace(one[1], stream=schedule.stream[number], waits=waits)
    return found
