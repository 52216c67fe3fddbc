"""Results of a comparison: the graphs that methods found, when, and at what expense."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from eqsat_opt.cost.metrics import METRICS
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.settings import CompareSettings
from eqsat_opt.lab.search import PricedGraph
from eqsat_opt.racing.race_result import RaceResult

__all__ = [
    "MOST_NOISE",
    "Comparison",
    "FailedRun",
    "MethodResult",
    "Moment",
    "Original",
    "Runs",
    "descent",
    "gathered",
    "totals",
]

MOST_NOISE = 0.1
"""Largest relative difference between two runs of one entrant in a race of streams.

It holds for the original and for the plan that also runs twice; beyond it the row is refused.
"""

_ROUNDING = 1e-9
"""Relative difference of costs that may be due to the rounding of sums."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A graph that a method had at `cost`, cheaper than all before.

    Attributes:
        time_s: wall-clock seconds since the method began.
        cost: cost of the graph.
        cpu_s: CPU seconds of the process, all its threads, since the method began.
    """

    time_s: float
    cost: float
    cpu_s: float


def descent(original: float, final: float, moments: Iterable[Moment]) -> tuple[Moment, ...]:
    """Trace how the cost fell from that of the original to the final one, which is recomputed."""
    trace = [Moment(0.0, original, 0.0)]
    for moment in moments:
        if moment.cost < trace[-1].cost * (1 - _ROUNDING):
            trace.append(moment)
    return (*trace[:-1], replace(trace[-1], cost=final))


def totals(outcome: PricedGraph) -> dict[str, float]:
    """Return metric to total over the kernels of a graph, for metrics that every kernel has.

    A peak, such as workspace, is the largest of all kernels.
    """
    told = [chosen.metrics for chosen in outcome.kernels.values()]
    return {
        name: max(values) if metric.is_peak else math.fsum(values)
        for name, metric in METRICS.items()
        if told and all(name in one for one in told)
        for values in ([one[name] for one in told],)
    }


@dataclass(frozen=True, kw_only=True)
class Original:
    """The original model.

    Attributes:
        cost: cost of the model.
        operators: number of operators that run, each as a kernel of its own.
        kernels: number of kernels at the level of the comparison.
        metrics: metric to total.
        n_rules: rules of the book that were read; both directions of a rule count as one.
        prices: ``roofline``, ``measured`` or ``analytic`` with the name of a profile, and the
            source of its model of energy.
        assumed_sizes: sizes that were assumed for pricing, by symbolic dimension, where none was
            given.
    """

    cost: float
    operators: int
    kernels: int
    metrics: Mapping[str, float]
    n_rules: int
    prices: str
    assumed_sizes: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return dict(self.__dict__)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Original:
        """Build the model's figures from the result of `to_json`."""
        return cls(**value)


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """The result of one run of a method.

    Attributes:
        method: name of the method.
        seed: seed of the run.
        cost: cost of the graph that was found, recomputed from the graph.
        lower_bound: no graph that the method's e-graph holds costs less. The rules may reach
            cheaper ones where `stopped_by` is not ``saturated``. ``None`` for a search, unless it
            is exact and was exhausted.
        stopped_by: why the search ended; for the e-graph, why saturation did.
        extraction: status of the extraction, ``optimal`` if it is proven; ``None`` for a search.
        graphs: number of graphs visited, for a search.
        tried: number of substitutions tried, for a search.
        compared: how often a left side was to be compared with an operator, for a search.
        enodes: size of the e-graph, where there is one.
        operators: number of operators that run in the graph.
        kernels: number of kernels that run the graph.
        metrics: metric to total over the kernels, for metrics that every kernel has.
        rules: rule to the number of its uses: nodes that it made, or steps in which it was applied.
        time_s: wall-clock seconds until the method ended, without the time of measuring kernels;
            the e-graph's method ends when the result is proven, or its time is up.
        cpu_s: CPU seconds of all threads of the process, over the same time.
        measuring_s: seconds of measuring kernels.
        peak_bytes: peak memory of the process, libraries included; 0 where unknown.
        trace: how the cost fell, from that of the original on.
        max_error: largest difference to the model beyond rounding, per standard deviation of the
            output; ``None`` where nothing was compared.
        why: the fault of the outputs; empty if there is none.
        model: file with the model that was found; empty where none was written.
        plan: file with its plan; empty where none was written.
        notes: further remarks of the search.
        structure: a digest, equal for two graphs that compute in the same way, whatever the names.
        outcome: the graph that was found, and its kernels.
    """

    method: str
    seed: int
    cost: float
    lower_bound: float | None
    stopped_by: str
    extraction: str | None
    graphs: int | None
    tried: int | None
    compared: int | None
    enodes: int | None
    operators: int
    kernels: int
    metrics: Mapping[str, float]
    rules: Mapping[str, int]
    time_s: float
    cpu_s: float
    trace: tuple[Moment, ...]
    measuring_s: float = 0.0
    peak_bytes: int = 0
    max_error: float | None = None
    why: str = ""
    model: str = ""
    plan: str = ""
    notes: tuple[str, ...] = ()
    structure: str = ""
    outcome: PricedGraph | None = field(default=None, repr=False, compare=False)

    @property
    def graph(self) -> Graph | None:
        """The graph that was found."""
        return None if self.outcome is None else self.outcome.graph

    @property
    def status(self) -> str:
        """Why the method ended and, for the e-graph, what it proved."""
        return f"{self.stopped_by}, {self.extraction}" if self.extraction else self.stopped_by

    @property
    def best_after_s(self) -> float:
        """CPU seconds until the result was found; a search cannot know that it was the last."""
        return self.trace[-1].cpu_s

    def after_s(self, cost: float) -> float | None:
        """Return CPU seconds until a graph cost at most this, up to rounding; ``None`` if never."""
        most = cost * (1 + _ROUNDING)
        return next((moment.cpu_s for moment in self.trace if moment.cost <= most), None)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the outcome, as plain values for JSON."""
        value = {name: part for name, part in self.__dict__.items() if name != "outcome"}
        return {
            **value,
            "status": self.status,
            "rules": dict(self.rules),
            "metrics": dict(self.metrics),
            "best_after_s": self.best_after_s,
            "notes": list(self.notes),
            "trace": [asdict(moment) for moment in self.trace],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> MethodResult:
        """Build a result, without the outcome, from the result of `to_json`."""
        own = {one.name: value[one.name] for one in fields(cls) if one.name != "outcome"}
        trace = tuple(Moment(**one) for one in value["trace"])
        return cls(**{**own, "trace": trace, "notes": tuple(value["notes"])})


@dataclass(frozen=True)
class FailedRun:
    """A run without a result.

    Attributes:
        method: name of the method.
        seed: seed of the run.
        why: the reason, for people.
    """

    method: str
    seed: int
    why: str


@dataclass(frozen=True)
class Runs:
    """All runs of one method.

    Attributes:
        method: name of the method.
        results: results of the runs that have one, by seed.
        failures: the other runs.
    """

    method: str
    results: tuple[MethodResult, ...]
    failures: tuple[FailedRun, ...]

    @property
    def median(self) -> MethodResult | None:
        """The run of the median cost: the cheaper of two middle runs, the fastest of equal ones."""
        ordered = sorted(self.results, key=lambda one: (one.cost, one.cpu_s))
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    @property
    def best(self) -> MethodResult | None:
        """The run of the least cost; the fastest of equal ones."""
        return min(self.results, key=lambda one: (one.cost, one.cpu_s), default=None)

    @property
    def costs(self) -> tuple[float, float]:
        """The least and the greatest cost."""
        costs = [one.cost for one in self.results]
        return min(costs), max(costs)

    def seconds(self, values: Iterable[float | None]) -> float | None:
        """Return the median of one value per run; ``None`` if a value is missing."""
        given = list(values)
        known = [one for one in given if one is not None]
        return statistics.median(known) if known and len(known) == len(given) else None


@dataclass(frozen=True)
class Comparison:
    """All methods on one model.

    Attributes:
        model: name of the model.
        settings: the settings of all methods.
        original: the original model; ``None`` where no method got far enough to price it.
        results: all results, by method, and then by seed.
        failures: runs that ended without a result.
        race: the race of the best result of each method against the original; ``None`` where none
            was held.
        notes: further notes for the user.
    """

    model: str
    settings: CompareSettings
    original: Original | None
    results: tuple[MethodResult, ...]
    failures: tuple[FailedRun, ...] = ()
    race: RaceResult | None = None
    notes: tuple[str, ...] = ()

    @property
    def runs(self) -> tuple[Runs, ...]:
        """All runs, by method."""
        return tuple(
            Runs(
                name,
                tuple(one for one in self.results if one.method == name),
                tuple(one for one in self.failures if one.method == name),
            )
            for name in self.settings.methods
        )

    @property
    def refusal(self) -> str:
        """Why the times of the race do not count; empty if they do, or none was held."""
        if self.race is None or not self.settings.runs_streams or self.race.noise <= MOST_NOISE:
            return ""
        return (
            f"the times of streams are refused: what ran twice differs from itself by "
            f"{self.race.noise:.0%}, more than {MOST_NOISE:.0%}; measure again on a quiet machine"
        )

    @property
    def measuring_s(self) -> float:
        """Seconds for measuring kernels, all runs together."""
        return math.fsum(one.measuring_s for one in self.results)

    def as_cheap_after_s(self, result: MethodResult) -> float | None:
        """Return CPU seconds until a run had a graph as cheap as the best of all other methods.

        ``None`` if it never had, or there is no other method.
        """
        others = [one.cost for one in self.results if one.method != result.method]
        return result.after_s(min(others)) if others else None

    def to_json(self) -> dict[str, Any]:
        """Return everything but the graphs, as plain values for JSON."""
        original = self.original
        return {
            "model": self.model,
            "original_cost": None if original is None else original.cost,
            "operators": None if original is None else original.operators,
            "kernels": None if original is None else original.kernels,
            "metrics": {} if original is None else dict(original.metrics),
            "rules": None if original is None else original.n_rules,
            "prices": None if original is None else original.prices,
            "measuring_s": self.measuring_s,
            "settings": self.settings.to_json(),
            "assumed_sizes": {} if original is None else dict(original.assumed_sizes),
            "notes": list(self.notes),
            "results": [
                {**result.to_json(), "as_cheap_after_s": self.as_cheap_after_s(result)}
                for result in self.results
            ],
            "failures": [asdict(one) for one in self.failures],
            "race": None if self.race is None else self.race.to_json(),
            "race_refused": self.refusal,
        }


def gathered(
    model: str,
    settings: CompareSettings,
    replies: Sequence[tuple[Original | None, MethodResult | FailedRun]],
    notes: Iterable[str] = (),
) -> Comparison:
    """Gather the results of single runs into one comparison, by method and then by seed."""
    order = {name: number for number, name in enumerate(settings.methods)}
    ordered = sorted((one for _, one in replies), key=lambda one: (order[one.method], one.seed))
    return Comparison(
        model,
        settings,
        original=next((original for original, _ in replies if original is not None), None),
        results=tuple(one for one in ordered if isinstance(one, MethodResult)),
        failures=tuple(one for one in ordered if isinstance(one, FailedRun)),
        notes=tuple(dict.fromkeys(notes)),
    )
