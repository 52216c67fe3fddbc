"""The making of reports: from the findings of a run to all numbers and sentences for the user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir

from eqsat_opt.common.faults import Faults
from eqsat_opt.cost.metrics import METRICS
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.errors import EqsatError
from eqsat_opt.extract import AnyObjective, Objective
from eqsat_opt.extract.spec import limit_texts, objective_text
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.plain_names import plain_operator
from eqsat_opt.ir.onnx.files.content import operator_counts
from eqsat_opt.ir.passes.body_flops import body_flops
from eqsat_opt.ir.passes.coverage import Coverage
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.values import Latency, OutputError
from eqsat_opt.pipeline.request import Request
from eqsat_opt.proving.selection import excluded_rules, notes_on_rules
from eqsat_opt.racing.entrants import BEST, ORIGINAL, metrics_of
from eqsat_opt.racing.examination import Decision, Examination
from eqsat_opt.racing.finding import Findings
from eqsat_opt.racing.race_result import RaceResult
from eqsat_opt.runtime.processor import crowd
from eqsat_opt.select import rules_used
from eqsat_opt.select.peak_memory import keeps_peak
from eqsat_opt.validation.compare import Difference

__all__ = [
    "contents_of",
    "latencies_of",
    "report_of",
    "rule_notes",
    "store_warning",
    "unsearched_report",
    "with_body_flops",
]


def unsearched_report(
    name: str,
    model: onnx_ir.Model,
    stages_s: Mapping[str, float],
    request: Request,
    why: str = "",
) -> Report:
    """Return the report of a run without a search.

    Args:
        name: name of the model.
        model: the model as given.
        stages_s: seconds per stage.
        request: the user's choices.
        why: why there was no search, as a sentence; by default because loading left no time.
    """
    late = (
        f"loading left no time to search within a budget of {request.budget_s:g} s{crowd()}; "
        "allow more with --budget"
    )
    counts, held = contents_of(model)
    return Report(
        model=name, status="unchanged", winner=ORIGINAL, operators_before=counts,
        operators_after=counts, metrics_before=held, metrics_after=held, cost=0.0,
        original_cost=0.0, lower_bound=0.0, gap=0.0, extraction_status="greedy", enodes=0,
        eclasses=0, enodes_loaded=0, iterations=0, stopped_by="time", rules={}, matches={},
        latency={}, race={}, noise=0.0, threads=request.threads, kernels_measured=0,
        kernels_unmeasured=0, errors=(), result_cost=0.0, **_aim(request.objective),
        stages_s={key: round(value, 4) for key, value in stages_s.items()},
        notes=(why or late, *(_LIMITS,) * request.objective.is_limited),
    )  # fmt: skip


_LIMITS = "whether the original keeps the limits was not looked at"


def _aim(objective: AnyObjective) -> dict[str, Any]:
    """Return the fields of a report for the objective and its limits."""
    return {
        "objective": dict(objective.weights) if isinstance(objective, Objective) else {},
        "goal": objective_text(objective),
        "limits": limit_texts(objective),
    }


def contents_of(model: onnx_ir.Model) -> tuple[dict[str, int], dict[str, float]]:
    """Return the operators of a file with their counts, and the metrics that a file itself has."""
    counts = dict(sorted(operator_counts(model).items()))
    return counts, {
        name: metric.of_file(model)
        for name, metric in METRICS.items()
        if metric.of_file is not None
    }


def _notes(decision: Decision, examined: Examination | None = None) -> tuple[str, ...]:
    notes = []
    if decision.obstacle:
        notes.append(decision.obstacle)
    elif examined is not None and examined.skipped:
        names = ", ".join(map(repr, examined.skipped))
        notes.append(f"there was no time to compare {names}; allow more with --budget")
    if decision.race is not None and decision.race.is_busy:
        notes.append(decision.race.busy_text)
    return (*notes, *rule_notes())


def _flips(differences: Sequence[Difference]) -> Iterator[str]:
    for one in differences:
        if one.is_flipped:
            yield (
                f"output {one.name!r} moved by up to {one.max_abs:.2g}: a quantisation rounded "
                "values at the border of two steps the other way; between quantisations all agrees"
            )
        if one.uncompared:
            yield (
                f"{one.uncompared} elements of output {one.name!r} were not compared: the original "
                "gives others itself on inputs one unit in the last place away or in another "
                "order of its sums, or they hang on the sign of a zero"
            )


def rule_notes() -> tuple[str, ...]:
    """Return notes on invalid certificates of the book and of the user's rulebooks."""
    return (*filter(None, [_left_out()]), *notes_on_rules())


