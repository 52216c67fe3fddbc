"""OCGGS's search that follows one order of independent substitutions (Algorithm 1).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.search.search import Frame, SearchBudget, SearchResult
from eqsat_opt.search.sequences import Child, Site, State, Walk, check_length, ordered, searched

__all__ = ["Pruning"]


@dataclass(frozen=True)
class Pruning:
    """The search and its parameter.

    Attributes:
        length: substitutions in a sequence, at most: the paper's K.
    """

    name: ClassVar[str] = "pruning"
    exact: ClassVar[bool] = False

    length: int = 10

    def __post_init__(self) -> None:
        check_length(self.name, self.length)

    def run(self, frame: Frame, budget: SearchBudget, seed: int = 0) -> SearchResult:
        """The cheapest graph within `length` substitutions. Nothing is drawn."""
        return searched(frame, budget, self.states)

    def states(self, walk: Walk) -> Iterator[State]:
        """The ordered sequences."""
        return ordered(walk, self.length, _all)


def _all(walk: Walk, state: State, before: Mapping[Site, Child]) -> Iterable[Site]:
    """Whatever applies, looked for in the whole graph."""
    del before
    walk.visit()
    return [(one.number, one.site) for one in walk.matching.rewrites(state.graph)]
