"""Sequences of substitutions, which OCGGS searches (Fang et al., PVLDB 2020).

Two independent substitutions lead to one graph in either order, so only one order has to be
followed. The paper orders substitutions by labels of the nodes that they replace. Here the
substitution itself has a label: the step that made it possible, and a number. It keeps the label
while other steps move the nodes that it replaces.

Substitutions that replace different nodes need not be independent: left sides read nodes that they
do not replace, and equal expressions become one. Therefore only the order in which labels rise is
followed for two substitutions if, at that graph, the other order leads to the same graph. Otherwise
the second counts as one that the first has made possible. These are the sleep sets of Godefroid
(Partial-Order Methods for the Verification of Concurrent Systems, 1996), under which every graph
stays reachable, in as many steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.rewriting.matching import Substitution
from eqsat_opt.lab.search.rewriting.state import Site, State
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult

__all__ = ["NextSubstitution", "SequenceSearch", "Walk", "ordered"]

_LONGEST = 100
"""Limit on the length of sequences: each substitution is a level of recursion."""


@dataclass(frozen=True, slots=True)
class NextSubstitution:
    """A substitution that may be the next one, and its label."""

    site: Site
    label: tuple[int, int]


class Walk(Run):
    """A run on sequences, which follows substitutions by their sites."""

    def at(self, state: State, site: Site) -> Substitution | None:
        """Return a substitution of a graph by its site; ``None`` if it no longer applies."""
        return self.frame.matching.at(*site, state.graph)


@dataclass(frozen=True)
class SequenceSearch:
    """The base of the searches on sequences.

    Attributes:
        length: number of substitutions in a sequence, at most: the paper's K.
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

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Return the cheapest graph within `length` substitutions; the search is deterministic.

        Args:
            frame: the graph to rewrite, with rules and prices.
            budget: when to stop before all is explored.
            seed: without effect.
        """
        walk = Walk(frame, budget)
        with walk:
            for _ in self.states(walk):
                pass
        return walk.result()

    def states(self, walk: Walk) -> Iterator[State]:
        """Yield the states that are explored."""
        raise NotImplementedError


# Ordered sequences -------------------------------------------------------------------------------

Following = Callable[[Walk, State, Mapping[Site, NextSubstitution]], Iterable[Site]]
"""The sites of a graph, given the substitutions before its last one by their present sites."""


def ordered(walk: Walk, length: int, sites: Following) -> Iterator[State]:
    """Yield all states within ``length`` steps whose labels rise, depth first."""
    first = sites(walk, walk.frame.start, {})
    children = [NextSubstitution(site, (0, i)) for i, site in enumerate(first)]
    yield walk.frame.start
    yield from _descend(walk, walk.frame.start, children, None, length=length, sites=sites)


def _descend(
    walk: Walk,
    state: State,
    children: list[NextSubstitution],
    last: NextSubstitution | None,
    length: int,
    sites: Following,
) -> Iterator[State]:
    if length == 0:
        return
    known: dict[Site, State | None] = {}

    def after(site: Site) -> State | None:
        if site not in known:
            step = walk.at(state, site)
            known[site] = None if step is None else walk.apply(state, step)
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
    step: NextSubstitution,
    siblings: list[NextSubstitution],
    *,
    after: Callable[[Site], State | None],
    sites: Following,
) -> list[NextSubstitution]:
    """Return the substitutions of a graph: known ones keep their labels, others get new ones.

    Args:
        walk: the run of the search.
        state: the graph after ``step``.
        step: one of ``siblings``.
        siblings: the substitutions of the graph before, including those that were not followed.
        after: returns the state after one of these, ``None`` if it cannot be followed.
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
            found.append(NextSubstitution(site, same.label))
        else:
            found.append(NextSubstitution(site, (state.length, i)))
    return found


def _commute(
    walk: Walk,
    state: State,
    step: NextSubstitution,
    other: NextSubstitution,
    site: Site,
    after: Callable[[Site], State | None],
) -> bool:
    """Return whether two substitutions commute; ``site`` is that of ``other`` after ``step``."""
    first = after(other.site)
    if first is None:
        return False
    moved = walk.at(first, first.image(step.site))
    second = walk.at(state, site)
    if moved is None or second is None:
        return False
    return first.bench.attempt(moved).key == state.bench.attempt(second).key
