"""Every sequence of substitutions, in every order: what OCGGS compares its searches with (ENU).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.search.search import Frame, SearchBudget, SearchResult
from eqsat_opt.search.sequences import State, Walk, check_length, searched

__all__ = ["Enumeration"]


@dataclass(frozen=True)
class Enumeration:
    """The search and its parameter.

    Attributes:
        length: substitutions in a sequence, at most: the paper's K.
    """

    name: ClassVar[str] = "enumeration"
    exact: ClassVar[bool] = False

    length: int = 10

    def __post_init__(self) -> None:
        check_length(self.name, self.length)

    def run(self, frame: Frame, budget: SearchBudget, seed: int = 0) -> SearchResult:
        """The cheapest graph within `length` substitutions. Nothing is drawn."""
        return searched(frame, budget, self.states)

    def states(self, walk: Walk) -> Iterator[State]:
        """Every sequence once, a graph as often as there are sequences that lead to it."""
        yield walk.start
        yield from self._below(walk, walk.start)

    def _below(self, walk: Walk, state: State) -> Iterator[State]:
        if state.length == self.length:
            return
        walk.visit()
        for step in walk.matching.rewrites(state.graph):
            found = walk.follow(state, step)
            if found.key != state.key:
                yield found
                yield from self._below(walk, found)
