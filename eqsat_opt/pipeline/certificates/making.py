"""The certificate of a run: its edit, with the steps that the e-graph of the search gives."""

from __future__ import annotations

from eqsat_opt.errors import StageError
from eqsat_opt.extract.bound_proof import prove_bound
from eqsat_opt.extract.objective import Objective
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.pipeline.certificates.chain import find_chain, rules_by_name
from eqsat_opt.pipeline.certificates.document import (
    PricedBound,
    ResultCertificate,
    steps_to_json,
)
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome
from eqsat_opt.racing.entrants import metrics_of
from eqsat_opt.select.proposal import Proposal

__all__ = ["certificate_of"]

_BOUND_S = 10.0
"""Limit on the time for a bound, s; most take less than a second."""


def certificate_of(outcome: Outcome, request: Request) -> ResultCertificate:
    """Return the certificate of a result.

    Raises:
        StageError: the steps that make the result are not found, or cannot be written.
    """
    proposal, graph, edit = outcome.proposal, outcome.graph, outcome.edit
    if proposal is None or graph is None or edit is None:
        raise StageError("the original stays as it is")
    if edit.bodies or request.fixed:
        raise StageError("bodies of operators and fixed sizes have none")
    saturation = proposal.saturation
    found = find_chain(saturation.lowered, saturation.eclasses, proposal.rules, graph)
    if found.open:
        raise StageError(f"the steps to the output {found.open[0]!r} are not known")
    terms, steps = steps_to_json(found.terms, found.steps, rules_by_name(proposal.rules))
    return ResultCertificate(
        model=content_digest(outcome.loaded),
        options={
            "numerics": request.numerics.name.lower(),
            "precision": str(request.precision),
            "check": str(int(request.runs_models)),
        },
        edit=edit,
        terms=terms,
        steps=steps,
        bound=_bound(outcome, proposal),
    )


def _bound(outcome: Outcome, proposal: Proposal) -> PricedBound | None:
    choice, report = proposal.choice, outcome.report
    extraction, predicted = choice.extraction, metrics_of(proposal, report.winner)
    objective = extraction.objective
    if not isinstance(objective, Objective) or not predicted:
        return None
    proof = prove_bound(choice.problem.problem, objective, extraction.choice, time_limit_s=_BOUND_S)
    cost = objective.value(predicted)
    return PricedBound(report.goal, cost, claimed=extraction.lower_bound, proof=proof)
