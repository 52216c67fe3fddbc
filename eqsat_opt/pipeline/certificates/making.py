"""The certificate of a run: its edit, with the steps that the e-graph of the search gives."""

from __future__ import annotations

from eqsat_opt.errors import StageError
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.pipeline.certificates.chain import find_chain
from eqsat_opt.pipeline.certificates.document import ResultCertificate, steps_to_json
from eqsat_opt.pipeline.request import Request
from eqsat_opt.pipeline.stages import Outcome
from eqsat_opt.rules.rule import directed

__all__ = ["certificate_of"]


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
    rules = {rule.name: rule for rule in directed(proposal.rules)}
    terms, steps = steps_to_json(found.terms, found.steps, rules)
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
    )
