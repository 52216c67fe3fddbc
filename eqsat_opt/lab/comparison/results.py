"""What the methods of a comparison found, when, and at what expense."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from eqsat_opt.cost.metrics import METRICS
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.lab.comparison.settings import CompareSettings
from eqsat_opt.lab.search import Outcome
from eqsat_opt.racing.race_result import RaceResult

__all__ = [
    "MOST_NOISE",
    "Comparison",
    "Failure",
    "MethodResult",
    "Moment",
    "Original",
    "Runs",
    "descent",
    "gathered",
    "totals",
]

MOST_NOISE = 0.1
"""How far the original of a race of streams, and the plan that also runs twice, may differ from
themselves, relative. Beyond that the row is refused."""

_ROUNDING = 1e-9
"""Relative difference of costs that is a rounding of sums."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A graph that a method had at `cost`, cheaper than all before.

    Attributes:
        time_s: of the clock, since the method began.
        cost: of the graph.
        cpu_s: of the process, all its threads, since the method began.
    """

    time_s: float
    cost: float
    cpu_s: float


def descent(original: float, final: float, moments: Iterable[Moment]) -> tuple[Moment, ...]:
    """How the cost fell, from that of the original to the final one, which is recomputed."""
    trace = [Moment(0.0, original, 0.0)]
    for moment in moments:
        if moment.cost < trace[-1].cost * (1 - _ROUNDING):
            trace.append(moment)
    return (*trace[:-1], replace(trace[-1], cost=final))


def totals(outcome: Outcome) -> dict[str, float]:
    """Metric to total over the kernels of a graph, of all that is told of each of them.

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
    """The model as it came.

    Attributes:
        cost: of it.
        operators: that run, each a kernel of its own.
        kernels: at the level of the comparison.
        metrics: metric to total.
        n_rules: rules of the book that were read, both directions of one being one.
        prices: ``roofline``, ``measured`` or ``analytic`` with the name of a profile, and
            where its model of energy is from.
        assumed_sizes: of symbolic dimensions that nobody gave a size, for pricing.
    """

    cost: float
    operators: int
    kernels: int
    metrics: Mapping[str, float]
    n_rules: int
    prices: str
    assumed_sizes: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dict(self.__dict__)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Original:
        """Inverse of `to_json`."""
        return cls(**value)


