"""OCGGS's search that looks for substitutions only where the last one has left something (DPP).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §4,
Algorithm 2. What applied before and is not disturbed applies still; it is compared with the rule
again only when it is followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.search.search import Frame, SearchBudget, SearchResult
from eqsat_opt.search.sequences import Child, Site, State, Walk, check_length, ordered, searched

__all__ = ["Dpp", "dependent"]


@dataclass(frozen=True)
class Dpp:
    """The search and its parameter.

    Attributes:
        length: substitutions in a sequence, at most: the paper's K.
    """

    name: ClassVar[str] = "dpp"
    exact: ClassVar[bool] = False

    length: int = 10

    def __post_init__(self) -> None:
        check_length(self.name, self.length)

    def run(self, frame: Frame, budget: SearchBudget, seed: int = 0) -> SearchResult:
        """The cheapest graph within `length` substitutions. Nothing is drawn."""
        return searched(frame, budget, self.states)

    def states(self, walk: Walk) -> Iterator[State]:
        """The ordered sequences."""
        return ordered(walk, self.length, _reused)


def dependent(walk: Walk, state: State) -> list[Site]:
    """What meets the last substitution, looked for around it; all that applies to the original."""
    walk.visit()
    if state.parent is None:
        found = walk.matching.rewrites(state.graph)
    else:
        found = walk.matching.around(state.graph, state.touched)
    return [(one.number, one.site) for one in found]


def _reused(walk: Walk, state: State, before: Mapping[Site, Child]) -> Iterable[Site]:
    return dict.fromkeys((*before, *dependent(walk, state)))
