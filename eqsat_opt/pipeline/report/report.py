"""The report on a run, as tables and as plain values.

It is long because a report is one record, each field of which is explained.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from eqsat_opt.common.text import (
    count_text,
    counted,
    percent_text,
    time_text,
)
from eqsat_opt.cost.metrics import ENERGY, TIME
from eqsat_opt.pipeline.report.form_reports import Approximated, Planned, Tuned
from eqsat_opt.pipeline.report.schema import REPORT_FORMAT
from eqsat_opt.pipeline.report.values import Hint, Latency, OutputError
from eqsat_opt.runtime.devices import HOST

if TYPE_CHECKING:
    pass

__all__ = [
    "Report",
]

STATUS_TEXT = {
    "improved": "a faster model was found",
    "improved_with_option": "no model is faster in a default session, but a session option helps",
    "kept": "no difference beyond noise: what won an earlier race, or one of its bodies, is kept",
    "unchanged": "no improvement found: the original is kept",
    "unmeasured": "the result was not raced; its cost is only predicted",
    "replayed": "the result was made by earlier decisions, without search or measurement",
    "planned": "the result is planned for {target} and was not run there; its cost is predicted",
}


_FAR = 2.0
"""Largest ratio of cost to bound that is shown."""

_SAME_COST = 1e-9
"""Relative difference of costs up to which they count as equal, as sums of prices are rounded."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """All numbers of one run.

    Attributes:
        model: path or name of the model.
        status: ``improved`` (in a default session of onnxruntime; by predicted cost, where time is
            not part of the objective), ``improved_with_option``, ``kept`` (an earlier result that
            won when it was written), ``unchanged``, ``unmeasured``, ``planned`` for a target that
            is not here, or ``replayed`` by earlier decisions.
        winner: the candidate that is the result: ``original``, ``clean`` (only normalised),
            ``best`` (the cheapest graph found), ``alternative-k`` or ``previous`` (an earlier
            result).
        speedup: time of the original over that of the result, both in default sessions, the least
            over all sizes; 1 where the race had to show a gain and did not.
        session_speedup: time of the original in a default session over that of the result with
            ``session_options``; 1 without such options.
        session_options: options beyond a default session that make the result faster, as in its
            metadata; `eqsat_opt.session` sets them. Empty if there are none.
        output: the file that holds the result; empty for a result in memory.
        is_in_place: whether that file held the result already and was left as it was.
        operators_before, operators_after: operator name to count, in the main graph of the file as
            it was given and of the result.
        metrics_before, metrics_after: totals by metric: ``weight_bytes`` of all constants in the
            file as it was given and in the result. The other totals are predicted, and leave out
            opaque nodes, which the search does not change, such as quantised ones.
        cost, lower_bound, gap: objective of the extraction, its proven bound, and their relative
            distance. The bound is for the graphs in the e-graph; the rules may reach cheaper ones
            where a limit ended saturation, and by more rounds of associativity and commutativity.
        original_cost, result_cost: objective of the model as given and of the result; ``None`` for
            an earlier result, whose cost is not predicted.
        passed_over: why the result is not the cheapest graph found, where it is not.
        extraction_status: ``optimal``, ``feasible`` or ``greedy``.
        enodes, eclasses, enodes_loaded, iterations, stopped_by: size and growth of the e-graph, and
            the reason for the end of saturation.
        rules: rule name to number of nodes of the result that it made.
        matches: rule name to number of matches.
        latency: latencies of ``original``, ``result`` and, with ``session_options``, ``session``,
            where they were raced.
        race: the race on the first set of sizes.
        further_races: races on the other sets of sizes, as far as they were needed.
        sizes: sizes of symbolic dimensions, for each set of sizes: ``given`` by the user,
            ``assumed``, and ``data`` where the data decide (assumed for prices only).
        noise: relative difference between two sessions of the original.
        threads: threads per session.
        kernels_measured: number of kernels that this run measured.
        kernels_unmeasured: number of kernels of the cheapest graph found and the original whose
            prices are only bounds.
        prices: source of prices (``measured``, ``recorded`` on another device, ``analytic``,
            ``bound``) to the number of kernels of the same graphs that have them.
        errors: errors of the outputs.
        stages_s: seconds per stage.
        warnings: faults that were handled, as sentences: candidates that failed the check, a
            profile store that cannot be used.
        notes: further information for the user, as sentences.
        hints: hints on further runs, by descending gain.
        details: technical information that only ``--verbose`` prints.
        objective: metric to its weight in a sum of totals that was minimised; empty for a product
            or a ratio.
        goal: the objective in its grammar, including critical paths, products and ratios.
        limits: the limits that had to be kept, each in the same grammar.
        original_breaks: a sentence about a limit that the original breaks; empty if it keeps all.
        tuned: the form for this machine; ``None`` if none was requested.
        streams: number of streams. With several, the metrics include ``critical_path_us``, the
            longest chain of kernels, and ``simulated_us``, the end of a schedule.
        target: the device that the result is for; prices are analytic or recorded unless it is
            ``cpu``.
        planned: the plan; ``None`` if none was requested.
        approximated: operators in low precision; ``None`` if none were allowed.
        energy: source of energies in words: a meter, or an estimate and its source; empty where
            there is none.
        operators_inside: number of operators of the normalised model that the e-graph holds;
            ``None`` where there was no search.
        operators_passing: operator to the number of nodes that pass through unchanged.
        passing_share: share of the original's time in operators that pass through, by a profile of
            a few runs; ``None`` where it was not measured.
    """

    model: str
    status: str
    winner: str
    operators_before: Mapping[str, int]
    operators_after: Mapping[str, int]
    metrics_before: Mapping[str, float]
    metrics_after: Mapping[str, float]
    cost: float
    original_cost: float
    lower_bound: float
    gap: float
    extraction_status: str
    enodes: int
    eclasses: int
    enodes_loaded: int
    iterations: int
    stopped_by: str
    rules: Mapping[str, int]
    matches: Mapping[str, int]
    latency: Mapping[str, Latency]
    race: Mapping[str, Any]
    noise: float
    threads: int
    kernels_measured: int
    kernels_unmeasured: int
    errors: tuple[OutputError, ...]
    stages_s: Mapping[str, float]
    speedup: float = 1.0
    session_speedup: float = 1.0
    session_options: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""
    is_in_place: bool = False
    result_cost: float | None = None
    passed_over: str = ""
    warnings: tuple[str, ...] = ()
    further_races: tuple[Mapping[str, Any], ...] = ()
    sizes: tuple[Mapping[str, Mapping[str, int]], ...] = ()
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    objective: Mapping[str, float] = field(default_factory=lambda: {TIME: 1.0})
    goal: str = TIME
    limits: tuple[str, ...] = ()
    original_breaks: str = ""
    tuned: Tuned | None = None
    streams: int = 1
    target: str = HOST
    planned: Planned | None = None
    approximated: Approximated | None = None
    energy: str = ""
    prices: Mapping[str, int] = field(default_factory=dict)
    operators_inside: int | None = None
    operators_passing: Mapping[str, int] = field(default_factory=dict)
    passing_share: float | None = None

    @property
    def headline(self) -> str:
        """The outcome of a default session in a few words."""
        about = f"; energy is {self.energy}" if self._is_about_energy else ""
        return f"{self._verdict}{about}"

    @property
    def _is_about_energy(self) -> bool:
        texts = (self.goal, *self.limits)
        return bool(self.energy) and any(ENERGY in text for text in texts)

    @property
    def _verdict(self) -> str:
        if self.status != "improved":
            return STATUS_TEXT[self.status].format(target=self.target)
        where = f" or more at {1 + len(self.further_races)} sets of sizes" * bool(
            self.further_races
        )
        where += " on a busy machine" if self.race.get("is_busy") else ""
        if self.is_decided_by_time:
            return f"{STATUS_TEXT[self.status]}: {self.speedup:.2f}x{where}{self._times}"
        speed = f"{self.speedup:.2f}x as fast{where}"
        if self.original_breaks:
            return f"a graph within the limits was found, {speed}"
        if self.result_cost is not None and is_below(self.result_cost, self.original_cost):
            share = self.result_cost / self.original_cost
            return f"a cheaper graph was found: {share:.3f} of the predicted cost, {speed}"
        return f"the graph was simplified, at the same predicted cost, {speed}"

    @property
    def _times(self) -> str:
        """The measured times of original and result, in brackets; empty without a race."""
        if not {"original", "result"} <= self.latency.keys():
            return ""
        before, after = (time_text(self.latency[name].median_us) for name in ("original", "result"))
        return f" ({before} → {after})"

    @property
    def advice(self) -> str:
        """The gain by a session option, and how to set it; empty if there is no such option."""
        if not self.session_options:
            return ""
        options = ", ".join(
            f"{name.replace('_', ' ').replace('optimization', 'optimisation')} {value}"
            for name, value in self.session_options.items()
        )
        call = f"eqsat_opt.session({self.output!r})" if self.output else "eqsat_opt.session(model)"
        return f"{self.session_speedup:.2f}x with {options}: {call} opens it so"

    @property
    def optimality(self) -> str:
        """The distance of the result from the cheapest graph in the e-graph, as predicted."""
        subject = "the original" if self.winner == "original" else "the result"
        if not self.was_searched:
            return "no other graph was looked for"
        if self.result_cost is None:
            return "nothing predicts the cost of the earlier result"
        if is_below(self.cost, self.result_cost):
            less = percent_text(1 - self.cost / self.result_cost)
            return f"the cheapest graph found would cost {less} less, but {self.passed_over}"
        if self.extraction_status == "optimal":
            which = "no graph within the limits" if self.limits else "no graph in the e-graph"
            return f"{which} is cheaper than {subject}: proven{self._reach}"
        if self.is_bound_loose:
            return f"how far {subject} is from the cheapest graph in the e-graph was not settled"
        excess = percent_text(self.result_cost / self.lower_bound - 1)
        return f"{subject} is at most {excess} above the cheapest graph in the e-graph"

    @property
    def is_bound_loose(self) -> bool:
        """Whether the bound is so far below the cost of the result that it says nothing."""
        cost = self.result_cost
        return cost is None or self.lower_bound <= 0 or cost > _FAR * self.lower_bound

    @property
    def _reach(self) -> str:
        """The part of the model that a proof is about; empty for all of it."""
        if not self.operators_passing:
            return ""
        return f" for the {counted(self.operators_inside or 0, 'operator')} in it"

    @property
    def coverage(self) -> str:
        """The share of operators in the e-graph, in words; empty where there was no search."""
        if self.operators_inside is None:
            return ""
        passing = sum(self.operators_passing.values())
        inside = count_text(self.operators_inside)
        if not passing:
            return f"all {counted(self.operators_inside, 'operator')} in the e-graph"
        total = counted(self.operators_inside + passing, "operator")
        kinds = ", ".join(f"{name} ×{count}" for name, count in self.operators_passing.items())
        share = (
            "share of the time not known"
            if self.passing_share is None
            else f"{percent_text(self.passing_share)} of the original's time"
        )
        verb = "passes" if passing == 1 else "pass"
        return f"{inside} of {total} in the e-graph; {kinds} {verb} through ({share})"

    @property
    def was_searched(self) -> bool:
        """Whether loading left time for a search."""
        return self.stopped_by != "time" or self.enodes_loaded > 0

    @property
    def is_decided_by_time(self) -> bool:
        """Whether the race decides; it cannot if the original breaks a limit."""
        return bool(self.objective.get(TIME)) and not self.original_breaks

    @property
    def best_speedup(self) -> float:
        """The speedup of the better form that was written: portable, or tuned for this machine."""
        if self.tuned is None or not self.tuned.won:
            return self.speedup
        return max(self.speedup, self.tuned.speedup)

    @property
    def max_abs_error(self) -> float:
        """Largest absolute error over all outputs."""
        return max((e.max_abs for e in self.errors), default=0.0)

    @property
    def max_rel_error(self) -> float:
        """Largest error beyond rounding, per standard deviation, over all outputs."""
        return max((e.max_rel for e in self.errors), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values with stable keys, as `report.schema.json` describes them."""
        return {
            "format": REPORT_FORMAT,
            "model": self.model,
            "status": self.status,
            "winner": self.winner,
            "latency_us": {name: value.time_us for name, value in self.latency.items()},
            "latency": {name: vars_of(value) for name, value in self.latency.items()},
            "speedup": self.speedup,
            "session_speedup": self.session_speedup,
            "session_options": dict(self.session_options),
            "output": self.output,
            "is_in_place": self.is_in_place,
            "noise": self.noise,
            "threads": self.threads,
            "objective": dict(self.objective),
            "goal": self.goal,
            "limits": list(self.limits),
            "original_breaks": self.original_breaks,
            "cost": self.cost,
            "original_cost": self.original_cost,
            "result_cost": self.result_cost,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "extraction": self.extraction_status,
            "optimality": self.optimality,
            "egraph": {
                "enodes": self.enodes,
                "eclasses": self.eclasses,
                "enodes_loaded": self.enodes_loaded,
                "iterations": self.iterations,
                "stopped_by": self.stopped_by,
            },
            "coverage": {
                "inside": self.operators_inside,
                "passing": dict(self.operators_passing),
                "passing_time_share": self.passing_share,
            },
            "rules": dict(self.rules),
            "matches": dict(self.matches),
            "operators": {
                "before": dict(self.operators_before),
                "after": dict(self.operators_after),
            },
            "metrics": {"before": dict(self.metrics_before), "after": dict(self.metrics_after)},
            "kernels": {"measured": self.kernels_measured, "unmeasured": self.kernels_unmeasured},
            "prices": dict(self.prices),
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "outputs": [{**vars_of(e), "ok": e.ok} for e in self.errors],
            "race": dict(self.race),
            "further_races": [dict(race) for race in self.further_races],
            "sizes": [{key: dict(value) for key, value in one.items()} for one in self.sizes],
            "stages_s": dict(self.stages_s),
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "details": list(self.details),
            "hints": [
                {**vars_of(one), "command": ["eqsat-opt", "optimize", self.model, *one.flags]}
                for one in self.hints
            ],
            "target": self.target,
            "streams": self.streams,
            "energy": self.energy,
            "tuned": None if self.tuned is None else asdict(self.tuned),
            "planned": None if self.planned is None else asdict(self.planned),
            "approximated": None if self.approximated is None else asdict(self.approximated),
        }

    def __str__(self) -> str:
        return f"{self.model}: {self.headline}"


def vars_of(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without conversion of nested values."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def is_below(cost: float, other: float) -> bool:
    """Return whether a cost is below another one by more than the rounding of sums."""
    return cost < other * (1 - _SAME_COST)
