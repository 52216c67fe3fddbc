"""OCGGS's search that looks for substitutions only where the last one has left something (DPP).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §4,
Algorithm 2. What applied before and is not disturbed applies still; it is compared with the rule
again only when it is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.search.sequences import Child, SequenceSearch, Walk, ordered
from eqsat_opt.search.state import Site, State

__all__ = ["Dpp", "dependent"]


@dataclass(frozen=True)
class Dpp(SequenceSearch):
    """One order, and matches kept from graph to graph."""

    name: ClassVar[str] = "dpp"

    def states(self, walk: Walk) -> Iterator[State]:
        """The ordered sequences."""
        return ordered(walk, self.length, _reused)


def dependent(walk: Walk, state: State) -> list[Site]:
    """What meets the last substitution, looked for around it; all that applies to the original."""
    found = walk.substitutions(state, after=state)
    return [(one.number, one.site) for one in found]


def _reused(walk: Walk, state: State, before: Mapping[Site, Child]) -> Iterable[Site]:
    return dict.fromkeys((*before, *dependent(walk, state)))
