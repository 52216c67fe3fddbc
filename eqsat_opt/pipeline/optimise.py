"""The main job, stage by stage: load a model, search, check, race, and prepare the result.

The stages are implemented in other packages; this module runs them in order under one deadline.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import onnx
import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.cost.metrics import WEIGHT_BYTES
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.errors import EqsatError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.content import constant_bytes
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.passes.storage_form import unfolded
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.conclusion import conclude, edit_of_winner, report_on, winner_of
from eqsat_opt.pipeline.decisions.document import Edit
from eqsat_opt.pipeline.destination import Destination
from eqsat_opt.pipeline.inner_models import Bodies, with_better_bodies
from eqsat_opt.pipeline.objective import is_measured
from eqsat_opt.pipeline.prices import CALIBRATION, target_pricer
from eqsat_opt.pipeline.reading import ModelReading, read_model, tried_sizes
from eqsat_opt.pipeline.report import unsearched_report
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Stages
from eqsat_opt.pipeline.terms import (
    estimate_bulk_s,
    search_options,
    terms_of,
)
from eqsat_opt.racing.finding import Findings, Job, find_candidates
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.backends.tuned_file import require_portable
from eqsat_opt.runtime.given_inputs import NO_INPUTS
from eqsat_opt.runtime.staging import Staging

__all__ = [
    "PLANNING",
    "TUNING",
    "AnyModel",
    "optimise",
]

AnyModel = str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model


TUNING, PLANNING = "tune", "plan"
"""Stages of further forms of the result; the portable result is written before they begin."""


def optimise(
    given: AnyModel,
    name: str,
    request: Request,
    stages: Stages,
    deadline: Deadline,
    destination: Destination | None = None,
    tuned: Destination | None = None,
    *,
    faults: Faults,
) -> Outcome:
    """Search for a better model, check it and race it; nothing is written.

    An internal error costs only the stage that raised it: where no other model is known to be
    right, the original is the result.

    Args:
        given: the model; it is never changed.
        name: name of the model, for the report.
        request: the user's choices.
        stages: times the stages, including those before this function, and reports the current one.
        deadline: end of all work but writing.
        destination: destination of the result, which may hold an earlier one.
        tuned: destination of the tuned form.
        faults: collects internal errors; its warnings go into the report.

    Raises:
        ModelError, CheckFailed: see :func:`eqsat_opt.api.run`.
        InternalError: a stage failed by an internal error, and the user is strict.
    """
    with stages("load"):
        model = load_model(given)
        require_portable(model.metadata_props, name)
        for place in filter(None, (destination, tuned)):
            place.check_for(model)
    bulk_s = estimate_bulk_s(constant_bytes(model), stages.seconds["load"])
    untouched = partial(_untouched, model, name, request, stages=stages, faults=faults)
    outcome = faults.contain(
        lambda: stages.current,
        partial(
            _optimised,
            model,
            given,
            name,
            request,
            stages=stages,
            deadline=deadline,
            destination=destination,
            faults=faults,
            untouched=untouched,
            bulk_s=bulk_s,
        ),
        _STAYS,
    )
    return outcome or untouched()


_STAYS = "the original stays"


def _untouched(
    model: onnx_ir.Model,
    name: str,
    request: Request,
    *,
    stages: Stages,
    faults: Faults,
) -> Outcome:
    """Return the original as the result, after a stage failed that every other result needs."""
    report = unsearched_report(name, model, stages.seconds, request, why="nothing was found")
    return Outcome(model, None, replace(report, warnings=faults.warnings), None)


def _optimised(
    model: onnx_ir.Model,
    given: AnyModel,
    name: str,
    request: Request,
    *,
    stages: Stages,
    deadline: Deadline,
    destination: Destination | None,
    faults: Faults,
    untouched: Callable[[], Outcome],
    bulk_s: float,
) -> Outcome:
    """Search, check and race a model that is loaded, and report on the result."""
    with ExitStack() as stack:
        with stages("load"):
            staging = stack.enter_context(Staging(model, given))
            reading = read_model(model, staging, request, deadline=deadline, faults=faults)
        tried = tried_sizes(reading, stages, deadline)
        if tried.failure:
            report = unsearched_report(
                name, model, stages.seconds, reading.request, why=tried.failure
            )
            return Outcome(model, None, report, None)
        deadline = deadline.before(bulk_s)  # writing the result takes that long
        prepared = _prepare(
            model,
            reading,
            tried.sets,
            deadline,
            bulk_s=bulk_s,
            stages=stages,
            faults=faults,
            stack=stack,
        )
        found, job, warnings = _found(prepared, reading.request, deadline)
        if found is None:
            return untouched()
        stages.seconds.update(found.stages_s)
        # How an earlier result was made is not known.
        place = None if reading.request.needs_edit else destination
        ending = conclude(
            model, found, job, prepared.bodies, request=reading.request, destination=place
        )
    chosen = winner_of(model, ending, reading.request, destination)
    edits = prepared.bodies.edits if job.clean is prepared.job.clean else {}
    edit = edit_of_winner(ending, edits, reading.request)
    verdict = ending.decision.verdict
    return Outcome(
        loaded=model,
        model=chosen,
        report=report_on(
            name,
            model,
            chosen,
            ending,
            reading=reading,
            sizes=tried.sets,
            stages_s=stages.seconds,
            warnings=warnings,
        ),
        proposal=ending.joined.found.proposal,
        is_written=ending.joined.is_written(verdict),
        job=ending.job,
        graph=found.entrants.get(verdict.winner.partition("@")[0], job.clean),
        bulk_s=bulk_s,
        sound=tuple(found.entrants[name] for name in found.sound),
        is_refuted=found.is_refuted,
        verdict=verdict,
        edit=edit,
        body_edits=edits,
    )


@dataclass(frozen=True, kw_only=True)
class _Preparation:
    """A search that is ready to begin.

    Attributes:
        job: the graph with all that its search, check and race need.
        bodies: the graph with optimised bodies of operators.
        plain: the graph with bodies as they came, in case a new one is wrong.
    """

    job: Job
    bodies: Bodies
    plain: Graph


def _prepare(
    model: onnx_ir.Model,
    reading: ModelReading,
    sizes: tuple[Sizes, ...],
    deadline: Deadline,
    *,
    bulk_s: float,
    stages: Stages,
    faults: Faults,
    stack: ExitStack,
) -> _Preparation:
    """Optimise bodies of operators, open the sandbox and calibrate prices."""
    request, plain = reading.request, reading.clean
    with stages("bodies"):
        bodies = faults.contain(
            "bodies",
            partial(_with_bodies, plain, request, sizes[0], deadline, faults),
            _BODIES_STAY,
            also=(EqsatError,),
        ) or Bodies(plain)
        clean = bodies.graph
    search = search_options(request, sizes[0].all, deadline)
    # The bytes of weights are those of the file as given, where many constants are not folded.
    if search.counts_weights:
        clean, plain = (unfolded(one, least=True) for one in (clean, plain))
        search = replace(search, told={WEIGHT_BYTES: float(constant_bytes(model))})
    terms = replace(terms_of(request, search, sizes, deadline), bulk_s=bulk_s)
    if request.runs_models:  # after the bodies, which use the same process
        terms = replace(terms, box=stack.enter_context(sandbox()))
    pricer = stack.enter_context(target_pricer(request))
    if isinstance(pricer, Pricer) and search.measure and is_measured(request.objective):
        with stages("calibrate"):
            faults.contain(
                "calibrate",
                partial(pricer.calibrate, search.deadline.share(CALIBRATION)),
                "prices of kernels rest on usual figures",
            )
    job = Job(
        clean=clean,
        imported=reading.imported,
        search=search,
        terms=terms,
        pricer=pricer,
        staging=reading.staging,
        strict=request.strict,
        selection=request.selection,
        stage=stages,
        progress=stages.progress,
        faults=faults,
        current=lambda: stages.current,
        slowdown=reading.slowdown,
    )
    return _Preparation(job=job, bodies=bodies, plain=plain)


def _found(
    prepared: _Preparation, request: Request, deadline: Deadline
) -> tuple[Findings | None, Job, tuple[str, ...]]:
    """Search for candidates, and again with the bodies as they came if none is right.

    Returns:
        The candidates, the job of the search that found them, and warnings.
    """
    job = prepared.job
    found, warnings = find_candidates(job, request.rules, deadline)
    if found is None or not prepared.bodies.better or any(True for _ in found.sound):
        return found, job, warnings
    job = replace(job, clean=prepared.plain)  # a new body may be wrong
    again, further = find_candidates(job, request.rules, deadline)
    return again or found, job, (*warnings, *further)


def _with_bodies(
    graph: Graph,
    request: Request,
    sizes: Sizes,
    deadline: Deadline,
    faults: Faults,
) -> Bodies:
    """Optimise the bodies of operators as models of their own.

    Bodies stay unchanged under limits, which hold for a whole model, and under a product or a
    ratio, whose value for a model does not follow from its parts.
    """
    objective = request.objective
    if not isinstance(objective, Objective) or objective.is_limited:
        return Bodies(graph)

    def improve(
        model: onnx_ir.Model, name: str, shapes: Mapping[str, tuple[int, ...]], deadline: Deadline
    ) -> tuple[onnx_ir.Model, Edit | None] | None:
        inner = replace(
            request,
            shape_sets=(shapes,),
            inputs=NO_INPUTS,
            tuned=None,
            plan=None,
            calibration=None,
            strict=False,
        )
        stages = Stages(_silent)
        outcome = faults.contain(
            "bodies",
            partial(optimise, model, name, inner, stages, deadline, faults=faults),
            _BODIES_STAY,
            also=(EqsatError,),
        )
        if outcome is None or outcome.model is None:
            return None
        return outcome.model, outcome.edit

    return with_better_bodies(graph, improve, sizes.given, deadline, exact=request.exact)


_BODIES_STAY = "bodies of operators stay as they came"


def _silent(_stage: str, _detail: str) -> None:
    pass
