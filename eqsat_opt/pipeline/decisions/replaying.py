"""The main job by earlier decisions: the same result, without search or measurement."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.garbage import without_collection
from eqsat_opt.common.paths import shown
from eqsat_opt.common.text import counted
from eqsat_opt.errors import CheckFailed, EqsatError, OptionError, StageError, printable
from eqsat_opt.ir.onnx.files.content import constant_bytes, content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.sizes.sizes import Sizes, size_sets
from eqsat_opt.pipeline.decisions.basis import basis_of, require_same, require_same_model
from eqsat_opt.pipeline.decisions.document import RunDecisions, read_decisions
from eqsat_opt.pipeline.decisions.making import Applied, applied, with_advice
from eqsat_opt.pipeline.destination import Destination
from eqsat_opt.pipeline.reading import settled
from eqsat_opt.pipeline.report.numbers import contents_of, latencies_of, unsearched_report
from eqsat_opt.pipeline.report.report import Report
from eqsat_opt.pipeline.report.values import OutputError
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome, Stages
from eqsat_opt.pipeline.terms import TRYING, estimate_bulk_s, search_options, terms_of
from eqsat_opt.racing.earlier_result import RECORD
from eqsat_opt.racing.entrants import BEST, ORIGINAL
from eqsat_opt.racing.examination import Decision, Examination, RaceTerms, examine, race_candidates
from eqsat_opt.runtime.backends.sandbox import sandbox
from eqsat_opt.runtime.backends.tuned_file import require_portable
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select import rules_used
from eqsat_opt.validation.found_sizes import find_sizes, has_doubt

if TYPE_CHECKING:
    from eqsat_opt.pipeline.optimise import AnyModel

__all__ = ["made_again", "replayed"]

_log = logging.getLogger(__name__)


def replayed(
    given: AnyModel,
    name: str,
    request: Request,
    stages: Stages,
    deadline: Deadline,
    destination: Destination | None = None,
    *,
    faults: Faults,
) -> Outcome:
    """Make the result of a model by the decisions that the request names; nothing is written.

    Args:
        given: the model; it is never changed.
        name: name of the model, for the report.
        request: the user's choices.
        stages: times the stages, including those before this function.
        deadline: end of a check and a race, if they are asked for.
        destination: destination of the result.
        faults: collects internal errors.

    Raises:
        ModelError: see :func:`eqsat_opt.api.run`.
        OptionError: the decisions are about another model, or rest on something else than this run.
        StageError: the file of the decisions cannot be read, or is damaged.
        CheckFailed: a check is asked for, and the result does not pass it.
    """
    path = request.replay
    assert path is not None
    with stages("load"), without_collection():
        decisions = read_decisions(path)
        require_same(decisions.basis, basis_of(request), path)
        _require_forms(decisions, request, path)
        model = load_model(given)
        require_portable(model.metadata_props, name)
        if destination is not None:
            destination.check_for(model)
    bulk_s = estimate_bulk_s(constant_bytes(model), stages.seconds["load"])
    with stages("replay"), without_collection():
        require_same_model(decisions.model, content_digest(model), path)
        made = made_again(model, decisions, request, path=path, faults=faults)
    chosen = None if made is None else made.model
    if decisions.level:
        chosen = with_advice(model.clone() if chosen is None else chosen, decisions.level)
    is_written = destination is not None or request.tuned is not None
    if chosen is not None and is_written and decisions.record:
        chosen.metadata_props[RECORD] = decisions.record
    report = _report(name, model, made, decisions=decisions, request=request, stages=stages)
    if made is not None and (request.check or request.race):
        examined, decision = _examined(
            given, model, made, request=request, stages=stages, deadline=deadline, bulk_s=bulk_s
        )
        report = _with_evidence(report, examined, decision, decisions)
    report = replace(report, stages_s={k: round(v, 4) for k, v in stages.seconds.items()})
    report = replace(report, warnings=faults.warnings)
    return Outcome(model, chosen, report, None, bulk_s=bulk_s, decisions=decisions)


def _require_forms(decisions: RunDecisions, request: Request, path: str) -> None:
    """Refuse forms that the decisions are not about.

    Raises:
        OptionError: the tuned form or the plan is asked for, and was not made.
    """
    for name, asked, made in (
        ("tuned form", request.tuned, decisions.tuned),
        ("plan", request.plan, decisions.planned),
    ):
        if asked is not None and made is None:
            option = name.removesuffix(" form")
            raise OptionError(
                f"{shown(path)} was decided without a {name}; leave out --{option} ({option}=), or "
                "decide again with it and --save-decisions"
            )


def made_again(
    model: onnx_ir.Model, decisions: RunDecisions, request: Request, path: str, faults: Faults
) -> Applied | None:
    """Make the result by its edit; ``None`` where the original is the result.

    Raises:
        StageError: the edit is not one of this model, or makes another result than it did.
    """
    if decisions.edit is None:
        return None
    again = "decide again with --save-decisions"
    try:
        made = applied(model, decisions.edit, request, faults)
        digest = content_digest(made.model, computed_only=True)
    except MemoryError:
        raise
    except Exception as error:  # an edit that was tampered with may say anything
        _log.info("the edit cannot be applied", exc_info=error)
        why = str(error) if isinstance(error, EqsatError) else f"{type(error).__name__} in its edit"
        raise StageError(f"{shown(path)} cannot be applied: {printable(why)}; {again}") from error
    if digest != decisions.result:
        raise StageError(
            f"{shown(path)} does not make the result again that it was written for, so its "
            f"constants or the normal form of the model differ here; {again}"
        )
    return made


def _report(
    name: str,
    model: onnx_ir.Model,
    made: Applied | None,
    decisions: RunDecisions,
    request: Request,
    stages: Stages,
) -> Report:
    report = unsearched_report(name, model, stages.seconds, request)
    after, held = contents_of(model if made is None else made.model)
    level = decisions.level
    return replace(
        report,
        status="replayed",
        winner=decisions.winner,
        operators_after=after,
        metrics_after=held,
        rules={} if made is None else rules_used(made.graph),
        session_options={"graph_optimization_level": level} if level else {},
        session_speedup=decisions.session_speedup,
        result_cost=None,
        notes=tuple(_notes(decisions, request)),
    )


def _notes(decisions: RunDecisions, request: Request) -> Iterator[str]:
    path = shown(str(request.replay))
    found = "decided that the original stays"
    if decisions.winner != ORIGINAL:
        gain = f", {decisions.speedup:.2f}x as fast as the original" * (decisions.speedup > 1)
        found = f"decided on this result{gain}"
    yield f"{path} {found} ({decisions.status}), with {counted(decisions.threads, 'thread')}"
    left_out = [
        text
        for text, is_done in (("checked", request.check), ("raced", request.race))
        if not is_done
    ]
    if decisions.winner != ORIGINAL and left_out:
        flags = {"checked": "--check 3", "raced": "--race"}
        asked = " and ".join(flags[one] for one in left_out)
        done = f"neither {left_out[0]} nor {left_out[1]}" if len(left_out) == 2 else (
            f"not {left_out[0]}"
        )  # fmt: skip
        yield f"the result was {done} again; ask for it with {asked}"


def _examined(
    given: AnyModel,
    model: onnx_ir.Model,
    made: Applied,
    request: Request,
    stages: Stages,
    deadline: Deadline,
    bulk_s: float,
) -> tuple[Examination, Decision]:
    """Compare the result with the original, and race them if that is asked for.

    Raises:
        CheckFailed: the result computes something else, or could not be compared.
    """
    with ExitStack() as stack:
        staging = stack.enter_context(Staging(model, given))
        request.inputs.require_fit(staging.original)
        request, _ = settled(request, made.base)
        box = stack.enter_context(sandbox())
        sizes = size_sets(made.imported, request.shape_sets)
        if has_doubt(sizes):
            options = replace(request.session, level="disabled")
            sizes = find_sizes(
                staging.original,
                sizes,
                options,
                box=box,
                deadline=deadline.share(TRYING),
                inputs=request.inputs,
            ).sets
        terms = replace(_terms(request, sizes, deadline.before(bulk_s)), bulk_s=bulk_s, box=box)
        models = {BEST: staging.of(made.model)}
        with stages("check"):
            examined = examine(models, staging.original, terms)
        if not examined.is_sound(BEST):
            raise CheckFailed(f"{_fault(examined)}; nothing is written")
        box.reset()  # memory that the sandbox holds would disturb the race
        with stages("race"):
            return examined, race_candidates(
                models, staging.original, made.base, examined, terms=terms
            )


def _terms(request: Request, sizes: tuple[Sizes, ...], deadline: Deadline) -> RaceTerms:
    search = search_options(request, sizes[0].all, deadline)
    return terms_of(request, search, sizes, deadline)


def _fault(examined: Examination) -> str:
    """Return why the result does not pass, as a sentence without a period."""
    if examined.wrong:
        worst = examined.wrong[BEST]
        return f"the replayed result is wrong: output {worst.name!r}: {worst.why}"
    if examined.refused:
        return f"the replayed result does not run: {examined.refused[BEST]}"
    why = examined.obstacle or "there was no time to compare it; allow more with --budget"
    return f"the replayed result could not be checked: {why}"


def _with_evidence(
    report: Report, examined: Examination, decision: Decision, decisions: RunDecisions
) -> Report:
    """Return the report with the results of the check and of the race."""
    found = examined.differences.get(BEST, ())
    errors = tuple(OutputError(d.name, d.max_abs, d.max_rel, d.tolerance) for d in found)
    report = replace(report, errors=errors)
    race = decision.race
    if race is None:
        return replace(report, notes=(*report.notes, *filter(None, [decision.obstacle])))
    return replace(
        report,
        speedup=decision.verdict.speedup,
        latency=latencies_of(race, BEST, ""),
        race=race.to_json(),
        further_races=tuple(one.to_json() for one in decision.further_races),
        noise=race.noise,
    )
