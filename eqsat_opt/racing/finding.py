"""The search for candidates, repeated until they compute what the original computes.

A rule that makes a candidate wrong is named, and the search is repeated without it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import onnx_ir

from eqsat_opt.common.deadline import Deadline
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.precision import Precision
from eqsat_opt.cost.quotes import AnyPricer
from eqsat_opt.errors import CheckFailed, ExtractionError, ModelError
from eqsat_opt.extract import AnyObjective, Objective
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.graph.handles import folding_s
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.types import inner_graphs
from eqsat_opt.ir.passes.storage_form import as_stored
from eqsat_opt.racing.delta_debugging import Accusation, accuse
from eqsat_opt.racing.entrants import entrants_of, has_other_bodies, is_worth_writing
from eqsat_opt.racing.examination import Examination, Terms, examine, has_session_variants
from eqsat_opt.runtime.backends.ort.session import OrtSession
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.choosing.choose import ChoiceResult
from eqsat_opt.select.proposal import Progress, Proposal, SearchOptions, propose
from eqsat_opt.select.rebuilding.raising import rules_used
from eqsat_opt.validation.compare import Difference

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["Found", "Job", "find_candidates"]

_STAYS = "the original stays"

_REPETITION = 0.7
"""Share of the time left that a repeated search gets; the rest is for check and race."""

_ACCUSING = 0.5
"""Share of the time left to find the rule at fault; the rest is for a search without it."""


@dataclass(frozen=True)
class Job:
    """The inputs that stay the same when a search is repeated.

    Attributes:
        clean: the normalised graph, which is searched.
        imported: the graph as imported.
        search: options of the search.
        terms: terms of the comparison.
        pricer: returns the prices of kernels.
        staging: stages models for sessions.
        strict: whether a wrong candidate is an error.
        selection: the selection of rules, as the user wrote it.
        stage: times a stage, given its name.
        progress: called with a stage and a detail.
        faults: collects internal errors.
        current: returns the name of the stage that runs.
    """

    clean: Graph
    imported: Graph
    search: SearchOptions
    terms: Terms
    pricer: AnyPricer
    staging: Staging
    strict: bool
    selection: str
    stage: Callable[[str], AbstractContextManager[None]]
    progress: Progress
    faults: Faults
    current: Callable[[], str]


@dataclass(frozen=True)
class Found:
    """The candidates of one search, and the results of running them.

    Attributes:
        proposal: the result of the search.
        entrants, exported, models: candidates by name, the cheapest first, in their three forms;
            models only where they were to be run.
        examined: results of running the candidates; ``None`` where nothing was to be run.
        late: candidates for whose constants there was no time.
        stages_s: seconds per stage of the search, over its repetitions.
    """

    proposal: Proposal
    entrants: Mapping[str, Graph]
    exported: Mapping[str, onnx_ir.Model]
    models: Mapping[str, ModelSource]
    examined: Examination | None
    stages_s: Mapping[str, float]
    late: tuple[str, ...] = ()

    @property
    def sound(self) -> Iterator[str]:
        """Candidates that may be returned, the cheapest first."""
        examined = self.examined
        return (name for name in self.entrants if examined is None or examined.is_sound(name))


def find_candidates(
    job: Job, rules: Sequence[Rule], deadline: Deadline
) -> tuple[Found | None, tuple[str, ...]]:
    """Search for candidates, and again without the rules that made a candidate wrong.

    Returns:
        The candidates, and warnings. There are no candidates if the search fails by an internal
        error, with rules and without.

    Raises:
        CheckFailed: a candidate is wrong, and the user is strict.
        InternalError: a stage failed by an internal error, and the user is strict.
    """
    warnings: list[str] = []
    stages_s: Counter[str] = Counter()
    while True:
        start = time.perf_counter()
        found = _search(job, rules, stages_s)
        if found is None:
            return None, tuple(warnings)
        seconds = time.perf_counter() - start
        examined = found.examined
        if examined is None or not (examined.wrong or examined.refused):
            return found, tuple(warnings)
        for label, why in examined.refused.items():
            made_by = _makers(found.entrants[label])
            warnings.append(f"candidate {label!r} is dropped: {why}; involved: {made_by}")
        faulty: tuple[Rule, ...] = ()
        if examined.wrong:
            with job.stage("accuse"):
                accusation = job.faults.contain(
                    "accuse",
                    partial(_accuse, job, found, examined=examined, rules=rules, deadline=deadline),
                    "which rule is to blame is not known",
                ) or Accusation((), "which rule is to blame is not known")
            faulty = accusation.faulty
            warnings.append(_wrong_text(examined.wrong, accusation))
        if job.strict:
            raise CheckFailed(f"{warnings[-1]}; nothing is written")
        if examined.wrong:
            warnings[-1] += "; dropped"
        if not faulty or deadline.left_s < seconds:
            return found, tuple(warnings)
        them = "it" if len(faulty) == 1 else "them"
        warnings[-1] += f", and the search is repeated without {them}"
        rules = [rule for rule in rules if rule not in faulty]
        search = replace(job.search, deadline=deadline.share(_REPETITION))
        job = replace(job, search=search)


def _proposed(job: Job, rules: Sequence[Rule]) -> Proposal | None:
    """Search with rules and, if that fails by an internal error, without any."""
    attempts = [(rules, "the search is repeated without rules")] if rules else []
    for allowed, consequence in (*attempts, ((), _STAYS)):
        found = job.faults.contain(
            job.current,
            partial(propose, job.clean, allowed, job.pricer, job.search, progress=job.progress),
            consequence,
            also=() if _may_have_no_answer(job.search.objective) else (ExtractionError,),
        )
        if found is not None:
            return found
    return None


def _may_have_no_answer(objective: AnyObjective) -> bool:
    """Return whether the user may have set a limit that no graph keeps."""
    return not isinstance(objective, Objective) or objective.is_limited


def _search(job: Job, rules: Sequence[Rule], stages_s: Counter[str]) -> Found | None:
    """Search once, and add the seconds of its stages to ``stages_s``."""
    proposal = _proposed(job, rules)
    if proposal is None:
        return None
    stages_s.update(proposal.stages_s)
    by_cost = job.terms.by_cost or not job.terms.race_s
    entrants = entrants_of(
        proposal,
        job.clean,
        job.imported,
        job.search.objective,
        by_cost=by_cost,
    )
    deadline = job.terms.deadline
    late = [n for n, g in entrants.items() if folding_s(g.constants.values()) > deadline.left_s]
    entrants = {name: graph for name, graph in entrants.items() if name not in late}
    with job.stage("export"):
        made = {
            label: job.faults.contain(
                "export",
                partial(_exported, job, graph),
                f"candidate {label!r} is dropped",
                also=(ModelError,),  # such as a size that nothing computes: no fault of the user
            )
            for label, graph in entrants.items()
        }
    exported = {label: model for label, model in made.items() if model is not None}
    # A candidate in another precision need not beat the file as given.
    if by_cost and job.terms.precision is Precision.STRICT:
        exported = dict(_worth_writing(job, proposal, exported))
    entrants = {label: entrants[label] for label in exported}
    models: dict[str, ModelSource] = {}
    examined = None
    if job.terms.runs_models and (
        entrants or (job.terms.race_s and has_session_variants(job.clean))
    ):
        with job.stage("check"):
            examined = job.faults.contain(
                "check", partial(_examined, job, exported, models), _STAYS
            ) or Examination(
                reference=None,
                differences={},
                refused={},
                seconds=0.0,
                obstacle="the check did not end, so the original stays",
            )
            skipped = tuple(label for label in exported if label not in models)
            examined = replace(examined, skipped=(*examined.skipped, *skipped))
    return Found(
        proposal=proposal,
        entrants=entrants,
        exported=exported,
        models=models,
        examined=examined,
        stages_s=dict(stages_s),
        late=tuple(late),
    )


def _exported(job: Job, graph: Graph) -> onnx_ir.Model:
    """Export a candidate as a model; if nothing will run it, check that the runtime loads it.

    This check is for originals with branches, as the runtime examines a node that has left a branch
    more closely than one inside.

    Raises:
        ModelError: a size is computed by nothing.
        RuntimeFailed: the runtime refuses the model.
    """
    search, terms = job.search, job.terms
    model = export_model(as_stored(graph, exact=search.exact, least=search.counts_weights))
    before = job.imported.model
    has_branches = before is not None and any(map(_has_body, before.graph))
    if has_branches and not terms.runs_models and terms.deadline.left_s > terms.bulk_s:
        OrtSession(job.staging.of(model), terms.session("disabled"))
    return model


def _has_body(node: onnx_ir.Node) -> bool:
    return next(inner_graphs(node), None) is not None


def _worth_writing(
    job: Job, proposal: Proposal, exported: Mapping[str, onnx_ir.Model]
) -> Iterator[tuple[str, onnx_ir.Model]]:
    """Yield the candidates, even without operators, that may be written where no race decides."""
    # New bodies have won by themselves, and a branch that entered the graph saves an If.
    is_better_inside = has_other_bodies(job.clean)
    for label, model in exported.items():
        if is_better_inside or is_worth_writing(
            proposal,
            label,
            job.search.objective,
            model=model,
            before=job.imported.model,
        ):
            yield label, model


def _examined(
    job: Job, exported: Mapping[str, onnx_ir.Model], models: dict[str, ModelSource]
) -> Examination:
    """Compare candidates with the original, and add those that are in time to ``models``."""
    for label, value in exported.items():
        if job.terms.deadline.left_s >= job.terms.bulk_s:
            models[label] = job.staging.of(value)
    return examine(models, job.staging.original, job.terms)


def _accuse(
    job: Job, found: Found, examined: Examination, rules: Sequence[Rule], deadline: Deadline
) -> Accusation:
    assert examined.reference is not None
    return accuse(
        job.clean,
        [found.entrants[label] for label in examined.wrong],
        rules=rules,
        search=job.search,
        terms=job.terms,
        reference=examined.reference,
        staging=job.staging,
        deadline=deadline.share(_ACCUSING),
        selection=job.selection,
        backends=_foreign(found.proposal.choice, job.pricer),
    )


def _foreign(choice: ChoiceResult, pricer: AnyPricer) -> list[str]:
    """Return the backends of chosen kernels, without the one that runs the original."""
    selections = (choice.best, *choice.alternatives)
    chosen = {one.backend for selection in selections for one in selection.values()}
    return [backend.name for backend in pricer.backends[1:] if backend.name in chosen]


def _wrong_text(wrong: Mapping[str, Difference], accusation: Accusation) -> str:
    worst = next(iter(wrong.values()))
    names = ", ".join(map(repr, wrong))
    subject = f"candidates {names} are" if len(wrong) > 1 else f"candidate {names} is"
    how = worst.why
    if math.isfinite(worst.max_rel):
        how += (
            f"; max abs {worst.max_abs:.3g}, relative {worst.max_rel:.3g} > {worst.tolerance:.3g}"
        )
    return f"{subject} wrong: output {worst.name!r}: {how}; {accusation.text}"


def _makers(graph: Graph) -> str:
    return ", ".join(rules_used(graph)) or "normalisation"