@dataclass(frozen=True, kw_only=True)
class MethodResult:
    """What one run of a method found.

    Attributes:
        method: its name.
        seed: of the run.
        cost: of its graph, recomputed from the graph.
        lower_bound: no graph that its e-graph holds costs less. The rules may reach cheaper ones
            where `stopped_by` is not ``saturated``. ``None`` for a search, unless it is exact and
            was exhausted.
        stopped_by: why it ended; for the e-graph, why saturation did.
        extraction: status of the extraction, of which ``optimal`` is proven; ``None`` for a search.
        graphs: graphs visited, for a search.
        tried: substitutions tried, for a search.
        compared: how often a left side was to be compared with an operator, for a search.
        enodes: size of the e-graph, where there is one.
        operators: operators that run in its graph.
        kernels: that run it.
        metrics: metric to total over its kernels, of all that is told of each.
        rules: rule to the number of its uses: nodes that it made, or steps that it took.
        time_s: of the clock until it ended, without the time of measuring kernels; for the e-graph
            that is when the result is proven, or its time is up.
        cpu_s: of all threads of its process, over the same time.
        measuring_s: of measuring kernels.
        peak_bytes: most memory that its process held, libraries included; 0 where unknown.
        trace: how the cost fell, from that of the original on.
        max_error: largest difference to the model beyond rounding, per standard deviation of the
            output; ``None`` where nothing was compared.
        why: what is wrong with its outputs; empty if nothing is.
        model: file with its model; empty where none was written.
        plan: file with its plan; empty where none was written.
        notes: what else its search tells.
        structure: equal where two graphs compute in the same way, whatever the names.
        outcome: the graph that it found, and its kernels.
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
    outcome: Outcome | None = field(default=None, repr=False, compare=False)

    @property
    def graph(self) -> Graph | None:
        """The graph that it found."""
        return None if self.outcome is None else self.outcome.graph

    @property
    def status(self) -> str:
        """Why it ended and, for the e-graph, what it proved."""
        return f"{self.stopped_by}, {self.extraction}" if self.extraction else self.stopped_by

    @property
    def best_after_s(self) -> float:
        """CPU seconds until the result was found; a search cannot know that it was the last."""
        return self.trace[-1].cpu_s

    def after_s(self, cost: float) -> float | None:
        """CPU seconds until a graph of at most this cost, up to rounding; ``None`` if never."""
        most = cost * (1 + _ROUNDING)
        return next((moment.cpu_s for moment in self.trace if moment.cost <= most), None)

    def to_json(self) -> dict[str, Any]:
        """Everything but the outcome, as plain values."""
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
        """Inverse of `to_json`, without the outcome."""
        own = {one.name: value[one.name] for one in fields(cls) if one.name != "outcome"}
        trace = tuple(Moment(**one) for one in value["trace"])
        return cls(**{**own, "trace": trace, "notes": tuple(value["notes"])})


@dataclass(frozen=True)
class Failure:
    """A run without a result.

    Attributes:
        method: its name.
        seed: of the run.
        why: in words.
    """

    method: str
    seed: int
    why: str


@dataclass(frozen=True)
class Runs:
    """All runs of one method.

    Attributes:
        method: its name.
        results: of the seeds that ended with one, by seed.
        failures: of the others.
    """

    method: str
    results: tuple[MethodResult, ...]
    failures: tuple[Failure, ...]

    @property
    def median(self) -> MethodResult | None:
        """The run of the median cost, the cheaper one of two; of equal ones the quickest."""
        ordered = sorted(self.results, key=lambda one: (one.cost, one.cpu_s))
        return ordered[(len(ordered) - 1) // 2] if ordered else None

    @property
    def best(self) -> MethodResult | None:
        """The run of the least cost; of equal ones the quickest."""
        return min(self.results, key=lambda one: (one.cost, one.cpu_s), default=None)

    @property
    def costs(self) -> tuple[float, float]:
        """The least and the greatest cost."""
        costs = [one.cost for one in self.results]
        return min(costs), max(costs)

    def seconds(self, values: Iterable[float | None]) -> float | None:
        """The median of what each run tells; ``None`` if one of them tells nothing."""
        given = list(values)
        known = [one for one in given if one is not None]
        return statistics.median(known) if known and len(known) == len(given) else None


@dataclass(frozen=True)
class Comparison:
    """All methods on one model.

    Attributes:
        model: its name.
        settings: what the methods were given.
        original: the model as it came; ``None`` where no method came so far.
        results: by method, and then by seed.
        failures: of runs that ended without a result.
        race: of the best result of each method against the original; ``None`` where none was held.
        notes: what else the user should know.
    """

    model: str
    settings: CompareSettings
    original: Original | None
    results: tuple[MethodResult, ...]
    failures: tuple[Failure, ...] = ()
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
        """Why the times of the race do not count, in words; empty if they do, or none was held."""
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
        """CPU seconds until a run had a graph as cheap as all other methods' best ones.

        ``None`` if it never had, or there is no other method.
        """
        others = [one.cost for one in self.results if one.method != result.method]
        return result.after_s(min(others)) if others else None

    def to_json(self) -> dict[str, Any]:
        """Everything but the graphs, as plain values."""
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
    replies: Sequence[tuple[Original | None, MethodResult | Failure]],
    notes: Iterable[str] = (),
) -> Comparison:
    """What single runs found, as one comparison, by method and then by seed."""
    order = {name: number for number, name in enumerate(settings.methods)}
    ordered = sorted((one for _, one in replies), key=lambda one: (order[one.method], one.seed))
    return Comparison(
        model,
        settings,
        original=next((original for original, _ in replies if original is not None), None),
        results=tuple(one for one in ordered if isinstance(one, MethodResult)),
        failures=tuple(one for one in ordered if isinstance(one, Failure)),
        notes=tuple(dict.fromkeys(notes)),
    )
