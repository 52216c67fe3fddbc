"""The main job, stage by stage: load a model, search, check, race, and prepare the result.

The stages are implemented in other packages; this module runs them in order under one deadline.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import cache, partial

import onnx
import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.cost.metrics import WEIGHT_BYTES
from eqsat_opt.cost.pricing import Pricer
from eqsat_opt.errors import EqsatError, OptionError
from eqsat_opt.extract import Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.plain_names import axis_name
from eqsat_opt.ir.onnx.files.content import constant_bytes, content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.passes.coverage import Coverage, coverage_of
from eqsat_opt.ir.passes.storage_form import unfolded
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.pipeline.decisions.document import Edit
from eqsat_opt.pipeline.decisions.making import NO_DECISIONS, edit_of, with_advice
from eqsat_opt.pipeline.destination import Destination
from eqsat_opt.pipeline.finiteness import settled
from eqsat_opt.pipeline.imported import import_graph
from eqsat_opt.pipeline.inner_models import Bodies, with_better_bodies
from eqsat_opt.pipeline.notes import (
    caveats,
    class_of,
    in_less,
    kept_open,
    notes_of,
    on_samples,
    unlimited,
    unrecorded,
)
from eqsat_opt.pipeline.objective import is_measured
from eqsat_opt.pipeline.prices import CALIBRATION, target_pricer
from eqsat_opt.pipeline.report import report_of, store_warning, unsearched_report
from eqsat_opt.pipeline.report.numbers import with_body_flops
from eqsat_opt.pipeline.request import Request, with_samples
from eqsat_opt.pipeline.stages import Outcome, Stages
from eqsat_opt.pipeline.terms import (
    TRYING,
    estimate_bulk_s,
    search_options,
    terms_of,
)
from eqsat_opt.racing.earlier_result import RECORD, Joined, join_previous, origin_of, record_of
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.examination import Decision, race_candidates
from eqsat_opt.racing.finding import Findings, Job, find_candidates
from eqsat_opt.racing.opaque_share import time_share
from eqsat_opt.racing.verdict import Verdict, unraced
from eqsat_opt.runtime.backends.ort.acceptance import require_valid
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.backends.tuned_file import require_portable
from eqsat_opt.runtime.given_inputs import NO_INPUTS
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.validation.found_sizes import find_sizes, has_doubt

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
            lacking = require_valid(staging.original, request.session, deadline)
            request.inputs.require_fit(staging.original)
            if request.calibration is not None:
                calibration = request.calibration.for_model(staging.original)
                request = with_samples(request, calibration.samples)
            began = time.perf_counter(), time.process_time()
            imported, clean = import_graph(model, request, faults)
            slowdown = _ratio(time.perf_counter() - began[0], time.process_time() - began[1])
            request, of_class = settled(request, clean)
        sizes = size_sets(imported, request.shape_sets)
        _require_sizes(request, sizes[0])
        if request.runs_models and has_doubt(sizes) and not lacking:
            with stages("sizes"), sandbox() as box:
                tried = find_sizes(
                    staging.original,
                    sizes,
                    replace(request.session, level="disabled"),
                    box=box,
                    deadline=deadline.share(TRYING),
                    inputs=request.inputs,
                )
            sizes = tried.sets
            if tried.failure:
                report = unsearched_report(name, model, stages.seconds, request, why=tried.failure)
                return Outcome(model, None, report, None)
        deadline = deadline.before(bulk_s)  # writing the result takes that long
        plain = clean
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
        clear = _nothing
        if request.runs_models:  # after the bodies, which use the same process
            box = stack.enter_context(sandbox())
            terms, clear = replace(terms, box=box), box.reset
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
            imported=imported,
            search=search,
            terms=terms,
            pricer=pricer,
            staging=staging,
            strict=request.strict,
            selection=request.selection,
            stage=stages,
            progress=stages.progress,
            faults=faults,
            current=lambda: stages.current,
            slowdown=slowdown,
        )
        found, warnings = find_candidates(job, request.rules, deadline)
        if found is None:
            return untouched()
        if bodies.better and not any(True for _ in found.sound):
            job = replace(job, clean=plain)  # a new body may be wrong
            again, further = find_candidates(job, request.rules, deadline)
            found, warnings = again or found, (*warnings, *further)
        breaks = "" if found.proposal is None else found.proposal.choice.original_breaks
        if breaks:  # an original that breaks a limit must not win by its time
            terms = replace(terms, by_cost=True)
            job = replace(job, terms=terms)
        stages.seconds.update(found.stages_s)
        origin = cache(lambda: origin_of(content_digest(model), request.rules, class_of(request)))
        joined = faults.contain(
            "previous",
            partial(
                _joined,
                job,
                found,
                # How an earlier result was made is not known.
                None if request.needs_edit else destination,
                model,
                origin=origin,
                stages=stages,
            ),
            "the earlier result does not take part",
        ) or Joined(found)
        clear()  # memory that the sandbox holds would disturb the race
        decision = faults.contain(
            "race", partial(_decided, job, joined, stages, bodies), _STAYS
        ) or Decision(unraced(ORIGINAL))
        coverage = coverage_of(clean)
        share = faults.contain(
            "report",
            partial(_passing_share, coverage, job, joined, request=request),
            "what share of the time passes through is not known",
        )
    verdict = decision.verdict
    chosen = _with_settings(model, joined.found, verdict)
    is_written = joined.is_written(verdict)
    if destination is not None and verdict.winner != ORIGINAL and not is_written:
        assert chosen is not None
        with stages("record"):
            status = "unmeasured" if terms.by_cost else verdict.status
            record = faults.contain(
                "record", lambda: record_of(origin(), status), "the result carries no record of it"
            )
            if record is not None:
                chosen.metadata_props[RECORD] = record
    edit = None
    edits = bodies.edits if job.clean is clean else {}
    if request.needs_edit and verdict.winner != ORIGINAL:
        made_by = partial(edit_of, job.clean, edits, least_weights=search.counts_weights)
        edit = faults.contain(
            "decisions", lambda: made_by(found.entrants[verdict.winner]), NO_DECISIONS,
            also=(EqsatError,),
        )  # fmt: skip
    report = report_of(
        name,
        joined.found,
        (model, model if chosen is None else chosen),
        imported,
        decision=decision,
        stages_s=stages.seconds,
        pricer=pricer,
        request=request,
        coverage=coverage,
        passing_share=share,
    )
    report = with_body_flops(
        report,
        imported,
        found.entrants.get(verdict.winner, imported),
        sizes=sizes[0],
        faults=faults,
    )
    report = replace(
        report,
        warnings=(
            *warnings,
            *faults.warnings,
            *store_warning(pricer),
            *unlimited(verdict, breaks),
        ),
        sizes=tuple(one.to_json() for one in sizes),
        details=(*report.details, *on_samples(request)),
        notes=(
            *report.notes,
            *notes_of(joined, decision, lacking),
            *caveats(request.objective, found),
            *unrecorded(pricer, found),
            *in_less(request),
            *kept_open(imported),
            *(*_late(bodies), *of_class),
        ),
    )
    return Outcome(
        loaded=model,
        model=chosen,
        report=report,
        proposal=joined.found.proposal,
        is_written=is_written,
        job=job,
        graph=found.entrants.get(verdict.winner.partition("@")[0], clean),
        bulk_s=bulk_s,
        sound=tuple(found.entrants[name] for name in found.sound),
        is_refuted=found.is_refuted,
        verdict=verdict,
        edit=edit,
        body_edits=edits,
    )


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


def _late(bodies: Bodies) -> Iterator[str]:
    if bodies.late:
        names = ", ".join(bodies.late)
        yield f"there was no time to optimise the {names}; allow more with --budget"


def _ratio(wall_s: float, computing_s: float) -> float:
    """Return the seconds that passed for each second of computing, at least 1."""
    return max(1.0, wall_s / computing_s) if computing_s > 0 else 1.0


def _require_sizes(request: Request, sizes: Sizes) -> None:
    """Raise an error if a plan is requested and a size is not given.

    Raises:
        OptionError: a size is assumed.
    """
    if request.plan is not None and sizes.assumed:
        name = axis_name(min(sizes.assumed))
        raise OptionError(
            f"a plan is for fixed sizes; give {name!r} one with --input-shape {name}:SIZE"
        )


def _nothing() -> None:
    pass


def _joined(
    job: Job,
    found: Findings,
    destination: Destination | None,
    model: onnx_ir.Model,
    origin: Callable[[], str],
    stages: Stages,
) -> Joined:
    """Add the earlier result at the destination to the candidates, if there will be a race."""
    place = None if destination is None else destination.earlier
    # Whether the earlier result keeps the limits is not known.
    is_limited = job.search.objective.is_limited
    if place is None or not job.terms.race_s or job.terms.by_cost or is_limited:
        return Joined(found)
    with stages("previous"):
        return join_previous(
            found, place, model, origin, original=job.staging.original, terms=job.terms
        )


def _decided(job: Job, joined: Joined, stages: Stages, bodies: Bodies) -> Decision:
    """Race the candidates that may be returned; without a race the cheapest of them wins."""
    found = joined.found
    if found.examined is None:
        return Decision(unraced(next(found.sound, ORIGINAL)))
    with stages("race") if job.terms.race_s else nullcontext():
        return race_candidates(
            found.models,
            job.staging.original,
            job.clean,
            found.examined,
            terms=job.terms,
            # A race of the whole model may run only some of the bodies, but every new body has
            # won a race of its own.
            incumbent=joined.incumbent or (next(found.sound, "") if bodies.better else ""),
        )


def _passing_share(coverage: Coverage, job: Job, joined: Joined, request: Request) -> float | None:
    """Return the share of the original's time in operators that pass through the search unchanged.

    ``None`` where it is not measured: without measured kernels, or without runs of the original.
    """
    examined = joined.found.examined
    if not coverage.n_passing:
        return 0.0
    if not request.measure or examined is None or examined.reference is None:
        return None
    return time_share(
        coverage,
        job.imported.model,
        job.staging.original,
        reference=examined.reference,
        options=request.session,
        deadline=job.terms.deadline,
    )


def _with_settings(model: onnx_ir.Model, found: Findings, verdict: Verdict) -> onnx_ir.Model | None:
    """Return the winner with the level that the verdict demands, ``None`` for the original."""
    chosen = None if verdict.winner == ORIGINAL else found.exported[verdict.winner]
    if verdict.level:
        chosen = with_advice(model.clone() if chosen is None else chosen, verdict.level)
    return chosen
