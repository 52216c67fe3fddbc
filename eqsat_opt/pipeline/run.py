"""One run: the portable result, the tuned form, the plan, and the report on all of them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import onnx
import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.paths import obstacle
from eqsat_opt.errors import EqsatError, OptionError, PlanError, StageError
from eqsat_opt.ir.onnx.exporter import to_same_type
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.fixed_sizes import fixed_model
from eqsat_opt.pipeline.decisions.document import PlannedForm, TunedForm, write_decisions
from eqsat_opt.pipeline.decisions.making import NO_DECISIONS, decisions_of
from eqsat_opt.pipeline.decisions.replaying import replayed
from eqsat_opt.pipeline.destination import Destination, Output
from eqsat_opt.pipeline.optimise import AnyModel, optimise
from eqsat_opt.pipeline.report import find_hints
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.values import Hint
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Stages
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.runtime.backends.ort.session import require_custom_ops
from eqsat_opt.runtime.backends.registry import load_backend
from eqsat_opt.runtime.backends.sandbox import prestart
from eqsat_opt.runtime.plan.files import plan_to_json
from eqsat_opt.runtime.plan.plan import Plan
from eqsat_opt.select.proposal import Proposal

__all__ = ["Result", "run_request"]


@dataclass(frozen=True, repr=False)
class Result:
    """The optimised model, or the original where nothing beat it.

    Attributes:
        model: the model in the form that was given; if it was written, the output.
        report: all numbers.
        proposal: the e-graph, candidates and choices, for a closer look; ``None`` where there was
            no search.
        plan: the plan that was written; ``None`` if none was requested.
    """

    model: Any
    report: Report
    proposal: Proposal | None = field(default=None, compare=False)
    plan: Plan | None = field(default=None, compare=False)

    @property
    def speedup(self) -> float:
        """Time of the original over that of the result, both in default sessions."""
        return self.report.speedup

    def __repr__(self) -> str:
        return f"<Result of {self.report}>"

    def _repr_html_(self) -> str:
        """Return the verdict and what changed, for a notebook."""
        from eqsat_opt.pipeline.page.head import head_html

        return head_html(self.report)


def run_request(
    request: Request,
    model: AnyModel,
    given: AnyModel,
    output: Output | None,
    stages: Stages,
    deadline: Deadline,
) -> Result:
    """Optimise a model, write the requested forms of the result, and report on them.

    Args:
        request: the user's choices.
        model: the model as the user named it, for the report.
        given: the model itself; it is never changed.
        output: path or binary stream for the portable result; ``None`` writes none.
        stages: times the stages, including those before this function, and reports the current one.
        deadline: end of all work but writing.

    Raises:
        ModelError: the model cannot be read, or a form cannot be written.
        OptionError: a file, a runtime or a backend cannot be used.
        PlanError: the requested plan cannot be made.
        CheckFailed: a candidate computes something else, and the user is strict.
        InternalError: a stage failed by an internal error, and the user is strict.
    """
    progress = stages.progress
    require_custom_ops(request.custom_ops)
    if request.tuned is not None or request.runtimes:  # these imports load half of the package
        from eqsat_opt.pipeline.forms.tuned import (
            PORTABLE_SHARE,
            require_runtimes,
            tuned_destination,
            with_tuned,
        )

        require_runtimes(request)
    if request.plan is not None:
        from eqsat_opt.pipeline.forms.plan import PLAN_SHARE, require_plan, with_plan

        require_plan(request, model, output, request.tuned)
    for backend in request.portable_backends:
        load_backend(backend)
    name = os.fspath(model) if isinstance(model, (str, os.PathLike)) else "model"
    destination = None
    if output is not None:
        source = given if isinstance(given, (str, os.PathLike)) else None
        destination = Destination(output, source, request.overwrite)
        destination.prepare()
    tuned = None
    if request.tuned is not None:
        tuned = tuned_destination(request, given, output)
    like = given
    if request.fixed:
        given = fixed_model(load_model(given), request.fixed)
    whole = deadline
    if request.plan is not None:
        deadline = deadline.share(PLAN_SHARE)
    share = deadline if tuned is None else deadline.share(PORTABLE_SHARE)
    faults = Faults(is_strict=request.strict)
    for path in filter(None, (request.decisions, request.certificate)):
        if why := obstacle(path):
            raise OptionError(why)
    if request.calibration is not None:
        from eqsat_opt.pipeline.forms.approximated import FLOAT_SHARE, with_low_precision

        share = deadline.share(FLOAT_SHARE)
    if request.runs_models and request.replay is None:
        faults.contain("check", prestart, "the check has to wait for a process")
    search = partial(optimise, tuned=tuned) if request.replay is None else replayed
    outcome = search(
        given,
        name,
        request,
        stages,
        deadline=share,
        destination=destination,
        faults=faults,
    )
    asked = request
    if outcome.job is not None:  # the class of the model may be stricter
        request = replace(request, numerics=outcome.job.terms.numerics)
    if outcome.decisions is not None and (request.tuned is not None or request.plan is not None):
        from eqsat_opt.pipeline.forms.made_again import with_plan_again, with_tuned_again
    if request.calibration is not None:
        outcome = with_low_precision(
            outcome, given, request, stages=stages, deadline=deadline, faults=faults
        )
    report, chosen = outcome.report, outcome.model
    result: Any = outcome.loaded if chosen is None else chosen
    if destination is not None:
        with stages("write"):
            notes = () if outcome.is_written else destination.write(result, outcome.loaded)
        report = replace(
            report,
            stages_s={**report.stages_s, "write": round(stages.seconds["write"], 4)},
            output=os.fspath(output) if isinstance(output, (str, os.PathLike)) else "",
            is_in_place=outcome.is_written,
            notes=(*report.notes, *notes),
        )
        faults.written = report.output
        result = output
    elif chosen is not None:
        result = to_same_type(chosen, like)
    elif isinstance(like, (onnx.ModelProto, onnx_ir.Model)):
        result = to_same_type(outcome.loaded, like) if request.fixed else like
    form: TunedForm | None = None
    if request.certificate is not None:
        report = _with_certificate(report, outcome, request, stages)
    if tuned is not None:
        make = with_tuned if outcome.decisions is None else with_tuned_again
        report, form = make(
            report,
            outcome,
            given,
            request,
            destination=tuned,
            progress=progress,
            deadline=deadline,
            faults=faults,
        )
    plan = None
    if request.plan is not None:
        planning = with_plan if outcome.decisions is None else with_plan_again
        work = partial(planning, report, outcome, given, request, progress=progress, deadline=whole)
        try:
            planned = faults.contain("plan", work, f"{request.plan} is not written")
        except PlanError as error:
            if not report.output:
                raise
            raise PlanError(f"{error}; {report.output} is written, {request.plan} not") from error
        report, plan = planned or (report, None)
    if request.decisions is not None:
        report = _with_decisions(
            report, outcome=outcome, form=form, plan=plan, request=asked, stages=stages
        )
    # An internal error would repeat in a search for a hint, which compares costs of floats.
    if not faults.found and request.calibration is None:
        hints = faults.contain(
            "report",
            partial(_hints, report, outcome, request),
            "what a further run might add is not known",
            also=(EqsatError,),
        )
        report = replace(report, hints=hints or ())
    late = [text for text in faults.warnings if text not in report.warnings]
    report = replace(report, warnings=(*report.warnings, *late))
    return Result(result, report, outcome.proposal, plan)


def _with_decisions(
    report: Report,
    outcome: Outcome,
    form: TunedForm | None,
    plan: Plan | None,
    request: Request,
    stages: Stages,
) -> Report:
    """Write the decisions of a run, and return the report with a note on them.

    Raises:
        StageError: the file cannot be written; the result is.
    """
    path, verdict = request.decisions, outcome.verdict
    assert path is not None
    is_searched = outcome.edit is not None or outcome.proposal is not None
    if verdict is None or not is_searched:
        note = f"{NO_DECISIONS}, as nothing was decided"
        return replace(report, notes=(*report.notes, note))
    if outcome.edit is None and verdict.winner != ORIGINAL:  # a warning gives the reason
        return report
    chosen = outcome.loaded if outcome.model is None else outcome.model
    with stages("decisions"):
        content = content_digest(outcome.loaded)
        decided = decisions_of(chosen, verdict, edit=outcome.edit, request=request, content=content)
        decided = replace(decided, tuned=form, planned=_planned_form(report, plan))
        write_decisions(decided, path)
    note = f"decisions are in {path}, from which --replay makes the result again"
    return replace(
        report,
        stages_s={**report.stages_s, "decisions": round(stages.seconds["decisions"], 4)},
        details=(*report.details, note),
    )


def _planned_form(report: Report, plan: Plan | None) -> PlannedForm | None:
    told = report.planned
    if told is None or plan is None:
        return None
    return PlannedForm(
        graph=told.graph,
        placement=told.placement,
        predicted_us=told.predicted_us,
        plan=plan_to_json(plan),
    )


def _with_certificate(report: Report, outcome: Outcome, request: Request, stages: Stages) -> Report:
    """Write the certificate of a result, and return the report with a note on it.

    Raises:
        StageError: the file cannot be written; the result is.
    """
    from eqsat_opt.pipeline.certificates.making import certificate_of

    path = request.certificate
    assert path is not None
    with stages("certificate"):
        try:
            certificate = certificate_of(outcome, request)
        except StageError as error:
            note = f"no certificate is written: {error}"
            return replace(report, notes=(*report.notes, note))
        certificate.write(path)
    note = (
        f"{path} has {len(certificate.steps)} steps by which eqsat-opt certify confirms the result"
    )
    return replace(
        report,
        stages_s={**report.stages_s, "certificate": round(stages.seconds["certificate"], 4)},
        details=(*report.details, note),
    )


def _hints(report: Report, outcome: Outcome, request: Request) -> tuple[Hint, ...]:
    if outcome.job is None or outcome.proposal is None:
        return ()
    return find_hints(report, outcome.loaded, outcome.job, outcome.proposal, request=request)
