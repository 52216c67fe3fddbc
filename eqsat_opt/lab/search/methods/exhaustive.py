"""Every graph that the rules reach: the baseline of MetaFlow's search.

Jia et al., MLSys 2019, §6.4, Table 3. No graph is too expensive to be followed. Rules may make
graphs grow without end, so graphs above a limit are left out; the result is the best within that
limit. Where a sum is minimised, parts of the model that no substitution spans are searched one by
one, and their graphs represent all combinations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.methods.independence import PartGraphs, is_separable, search_parts
from eqsat_opt.lab.search.methods.metaflow import backtrack
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult

__all__ = ["Exhaustive"]


@dataclass(frozen=True)
class Exhaustive:
    """The search and its parameters.

    Attributes:
        growth: graphs with at least this many times as many operators as the original are dropped.
        parts: whether parts that no substitution spans are searched one by one, for sums.
    """

    name: ClassVar[str] = "exhaustive"
    exact: ClassVar[bool] = False

    growth: float = 2.0
    parts: bool = True

    def __post_init__(self) -> None:
        if not self.growth > 1:
            raise OptionError(f"growth is {self.growth:g}; give more than 1")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """Return the cheapest graph within the limit, if the budget lasts.

        The search is deterministic.
        """
        run = Run(frame, budget)
        with run:
            if self.parts and is_separable(frame):
                parts = search_parts(run, self.growth)
                run.notes += self._told(frame, parts)
            else:
                backtrack(run, frame.start, math.inf, growth=self.growth)
        if run.pruned:
            run.notes.append(
                f"exhaustive: {run.pruned} substitutions led to graphs of at least "
                f"{self.growth:g} times as many operators, which were left out"
            )
        return run.result()

    def _told(self, frame: Frame, parts: Sequence[PartGraphs]) -> list[str]:
        """Return notes on the number of independent parts and of the graphs that they represent."""
        counts = sorted((len(part.graphs) for part in parts if len(part.graphs) > 1), reverse=True)
        if len(counts) < 2:
            return []
        start = frame.start.size
        notes = [
            f"exhaustive: {len(counts)} independent parts of {', '.join(map(str, counts))} graphs, "
            f"which are {math.prod(counts):,} graphs together"
        ]
        if start + sum(part.largest - start for part in parts) >= self.growth * start:
            notes.append("exhaustive: the limit of growth holds for each part by itself")
        return notes
