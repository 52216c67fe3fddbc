"""The tuned form of a result, for one machine; it is made after the portable result.

The graph is chosen again among the implementations that our kernels add, layers are tuned inside
the whole model, and all forms race; see `eqsat_opt.racing.tuned_results`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import onnx

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.paths import same_file
from eqsat_opt.errors import ExtractionError, OptionError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.handles import folding_s
from eqsat_opt.ir.onnx.exporter import export_model, model_proto
from eqsat_opt.ir.onnx.files.external import with_data_inside
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.storage_form import as_stored
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.pipeline.decisions.document import TunedForm
from eqsat_opt.pipeline.decisions.making import edit_of
from eqsat_opt.pipeline.destination import Destination, Output
from eqsat_opt.pipeline.optimise import TUNING, AnyModel
from eqsat_opt.pipeline.prices import CALIBRATION, open_pricer
from eqsat_opt.pipeline.report.form_reports import Tuned
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Progress, Stages
from eqsat_opt.racing.entrants import structure
from eqsat_opt.racing.examination import examine
from eqsat_opt.racing.tuned_results import (
    NO_TIME,
    PORTABLE,
    SUITED,
    TunedJob,
    TunedResult,
    race_tuned_forms,
)
from eqsat_opt.runtime.backends.native import NAME as NATIVE
from eqsat_opt.runtime.backends.native.library import missing
from eqsat_opt.runtime.backends.registry import load_runtime, racing_runtimes
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.proposal import repropose

__all__ = [
    "PORTABLE_SHARE",
    "require_runtimes",
    "sizes_of",
    "tuned_destination",
    "tuned_job",
    "tuned_report",
    "with_told",
    "with_tuned",
]

PORTABLE_SHARE = 0.6
"""Share of the budget that the portable result gets where a tuned form is made as well."""


def tuned_destination(request: Request, given: AnyModel, output: Output | None) -> Destination:
    """Return the destination of the tuned form, after a check that it can be written.

    Raises:
        ModelError: the file cannot be written.
        OptionError: the file is the model itself, or that of the portable result.
    """
    assert request.tuned is not None
    if request.tuned == "-":
        raise OptionError("the tuned form needs a file; give --tuned (tuned=) a name")
    if isinstance(output, str | os.PathLike) and same_file(output, request.tuned):
        raise OptionError(
            f"{request.tuned} is the output already; give the tuned form another name"
        )
    source = given if isinstance(given, str | os.PathLike) else None
    destination = Destination(request.tuned, source)
    destination.prepare()
    return destination


@dataclass(frozen=True)
class _Suited:
    """Another graph than that of the portable result, which suits our kernels better.

    Attributes:
        graph: the graph itself.
        model: the same as a model with all its data inside.
    """

    graph: Graph
    model: onnx.ModelProto


_SUITING = 0.4
"""Share of the time for the tuned form in which a graph is searched that suits our kernels."""

_SUITING_LOADS = 40
"""Least time left for searching such a graph, in passes over all weights: a large model is loaded
only to be tuned."""

_SUITING_CHECK = 0.2
"""Share of the time left after that search in which the graph is compared with the original."""


def _suited(
    outcome: Outcome, request: Request, staging: Staging, stages: Stages, deadline: Deadline
) -> _Suited | None:
    """Return the model that is cheapest with our kernels; ``None`` if its graph is not a new one.

    It is compared with the original if models are run at all, as the portable result was.
    """
    job, proposal = outcome.job, outcome.proposal
    if job is None or proposal is None or outcome.graph is None or missing():
        return None
    if not job.search.measure or job.terms.by_cost:
        return None
    if deadline.left_s < _SUITING_LOADS * outcome.bulk_s:
        return None
    search = replace(job.search, deadline=deadline.share(_SUITING), alternatives=0)
    try:
        with open_pricer(request, NATIVE) as pricer:
            pricer.calibrate(search.deadline.share(CALIBRATION))
            (one, *_), _ = repropose(
                proposal, pricer, search, max_error=request.max_error, progress=stages.progress
            )
    except ExtractionError:
        return None
    graph = one.graph
    if structure(graph) == structure(outcome.graph):
        return None
    if folding_s(graph.constants.values()) > deadline.share(_SUITING_CHECK).left_s:
        return None
    model = export_model(as_stored(graph, exact=search.exact, least=False))
    if job.terms.runs_models:
        with sandbox() as box:
            terms = replace(job.terms, box=box, deadline=deadline.share(_SUITING_CHECK))
            if terms.deadline.left_s < terms.bulk_s:
                return None
            found = examine({SUITED: staging.of(model)}, staging.original, terms)
            if not found.is_sound(SUITED):
                return None
    return _Suited(graph, model_proto(with_data_inside(model)))


def _racing(request: Request) -> tuple[str, ...]:
    """Return the runtimes that may run the tuned form; by default those that are installed."""
    if request.runtimes is not None:
        return request.runtimes
    return tuple(name for name in racing_runtimes() if not load_runtime(name).missing())


def require_runtimes(request: Request) -> None:
    """Check that the requested runtimes can run here, before any work is done.

    Raises:
        OptionError: a runtime is unknown or missing, or no tuned form is requested.
    """
    for name in request.runtimes or ():
        if name not in racing_runtimes():
            raise OptionError(f"unknown runtime {name!r}; there are {', '.join(racing_runtimes())}")
        if why := load_runtime(name).missing():
            raise OptionError(why)
    if request.tuned is None and len(request.runtimes or ()) > 1:
        raise OptionError(
            "runtimes race for the form of this machine; name its file with --tuned (tuned=)"
        )


_TUNED_WRITING, _TUNED_READING = 2, 4
"""Passes over all weights for writing the tuned form, and for reading before tuning. The form holds
two models."""


def _tuned(
    outcome: Outcome,
    portable: onnx.ModelProto,
    given: AnyModel,
    request: Request,
    stages: Stages,
    deadline: Deadline,
) -> tuple[TunedResult, Graph | None]:
    """Tune ``portable``, the result with all weights inside the model, and race its forms.

    Returns:
        The outcome, and the graph that suits our kernels if it won.
    """
    if deadline.expired or deadline.left_s < _TUNED_READING * outcome.bulk_s:
        return TunedResult(why=NO_TIME), None
    with Staging(outcome.loaded, given) as staging:
        suited = _suited(outcome, request, staging, stages, deadline=deadline)
        job = tuned_job(
            outcome, portable=portable, staging=staging, request=request, deadline=deadline
        )
        if suited is not None:
            job = replace(job, suited=suited.model)
        held = race_tuned_forms(replace(job, runtimes=_racing(request)))
    is_suited = suited is not None and held.model is not None and held.base == SUITED
    return held, suited.graph if suited is not None and is_suited else None


def tuned_job(
    outcome: Outcome,
    portable: onnx.ModelProto,
    staging: Staging,
    request: Request,
    deadline: Deadline,
) -> TunedJob:
    """Return the terms on which the forms of a result compete."""
    return TunedJob(
        original=staging.original,
        original_inside=lambda: model_proto(with_data_inside(outcome.loaded)),
        portable=portable,
        is_original=outcome.model is None,
        session=request.session,
        sizes=sizes_of(outcome, request),
        seeds=tuple(request.seed + i for i in range(max(1, request.check))),
        numerics=request.numerics,
        max_error=request.max_error,
        is_raced=request.race,
        deadline=deadline,
        inputs=request.inputs,
    )


def sizes_of(outcome: Outcome, request: Request) -> tuple[Sizes, ...]:
    """Return the sizes of the search, or given and assumed ones where there was no search."""
    if outcome.job is not None:
        return outcome.job.terms.sizes
    return size_sets(import_model(outcome.loaded), request.shape_sets)


def with_tuned(
    report: Report,
    outcome: Outcome,
    given: AnyModel,
    request: Request,
    destination: Destination,
    progress: Progress,
    deadline: Deadline,
    faults: Faults,
) -> tuple[Report, TunedForm | None]:
    """Make the tuned form of a result and write it; return the report with it, and how it is made.

    How it is made is ``None`` where the user asks for no decisions, or where it is not known.

    If tuning fails by an internal error or gains nothing, the portable result is written instead.

    Raises:
        ModelError: the file cannot be written.
    """
    progress(TUNING, "")
    stages = Stages(progress)
    result = outcome.loaded if outcome.model is None else outcome.model
    deadline = deadline.before(_TUNED_WRITING * outcome.bulk_s)
    with stages("load"):
        portable = model_proto(with_data_inside(result))
    with stages(TUNING):
        held, suited = faults.contain(
            TUNING,
            partial(_tuned, outcome, portable, given, request, stages=stages, deadline=deadline),
            "the portable result stands for the tuned form",
        ) or (TunedResult(why="tuning failed"), None)
    with stages("write"):
        model = portable if held.model is None else held.model
        data = model.SerializeToString(deterministic=True)
        destination.write_bytes(data)
    decided = None
    if request.decisions is not None:
        decided = faults.contain(
            "decisions",
            lambda: _decided(outcome, held, suited, hashlib.sha256(data).hexdigest()),
            "how the tuned form is made is not in the decisions",
        )
    return with_told(report, tuned_report(held, request), stages.seconds), decided


def _decided(outcome: Outcome, held: TunedResult, suited: Graph | None, digest: str) -> TunedForm:
    """Return how the form that won is made.

    Raises:
        InternalError: a graph that suits our kernels is no edit of the one that was searched.
    """
    if held.model is None:
        return TunedForm(base="", edit=None, ways=(), record="", digest=digest)
    edit = None
    if suited is not None:
        assert outcome.job is not None
        edit = edit_of(outcome.job.clean, outcome.body_edits, suited, least_weights=False)
    return TunedForm(base=held.base, edit=edit, ways=held.ways, record=held.record, digest=digest)


def with_told(report: Report, tuned: Tuned, seconds: Mapping[str, float]) -> Report:
    """Return the report with facts about the tuned form, and the time that it took."""
    spent = dict(report.stages_s)
    for name, more in seconds.items():
        spent[name] = round(spent.get(name, 0.0) + more, 4)
    return replace(report, tuned=tuned, stages_s=spent)


def tuned_report(held: TunedResult, request: Request) -> Tuned:
    """Return the facts about a tuned form for the report."""

    def speedup(name: str) -> float:
        ratios = [race.entries[name].ratio for race in held.races if name in race.entries]
        return 1 / max(ratios) if ratios else 1.0

    return Tuned(
        output=str(request.tuned),
        won=held.model is not None,
        why=held.why,
        winner=held.entrant if held.model is not None else "",
        runtime=held.execution.runtime if held.execution else "",
        setting=dict(held.execution.setting) if held.execution else {},
        threads=request.threads,
        speedup=speedup(held.entrant),
        portable_speedup=speedup(PORTABLE),
        algorithms=held.algorithms,
        n_sites=held.n_sites,
        is_suited=held.entrant == SUITED,
        withdrawn=held.withdrawn,
        error=held.error,
        max_error=request.max_error,
        refused=dict(held.refused),
        race=held.races[0].to_json() if held.races else {},
        further_races=tuple(race.to_json() for race in held.races[1:]),
        note=held.note,
    )
