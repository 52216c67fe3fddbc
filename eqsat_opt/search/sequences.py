"""Sequences of substitutions, which OCGGS searches (Fang et al., PVLDB 2020).

Two substitutions that do not meddle with each other lead to one graph in either order, so that only
one order has to be followed. The paper orders substitutions by labels of the nodes that they
replace. Here a substitution has the label itself: the step that made it possible, and a number. It
keeps the label while other steps move what it replaces.

Replacing other nodes is not enough to be independent: left sides read what they do not replace, and
equal expressions become one. So of two substitutions only the order in which labels rise is
followed if, at that graph, the other order leads to the same graph; else the second is one that the
first has made possible. These are the sleep sets of Godefroid (Partial-Order Methods for the
Verification of Concurrent Systems, 1996), under which every graph stays within reach, in as many
steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from eqsat_opt.cost.operators import graph_cost_us
from eqsat_opt.errors import OptionError
from eqsat_opt.search.decoding import decode
from eqsat_opt.search.matching import Matching, Rewrite
from eqsat_opt.search.rewriting import Rewritten, Trial, Workbench, rewritten
from eqsat_opt.search.search import Frame, SearchBudget, SearchResult, SearchTrace, StopReason
from eqsat_opt.search.terms import PICOSECONDS, TermGraph, Terms

__all__ = ["Child", "SequenceSearch", "Site", "State", "Walk", "ordered"]

Site = tuple[int, tuple[bytes, ...]]
"""What a substitution is: the number of its rule, and where the roots of the left side are."""

_LONGEST = 100
"""Each substitution of a sequence is a level of recursion."""


class State:
    """A graph, and the substitutions that led to it; it is built when its terms are asked for.

    Attributes:
        key: canonical; two states of one key have one graph.
        cost_ps: of the graph.
        length: number of substitutions.
        parent, step: the state before, and the last substitution; ``None`` for the original.
    """

    def __init__(
        self, terms: Terms, trial: Trial, parent: State | None = None, step: Rewrite | None = None
    ) -> None:
        self.key, self.cost_ps = trial.key, trial.cost_ps
        self.length: int = 0 if parent is None else parent.length + 1
        self.parent, self.step = parent, step
        self._terms = terms

    @cached_property
    def _made(self) -> Rewritten:
        if self.parent is None or self.step is None:
            return Rewritten(self._terms.start(), {}, {})
        made = rewritten(self._terms, self.parent.graph, self.step)
        self._terms.remember(made.new.values())
        return made

    @property
    def graph(self) -> TermGraph:
        """The graph."""
        return self._made.graph

    @cached_property
    def bench(self) -> Workbench:
        """For trials of substitutions."""
        return Workbench(self._terms, self.graph)

    def image(self, site: Site) -> Site:
        """Where the last substitution has moved a site of the graph before."""
        number, keys = site
        return number, tuple(self._made.moved.get(key, key) for key in keys)

    def images(self, sites: Iterable[Site]) -> Iterator[Site]:
        """The same of several, without what no longer lives."""
        live = set(self.graph.order)
        return (one for one in map(self.image, sites) if live.issuperset(one[1]))

    @property
    def touched(self) -> frozenset[bytes]:
        """Terms that the last substitution made, or that something else has become equal to."""
        assert self.parent is not None
        assert self.step is not None
        before, images = set(self.parent.graph.order), set[bytes]()
        met = {term.key for term in self.step.made}.union(self.step.results)
        for key, image in self._made.moved.items():
            if key not in self.step.roots and (image in images or image in before):
                met.add(image)
            images.add(image)
        if not self.step.is_plain:  # what is known at compile time has changed; rules ask for that
            met |= images
        return frozenset(met)

    @property
    def steps(self) -> tuple[str, ...]:
        """Names of the rules, in order."""
        if self.parent is None or self.step is None:
            return ()
        return (*self.parent.steps, self.step.rule)


@dataclass(frozen=True, slots=True)
class Child:
    """A substitution that may be the next one, and its label."""

    site: Site
    label: tuple[int, int]


class _Spent(Exception):
    def __init__(self, reason: StopReason) -> None:
        self.reason = reason


class Walk:
    """What a search on sequences works with, and what it has spent.

    Attributes:
        start: the original.
        tried: substitutions tried.
        graphs: graphs whose substitutions were looked for.
        best: the cheapest graph so far.
    """

    def __init__(self, frame: Frame, budget: SearchBudget) -> None:
        self._started = time.perf_counter()
        self._frame, self._budget = frame, budget
        self._terms = Terms(frame.graph, frame.cost)
        start = self._terms.start()
        self.start = State(self._terms, Trial(start.key, start.cost_ps, start.size))
        self.matching = Matching(self._terms, frame.rules)
        self.best = self.start
        self.tried = self.graphs = 0
        self._trace: list[SearchTrace] = []

    def _elapsed(self) -> float:
        return time.perf_counter() - self._started

    def _tick(self) -> None:
        if self._budget.time_s and self._elapsed() > self._budget.time_s:
            raise _Spent("time")

    def visit(self) -> None:
        """Count a graph whose substitutions are to be looked for; ends the search if it is late."""
        self._tick()
        if self._budget.graphs and self.graphs >= self._budget.graphs:
            raise _Spent("graphs")
        self.graphs += 1

    def at(self, state: State, site: Site) -> Rewrite | None:
        """A substitution of a graph, if it still is one."""
        return self.matching.at(*site, state.graph)

    def follow(self, state: State, step: Rewrite) -> State:
        """The state after a substitution."""
        self._tick()
        self.tried += 1
        found = State(self._terms, state.bench.attempt(step), state, step)
        if found.cost_ps < self.best.cost_ps:
            self.best = found
            cost_us = found.cost_ps / PICOSECONDS
            self._trace.append(SearchTrace(self.graphs, self.tried, self._elapsed(), cost_us))
        return found

    def result(self, stopped_by: StopReason) -> SearchResult:
        """What was found."""
        frame, best = self._frame, self.best
        original_us = graph_cost_us(frame.graph, frame.cost)
        graph = frame.graph if best is self.start else decode(self._terms, best.graph)
        return SearchResult(
            graph=graph,
            cost_us=graph_cost_us(graph, frame.cost),
            original_cost_us=original_us,
            steps=best.steps,
            trace=tuple(self._trace),
            stopped_by=stopped_by,
            time_s=self._elapsed(),
            graphs=self.graphs,
            tried=self.tried,
            compared=self.matching.compared,
        )


@dataclass(frozen=True)
class SequenceSearch:
    """What the searches on sequences share.

    Attributes:
        length: substitutions in a sequence, at most: the paper's K.
    """

    name: ClassVar[str]
    exact: ClassVar[bool] = False

    length: int = 10

    def __post_init__(self) -> None:
        """Refuse a length that has no meaning.

        Raises:
            OptionError: it is not from 1 to 100.
        """
        if not 1 <= self.length <= _LONGEST:
            raise OptionError(
                f"{self.name}.length is {self.length}; give 1 to {_LONGEST} substitutions"
            )

    def run(self, frame: Frame, budget: SearchBudget, seed: int = 0) -> SearchResult:
        """The cheapest graph within `length` substitutions. Nothing is drawn.

        Args:
            frame: what to rewrite.
            budget: when to stop before all is explored.
            seed: without effect.
        """
        walk = Walk(frame, budget)
        reason: StopReason = "exhausted"
        try:
            for _ in self.states(walk):
                pass
        except _Spent as spent:
            reason = spent.reason
        return walk.result(reason)

    def states(self, walk: Walk) -> Iterator[State]:
        """The states that are explored."""
        raise NotImplementedError


# Ordered sequences -------------------------------------------------------------------------------

Following = Callable[[Walk, State, Mapping[Site, Child]], Iterable[Site]]
"""The sites of a graph: given the substitutions before its last one, by where they are now."""


def ordered(walk: Walk, length: int, sites: Following) -> Iterator[State]:
    """All states within ``length`` steps whose labels rise, depth first."""
    first = sites(walk, walk.start, {})
    children = [Child(site, (0, i)) for i, site in enumerate(first)]
    yield walk.start
    yield from _descend(walk, walk.start, children, None, length=length, sites=sites)


def _descend(
    walk: Walk,
    state: State,
    children: list[Child],
    last: Child | None,
    length: int,
    sites: Following,
) -> Iterator[State]:
    if length == 0:
        return
    known: dict[Site, State | None] = {}

    def after(site: Site) -> State | None:
        if site not in known:
            step = walk.at(state, site)
            known[site] = None if step is None else walk.follow(state, step)
        return known[site]

    for child in children:
        if last is not None and child.label < last.label:
            continue
        found = after(child.site)
        if found is None or found.key == state.key:
            continue
        yield found
        if length > 1:
            following = _label_children(walk, found, child, children, after=after, sites=sites)
            yield from _descend(walk, found, following, child, length=length - 1, sites=sites)


def _label_children(
    walk: Walk,
    state: State,
    step: Child,
    siblings: list[Child],
    *,
    after: Callable[[Site], State | None],
    sites: Following,
) -> list[Child]:
    """The substitutions of a graph: those from before keep their labels, others get new ones.

    Args:
        walk: of the search.
        state: the graph after ``step``.
        step: one of ``siblings``.
        siblings: the substitutions of the graph before, those too that were not followed.
        after: the state after one of these, ``None`` if it cannot be followed.
        sites: finds the substitutions.
    """
    others = {one.site: one for one in siblings if one is not step}
    before = {state.image(site): one for site, one in others.items()}
    before = {site: before[site] for site in state.images(others)}
    found = []
    for i, site in enumerate(sites(walk, state, before)):
        same = before.get(site)
        if same is not None and (
            same.label > step.label or _commute(walk, state, step, same, site=site, after=after)
        ):
            found.append(Child(site, same.label))
        else:
            found.append(Child(site, (state.length, i)))
    return found


def _commute(
    walk: Walk,
    state: State,
    step: Child,
    other: Child,
    site: Site,
    after: Callable[[Site], State | None],
) -> bool:
    """Whether ``step`` before and after ``other`` leads to one graph; ``site`` is where that is."""
    first = after(other.site)
    if first is None:
        return False
    moved = walk.at(first, first.image(step.site))
    second = walk.at(state, site)
    if moved is None or second is None:
        return False
    return first.bench.attempt(moved).key == state.bench.attempt(second).key
