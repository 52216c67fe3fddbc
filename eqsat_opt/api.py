"""The public functions: optimise a model, explain what happened, compare two models.

Each stage is one function of a lower room; this module only puts them in order, decides what may be
returned and turns the outcome into a report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, overload

import onnx
import onnx_ir

from eqsat_opt.comparison import CompareSettings, Comparison, check, compare_methods
from eqsat_opt.cost.metrics import metric_weights, weighted, with_ties_broken
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.cost.store import ProfileStore
from eqsat_opt.deadline import Deadline
from eqsat_opt.destination import Destination, Output
from eqsat_opt.egraph import Budget
from eqsat_opt.errors import OptionError, StoreError
from eqsat_opt.explanation import Explanation
from eqsat_opt.extract import Objective, parse_objective
from eqsat_opt.ir.contents import constant_bytes, operator_counts
from eqsat_opt.ir.external import files_read_by
from eqsat_opt.ir.graph import Graph
from eqsat_opt.ir.normalise import normalise
from eqsat_opt.ir.onnx_export import to_same_type
from eqsat_opt.ir.onnx_import import import_model
from eqsat_opt.ir.onnx_load import load_model
from eqsat_opt.ir.sizes import Sizes, size_sets
from eqsat_opt.options import Options, chosen_options
from eqsat_opt.report import Latency, OutputError, Report
from eqsat_opt.rules import Numerics, load_rules
from eqsat_opt.rules.library import excluded_rules
from eqsat_opt.runtime.acceptance import require_valid
from eqsat_opt.runtime.compare import Difference, Reference, differences
from eqsat_opt.runtime.ort import OrtOptions, require_custom_ops
from eqsat_opt.runtime.ort_config import ORT_CONFIG, default_level, level_in, with_level
from eqsat_opt.runtime.race import race
from eqsat_opt.runtime.race_result import RaceResult
from eqsat_opt.runtime.sandbox import sandbox
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select import rules_used
from eqsat_opt.select.contest import (
    Contest,
    Examination,
    Terms,
    hold_contest,
)
from eqsat_opt.select.entrants import BEST, ORIGINAL, metrics_of
from eqsat_opt.select.finding import Found, Job, find_candidates
from eqsat_opt.select.pipeline import Plan, SearchOptions
from eqsat_opt.select.previous import RECORD, Joined, join_previous, origin_of, record_of
from eqsat_opt.select.verdict import unraced
from eqsat_opt.select.why import kernel_uses, rewrites, rule_fates

__all__ = [
    "CompareSettings", "Comparison", "Difference", "RaceResult", "Result", "bench", "compare",
    "default_output", "explain", "files_of", "left_out_note", "optimize", "run",
]  # fmt: skip

AnyModel = str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model
Progress = Callable[[str, str], None]


@dataclass(frozen=True)
class Result:
    """The optimised model, or the original where nothing beat it.

    Attributes:
        model: in the form that was given; for a path, the path of what was written.
        report: all numbers.
        plan: the e-graph, candidates and choices, for a closer look; ``None`` where the search
            found nothing to do.
    """

    model: Any
    report: Report
    plan: Plan | None = field(default=None, repr=False, compare=False)


def _silent(_stage: str, _detail: str) -> None:
    pass


def resolve(model: AnyModel) -> AnyModel:
    """``zoo:name`` builds a benchmark model; everything else stays what it is."""
    if isinstance(model, str) and model.startswith("zoo:"):
        from eqsat_opt import zoo

        name, _, scale = model.removeprefix("zoo:").partition("@")
        if scale not in ("", "full", "tiny"):
            raise OptionError(
                f"unknown scale {scale!r} in {model!r}; write zoo:{name} or zoo:{name}@tiny"
            )
        return zoo.build(name, scale="tiny" if scale == "tiny" else "full")
    return model


class _Stages:
    """Times the stages and tells the caller which one runs."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self.progress = progress

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.progress(name, "")
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


@contextmanager
def _open_pricer(options: Options) -> Iterator[Pricer]:
    store, trouble = None, ""
    try:
        store = None if options.store == "" else ProfileStore(options.store)
    except StoreError as error:
        trouble = str(error)
    pricer = Pricer(store, options.threads)
    pricer.trouble = trouble
    try:
        yield pricer
    finally:
        pricer.close()
        if store is not None:
            store.close()


