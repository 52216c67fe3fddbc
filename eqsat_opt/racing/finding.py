"""The search for candidates, repeated until they compute what the original computes.

A rule that makes a candidate wrong is named, and the search is repeated without it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
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
from eqsat_opt.racing.delta_debugging import (
    ROUNDED_BY_SESSIONS,
    Accusation,
    accuse,
    are_equal_unoptimised,
    without_rules,
)
from eqsat_opt.racing.entrants import (
    CLEAN,
    entrants_of,
    has_other_bodies,
    is_simpler,
    is_worth_writing,
)
from eqsat_opt.racing.examination import (
    Examination,
    RaceTerms,
    compared,
    has_session_variants,
    observe,
)
from eqsat_opt.runtime.backends.ort.session import OrtSession
from eqsat_opt.runtime.source import ModelSource
from eqsat_opt.runtime.staging import Staging
from eqsat_opt.select.choosing.choose import ChoiceResult
from eqsat_opt.select.proposal import Progress, Proposal, SearchOptions, propose
from eqsat_opt.select.rebuilding.raising import rules_used
from eqsat_opt.validation.compare import Difference

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = ["Findings", "Job", "find_candidates"]

_STAYS = "the original stays"

_NODE_S = 5e-4
"""Least seconds of a search per operator, where it is the only way to a result."""

_START_S, _REAL_NODE_S = 0.3, 2.5e-3
"""Seconds of a short search, to compile the rules and per operator: it loads, matches and prices
every operator, and applies some rules."""

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
        slowdown: seconds that pass for a second of computing, as the machine is busy.
    """

    clean: Graph
    imported: Graph
    search: SearchOptions
    terms: RaceTerms
    pricer: AnyPricer
    staging: Staging
    strict: bool
    selection: str
    stage: Callable[[str], AbstractContextManager[None]]
    progress: Progress
    faults: Faults
    current: Callable[[], str]
    slowdown: float = 1.0


@dataclass(frozen=True)
class Findings:
    """The candidates of one search, and the results of running them.

    Attributes:
        proposal: the result of the search; ``None`` where there was no time for one.
        entrants, exported, models: candidates by name, the cheapest first, in their three forms;
            models only where they were to be run.
        examined: results of running the candidates; ``None`` where nothing was to be run.
        late: candidates for whose constants there was no time.
        stages_s: seconds per stage of the search, over its repetitions.
    """

    proposal: Proposal | None = None
    entrants: Mapping[str, Graph] = field(default_factory=dict)
    exported: Mapping[str, onnx_ir.Model] = field(default_factory=dict)
    models: Mapping[str, ModelSource] = field(default_factory=dict)
    examined: Examination | None = None
    stages_s: Mapping[str, float] = field(default_factory=dict)
    late: tuple[str, ...] = ()

    @property
    def is_late(self) -> bool:
        """Whether there was no time to compare a candidate; others would take as long."""
        examined = self.examined
        return examined is not None and (examined.is_late or bool(examined.skipped))

    @property
    def sound(self) -> Iterator[str]:
        """Candidates that may be returned, the cheapest first."""
        examined = self.examined
        return (name for name in self.entrants if examined is None or examined.is_sound(name))

    @property
    def is_refuted(self) -> bool:
        """Whether candidates failed and none is sound; false for lack of time alone."""
        examined = self.examined
        if examined is None or any(True for _ in self.sound):
            return False
        return bool(examined.obstacle or examined.wrong or examined.refused)


def find_candidates(
    job: Job, rules: Sequence[Rule], deadline: Deadline
) -> tuple[Findings | None, tuple[str, ...]]:
    """Search for candidates, and again without the rules that made a candidate wrong.

    The simplified graph is compared first, so that a search cannot use up its time. Where a search
    would leave no time to race it, there is none.

    Returns:
        The candidates, and warnings. There are no candidates if the search fails by an internal
        error, with rules and without.

    Raises:
        CheckFailed: a candidate is wrong, and the user is strict.
        InternalError: a stage failed by an internal error, and the user is strict.
    """
    warnings: list[str] = []
    stages_s: Counter[str] = Counter()
    simplified = _simplified(job)
    while True:
        start = time.perf_counter()
        found = _search(job, rules, stages_s, simplified)
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


