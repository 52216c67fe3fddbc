"""Collage (Jeon et al., PACT 2022): a placement of operators on several backends together.

A graph is not rewritten. Operators are placed in two steps. First, dynamic programming places each
kernel on the backend that runs it fastest (§4.2, see `covering`). Then an evolutionary search,
which compares whole outcomes, moves further operators to one backend, a library that gains from
running more of the graph (§4.3). Backends declare by patterns, one by one or by a rule, which
operators they run as one kernel (§3, see `regions`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

from eqsat_opt.errors import OptionError, RuntimeFailed
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.evolution import Evolution, Genome
from eqsat_opt.lab.search.pricing.board import Board
from eqsat_opt.lab.search.pricing.kernel_ways import KernelWay
from eqsat_opt.lab.search.pricing.outcome import PricedGraph
from eqsat_opt.lab.search.pricing.placement import PlacedKernels, Registered
from eqsat_opt.lab.search.pricing.regions import PatternRegistry
from eqsat_opt.lab.search.pricing.tiling import Cover
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult, SearchTrace

__all__ = ["Collage"]


@dataclass(frozen=True)
class Collage:
    """The search and its parameters.

    Attributes:
        library: the backend to which the second step offloads; empty for the first named one, if
            there are several.
        switch_us: time that passing from one backend to another adds, µs, where no board measures
            whole placements.
        population: genomes of a round; 0 for the first step alone.
        tournament: number of drawn genomes of which the best becomes a parent.
        rounds: rounds of the evolutionary search.
        plans: whether whole placements are measured as plans on this processor, what passes between
            backends included, instead of summing the prices of their kernels.
    """

    name: ClassVar[str] = "collage"
    exact: ClassVar[bool] = False
    places: ClassVar[bool] = True

    library: str = ""
    switch_us: float = 0.0
    population: int = 50
    tournament: int = 5
    rounds: int = 20
    plans: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.switch_us < math.inf:
            raise OptionError(
                f"switch_us is {self.switch_us:g}; give a finite number that is not negative"
            )
        if self.population < 0 or self.population == 1:
            raise OptionError(
                f"population is {self.population}; give at least 2, or 0 for no evolution"
            )
        if self.tournament < 1:
            raise OptionError(f"tournament is {self.tournament}; give at least 1")
        if self.rounds < 0:
            raise OptionError(f"rounds is {self.rounds}; give a number of rounds, or 0 for none")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Place the original on the backends of the frame, by their patterns.

        Raises:
            OptionError: kernels are not fused at this level, or there is no such library.
        """
        return self.place(frame, PatternRegistry.of(frame.backends), budget, seed=seed)

    def place(
        self, frame: Frame, registry: PatternRegistry, budget: Budget, *, seed: int = 0
    ) -> SearchResult:
        """Place the original on the backends of the frame, by the patterns of a registry.

        Raises:
            OptionError: kernels are not fused at this level, or there is no such library.
        """
        if frame.level == "operators":
            raise OptionError("collage places fused kernels; give --level kernels")
        names = [one.name for one in frame.backends]
        if self.library and self.library not in names:
            raise OptionError(
                f"collage.library is {self.library!r}, which is no backend here; choose from "
                f"{', '.join(names) or 'none'}"
            )
        board = frame.board
        if self.plans and (board is None or not board.tells_backends):
            raise OptionError(
                "collage.plans measures on this processor; give --measure and several --backends, "
                "and no --device"
            )
        run = Run(frame, budget)
        base = Registered(frame.terms, registry, frame.start.graph)
        state = _Placement(frame, run, switch_us=self.switch_us)
        notes: list[str] = []
        with run:
            run.visit()
            cover = base.cover(frame.start.graph)
            first = state.consider(cover)
            library = self.library or (names[0] if len(names) > 1 else "")
            genes = _genes(cover, library) if library else ()
            if self.population and genes:
                self._evolve(state, base, cover, genes=genes, library=library, seed=seed)
        if state.best is not None and state.least < first:
            notes.append(f"collage: by operators {first:g}, evolved {state.least:g}")
        if self.plans:
            notes.append(f"collage: the best of {run.tried} plans takes {state.least:g} µs")
        outcome = state.best or frame.outcome(frame.start)
        found = run.result(outcome=outcome, notes=tuple(notes))
        at = SearchTrace(
            found.graphs,
            found.tried,
            cpu_s=found.cpu_s,
            time_s=found.time_s,
            value=outcome.value,
        )
        return replace(found, trace=(at,))

    def _evolve(
        self,
        state: _Placement,
        base: Registered,
        cover: Cover,
        *,
        genes: Sequence[bytes],
        library: str,
        seed: int,
    ) -> None:
        there = frozenset(cover.graph.order).difference(genes)
        own = {key for way in cover.ways if _backend(way) == library for key in way.covers} & there

        def cost(genome: Genome) -> float:
            moved = {key for key, gene in zip(genes, genome, strict=True) if gene}
            return state.consider(PlacedKernels(base, own | moved, library).cover(cover.graph))

        evolution = Evolution(
            population=self.population, tournament=self.tournament, rounds=self.rounds
        )
        evolution.best(len(genes), cost, seed)


class _Placement:
    """A comparison of placements that keeps the best one."""

    def __init__(self, frame: Frame, run: Run, *, switch_us: float) -> None:
        self._frame, self._run, self._switch_us = frame, run, switch_us
        self.best: PricedGraph | None = None
        self.least = math.inf
        self._known: dict[tuple[tuple[str, str, str], ...], float] = {}

    def consider(self, cover: Cover) -> float:
        """Return the cost of a whole placement, and keep the placement if it is the best."""
        self._run.tick()
        self._run.tried += 1
        outcome = self._frame.outcome(self._frame.start, cover)
        board = self._frame.board
        if board is not None and board.tells_backends:
            cost = self._measured_us(board, outcome)
        else:
            backends = [one.backend for one in outcome.kernels.values()]
            switches = sum(one != other for one, other in pairwise(backends))
            cost = outcome.value + self._switch_us * switches
        if cost < self.least:
            self.best, self.least = outcome, cost
        return cost

    def _measured_us(self, board: Board, outcome: PricedGraph) -> float:
        """Return the time of a placement, each measured once; infinite if it does not run."""
        key = tuple(
            (name, one.backend, one.implementation.algorithm)
            for name, one in outcome.kernels.items()
        )
        if key not in self._known:
            try:
                self._known[key] = board.measure(outcome).time_us
            except RuntimeFailed:
                self._known[key] = math.inf
        return self._known[key]


def _backend(way: KernelWay) -> str:
    return "" if way.row.quoted is None else way.row.quoted.backend


def _genes(cover: Cover, library: str) -> tuple[bytes, ...]:
    """Return the terms that the first step has placed elsewhere, in the order of the graph."""
    there = {key for way in cover.ways if _backend(way) != library for key in way.covers}
    return tuple(key for key in cover.graph.order if key in there)
