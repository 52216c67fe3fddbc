"""OCGGS's search that looks for substitutions only where the last one has left something (DPP).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §4,
Algorithm 2. What applied before and is not disturbed applies still; it is compared with the rule
again only when it is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.lab.search.methods.sequences import Child, SequenceSearch, Walk, ordered
from eqsat_opt.lab.search.rewriting.state import Site, State

__all__ = ["Dpp", "dependent"]


@dataclass(frozen=True)
class Dpp(SequenceSearch):
    """One order, and matches kept from graph to graph."""

    name: ClassVar[str] = "dpp"

    def states(self, walk: Walk) -> Iterator[State]:
        """The ordered sequences."""
        return ordered(walk, self.length, _Reused().sites)


def dependent(walk: Walk, state: State) -> list[Site]:
    """What meets the last substitution, looked for around it; all that applies to the original."""
    return [(one.number, one.site) for one in walk.substitutions(state, after=state)]


class _Reused:
    """The substitutions of a graph: new ones, and those from before that are not disturbed."""

    def __init__(self) -> None:
        self._matched: dict[tuple[bytes, Site], frozenset[bytes]] = {}

    def sites(self, walk: Walk, state: State, before: Mapping[Site, Child]) -> Iterable[Site]:
        """Where they are.

        What matched a term that the last step has replaced is new if it still applies.
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