def _simplified(job: Job) -> Findings:
    """Return the simplified graph as a candidate that was compared, if a race may be won by it."""
    terms = job.terms
    is_raced = terms.race_s and not terms.by_cost and not job.search.objective.is_limited
    if not is_raced or not is_simpler(job.clean, job.imported):
        return Findings()
    return _joined(job, Findings(), {CLEAN: job.clean})


def _search(
    job: Job, rules: Sequence[Rule], stages_s: Counter[str], simplified: Findings
) -> Findings | None:
    """Search once, and add the seconds of its stages to ``stages_s``."""
    deadline = job.search.deadline
    least_s = _NODE_S * len(job.clean.nodes)
    if any(True for _ in simplified.sound):
        assert simplified.examined is not None
        deadline = deadline.earlier(job.terms.deadline.before(simplified.examined.race_s))
        least_s = job.slowdown * (_START_S + _REAL_NODE_S * len(job.clean.nodes))
    if deadline.left_s < least_s or simplified.is_late:
        return simplified
    job = replace(job, search=replace(job.search, deadline=deadline))
    proposal = _proposed(job, rules)
    if proposal is None:
        return None
    stages_s.update(proposal.stages_s)
    entrants = entrants_of(
        proposal,
        job.clean,
        job.imported,
        job.search.objective,
        by_cost=job.terms.by_cost or not job.terms.race_s,
    )
    found = replace(simplified, proposal=proposal, stages_s=dict(stages_s))
    return _joined(job, found, entrants)


def _joined(job: Job, found: Findings, entrants: Mapping[str, Graph]) -> Findings:
    """Add entrants that are in time, the cheapest first, and compare those that are new."""
    deadline = job.terms.deadline
    late = [n for n, g in entrants.items() if folding_s(g.constants.values()) > deadline.left_s]
    entrants = {name: graph for name, graph in entrants.items() if name not in late}
    with job.stage("export"):
        made = {
            label: found.exported.get(label)
            or job.faults.contain(
                "export",
                partial(_exported, job, graph),
                f"candidate {label!r} is dropped",
                also=(ModelError,),  # such as a size that nothing computes: no fault of the user
            )
            for label, graph in entrants.items()
        }
    exported = {label: model for label, model in made.items() if model is not None}
    # A candidate in another precision need not beat the file as given.
    by_cost = job.terms.by_cost or not job.terms.race_s
    if by_cost and found.proposal and job.terms.precision is Precision.STRICT:
        exported = dict(_worth_writing(job, found.proposal, exported))
    found = replace(
        found,
        entrants={label: entrants[label] for label in exported},
        exported=exported,
        late=tuple(late),
    )
    if job.terms.runs_models and (
        exported or (job.terms.race_s and has_session_variants(job.clean))
    ):
        with job.stage("check"):
            found = job.faults.contain("check", partial(_examined, job, found), _STAYS) or replace(
                found,
                examined=Examination(
                    reference=None,
                    differences={},
                    refused={},
                    seconds=0.0,
                    obstacle="the check did not end, so the original stays",
                ),
            )
    return found


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


def _examined(job: Job, found: Findings) -> Findings:
    """Compare the candidates that were not compared yet and are in time."""
    original, terms = job.staging.original, job.terms
    before = found.examined or observe(original, terms)
    new: dict[str, ModelSource] = {}
    skipped = []
    for label, model in found.exported.items():
        if label in found.models:
            continue
        if terms.deadline.left_s >= terms.bulk_s:
            new[label] = job.staging.of(model)
        else:
            skipped.append(label)
    examined = compared(before, new, terms)
    examined = replace(examined, skipped=(*examined.skipped, *skipped))
    models = {**found.models, **new}
    in_order = {label: models[label] for label in found.exported if label in models}
    return replace(found, models=in_order, examined=examined)


def _accuse(
    job: Job, found: Findings, examined: Examination, rules: Sequence[Rule], deadline: Deadline
) -> Accusation:
    assert examined.reference is not None
    wrong = [found.models[label] for label in examined.wrong]
    if are_equal_unoptimised(examined.reference, wrong, job.terms):
        return ROUNDED_BY_SESSIONS
    if found.proposal is None:
        return Accusation((), without_rules(examined.reference))
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
