"""Every sequence of substitutions, in every order: the baseline of OCGGS's searches (ENU).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.lab.search.methods.sequences import SequenceSearch, Walk
from eqsat_opt.lab.search.rewriting.state import State

__all__ = ["Enumeration"]


@dataclass(frozen=True)
class Enumeration(SequenceSearch):
    """Sequences of substitutions in all orders."""

    name: ClassVar[str] = "enumeration"

    def states(self, walk: Walk) -> Iterator[State]:
        """Yield each sequence once, so a graph as often as there are sequences that lead to it."""
        yield walk.frame.start
        yield from self._below(walk, walk.frame.start)

    def _below(self, walk: Walk, state: State) -> Iterator[State]:
        if state.length == self.length:
            return
        for step in walk.substitutions(state):
            found = walk.apply(state, step)
            if found.key != state.key:
                yield found
                yield from self._below(walk, found)
