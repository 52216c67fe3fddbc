"""Nimble's assignment of kernels to streams (Kwon et al., NeurIPS 2020, §4.2) and nothing else.

Kernels that are not ordered with each other are on different streams, with as few events as that
allows. The graph is the original, or the result of another search on one stream: TASO + Nimble, for
instance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from eqsat_opt.errors import OptionError
from eqsat_opt.lab.search.frame import Frame
from eqsat_opt.lab.search.registry import make_search, search_names
from eqsat_opt.lab.search.running import Run
from eqsat_opt.lab.search.search import Budget, SearchResult, SearchTrace

__all__ = ["Nimble"]


@dataclass(frozen=True)
class Nimble:
    """The assignment.

    Attributes:
        after: the search whose graph is assigned, with its defaults; empty for the original.
    """

    name: ClassVar[str] = "nimble"
    exact: ClassVar[bool] = False

    after: str = ""

    def __post_init__(self) -> None:
        others = [name for name in search_names() if name != self.name]
        if self.after and self.after not in others:
            raise OptionError(
                f"nimble.after is {self.after!r}, which is no search before it; choose from "
                f"{', '.join(others)}"
            )

    def run(self, frame: Frame, budget: Budget, seed: int) -> SearchResult:
        """Assign the kernels of the original, or of the graph that the search before it finds."""
        if not self.after:
            return Run(frame, budget).result()
        alone = frame.guided(frame.objective)
        found = make_search(self.after, {}).run(alone, budget, seed)
        outcome, original = frame.judged(found.graph), frame.outcome(frame.start)
        at = SearchTrace(
            found.graphs, found.tried, cpu_s=found.cpu_s, time_s=found.time_s, value=outcome.value
        )
        return replace(found, outcome=outcome, original=original, trace=(at,))
