"""The tuned form and the plan of a result by earlier decisions, without tuning or planning."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

import onnx

from eqsat_opt.common.codecs import record_in
from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.paths import shown
from eqsat_opt.errors import EqsatError, PlanError, StageError, printable
from eqsat_opt.ir.onnx.exporter import model_proto
from eqsat_opt.ir.onnx.files.external import with_data_inside
from eqsat_opt.ir.onnx.files.stored_tensors import stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.pipeline.decisions.basis import require_threads
from eqsat_opt.pipeline.decisions.document import PlannedForm, TunedForm
from eqsat_opt.pipeline.decisions.making import applied
from eqsat_opt.pipeline.destination import Destination
from eqsat_opt.pipeline.forms.plan import launches_by_backend, plan_job, planned_report, weights_of
from eqsat_opt.pipeline.forms.tuned import tuned_job, tuned_report, with_told
from eqsat_opt.pipeline.optimise import PLANNING, TUNING, AnyModel
from eqsat_opt.pipeline.report.form_reports import Planned
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Progress, Stages
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.planned_results import race_plans
from eqsat_opt.racing.tuned_results import PORTABLE, SUITED, TUNED, TunedResult, examine_tuned_form
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.native.tuning import NotTuned, tuned_by
from eqsat_opt.runtime.backends.tuned_file import Execution, recorded_execution, tuned_model
from eqsat_opt.runtime.plan.constants import Weights
from eqsat_opt.runtime.plan.files import plan_from_json, write_plan
from eqsat_opt.runtime.plan.hazards import check_plan
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.rebuilding.planning import PlanDraft

__all__ = ["with_plan_again", "with_tuned_again"]

_AGAIN = "decide again with --save-decisions"


def with_tuned_again(
    report: Report,
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    destination: Destination,
    progress: Progress,
    deadline: Deadline,
    faults: Faults,
) -> tuple[Report, None]:
    """Make the tuned form by the decisions of an outcome and write it; return the report with it.

    It is compared with the original, and raced, if the user asks for that.

    Raises:
        ModelError: the file cannot be written.
        OptionError: the form was tuned for other threads.
        StageError: the decisions are damaged, or make another file here.
        CheckFailed: the form computes something else; nothing is written.
    """
    progress(TUNING, "")
    decisions = outcome.decisions
    assert decisions is not None
    assert decisions.tuned is not None
    decided, path = decisions.tuned, str(request.replay)
    require_threads(decisions.threads, request.threads, path)
    stages = Stages(progress)
    with stages(TUNING):
        portable = model_proto(
            with_data_inside(outcome.loaded if outcome.model is None else outcome.model)
        )
        try:
            held = _form_again(
                decided, outcome=outcome, portable=portable, request=request, faults=faults
            )
        except MemoryError:
            raise
        except (EqsatError, NotTuned) as error:
            why = printable(str(error))
            raise StageError(f"the tuned form in {shown(path)} is not made: {why}; {_AGAIN}") from (
                error
            )
        model = portable if held.model is None else held.model
        data = model.SerializeToString(deterministic=True)
        if hashlib.sha256(data).hexdigest() != decided.digest:
            raise StageError(
                f"{shown(path)} does not make the tuned form again that it was written for; "
                f"{_AGAIN}"
            )
    if held.model is not None and (request.check or request.race):
        with stages("check"), Staging(outcome.loaded, given) as staging:
            assert held.execution is not None
            job = tuned_job(
                outcome, portable=portable, staging=staging, request=request, deadline=deadline
            )
            found = examine_tuned_form(job, held.entrant, _graph_in(held.model), held.execution)
            held = replace(held, races=found.races, error=found.error, refused=found.refused)
    with stages("write"):
        destination.write_bytes(data)
    return with_told(report, tuned_report(held, request), stages.seconds), None


def _form_again(
    decided: TunedForm,
    outcome: Outcome,
    portable: onnx.ModelProto,
    request: Request,
    faults: Faults,
) -> TunedResult:
    """Make a tuned form.

    Raises:
        EqsatError: the decision is damaged, or does not fit this machine.
        NotTuned: our kernels compute other parts of the model here.
    """
    if not decided.base:
        return TunedResult(why=f"{shown(str(request.replay))} decided that no form is faster")
    if decided.base == PORTABLE:
        graph = portable
    elif decided.base == ORIGINAL:
        graph = model_proto(with_data_inside(outcome.loaded))
    elif decided.base == SUITED and decided.edit is not None:
        made = applied(outcome.loaded, decided.edit, request, faults)
        graph = model_proto(with_data_inside(made.model))
    else:
        raise StageError(f"{decided.base!r} is no graph of a tuned form")
    execution = recorded_execution(decided.record, request.threads)
    if execution.runtime == NATIVE:
        graph = tuned_by(graph, request.session, decided.ways)
    record = record_in(decided.record)
    error = record.get("error")
    return TunedResult(
        model=tuned_model(graph, portable, execution, decided.record),
        entrant=_entrant(decided, execution),
        execution=execution,
        algorithms=dict(sorted(Counter(filter(None, decided.ways)).items())),
        n_sites=len(decided.ways),
        error=error if isinstance(error, float) else 0.0,
        base=decided.base,
        ways=decided.ways,
        record=decided.record,
    )


def _entrant(decided: TunedForm, execution: Execution) -> str:
    """Return the name of a form in a race."""
    if execution.runtime != NATIVE:
        return execution.text
    return SUITED if decided.base == SUITED else TUNED


def _graph_in(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a tuned model without the portable model inside, as it is run."""
    graph = onnx.ModelProto()
    graph.CopyFrom(model)
    graph.ClearField("training_info")
    return graph