def _weights(objective: str | Mapping[str, float]) -> dict[str, float]:
    """What a model is optimised for: a sum of metrics, from which a race can tell a winner."""
    if isinstance(objective, str):
        aim = parse_objective(objective)
        if not isinstance(aim, Objective) or aim.critical_path:
            raise OptionError(
                f"objective {objective!r} is no sum of metrics; write for instance time+1e-6*flops"
            )
        objective = aim.weights
    return metric_weights(objective)


_SEARCH = 0.7
"""Share of the time left after loading that the search gets; the rest is for check and race."""

_CALIBRATION = 0.4
"""Share of the search that measuring the device itself gets, where the store does not know it."""

_NODE_S = 5e-4
"""Seconds that a search takes for each operator at least, whatever it finds."""

_RACE_S = 10.0
"""A race that lasts longer than this learns little more."""


def _search_options(
    options: Options, sizes: Mapping[str, int], deadline: Deadline
) -> SearchOptions:
    return SearchOptions(
        Objective(with_ties_broken(_weights(options.objective))),
        Budget(nodes=options.nodes),
        sizes,
        measure=options.measure,
        alternatives=options.alternatives if options.race else 0,
        deadline=deadline.share(_SEARCH),
        saturation_limit_s=options.deadline_s,
        gap=options.gap,
        seed=options.seed,
    )


def _session(options: Options) -> OrtOptions:
    return OrtOptions(options.threads, custom_ops=options.custom_ops)


def _terms(
    options: Options, search: SearchOptions, sizes: tuple[Sizes, ...], deadline: Deadline
) -> Terms:
    return Terms(
        options.threads,
        options.numerics,
        tuple(options.seed + i for i in range(options.check)),
        sizes,
        _RACE_S if options.race else 0.0,
        # Whoever minimises something else than time wants the minimum, whatever the clock says.
        by_cost=not search.objective.weights.get("time_us"),
        seed=options.seed,
        deadline=deadline,
        custom_ops=options.custom_ops,
    )


@dataclass(frozen=True)
class _Outcome:
    """The model as loaded and the new one, ``None`` where the original stays.

    Where the output holds the result already, there is nothing to write.
    """

    loaded: onnx_ir.Model
    model: onnx_ir.Model | None
    report: Report
    plan: Plan | None
    is_written: bool = False


