"""OCGGS's heuristic for models whose sequences cannot all be followed (Sampling, Algorithm 3).

Fang et al., Optimizing DNN Computation Graph using Graph Substitutions, PVLDB 2020, §5. Some
sequences are kept at each level. Half are the cheapest. The other half became cheap after a few
substitutions that raised the cost, each made possible by the one before. The pseudocode increments
K where it means the level. Sequences whose graphs are equal count once in a level.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.methods.dpp import dependent
from eqsat_opt.lab.search.methods.sequences import SequenceSearch, Walk
from eqsat_opt.lab.search.rewriting.state import Site, State

__all__ = ["Sampling"]


class _Sequence:
    """A state, and the substitutions that can follow it.

    Attributes:
        state: the graph, and how it was reached.
        costlier: number of its last steps in a row that raised the cost.
    """

    def __init__(self, walk: Walk, state: State, before: Iterable[Site], costlier: int) -> None:
        self.state, self.costlier = state, costlier
        self._walk, self._before = walk, before

    @property
    def value(self) -> float:
        return self.state.value

    @cached_property
    def _own(self) -> list[Site]:
        return dependent(self._walk, self.state)

    @cached_property
    def _all(self) -> Mapping[Site, None]:
        """Live substitutions of the state before, and those that the last step made possible."""
        return dict.fromkeys((*self.state.images(self._before), *self._own))

    def children(self) -> Iterator[_Sequence]:
        """Return the sequences that follow by any substitution that applies."""
        return self._after(self._all)

    @cached_property
    def dependents(self) -> tuple[_Sequence, ...]:
        """The sequences that follow by a substitution that the last step made possible."""
        return tuple(self._after(self._own))

    def _after(self, sites: Iterable[Site]) -> Iterator[_Sequence]:
        for site in sites:
            step = self._walk.at(self.state, site)
            if step is None:
                continue
            found = self._walk.apply(self.state, step)
            if found.key == self.state.key:
                continue
            rises = found.value > self.value
            yield _Sequence(self._walk, found, self._all, self.costlier + 1 if rises else 0)


@dataclass(frozen=True)
class Sampling(SequenceSearch):
    """The best sequences of each level.

    Attributes:
        samples: number of sequences that are kept of a level, even: the paper's Q.
        rises: number of substitutions in a row that may raise the cost: the paper's η.
    """

    name: ClassVar[str] = "sampling"

    samples: int = 20
    rises: int = 1

    def __post_init__(self) -> None:
        """Refuse parameters that have no meaning.

        Raises:
            OptionError: a parameter has none.
        """
        super().__post_init__()
        if self.samples < 2 or self.samples % 2:
            raise OptionError(
                f"{self.name}.samples is {self.samples}; give an even number, since half of them "
                "are cheaper graphs and half come by costlier ones"
            )
        if self.rises < 0:
            raise OptionError(f"{self.name}.rises is {self.rises}; give 0 or more")

    def states(self, walk: Walk) -> Iterator[State]:
        """Yield all states that are visited, without those that only compute a potential."""
        yield walk.frame.start
        level = [_Sequence(walk, walk.frame.start, (), 0)]
        while level:
            children = [child for one in level for child in self._children(one)]
            yield from (one.state for one in children)
            rising = [one for one in children if self._explores_on(one)]
            falling = [one for one in children if not self._explores_on(one)]
            gained = list(self._explored(rising))
            yield from (one.state for one in gained)
            level = [*self._best(falling), *self._best(one for one in gained if not one.costlier)]

    def _children(self, one: _Sequence) -> Iterable[_Sequence]:
        return one.children() if one.state.length < self.length else ()

    def _dependents(self, one: _Sequence) -> Iterable[_Sequence]:
        return one.dependents if one.state.length < self.length else ()

    def _explores_on(self, one: _Sequence) -> bool:
        """Return whether a sequence is a further exploration sequence of the paper."""
        return 0 < one.costlier <= self.rises

    def _explored(self, rising: Iterable[_Sequence]) -> Iterator[_Sequence]:
        """Yield the dependent successors of the most promising of the costlier states."""
        current = list(rising)
        while current:
            best = self._best(current, self._potential)
            children = [child for one in best for child in self._dependents(one)]
            yield from children
            current = [one for one in children if self._explores_on(one)]

    def _potential(self, one: _Sequence) -> float:
        """Return the least cost that dependents reach by steps that first raise it (Def. 12)."""
        costs = (
            self._potential(child) if self._explores_on(child) else child.value
            for child in self._dependents(one)
            if child.costlier <= self.rises
        )
        return min(costs, default=math.inf)

    def _best(
        self,
        sequences: Iterable[_Sequence],
        of: Callable[[_Sequence], float] = lambda one: one.value,
    ) -> list[_Sequence]:
        """Return half of the samples: the least finite values, each graph once."""
        distinct: dict[bytes, tuple[float, int, _Sequence]] = {}
        for number, one in enumerate(sequences):
            if one.state.key not in distinct and (value := of(one)) < math.inf:
                distinct[one.state.key] = (value, number, one)
        return [one for _, _, one in heapq.nsmallest(self.samples // 2, distinct.values())]