def with_plan_again(
    report: Report,
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    progress: Progress,
    deadline: Deadline,
) -> tuple[Report, Plan]:
    """Write the plan in the decisions of an outcome; return the report with it.

    If the user asks for it, a plan for this machine is compared with the original, and raced.

    Raises:
        StageError: the plan is damaged.
        PlanError: it does not run here, where that is asked for, or cannot be written.
        OptionError: it was made for other threads.
        CheckFailed: the plan computes something else; nothing is written.
    """
    assert request.plan is not None
    assert outcome.decisions is not None
    decided = outcome.decisions.planned
    assert decided is not None
    progress(PLANNING, "")
    stages, path = Stages(progress), str(request.replay)
    require_threads(outcome.decisions.threads, request.threads, path)
    with stages(PLANNING):
        plan = _plan_in(decided, path)
        told = Planned(
            output=request.plan,
            target=plan.target,
            graph=decided.graph,
            placement=decided.placement,
            launches=launches_by_backend(plan),
            predicted_us=decided.predicted_us,
        )
        if request.is_here and (request.check or request.race):
            told = _examined(
                plan, told=told, outcome=outcome, given=given, request=request, deadline=deadline
            )
    with stages("write"):
        write_plan(request.plan, plan)
    spent = dict(report.stages_s)
    for name, more in stages.seconds.items():
        spent[name] = round(spent.get(name, 0.0) + more, 4)
    return replace(report, planned=told, stages_s=spent), plan


def _plan_in(decided: PlannedForm, path: str) -> Plan:
    try:
        plan = plan_from_json(decided.plan)
        check_plan(plan)
    except PlanError as error:
        raise StageError(f"the plan in {shown(path)} is damaged: {error}; {_AGAIN}") from error
    return plan


def _examined(
    plan: Plan,
    told: Planned,
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    deadline: Deadline,
) -> Planned:
    """Compare a plan with the original, and race it if that is asked for."""
    draft = PlanDraft(told.graph, told.placement, plan)
    sizes = size_sets(import_model(outcome.loaded), request.shape_sets)[0]
    tensors = Weights(stored_tensors(weights_of(outcome, given)))
    with Staging(outcome.loaded, given) as staging:
        job = plan_job(
            (draft,),
            tensors=tensors,
            staging=staging,
            outcome=outcome,
            request=request,
            sizes=sizes,
            deadline=deadline,
        )
        held = race_plans(replace(job, has_kernels=False, strict=True))
    return planned_report(held, request)
