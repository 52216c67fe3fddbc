"""The interface of all searches: from a frame and a budget to a better graph and its derivation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from eqsat_opt.errors import OptionError

if TYPE_CHECKING:
    from eqsat_opt.ir.graph.graph import Graph
    from eqsat_opt.lab.search.frame import Frame
    from eqsat_opt.lab.search.pricing.outcome import PricedGraph

__all__ = ["Budget", "Search", "SearchResult", "SearchTrace", "StopReason"]

StopReason = Literal["exhausted", "graphs", "substitutions", "cpu", "length"]


@dataclass(frozen=True)
class Budget:
    """Limits of a search; counts make a run repeatable, seconds do not.

    Attributes:
        graphs: number of graphs whose substitutions are listed; 0 for no limit.
        substitutions: number of substitutions tried; 0 for no limit.
        cpu_s: CPU seconds of this process; 0 for no limit.
        length: substitutions from the original to any graph; 0 for no limit.
    """

    graphs: int = 1_000
    substitutions: int = 0
    cpu_s: float = 0.0
    length: int = 0

    def __post_init__(self) -> None:
        for name in ("graphs", "substitutions", "length"):
            count = getattr(self, name)
            if count < 0:
                raise OptionError(
                    f"the budget's {name} is {count}; give a count, or 0 for no limit"
                )
        if not 0 <= self.cpu_s < math.inf:
            raise OptionError(
                f"the budget's cpu is {self.cpu_s:g} s; give a finite number that is not negative, "
                "or 0 for no limit"
            )


@dataclass(frozen=True, slots=True)
class SearchTrace:
    """A moment at which a better graph was found.

    Attributes:
        graphs: number of graphs visited before.
        tried: number of substitutions tried before.
        cpu_s: CPU seconds of the process, since the start.
        time_s: wall-clock seconds since the start.
        value: objective value of the graph.
    """

    graphs: int
    tried: int
    cpu_s: float
    time_s: float
    value: float


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best graph.

    Attributes:
        outcome: the best graph, its kernels and costs, recomputed from the graph.
        original: the original, its kernels and costs.
        steps: names of the rules that lead to the best graph, in order.
        trace: how the objective value fell.
        stopped_by: ``exhausted``, or the part of the budget that was spent.
        cpu_s: CPU seconds of the process.
        time_s: wall-clock seconds of the search.
        graphs: number of graphs visited.
        tried: number of substitutions tried.
        duplicates: number of substitutions that led to a graph seen before.
        pruned: number of substitutions that led to a graph too expensive or too large.
        compared: how often a left side was to be compared with an operator, cached or not.
        notes: further remarks, for people.
    """

    outcome: PricedGraph
    original: PricedGraph
    steps: tuple[str, ...]
    trace: tuple[SearchTrace, ...]
    stopped_by: StopReason
    cpu_s: float
    time_s: float
    graphs: int
    tried: int
    duplicates: int = 0
    pruned: int = 0
    compared: int = 0
    notes: tuple[str, ...] = field(default=())

    @property
    def graph(self) -> Graph:
        """The best graph."""
        return self.outcome.graph

    @property
    def value(self) -> float:
        """The objective value of the best graph."""
        return self.outcome.value


class Search(Protocol):
    """A search over graphs that are equal under rules: a frozen dataclass of its parameters.

    Each field has a default, is a number, a flag, a text or a `Literal` of texts, and is checked
    when the search is made (`OptionError`).

    Attributes:
        name: name on the command line.
        exact: whether a search that ended as ``exhausted`` has found the cheapest graph that the
            rules reach.
        places: optional; true where the search chooses kernels or streams otherwise than the level
            does, so that a graph alone does not determine the cost of its outcome.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    exact: ClassVar[bool]

    def run(self, frame: Frame, budget: Budget, seed: int) -> SearchResult:
        """Return the best graph that the search finds; that of ``frame`` if none is better."""
