"""What a run found, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

__all__ = ["Latency", "OutputError", "Report"]

STATUS_TEXT = {
    "improved": "a faster model was found",
    "unchanged": "no improvement found: the original is kept",
    "unmeasured": "the result was not raced; its cost is only predicted",
}


@dataclass(frozen=True)
class Latency:
    """Time of one run of a model.

    Attributes:
        time_us: best time.
        median_us: median over sessions.
        spread: (worst - best) / best over sessions.
    """

    time_us: float
    median_us: float
    spread: float


@dataclass(frozen=True)
class OutputError:
    """How far one output moved, over all random inputs."""

    name: str
    max_abs: float
    max_rel: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the relative error is within the tolerance."""
        return self.max_rel <= self.tolerance


@dataclass(frozen=True)
class Report:
    """All numbers of one run.

    Attributes:
        model: path or name.
        status: ``improved``, ``unchanged`` or ``unmeasured``.
        winner: which candidate is the result: ``original``, ``clean`` (only normalised), ``best`` or ``alternative-k``,
            with ``@level`` where the runtime's own optimiser is turned down for it.
        session_options: runtime settings that the result was raced with, where they differ from the default.
        operators_before, operators_after: operator name to count.
        metrics_before, metrics_after: predicted totals by metric.
        cost, lower_bound, gap: objective of the extraction, its proven bound, and their relative distance.
        original_cost: objective of the model as it came.
        extraction_status: ``optimal``, ``feasible`` or ``greedy``.
        enodes, eclasses, enodes_loaded, iterations, stopped_by: the e-graph.
        rules: rule name to number of nodes of the result that it made.
        matches: rule name to number of matches.
        latency: of ``original`` and ``result``, where they were raced.
        race: everything about the race.
        noise: difference between two sessions of the original.
        threads: threads per session.
        kernels_measured, kernels_unmeasured: prices in the answer.
        errors: per output.
        stages_s: seconds per stage.
        notes: what else the user should know.
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
    session_options: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> float:
        """How many times faster the result ran than the original; 1 where nothing was gained or raced."""
        if "original" not in self.latency or "result" not in self.latency or self.status != "improved":
            return 1.0
        return float(self.race.get("speedup", 1.0))

    @property
    def max_abs_error(self) -> float:
        """Largest absolute error over all outputs."""
        return max((e.max_abs for e in self.errors), default=0.0)

    @property
    def max_rel_error(self) -> float:
        """Largest relative error over all outputs."""
        return max((e.max_rel for e in self.errors), default=0.0)

    def to_json(self) -> dict[str, Any]:
        """Plain values; the keys are stable."""
        return {
            "model": self.model,
            "status": self.status,
            "winner": self.winner,
            "latency_us": {name: value.time_us for name, value in self.latency.items()},
            "latency": {name: vars_of(value) for name, value in self.latency.items()},
            "speedup": self.speedup,
            "noise": self.noise,
            "threads": self.threads,
            "session_options": dict(self.session_options),
            "cost": self.cost,
            "original_cost": self.original_cost,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "extraction": self.extraction_status,
            "egraph": {
                "enodes": self.enodes,
                "eclasses": self.eclasses,
                "enodes_loaded": self.enodes_loaded,
                "iterations": self.iterations,
                "stopped_by": self.stopped_by,
            },
            "rules": dict(self.rules),
            "matches": dict(self.matches),
            "operators": {"before": dict(self.operators_before), "after": dict(self.operators_after)},
            "metrics": {"before": dict(self.metrics_before), "after": dict(self.metrics_after)},
            "kernels": {"measured": self.kernels_measured, "unmeasured": self.kernels_unmeasured},
            "max_abs_error": self.max_abs_error,
            "max_rel_error": self.max_rel_error,
            "outputs": [{**vars_of(e), "ok": e.ok} for e in self.errors],
            "race": dict(self.race),
            "stages_s": dict(self.stages_s),
            "notes": list(self.notes),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Tables for a terminal."""
        yield from _tables(self)

    def __str__(self) -> str:
        return f"{self.model}: {STATUS_TEXT[self.status]}, {self.speedup:.2f}x"


def vars_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def _number(value: float) -> str:
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{value:g}"


def _time(value_us: float) -> str:
    return f"{value_us / 1e3:.3f} ms" if value_us >= 1e3 else f"{value_us:.1f} µs"


def _tables(report: Report) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    style = "green" if report.status == "improved" else "yellow"
    headline = STATUS_TEXT[report.status]
    if report.status == "improved":
        headline += f": {report.speedup:.2f}x ({report.winner})"
    yield Text(f"{report.model}: {headline}", style=f"bold {style}")
    table = Table("", "before", "after", box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("operators", str(sum(report.operators_before.values())), str(sum(report.operators_after.values())))
    names = {"flops": "FLOPs", "launches": "launches", "bytes": "traffic, bytes", "weight_bytes": "weights, bytes"}
    for metric, title in names.items():
        before, after = report.metrics_before.get(metric), report.metrics_after.get(metric)
        if before is not None and after is not None:
            table.add_row(title, _number(before), _number(after))
    if {"time_us"} <= report.metrics_before.keys():
        table.add_row("predicted", _time(report.metrics_before["time_us"]), _time(report.metrics_after["time_us"]))
    if {"original", "result"} <= report.latency.keys():
        before_us, after_us = report.latency["original"], report.latency["result"]
        table.add_row("measured", _time(before_us.time_us), _time(after_us.time_us))
        table.add_row("  spread", f"{before_us.spread:.1%}", f"{after_us.spread:.1%}")
    yield table
    changes = _operator_changes(report)
    if changes:
        yield Text(f"operators: {changes}", style="dim")
    yield Text(
        f"e-graph: {report.enodes_loaded} -> {report.enodes} e-nodes, {report.eclasses} e-classes, "
        f"{report.iterations} iterations, stopped by: {report.stopped_by}"
    )
    yield Text(
        f"extraction: cost {report.cost:.6g} (original {report.original_cost:.6g}), bound {report.lower_bound:.6g}, "
        f"gap {report.gap:.2%}, {report.extraction_status}; "
        f"{report.kernels_measured} kernels measured now, {report.kernels_unmeasured} priced by their bound"
    )
    if report.rules:
        chosen = ", ".join(f"{name} x{count}" for name, count in report.rules.items())
        yield Text(f"rules chosen: {chosen}")
    if report.errors:
        yield Text(f"outputs agree: max abs {report.max_abs_error:.2e}, max rel {report.max_rel_error:.2e}")
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in report.stages_s.items())
    yield Text(f"seconds: {stages}", style="dim")
    for note in report.notes:
        yield Text(f"note: {note}", style="yellow")


def _operator_changes(report: Report) -> str:
    parts = []
    for name in sorted({*report.operators_before, *report.operators_after}):
        before, after = report.operators_before.get(name, 0), report.operators_after.get(name, 0)
        if before != after:
            parts.append(f"{name} {before}->{after}")
    return ", ".join(parts)
