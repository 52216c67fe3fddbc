"""The end of the main job: join the earlier result, race, record, and report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial

import onnx_ir

from eqsat_opt.errors import EqsatError
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.passes.coverage import Coverage, coverage_of
from eqsat_opt.ir.sizes.sizes import Sizes
from eqsat_opt.pipeline.decisions.document import Edit
from eqsat_opt.pipeline.decisions.making import NO_DECISIONS, Place, edit_of, with_advice
from eqsat_opt.pipeline.destination import Destination
from eqsat_opt.pipeline.inner_models import Bodies
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
from eqsat_opt.pipeline.reading import ModelReading
from eqsat_opt.pipeline.report import report_of, store_warning
from eqsat_opt.pipeline.report.numbers import with_body_flops
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.earlier_result import RECORD, Joined, join_previous, origin_of, record_of
from eqsat_opt.racing.entrants import ORIGINAL
from eqsat_opt.racing.examination import Decision, race_candidates
from eqsat_opt.racing.finding import Findings, Job
from eqsat_opt.racing.opaque_share import time_share
from eqsat_opt.racing.verdict import Verdict, unraced

__all__ = ["Conclusion", "conclude", "edit_of_winner", "report_on", "winner_of"]


@dataclass(frozen=True, kw_only=True)
class Conclusion:
    """A search with its verdict.

    Attributes:
        job: the job of the search, with the terms of the verdict.
        bodies: the graph with optimised bodies of operators.
        found: the candidates of the search.
        joined: the same with the earlier result at the destination.
        decision: the verdict and what it rests on.
        breaks: which limit the original breaks; empty if none.
        origin: computes a digest of what the result was made from.
        coverage: the operators that rules know, and the others.
        passing_share: the share of the time in the others; ``None`` if it is not measured.
    """

    job: Job
    bodies: Bodies
    found: Findings
    joined: Joined
    decision: Decision
    breaks: str
    origin: Callable[[], str]
    coverage: Coverage
    passing_share: float | None


def conclude(
    model: onnx_ir.Model,
    found: Findings,
    job: Job,
    bodies: Bodies,
    *,
    request: Request,
    destination: Destination | None,
) -> Conclusion:
    """Race the candidates, together with the earlier result at the destination."""
    faults = job.faults
    breaks = "" if found.proposal is None else found.proposal.choice.original_breaks
    if breaks:  # an original that breaks a limit must not win by its time
        job = replace(job, terms=replace(job.terms, by_cost=True))
    origin = cache(lambda: origin_of(content_digest(model), request.rules, class_of(request)))
    joined = faults.contain(
        "previous",
        partial(_joined, job, found, destination, model, origin=origin),
        "the earlier result does not take part",
    ) or Joined(found)
    if job.terms.box is not None:
        job.terms.box.reset()  # memory that the sandbox holds would disturb the race
    decision = faults.contain(
        "race", partial(_decided, job, joined, bodies), "the original stays"
    ) or Decision(unraced(ORIGINAL))
    coverage = coverage_of(job.clean)
    share = faults.contain(
        "report",
        partial(_passing_share, coverage, job, joined, request=request),
        "what share of the time passes through is not known",
    )
    return Conclusion(
        job=job,
        bodies=bodies,
        found=found,
        joined=joined,
        decision=decision,
        breaks=breaks,
        origin=origin,
        coverage=coverage,
        passing_share=share,
    )


def winner_of(
    model: onnx_ir.Model, ending: Conclusion, request: Request, destination: Destination | None
) -> onnx_ir.Model | None:
    """Return the winner, ``None`` for the original; what is to be written has a record."""
    verdict = ending.decision.verdict
    chosen = _with_settings(model, ending.joined.found, verdict)
    is_new = verdict.winner != ORIGINAL and not ending.joined.is_written(verdict)
    if destination is not None and is_new:
        assert chosen is not None
        with ending.job.stage("record"):
            status = "unmeasured" if ending.job.terms.by_cost else verdict.status
            record = ending.job.faults.contain(
                "record",
                lambda: record_of(ending.origin(), status),
                "the result carries no record of it",
            )
            if record is not None:
                chosen.metadata_props[RECORD] = record
    return chosen


def edit_of_winner(
    ending: Conclusion, body_edits: Mapping[Place, Edit | None], request: Request
) -> Edit | None:
    """Return how the winner is made of the original, where the user asks for decisions."""
    winner, job = ending.decision.verdict.winner, ending.job
    if not request.needs_edit or winner == ORIGINAL:
        return None
    made_by = partial(edit_of, job.clean, body_edits, least_weights=job.search.counts_weights)
    return job.faults.contain(
        "decisions",
        lambda: made_by(ending.found.entrants[winner]),
        NO_DECISIONS,
        also=(EqsatError,),
    )


def report_on(
    name: str,
    model: onnx_ir.Model,
    chosen: onnx_ir.Model | None,
    ending: Conclusion,
    *,
    reading: ModelReading,
    sizes: tuple[Sizes, ...],
    stages_s: Mapping[str, float],
    warnings: tuple[str, ...],
) -> Report:
    """Report on the result, with all notes and warnings."""
    found, job, request = ending.joined.found, ending.job, reading.request
    verdict = ending.decision.verdict
    report = report_of(
        name,
        found,
        (model, model if chosen is None else chosen),
        reading.imported,
        decision=ending.decision,
        stages_s=stages_s,
        pricer=job.pricer,
        request=request,
        coverage=ending.coverage,
        passing_share=ending.passing_share,
    )
    report = with_body_flops(
        report,
        reading.imported,
        ending.found.entrants.get(verdict.winner, reading.imported),
        sizes=sizes[0],
        faults=job.faults,
    )
    return replace(
        report,
        warnings=(
            *warnings,
            *job.faults.warnings,
            *store_warning(job.pricer),
            *unlimited(verdict, ending.breaks),
        ),
        sizes=tuple(one.to_json() for one in sizes),
        details=(*report.details, *on_samples(request)),
        notes=(
            *report.notes,
            *notes_of(ending.joined, ending.decision, reading.lacking),
            *caveats(request.objective, ending.found),
            *unrecorded(job.pricer, ending.found),
            *in_less(request),
            *kept_open(reading.imported),
            *(*_late(ending.bodies), *reading.of_class),
        ),
    )


def _late(bodies: Bodies) -> Iterator[str]:
    if bodies.late:
        names = ", ".join(bodies.late)
        yield f"there was no time to optimise the {names}; allow more with --budget"


def _joined(
    job: Job,
    found: Findings,
    destination: Destination | None,
    model: onnx_ir.Model,
    origin: Callable[[], str],
) -> Joined:
    """Add the earlier result at the destination to the candidates, if there will be a race."""
    place = None if destination is None else destination.earlier
    # Whether the earlier result keeps the limits is not known.
    is_limited = job.search.objective.is_limited
    if place is None or not job.terms.race_s or job.terms.by_cost or is_limited:
        return Joined(found)
    with job.stage("previous"):
        return join_previous(
            found, place, model, origin, original=job.staging.original, terms=job.terms
        )


def _decided(job: Job, joined: Joined, bodies: Bodies) -> Decision:
    """Race the candidates that may be returned; without a race the cheapest of them wins."""
    found = joined.found
    if found.examined is None:
        return Decision(unraced(next(found.sound, ORIGINAL)))
    with job.stage("race") if job.terms.race_s else nullcontext():
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
