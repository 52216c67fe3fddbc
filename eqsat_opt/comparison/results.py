"""What the methods of a comparison found, and when."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from eqsat_opt.comparison.settings import CompareSettings
from eqsat_opt.ir.graph import Graph

__all__ = ["Comparison", "MethodResult", "Moment", "descent"]

_ROUNDING = 1e-9
"""Relative difference of costs that is a rounding of sums."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A graph that a method had after `time_s` seconds, at `cost`: cheaper than all before."""

    time_s: float
    cost: float


def descent(original: float, final: float, moments: Iterable[Moment]) -> tuple[Moment, ...]:
    """How the cost fell, from that of the original to the final one, which is recomputed."""
    trace = [Moment(0.0, original)]
    for moment in moments:
        if moment.cost < trace[-1].cost * (1 - _ROUNDING):
            trace.append(moment)
    return (*trace[:-1], replace(trace[-1], cost=final))


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """What one method found.

    Attributes:
        method: its name.
        cost: of its graph, recomputed from the graph.
        lower_bound: no graph that its e-graph holds costs less. The rules may reach cheaper ones
            where `stopped_by` is not ``saturated``. ``None`` for a search, unless it is exact and
            was exhausted.
        stopped_by: why it ended; for the e-graph, why saturation did.
        extraction: status of the extraction, of which ``optimal`` is proven; ``None`` for a search.
        graphs: graphs visited, for a search.
        tried: substitutions tried, for a search.
        compared: how often a left side was compared with an operator, for a search.
        enodes: size of the e-graph, where there is one.
        operators: operators that run in its graph.
        rules: rule to the number of its uses: nodes that it made, or steps that it took.
        time_s: until it ended, without the time of measuring kernels; for the e-graph that is
            when the result is proven, or its time is up.
        trace: how the cost fell, from that of the original on.
        max_error: largest difference to the model beyond rounding, per standard deviation of the
            output; ``None`` where nothing was compared.
        why: what is wrong with its outputs; empty if nothing is.
        graph: the graph that it found.
    """

    method: str
    cost: float
    lower_bound: float | None
    stopped_by: str
    extraction: str | None
    graphs: int | None
    tried: int | None
    compared: int | None
    enodes: int | None
    operators: int
    rules: Mapping[str, int]
    time_s: float
    trace: tuple[Moment, ...]
    max_error: float | None = None
    why: str = ""
    graph: Graph | None = field(default=None, repr=False, compare=False)

    @property
    def status(self) -> str:
        """Why it ended and, for the e-graph, what it proved."""
        return f"{self.stopped_by}, {self.extraction}" if self.extraction else self.stopped_by

    @property
    def best_after_s(self) -> float:
        """When the result was found; a search cannot know that it was the last."""
        return self.trace[-1].time_s

    def after_s(self, cost: float) -> float | None:
        """When a graph of at most this cost, up to rounding, was found; ``None`` if never."""
        most = cost * (1 + _ROUNDING)
        return next((moment.time_s for moment in self.trace if moment.cost <= most), None)

    def to_json(self) -> dict[str, Any]:
        """Everything but the graph, as plain values."""
        value = {name: part for name, part in self.__dict__.items() if name != "graph"}
        trace = [asdict(moment) for moment in self.trace]
        return {
            **value,
            "status": self.status,
            "rules": dict(self.rules),
            "best_after_s": self.best_after_s,
            "trace": trace,
        }


@dataclass(frozen=True)
class Comparison:
    """All methods on one model.

    Attributes:
        model: its name.
        original_cost: cost of the model as it came.
        operators: of the model, each a kernel of its own.
        n_rules: rules of the book that were read, both directions of one being one.
        prices: ``roofline`` or ``measured``.
        measuring_s: seconds for measuring kernels, all methods together.
        settings: what the methods were given.
        results: by method.
        assumed_sizes: of symbolic dimensions that nobody gave a size, for pricing.
        notes: what else the user should know.
    """

    model: str
    original_cost: float
    operators: int
    n_rules: int
    prices: str
    measuring_s: float
    settings: CompareSettings
    results: tuple[MethodResult, ...]
    assumed_sizes: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_cheap_after_s(self, result: MethodResult) -> float | None:
        """When a method had a graph as cheap as all others end with; ``None`` if never."""
        others = [one.cost for one in self.results if one is not result]
        return result.after_s(min(others)) if others else None

    def to_json(self) -> dict[str, Any]:
        """Everything but the graphs, as plain values."""
        return {
            "model": self.model,
            "original_cost": self.original_cost,
            "operators": self.operators,
            "rules": self.n_rules,
            "prices": self.prices,
            "measuring_s": self.measuring_s,
            "settings": self.settings.to_json(),
            "assumed_sizes": dict(self.assumed_sizes),
            "notes": list(self.notes),
            "results": [
                {**result.to_json(), "as_cheap_after_s": self.as_cheap_after_s(result)}
                for result in self.results
            ],
        }
