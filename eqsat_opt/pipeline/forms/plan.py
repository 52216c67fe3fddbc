"""The plan of a result, made after the portable result, for this machine or another device."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.paths import obstacle, same_file
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.metrics import PEAK, TIME
from eqsat_opt.cost.on_device import is_measured_gpu, plan_times_us
from eqsat_opt.cost.recorded import RecordedDevice
from eqsat_opt.errors import ExtractionError, OptionError, PlanError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.ir.values.forms import Form
from eqsat_opt.ir.values.types import TensorType
from eqsat_opt.pipeline.device import device_pricer
from eqsat_opt.pipeline.forms.plan_memory import (
    drafts_in_memory,
    of_least_memory,
    single_operator_backends,
)
from eqsat_opt.pipeline.objective import is_time_alone
from eqsat_opt.pipeline.optimise import PLANNING, AnyModel
from eqsat_opt.pipeline.prices import open_plan_pricer
from eqsat_opt.pipeline.reading import normalised
from eqsat_opt.pipeline.report.form_reports import Planned
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Progress, Stages
from eqsat_opt.pipeline.terms import search_options
from eqsat_opt.racing.planned_results import PORTABLE, PlanJob, PlannedResult, race_plans
from eqsat_opt.runtime.backends.analytic.backend import AnalyticBackend
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.ort import NAME as ORT
from eqsat_opt.runtime.backends.registry import launcher_names, load_launcher, record_of
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.plan.constants import Weights
from eqsat_opt.runtime.plan.files import write_plan
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.planning.legalize import apart
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.proposal import propose, repropose
from eqsat_opt.select.rebuilding.assignment import PlacedGraph
from eqsat_opt.select.rebuilding.planning import (
    PlanDraft,
    drafts,
    planned_for,
    planned_here,
    simulated_us,
)
from eqsat_opt.select.rebuilding.raising import Raised

__all__ = [
    "PLAN_SHARE",
    "device_drafts",
    "drafts_in_time",
    "launches_by_backend",
    "plan_job",
    "planned_report",
    "require_plan",
    "weights_of",
    "with_plan",
]

PLAN_SHARE = 0.7
"""Share of the budget for all other forms of the result, if a plan is made as well."""


def require_plan(request: Request, *others: object) -> None:
    """Refuse plans that are known to fail, before any work is done.

    Args:
        request: the user's choices.
        others: other files that are read or written; values other than paths are ignored.

    Raises:
        OptionError: the file cannot be written or is another one, or a backend or device is
            unknown.
        PlanError: a package that a backend needs is missing.
    """
    if request.plan is None:
        return
    if request.plan == "-":
        raise OptionError("a plan needs a file; give --plan (plan=) a name")
    if why := obstacle(request.plan):
        raise OptionError(why)
    for other in others:
        if isinstance(other, str | os.PathLike) and same_file(other, request.plan):
            raise OptionError(
                f"{request.plan} is another file of this run already; give the plan another name"
            )
    for name in request.backends:
        if name not in launcher_names():
            raise OptionError(
                f"no backend {name!r} runs plans; there are {', '.join(launcher_names())}"
            )
        load_launcher(name)
    if request.is_here and request.objective.uses(PEAK):
        single_operator_backends(request)


def with_plan(
    report: Report,
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    progress: Progress,
    deadline: Deadline,
) -> tuple[Report, Plan]:
    """Plan a result and write the plan; return the report with it.

    Raises:
        OptionError: a size is not given.
        PlanError: no plan of the model can be made, run here or written.
        CheckFailed: a plan computes something else, and the user is strict.
    """
    assert request.plan is not None
    progress(PLANNING, "")
    stages = Stages(progress)
    sizes = size_sets(import_model(outcome.loaded), request.shape_sets)[0]
    with stages(PLANNING):
        if request.is_here:
            plan, told = _for_host(outcome, given, request, sizes, stages=stages, deadline=deadline)
        else:
            plan, told = _for_device(outcome, given, request, sizes)
    with stages("write"):
        write_plan(request.plan, plan)
    seconds = dict(report.stages_s)
    for name, spent in stages.seconds.items():
        seconds[name] = round(seconds.get(name, 0.0) + spent, 4)
    return replace(report, planned=told, stages_s=seconds), plan


def _for_host(
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    sizes: Sizes,
    stages: Stages,
    deadline: Deadline,
) -> tuple[Plan, Planned]:
    weights = weights_of(outcome, given)
    tensors = Weights(stored_tensors(weights))  # may be several hundred megabytes
    chosen = dict(_chosen(outcome, request, stages, deadline))
    if request.objective.uses(PEAK):
        drafted = iter(drafts_in_memory(_graphs(outcome), tensors, request, sizes.given))
    else:
        drafted = drafts(
            _graphs(outcome), tensors, request.backends, sizes=sizes.given, threads=request.threads
        )
    # Graphs with kernels chosen one by one are lowered before further usual placements, for which
    # there may be no time.
    first = tuple(islice(drafted, 1))
    further = tuple(drafts_in_time(planned_here(chosen, tensors, sizes=sizes.given), deadline))
    usual = (*first, *drafts_in_time(drafted, deadline))
    known = [draft.plan for draft in usual]
    made = (*usual, *(draft for draft in further if draft.plan not in known))
    with Staging(outcome.loaded, given) as staging:
        held = race_plans(
            plan_job(
                made,
                tensors=tensors,
                staging=staging,
                outcome=outcome,
                request=request,
                sizes=sizes,
                deadline=deadline,
            )
        )
    return held.draft.plan, planned_report(held, request)


def plan_job(
    made: tuple[PlanDraft, ...],
    tensors: Weights,
    staging: Staging,
    outcome: Outcome,
    request: Request,
    sizes: Sizes,
    deadline: Deadline,
) -> PlanJob:
    """Return the terms on which plans for this machine are judged."""
    return PlanJob(
        drafts=made,
        weights=tensors,
        original=staging.original,
        portable=None if outcome.model is None else staging.of(outcome.model),
        session=request.session,
        sizes=sizes,
        seeds=request.seeds,
        numerics=request.numerics,
        max_error=request.max_error,
        has_kernels=NATIVE in request.backends and request.threads == 1,
        is_raced=request.race,
        strict=request.strict,
        deadline=deadline,
        inputs=request.inputs,
    )


_DRAFTING = 0.2
"""Share of the time left in which graphs are lowered to plans beyond the first."""


def drafts_in_time(drafted: Iterator[PlanDraft], deadline: Deadline) -> Iterator[PlanDraft]:
    """Yield the drafts that are made within a share of the time left."""
    deadline = deadline.share(_DRAFTING)
    while not deadline.expired and (draft := next(drafted, None)) is not None:
        yield draft


_CHOOSING = 0.15
"""Share of the time left in which kernels of the result are chosen again, among all backends; the
choice from the whole e-graph then gets the same share of the remaining time."""

_AGAIN = 2.0
"""Least time of a choice from the e-graph with all backends, relative to the first choice."""


def _chosen(
    outcome: Outcome, request: Request, stages: Stages, deadline: Deadline
) -> Iterator[tuple[str, PlacedGraph]]:
    """Yield graphs whose kernels are chosen among all backends of plans, in one extraction problem.

    The first is the graph of the result with other kernels. Then come graphs of the whole e-graph,
    if there is time for a search `_AGAIN` times as long as the first one.
    """
    job, proposal = outcome.job, outcome.proposal
    own = map(record_of, request.backends)
    beside = tuple(one.launched_name for one in own if one.launches and not one.runs_models)
    if job is None or proposal is None or not beside or ORT not in request.backends:
        return
    if request.threads > 1 or not job.search.measure or not is_time_alone(job.search.objective):
        return
    result = next(iter(_graphs(outcome).values()))
    result = replace(result, nodes=tuple(one for node in result.nodes for one in apart(node)))
    search = replace(job.search, deadline=deadline.share(_CHOOSING), alternatives=1)
    with (
        suppress(ExtractionError),
        open_plan_pricer(request, (), beside, deadline=search.deadline) as pricer,
    ):
        found = propose(result, (), pricer, search, progress=stages.progress)
        yield "the result", found.placed[0]
    search = replace(search, deadline=deadline.share(_CHOOSING))
    needed_s = _AGAIN * sum(proposal.stages_s.get(name, 0.0) for name in ("tile", "extract"))
    if search.deadline.left_s < needed_s:
        return
    inside = (NATIVE,) if NATIVE in request.backends and not missing() else ()
    with (
        suppress(ExtractionError),
        open_plan_pricer(request, inside, beside, deadline=search.deadline) as pricer,
    ):
        graphs, _ = repropose(
            proposal, pricer, search, max_error=request.max_error, progress=stages.progress
        )
        for number, graph in enumerate(graphs, start=1):
            yield f"choice {number} of the e-graph", graph


def _for_device(
    outcome: Outcome, given: AnyModel, request: Request, sizes: Sizes
) -> tuple[Plan, Planned]:
    """Return the fastest plan for a device that is not here, as simulated; no plan is run.

    The graph that the search chose and the others that it found are planned and simulated. A price
    that was not measured on the device is a lower bound.

    Raises:
        PlanError: in float16 the model computes something else.
    """
    device = request.device
    assert device is not None
    profile, recorded = device.profile, device.recorded
    if recorded is not None and not is_measured_gpu(recorded):
        return _for_recorded(outcome, given, request, sizes, device=recorded)
    plans: dict[str, PlanDraft] = {}
    times: dict[str, float] = {}
    known: dict[str, int] = {}
    drafted = device_drafts(outcome, given, request, sizes)
    for draft in of_least_memory(drafted, request.objective):
        plans[draft.name] = draft
        launches, count = profile.launch_times_us(draft.plan.launches), 0
        if recorded is not None and request.precision is Precision.STRICT:
            launches, count = plan_times_us(recorded, draft.plan)
        times[draft.name], known[draft.name] = simulated_us(draft.plan, launches, profile), count
    name = min(times, key=times.__getitem__)
    best = plans[name]
    return best.plan, Planned(
        output=str(request.plan),
        target=request.target,
        graph=best.graph,
        placement=best.placement,
        launches=launches_by_backend(best.plan),
        predicted_us=times[name],
        bounds=len(best.plan.launches) - known[name],
        prices=len(best.plan.launches),
        considered=times,
    )


def device_drafts(
    outcome: Outcome, given: AnyModel, request: Request, sizes: Sizes
) -> Iterator[PlanDraft]:
    """Return plans of the result, and of other graphs that may replace it, for another device.

    Args:
        outcome: outcome of a search for that device.
        given: the model.
        request: request of the search, with device, streams and precision.
        sizes: sizes of symbolic dimensions.

    Raises:
        OptionError: a size is not given, or there is no such device.
        PlanError: a graph cannot be planned, or in float16 the model computes something else.
    """
    assert request.device is not None
    _require_sound(outcome, request)
    if outcome.proposal is None:
        graphs = {"the original": _as_it_stands(outcome, request, sizes)}
    else:
        interface = AnalyticBackend(request.device.profile).interface
        graphs = dict(_placed(outcome, interface))
    return planned_for(
        request.target,
        graphs,
        stored_tensors(weights_of(outcome, given)),
        sizes=sizes.given,
        streams=request.streams,
        precision=request.precision,
    )


def _for_recorded(
    outcome: Outcome, given: AnyModel, request: Request, sizes: Sizes, *, device: RecordedDevice
) -> tuple[Plan, Planned]:
    """Return a plan of one session for a device with recorded prices; it is not run.

    Its predicted time is the sum of the recorded times of the kernels of the result.
    """
    name, graph = next(iter(_graphs(outcome).items()))
    (draft,) = drafts(
        {name: graph},
        stored_tensors(weights_of(outcome, given)),
        (ORT,),
        sizes=sizes.given,
        threads=device.threads,
        target=request.target,
    )
    report, plan, profile = outcome.report, draft.plan, device.profile
    prices = sum(report.prices.values())
    inside_us = report.metrics_after.get(TIME)
    if inside_us is None:  # there was no time to price anything
        inside_us = sum(profile.launch_times_us(plan.launches))
        prices = len(plan.launches)
    return plan, Planned(
        output=str(request.plan),
        target=request.target,
        graph=draft.graph,
        placement=draft.placement,
        launches=launches_by_backend(plan),
        predicted_us=len(plan.launches) * profile.session_us.value + inside_us,
        bounds=report.kernels_unmeasured if report.prices else prices,
        prices=prices,
    )


def _require_sound(outcome: Outcome, request: Request) -> None:
    """Refuse a model that computes something else in float16, where that was checked.

    Raises:
        PlanError: the search for a float16 result found no sound graph.
    """
    types = () if outcome.graph is None else outcome.graph.types.values()
    is_half = any(isinstance(one, TensorType) and one.dtype == "float16" for one in types)
    if request.precision is Precision.FP16 and is_half and outcome.is_refuted:
        raise PlanError(
            "in fp16 this model computes something else than it should, so it is not planned; "
            "choose another --precision, or trust it with --check 0"
        )


_CHOOSING_S = 5.0
"""Seconds for choosing kernels if there was no time for a search; they may exceed the budget."""


def _as_it_stands(outcome: Outcome, request: Request, sizes: Sizes) -> PlacedGraph:
    """Return the original with kernels chosen for it; no rule is applied."""
    graph = normalised(import_model(outcome.loaded), request)
    assert request.device is not None
    pricer = device_pricer(request.device, request.energy, request.precision)
    deadline = Deadline.after(_CHOOSING_S)
    search = search_options(request, sizes.all, deadline)
    try:
        return propose(graph, (), pricer, search).placed[0]
    except ExtractionError:  # the original breaks a limit
        return PlacedGraph(Raised(graph, {}, {}), (), pricer.interface)


def _placed(outcome: Outcome, interface: Form) -> Mapping[str, PlacedGraph]:
    """Return the result and other graphs that may replace the original, with their kernels."""
    proposal, job = outcome.proposal, outcome.job
    name, result = next(iter(_graphs(outcome).items()))
    if proposal is None or job is None:
        return {name: PlacedGraph(Raised(result, {}, {}), (), interface)}
    known = {id(one.graph): one for one in proposal.placed}
    found = {name: known.get(id(result), proposal.placed[-1])}
    # Plans are compared by their simulated times, so others compete only if time is minimised.
    if is_time_alone(job.search.objective):
        others = (graph for graph in outcome.sound if graph is not result)
        for number, graph in enumerate(others, start=1):
            found[f"alternative {number}"] = known.get(id(graph), proposal.placed[-1])
    return found


def launches_by_backend(plan: Plan) -> dict[str, int]:
    """Count the launches of each backend."""
    return dict(Counter(launch.backend for launch in plan.launches))


def weights_of(outcome: Outcome, given: AnyModel) -> Any:
    """Return the model as the user has it, whose tensors the recipes of constants name."""
    if isinstance(given, str | os.PathLike):
        return given
    return model_proto(outcome.loaded)


def _graphs(outcome: Outcome) -> Mapping[str, Graph]:
    """Return the graph of the result, then the cheapest graph found if it is another one."""
    graphs: dict[str, Graph] = {}
    if outcome.graph is not None:
        graphs["the result"] = outcome.graph
    else:
        graphs["the original"] = import_model(outcome.loaded)
    best = None if outcome.proposal is None else outcome.proposal.best
    if best is not None and outcome.graph is not None and best is not outcome.graph:
        graphs["the cheapest graph"] = best
    return graphs


def planned_report(held: PlannedResult, request: Request) -> Planned:
    """Return the facts about a plan for this machine for the report."""
    race = held.held
    entries = {} if race is None else race.entries
    own = entries.get(held.draft.name)
    portable = entries.get(PORTABLE)
    won = (
        race is not None
        and own is not None
        and race.beats(held.draft.name, race.original)
        and (portable is None or race.beats(held.draft.name, PORTABLE))
    )
    return Planned(
        output=str(request.plan),
        target=HOST,
        graph=held.draft.graph,
        placement=held.draft.placement,
        launches=launches_by_backend(held.draft.plan),
        predicted_us=held.predicted_us,
        measured_us=None if own is None else own.time_us,
        won=won,
        speedup=1.0 if own is None else 1 / own.ratio,
        portable_speedup=1.0 if portable is None else 1 / portable.ratio,
        considered=dict(held.considered),
        refused=dict(held.refused),
        race={} if race is None else race.to_json(),
    )