def _left_out() -> str:
    excluded = excluded_rules()
    if not excluded:
        return ""
    name, why = next(iter(excluded.items()))
    others = f" and {len(excluded) - 1} more" if len(excluded) > 1 else ""
    return f"rule {name}{others} left out of the default set: {why}; see eqsat-opt rules list"


def report_of(
    name: str,
    found: Findings,
    files: tuple[onnx_ir.Model, onnx_ir.Model],
    imported: Graph,
    decision: Decision,
    stages_s: Mapping[str, float],
    pricer: AnyPricer,
    request: Request,
    coverage: Coverage,
    passing_share: float | None,
) -> Report:
    """Return the report of a run; where there was no search, only of what was checked and raced."""
    outcome = _outcome(found, decision, files)
    proposal, objective = found.proposal, request.objective
    if proposal is None:
        is_raced = decision.race is not None
        why = _SIMPLIFIED.format(budget_s=request.budget_s, crowd=crowd()) if is_raced else ""
        base = unsearched_report(name, files[0], stages_s, request, why=why)
        return replace(base, **{**outcome, "notes": (*base.notes, *outcome["notes"])})
    label = decision.verdict.winner
    choice, egraph = proposal.choice, proposal.saturation.report
    cost = objective.value(choice.metrics)
    is_planned = decision.verdict.status == "unmeasured" and not request.is_here
    bound = min(choice.extraction.lower_bound, cost)
    predicted = metrics_of(proposal, label)
    raised = found.entrants.get(label, imported)
    exported = None if label == ORIGINAL else found.exported[label]
    searched = {
        "metrics_before": {**choice.original_metrics, **outcome["metrics_before"]},
        "metrics_after": {**predicted, **outcome["metrics_after"]},
        "status": "planned" if is_planned else outcome["status"],
    }
    return Report(
        model=name,
        cost=cost,
        original_cost=objective.value(choice.original_metrics),
        original_breaks=choice.original_breaks,
        result_cost=objective.value(predicted) if predicted else None,
        passed_over=_passed_over(found, decision, objective),
        lower_bound=bound,
        gap=(cost - bound) / cost if cost else 0.0,
        extraction_status=choice.extraction.status,
        enodes=egraph.enodes,
        eclasses=egraph.eclasses,
        enodes_loaded=egraph.enodes_loaded,
        iterations=egraph.iterations,
        stopped_by=egraph.stopped_by,
        rules=rules_used(raised),
        matches=dict(egraph.matches),
        threads=request.threads,
        kernels_measured=pricer.n_measured,
        kernels_unmeasured=choice.unmeasured,
        prices=dict(choice.sources),
        stages_s={key: round(value, 4) for key, value in stages_s.items()},
        streams=request.streams,
        target=request.target,
        energy=pricer.energy_text,
        operators_inside=coverage.inside,
        operators_passing=coverage.passing,
        passing_share=passing_share,
        details=tuple(_written_out(raised, exported)),
        **_aim(objective),
        **{**outcome, **searched},
    )


def latencies_of(race: RaceResult, label: str, level: str) -> dict[str, Latency]:
    """Return the latencies of original, result and, with a level of the session, that session.

    Args:
        race: the race.
        label: name of the result in it.
        level: level of onnxruntime's optimiser that is advised; empty for none.
    """
    roles = {"original": ORIGINAL, "result": label}
    if level:
        roles["session"] = f"{label}@{level}"
    entries = {role: race.entries[entrant] for role, entrant in roles.items()}
    return {
        role: Latency(entry.time_us, entry.median_us, entry.spread, entry.energy_uj)
        for role, entry in entries.items()
    }