def _optimise(
    given: AnyModel,
    name: str,
    options: Options,
    progress: Progress,
    deadline: Deadline,
    destination: Destination | None = None,
) -> _Outcome:
    stages = _Stages(progress)
    rules = load_rules(options.rules, Numerics.parse(options.numerics))
    with stages("load"):
        model = load_model(given)
        if destination is not None:
            destination.check_for(model)
    with ExitStack() as stack:
        staging = stack.enter_context(Staging(model, given))
        with stages("load"):
            lacking = require_valid(staging.original, _session(options))
            imported = import_model(model)
            clean = normalise(imported, numerics=options.numerics)
        sizes = size_sets(imported, options.shape_sets)
        search = _search_options(options, sizes[0].all, deadline)
        if search.deadline.left_s < _NODE_S * len(clean.nodes):
            return _Outcome(model, None, _unsearched(name, model, stages, options), None)
        terms = _terms(options, search, sizes, deadline)
        if options.check or options.race:
            # It starts in the background, while the search runs.
            box = stack.enter_context(sandbox())
            terms = replace(terms, open_session=box.open)
        pricer = stack.enter_context(_open_pricer(options))
        if search.measure and not terms.by_cost:
            with stages("calibrate"):
                pricer.calibrate(search.deadline.share(_CALIBRATION))
        job = Job(
            clean,
            imported,
            search,
            terms,
            pricer,
            staging,
            examine=bool(options.check) or options.race,
            race=options.race,
            strict=options.strict,
            selection=options.rules,
            stage=stages,
            progress=stages.progress,
        )
        found, warnings = find_candidates(job, rules, deadline)
        stages.seconds.update(found.stages_s)
        origin = cache(lambda: origin_of(model, rules, options.numerics))
        joined = Joined(found)
        place = None if destination is None else destination.earlier
        if place is not None and terms.race_s and not terms.by_cost:
            with stages("previous"):
                joined = join_previous(found, place, model, origin, staging.original, terms)
                found = joined.found
        contest = Contest(unraced(next(found.sound, ORIGINAL)))
        if found.examined is not None:
            box.reset()  # what it holds would only lie in the way of those that race
            with stages("race") if terms.race_s else nullcontext():
                contest = hold_contest(
                    found.models,
                    staging.original,
                    clean,
                    found.examined,
                    terms,
                    incumbent=joined.incumbent,
                )
        n_measured = pricer.n_measured
    label, level = contest.verdict.winner, contest.verdict.level
    chosen = None if label == ORIGINAL else found.exported[label]
    if level:
        chosen = model.clone() if chosen is None else chosen
        properties = chosen.metadata_props
        properties[ORT_CONFIG] = with_level(level, properties.get(ORT_CONFIG, ""))
    is_written = joined.is_written(contest.verdict)
    if destination is not None and label != ORIGINAL and not is_written:
        assert chosen is not None
        with stages("record"):
            status = "unmeasured" if terms.by_cost else contest.verdict.status
            chosen.metadata_props[RECORD] = record_of(origin(), status)
    raised = found.entrants.get(label, imported)
    files = (model, model if chosen is None else chosen)
    report = _report(name, found, files, raised, contest, stages, n_measured, options)
    notes = [joined.note] if joined.note else []
    if lacking and not contest.obstacle:
        notes.append(f"the original does not run in onnxruntime, so nothing was checked: {lacking}")
    report = replace(
        report,
        warnings=(*warnings, *_store_warning(pricer)),
        sizes=tuple(one.to_json() for one in sizes),
        notes=(*report.notes, *notes),
    )
    if label != ORIGINAL and (written_out := _written_out(raised, found.exported[label])):
        report = replace(report, notes=(*report.notes, written_out))
    return _Outcome(model, chosen, report, found.plan, is_written)


def _store_warning(pricer: Pricer | None) -> tuple[str, ...]:
    trouble = pricer.trouble if pricer is not None else ""
    return (f"prices are measured anew and not kept: {trouble}",) if trouble else ()


def _unsearched(name: str, model: onnx_ir.Model, stages: _Stages, options: Options) -> Report:
    """The report where loading left no time for a search."""
    counts, held = _contents(model)
    return Report(
        model=name, status="unchanged", winner=ORIGINAL, operators_before=counts,
        operators_after=counts, metrics_before=held, metrics_after=held, cost=0.0,
        original_cost=0.0, lower_bound=0.0, gap=0.0, extraction_status="greedy", enodes=0,
        eclasses=0, enodes_loaded=0, iterations=0, stopped_by="time", rules={}, matches={},
        latency={}, race={}, noise=0.0, threads=options.threads, kernels_measured=0,
        kernels_unmeasured=0, errors=(), result_cost=0.0, objective=_weights(options.objective),
        stages_s={key: round(value, 4) for key, value in stages.seconds.items()},
        notes=(
            f"a budget of {options.budget_s:g} s leaves no time to search a model of this size; "
            "allow more with --budget",
        ),
    )  # fmt: skip


def _written_out(graph: Graph, exported: onnx_ir.Model) -> str:
    """A note where the file spells operators out that the search knows as one."""
    counts = graph.operator_counts()
    nodes = list(exported.graph)
    missing = sorted(set(counts) - {node.op_type for node in nodes})
    if not missing or len(nodes) <= counts.total():
        return ""
    opset = exported.opset_imports.get("", "?")
    return (
        f"{', '.join(missing)}: written out in simpler operators, because the file has opset "
        f"{opset} or because that is faster"
    )


def _contents(model: onnx_ir.Model) -> tuple[dict[str, int], dict[str, float]]:
    """The operators of a file, and the metrics that it holds instead of predictions."""
    counts = dict(sorted(operator_counts(model).items()))
    return counts, {"weight_bytes": float(constant_bytes(model))}


