"""OCGGS's search that follows one order of independent substitutions (Algorithm 1).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.lab.search.methods.sequences import NextSubstitution, SequenceSearch, Walk, ordered
from eqsat_opt.lab.search.rewriting.state import Site, State

__all__ = ["Pruning"]


@dataclass(frozen=True)
class Pruning(SequenceSearch):
    """Sequences in one order of independent substitutions."""

    name: ClassVar[str] = "pruning"

    def states(self, walk: Walk) -> Iterator[State]:
        """Yield the states of ordered sequences."""
        return ordered(walk, self.length, _all)


def _all(walk: Walk, state: State, before: Mapping[Site, NextSubstitution]) -> Iterable[Site]:
    """List all substitutions that apply, matched in the whole graph."""
    del before
    return [(one.number, one.site) for one in walk.substitutions(state)]