def with_body_flops(
    report: Report, before: Graph, after: Graph, sizes: Sizes, faults: Faults
) -> Report:
    """Return the report with the FLOPs of bodies added to those of the graph around them."""

    def with_bodies(metrics: Mapping[str, float], graph: Graph) -> dict[str, float]:
        if _FLOPS not in metrics:
            return dict(metrics)
        return {**metrics, _FLOPS: metrics[_FLOPS] + body_flops(graph, sizes.all)}

    counted = faults.contain(
        "report",
        lambda: replace(
            report,
            metrics_before=with_bodies(report.metrics_before, before),
            metrics_after=with_bodies(report.metrics_after, after),
        ),
        "what bodies compute is not counted",
        also=(EqsatError,),
    )
    return counted or report


_FLOPS = "flops"
"""The metric that is also counted in bodies."""


_SIMPLIFIED = (
    "a budget of {budget_s:g} s left no time to search{crowd}, so only the simplified model was "
    "checked and raced; allow more with --budget"
)


def _outcome(
    found: Findings, decision: Decision, files: tuple[onnx_ir.Model, onnx_ir.Model]
) -> dict[str, Any]:
    """Return the fields of a report that need no search: files, check, race and verdict."""
    verdict, race = decision.verdict, decision.race
    label, level = verdict.winner, verdict.level
    examined = found.examined
    differences = examined.differences.get(label, ()) if examined is not None else ()
    (before, held_before), (after, held_after) = map(contents_of, files)
    return {
        "status": verdict.status,
        "winner": label,
        "operators_before": before,
        "operators_after": after,
        "metrics_before": held_before,
        "metrics_after": held_after,
        "latency": {} if race is None else latencies_of(race, label, level),
        "race": race.to_json() if race is not None else {},
        "noise": race.noise if race is not None else 0.0,
        "further_races": tuple(one.to_json() for one in decision.further_races),
        "errors": tuple(
            OutputError(d.name, d.max_abs, d.max_rel, d.tolerance) for d in differences
        ),
        "speedup": verdict.speedup,
        "session_speedup": verdict.session_speedup,
        "session_options": {"graph_optimization_level": level} if level else {},
        "notes": (*_notes(decision, examined), *_flips(differences)),
    }


def _passed_over(found: Findings, decision: Decision, objective: AnyObjective) -> str:
    """Return why the cheapest graph found is not the result; empty if it is."""
    if decision.verdict.winner == BEST:
        return ""
    if decision.obstacle:
        return "nothing could be raced"
    if found.examined is not None and not found.examined.is_sound(BEST):
        return "it was dropped"
    if found.proposal and not keeps_peak(objective, found.proposal.choice.metrics):
        return "in no order that was found it keeps the limit on the peak"
    if BEST not in found.entrants:
        return "it is the same model once written"
    return "it did not win the race"


def store_warning(pricer: AnyPricer | None) -> tuple[str, ...]:
    """Return a warning if the profile store was not used."""
    trouble = pricer.trouble if pricer is not None else ""
    return (f"nothing is taken from the profile store or kept in it: {trouble}",) if trouble else ()


def _written_out(graph: Graph, exported: onnx_ir.Model | None) -> Iterator[str]:
    """Yield a sentence if an operator of the graph is several simpler operators in the file."""
    if exported is None:
        return
    counts = graph.operator_counts()
    nodes = list(exported.graph)
    missing = sorted(set(counts) - {node.op_type for node in nodes})
    if missing and len(nodes) > counts.total():
        yield (
            f"{', '.join(map(plain_operator, missing))}: written out in simpler operators, because "
            f"the file has opset {exported.opset_imports.get('', 1)} or because that is faster"
        )