def _notes(contest: Contest, examined: Examination | None = None) -> tuple[str, ...]:
    notes = []
    if contest.obstacle:
        notes.append(contest.obstacle)
    elif examined is not None and examined.skipped:
        names = ", ".join(map(repr, examined.skipped))
        notes.append(f"there was no time to compare {names}; allow more with --budget")
    if contest.race is not None and contest.race.is_busy:
        notes.append(contest.race.busy_text)
    if left_out := left_out_note():
        notes.append(left_out)
    return tuple(notes)


def _flips(differences: Sequence[Difference]) -> Iterator[str]:
    for one in differences:
        if one.is_flipped:
            yield (
                f"output {one.name!r} moved by up to {one.max_abs:.2g}: a quantisation rounded "
                "values at the border of two steps the other way; between quantisations all agrees"
            )


def left_out_note() -> str:
    """Which rules of the book lack a valid certificate, in one line; empty if none does."""
    excluded = excluded_rules()
    if not excluded:
        return ""
    name, why = next(iter(excluded.items()))
    others = f" and {len(excluded) - 1} more" if len(excluded) > 1 else ""
    return f"rule {name}{others} left out of the default set: {why}; see eqsat-opt rules list"


def _report(
    name: str,
    found: Found,
    files: tuple[onnx_ir.Model, onnx_ir.Model],
    raised: Graph,
    contest: Contest,
    stages: _Stages,
    n_measured: int,
    options: Options,
) -> Report:
    verdict, race = contest.verdict, contest.race
    label, level = verdict.winner, verdict.level
    latency: dict[str, Latency] = {}
    if race is not None:
        roles = {"original": ORIGINAL, "result": label}
        if level:
            roles["session"] = f"{label}@{level}"
        for role, entrant in roles.items():
            entry = race.entries[entrant]
            latency[role] = Latency(entry.time_us, entry.median_us, entry.spread)
    plan, examined = found.plan, found.examined
    choice, egraph = plan.choice, plan.saturation.report
    objective = _weights(options.objective)
    cost = weighted(objective, choice.metrics)
    bound = min(choice.extraction.lower_bound, cost)
    differences = examined.differences.get(label, ()) if examined is not None else ()
    (before, held_before), (after, held_after) = map(_contents, files)
    predicted = metrics_of(plan, label)
    return Report(
        model=name,
        status=verdict.status,
        winner=label,
        operators_before=before,
        operators_after=after,
        metrics_before={**choice.original_metrics, **held_before},
        metrics_after={**predicted, **held_after},
        cost=cost,
        original_cost=weighted(objective, choice.original_metrics),
        result_cost=weighted(objective, predicted) if predicted else None,
        passed_over=_passed_over(found, contest),
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
        latency=latency,
        race=race.to_json() if race is not None else {},
        noise=race.noise if race is not None else 0.0,
        further_races=tuple(one.to_json() for one in contest.further_races),
        threads=options.threads,
        kernels_measured=n_measured,
        kernels_unmeasured=choice.unmeasured,
        errors=tuple(OutputError(d.name, d.max_abs, d.max_rel, d.tolerance) for d in differences),
        stages_s={key: round(value, 4) for key, value in stages.seconds.items()},
        speedup=verdict.speedup,
        session_speedup=verdict.session_speedup,
        session_options={"graph_optimization_level": level} if level else {},
        notes=(*_notes(contest, examined), *_flips(differences)),
        objective=objective,
    )


def _passed_over(found: Found, contest: Contest) -> str:
    """Why the cheapest graph found is not the result; empty if it is."""
    if contest.verdict.winner == BEST:
        return ""
    if contest.obstacle:
        return "nothing could be raced"
    if found.examined is not None and not found.examined.is_sound(BEST):
        return "it was dropped"
    if BEST not in found.entrants:
        return "it is the same model once written"
    return "it did not win the race"


