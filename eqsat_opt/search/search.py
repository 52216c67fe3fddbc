"""What every search takes and returns: rules and prices; a cheaper graph and how it was found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from eqsat_opt.cost.operators import OperatorCost
from eqsat_opt.errors import OptionError
from eqsat_opt.ir.graph import Graph
from eqsat_opt.rules.rule import Rule

__all__ = ["Frame", "Search", "SearchBudget", "SearchResult", "SearchTrace", "StopReason"]

StopReason = Literal["exhausted", "graphs", "time"]


@dataclass(frozen=True)
class Frame:
    """What every search starts from.

    Attributes:
        graph: of single operators; normalised.
        rules: read both ways where they are bidirectional.
        cost: prices operators.
    """

    graph: Graph
    rules: tuple[Rule, ...]
    cost: OperatorCost


@dataclass(frozen=True)
class SearchBudget:
    """When to stop; a count makes a run repeatable, seconds do not.

    Attributes:
        graphs: graphs whose substitutions are tried; 0 for no limit.
        time_s: seconds; 0 for no limit.
    """

    graphs: int = 1_000
    time_s: float = 0.0

    def __post_init__(self) -> None:
        if self.graphs < 0:
            raise OptionError(
                f"the limit of {self.graphs} graphs is negative; give a count, or 0 for no limit"
            )
        if not 0 <= self.time_s < math.inf:
            raise OptionError(
                f"the time limit is {self.time_s:g} s; give a finite number that is not negative, "
                "or 0 for no limit"
            )


@dataclass(frozen=True, slots=True)
class SearchTrace:
    """A moment at which a better graph was found.

    Attributes:
        graphs: graphs visited before.
        tried: substitutions tried before.
        time_s: since the start.
        cost_us: of the graph.
    """

    graphs: int
    tried: int
    time_s: float
    cost_us: float


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """The best graph.

    Attributes:
        graph: the best graph.
        cost_us: its cost, recomputed from the graph.
        original_cost_us: that of the original.
        steps: names of the rules that lead to it, in order.
        trace: how the cost fell.
        stopped_by: ``exhausted``, ``graphs`` or ``time``.
        time_s: of the search.
        graphs: graphs visited.
        tried: substitutions tried.
        duplicates: substitutions that led to a graph seen before.
        pruned: substitutions that led to a graph too expensive or too large.
        compared: how often a left side was compared with an operator.
    """

    graph: Graph
    cost_us: float
    original_cost_us: float
    steps: tuple[str, ...]
    trace: tuple[SearchTrace, ...]
    stopped_by: StopReason
    time_s: float
    graphs: int
    tried: int
    duplicates: int = 0
    pruned: int = 0
    compared: int = 0


class Search(Protocol):
    """A search over graphs that are equal under rules: a frozen dataclass of its parameters.

    Each field has a default, is a number, a flag, a text or a `Literal` of texts, and is checked
    when the search is made (`OptionError`).

    Attributes:
        name: as the command line calls it.
        exact: whether a search that ended as ``exhausted`` has found the cheapest graph that the
            rules reach.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    name: ClassVar[str]
    exact: ClassVar[bool]

    def run(self, frame: Frame, budget: SearchBudget, seed: int) -> SearchResult:
        """The cheapest graph that the search finds; that of ``frame`` itself if there is none."""
