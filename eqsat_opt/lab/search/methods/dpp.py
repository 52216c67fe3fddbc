"""OCGGS's search that lists substitutions only around the last one and keeps the others (DPP).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §4, Algorithm
2.

A substitution that applied before and is not disturbed still applies; it is matched again only when
it is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.lab.search.methods.sequences import NextSubstitution, SequenceSearch, Walk, ordered
from eqsat_opt.lab.search.rewriting.state import Site, State

__all__ = ["Dpp", "dependent"]


@dataclass(frozen=True)
class Dpp(SequenceSearch):
    """One order of independent substitutions, and matches kept from graph to graph."""

    name: ClassVar[str] = "dpp"

    def states(self, walk: Walk) -> Iterator[State]:
        """Yield the states of ordered sequences."""
        return ordered(walk, self.length, _Reused().sites)


def dependent(walk: Walk, state: State) -> list[Site]:
    """List the substitutions that meet the last one; for the original, all that apply."""
    return [(one.number, one.site) for one in walk.substitutions(state, after=state)]


class _Reused:
    """The substitutions of a graph: new ones, and those from before that are not disturbed."""

    def __init__(self) -> None:
        self._matched: dict[tuple[bytes, Site], frozenset[bytes]] = {}

    def sites(
        self, walk: Walk, state: State, before: Mapping[Site, NextSubstitution]
    ) -> Iterable[Site]:
        """Return the sites of all substitutions.

        A match of a term that the last step has replaced is new if it still applies.
        """
        found = dict[Site, None]()
        if state.parent is not None and state.step is not None:
            replaced, moved = set(state.step.consumed), state.moved
            for site, child in before.items():
                matched = self._matched[state.parent.key, child.site]
                if matched.isdisjoint(replaced):
                    found[site] = None
                    now = frozenset([moved.get(key, key) for key in matched])
                    self._matched[state.key, site] = now
        for one in walk.substitutions(state, after=state):
            site = one.number, one.site
            found[site] = None
            self._matched[state.key, site] = one.matched
        return found