def run(
    model: AnyModel,
    options: Options | None = None,
    *,
    output: Output | None = None,
    progress: Progress = _silent,
) -> Result:
    """Optimise ``model`` and return everything that was found.

    Args:
        model: a path, ``zoo:NAME``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is never
            changed.
        options: all choices; defaults otherwise.
        output: where to write the result, whole or not at all: a path, or a binary stream. The
            original is written where nothing beat it.
        progress: called with a stage and a detail.

    Raises:
        ModelError: the model cannot be read or the result not be written.
        OptionError: an option has no meaning, or the output is the model itself.
        CheckFailed: a candidate computes something else, and ``strict`` is set; nothing is written.
    """
    options = chosen_options(options, {})
    given = resolve(model)  # a model of the zoo is made up before the clock starts
    deadline = Deadline.after(options.budget_s)
    return _run(model, given, options, output, progress, deadline)


def _run(
    model: AnyModel,
    given: AnyModel,
    options: Options,
    output: Output | None,
    progress: Progress,
    deadline: Deadline,
) -> Result:
    require_custom_ops(options.custom_ops)
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model"
    destination = None
    if output is not None:
        source = given if isinstance(given, (str, os.PathLike)) else None
        destination = Destination(output, source, options.overwrite)
        destination.prepare()
    outcome = _optimise(given, name, options, progress, deadline, destination)
    report, chosen = outcome.report, outcome.model
    result: Any = outcome.loaded if chosen is None else chosen
    if destination is not None:
        stages = _Stages(progress)
        with stages("write"):
            notes = () if outcome.is_written else destination.write(result, outcome.loaded)
        report = replace(
            report,
            stages_s={**report.stages_s, "write": round(stages.seconds["write"], 4)},
            output=os.fspath(output) if isinstance(output, (str, os.PathLike)) else "",
            is_in_place=outcome.is_written,
            notes=(*report.notes, *notes),
        )
        result = output
    elif chosen is not None:
        result = to_same_type(chosen, given)
    elif isinstance(given, (onnx.ModelProto, onnx_ir.Model)):
        result = given
    return Result(result, report, outcome.plan)


def files_of(model: str | os.PathLike[str]) -> frozenset[str]:
    """The files that a model given by its path is read from, data files included."""
    text = os.fspath(model)
    return frozenset() if text.startswith("zoo:") else frozenset({text, *files_read_by(text)})


def default_output(model: str | os.PathLike[str]) -> str:
    """``NAME.opt.onnx`` beside the model; in the working directory for ``zoo:NAME``."""
    text = os.fspath(model)
    zoo_name = text.removeprefix("zoo:")
    stem = os.path.splitext(text)[0] if zoo_name == text else zoo_name.replace("@", "-")
    return f"{stem}.opt.onnx"


