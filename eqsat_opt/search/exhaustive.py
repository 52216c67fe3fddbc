"""Every graph that the rules reach: what MetaFlow compares its search with.

Jia et al., MLSys 2019, §6.4, Table 3. Graphs are visited cheapest first, and none is too expensive
to go on from. Rules may make graphs grow without end, so larger ones than a limit are left out; the
result is the best within that limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from eqsat_opt.errors import OptionError
from eqsat_opt.search.frame import Frame
from eqsat_opt.search.metaflow import backtrack
from eqsat_opt.search.running import Run
from eqsat_opt.search.search import Budget, SearchResult

__all__ = ["Exhaustive"]


@dataclass(frozen=True)
class Exhaustive:
    """The search and its parameter.

    Attributes:
        growth: graphs with at least this many times as many operators as the original are dropped.
    """

    name: ClassVar[str] = "exhaustive"
    exact: ClassVar[bool] = False

    growth: float = 2.0

    def __post_init__(self) -> None:
        if not self.growth > 1:
            raise OptionError(f"growth is {self.growth:g}; give more than 1")

    def run(self, frame: Frame, budget: Budget, seed: int = 0) -> SearchResult:
        """The cheapest graph within the limit, if the budget lasts. Nothing is drawn."""
        run = Run(frame, budget)
        with run:
            backtrack(run, frame.start, math.inf, growth=self.growth)
        if run.pruned:
            run.notes.append(
                f"exhaustive: {run.pruned} substitutions led to graphs of at least "
                f"{self.growth:g} times as many operators, which were left out"
            )
        return run.result()