@overload
def optimize(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto: ...
@overload
def optimize(model: onnx_ir.Model, **options: Any) -> onnx_ir.Model: ...
@overload
def optimize(model: str | os.PathLike[str], **options: Any) -> Any: ...
def optimize(
    model: AnyModel,
    *,
    report: bool = False,
    output: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Any:
    """A faster model that computes the same, or the original where none is found.

    Args:
        model: a path, ``zoo:NAME``, an ``onnx.ModelProto`` or an ``onnx_ir.Model``; it is never
            changed.
        report: return a :class:`Result` with the report instead of the bare model.
        output: for a path, where to write; ``NAME.opt.onnx`` beside it otherwise.
        options: fields of :class:`~eqsat_opt.options.Options`; ``budget`` is short for
            ``budget_s``.

    Returns:
        What was given: a model of the same type, or for a path the path of the written file.

    Raises:
        ModelError, OptionError, CheckFailed: see :func:`run`.
    """
    chosen = chosen_options(None, options)
    if output is None and isinstance(model, (str, os.PathLike)):
        beside = default_output(model)
        output = beside if isinstance(model, str) else Path(beside)
    result = run(model, chosen, output=output)
    return result if report else result.model


def bench(
    first: AnyModel, second: AnyModel, options: Options | None = None, **keywords: Any
) -> tuple[RaceResult, tuple[Difference, ...]]:
    """Race two models against each other and compare their outputs.

    Args:
        first: a model, as for :func:`optimize`.
        second: another one, of the same inputs and outputs.
        options: ``budget_s`` is the length of the race.
        keywords: fields of :class:`~eqsat_opt.options.Options` that differ from ``options``.

    Raises:
        ModelError: a model cannot be read.
        OptionError: an option has no meaning.
        RuntimeFailed: a model does not run.
    """
    options = chosen_options(options, keywords)
    require_custom_ops(options.custom_ops)
    session = _session(options)
    with ExitStack() as stack:
        staged: list[ModelSource] = []
        sizes: dict[str, int] = {}
        for given in (resolve(first), resolve(second)):
            model = load_model(given)
            if not staged:
                sizes = size_sets(import_model(model), options.shape_sets)[0].inputs
            staged.append(stack.enter_context(Staging(model, given)).original)
        seeds = [options.seed + i for i in range(max(1, options.check))]
        reference = Reference.of(staged[0], session, seeds, sizes)
        found = differences(reference, staged[1], session, options.numerics)
        entrants = dict(zip((ORIGINAL, "other"), staged, strict=True))
        settings = {
            name: replace(session, level=default_level(source)) for name, source in entrants.items()
        }
        asked = level_in(staged[1])
        if asked != settings["other"].level:
            entrants[f"other@{asked}"] = staged[1]
            settings[f"other@{asked}"] = replace(session, level=asked)
        result = race(
            entrants,
            ORIGINAL,
            reference.feeds[0],
            options=settings,
            seed=options.seed,
            time_limit_s=options.budget_s / 2,
            extension_s=options.budget_s / 2,
        )
    return result, found


def explain(
    model: AnyModel,
    options: Options | None = None,
    *,
    progress: Progress = _silent,
    **keywords: Any,
) -> Explanation:
    """Search without racing or writing: rules that fired, choices, their prices, and why no others.

    Args:
        model: as for :func:`optimize`.
        options: all choices; ``race`` and ``check`` have no effect.
        progress: called with a stage and a detail.
        keywords: fields of :class:`~eqsat_opt.options.Options` that differ from ``options``.

    Raises:
        ModelError, OptionError: see :func:`run`.
    """
    chosen = replace(chosen_options(options, keywords), race=False, check=0)
    given = resolve(model)
    deadline = Deadline.after(chosen.budget_s)
    result = _run(model, given, chosen, None, progress, deadline)
    plan = result.plan
    if plan is None:
        raise OptionError(result.report.notes[0])
    progress("explain", "")
    objective = Objective(_weights(chosen.objective))
    fates = rule_fates(plan, objective, time_limit_s=deadline.left_s, seed=chosen.seed)
    return Explanation(result.report, plan, fates, rewrites(plan.best), kernel_uses(plan))


def compare(
    model: AnyModel,
    options: Options | None = None,
    settings: CompareSettings | None = None,
    *,
    progress: Progress = _silent,
) -> Comparison:
    """Equality saturation beside published searches, on the same rules and operator prices.

    Args:
        model: as for :func:`run`.
        options: rules, numerics, shapes, threads, number of checks, seed and store are used.
        settings: methods and what they may spend.
        progress: called with a stage and a detail.

    Raises:
        ModelError, OptionError, RuleError: see :func:`run`.
        RuntimeFailed: the model or a result does not run.
    """
    options, settings = chosen_options(options, {}), settings or CompareSettings()
    require_custom_ops(options.custom_ops)
    given = resolve(model)
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model"
    rules = load_rules(options.rules, Numerics.parse(options.numerics))
    progress("load", "")
    loaded = load_model(given)
    imported = import_model(loaded)
    sizes = size_sets(imported, options.shape_sets)[0]
    clean = normalise(imported, numerics=options.numerics)
    with ExitStack() as stack:
        pricer = stack.enter_context(_open_pricer(options)) if settings.measure else None
        found = compare_methods(
            clean, rules, settings, model=name, sizes=sizes.given, pricer=pricer, progress=progress
        )
        if options.check:
            progress("check", "")
            staging = stack.enter_context(Staging(loaded, given))
            seeds = [options.seed + i for i in range(options.check)]
            found = check(
                found,
                staging,
                numerics=options.numerics,
                seeds=seeds,
                sizes=sizes.inputs,
                session=_session(options),
            )
    notes = (*_store_warning(pricer), *filter(None, [left_out_note()]))
    return replace(found, notes=notes) if notes else found
