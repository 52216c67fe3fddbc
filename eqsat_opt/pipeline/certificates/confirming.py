"""The check of a certificate on two models: without an e-graph, prices or a solver."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat_opt.common.codecs import Entry
from eqsat_opt.common.faults import Faults
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.errors import CheckFailed, EqsatError, StageError, printable
from eqsat_opt.ir.graph.values_json import operator_from_json
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.pipeline.certificates.comparison import agree
from eqsat_opt.pipeline.certificates.document import ResultCertificate, apply_step, read_certificate
from eqsat_opt.pipeline.certificates.term_table import Compared, TermTable
from eqsat_opt.pipeline.decisions.making import applied
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.request import request_of
from eqsat_opt.rules.library import book
from eqsat_opt.rules.rule import directed

__all__ = ["Certified", "certify"]


@dataclass(frozen=True)
class Certified:
    """The result of a check that did not fail.

    Attributes:
        rules: number of applications of each rule.
        compared: number of pairs of terms that were compared on numbers only.
        terms: number of terms of the original.
    """

    rules: dict[str, int]
    compared: int
    terms: int


def certify(model: str, result: str, path: str) -> Certified:
    """Check that a result follows from a model by the steps of a certificate.

    The edit of the certificate is applied to the model, whose constants are folded again, and must
    give the result. Each step is applied to the terms of both, and they must be equal then.

    Args:
        model: file of the original.
        result: file of the result.
        path: file of the certificate.

    Raises:
        ModelError: a model cannot be read.
        StageError: the certificate cannot be read.
        CheckFailed: the certificate is about other models, or does not show them equal.
    """
    certificate = read_certificate(path)
    original, other = load_model(model), load_model(result)
    if content_digest(original) != certificate.model:
        raise CheckFailed(f"the certificate is about another model than {model}")
    try:
        return _certified(certificate, original, content_digest(other))
    except CheckFailed:
        raise
    except (EqsatError, LookupError, TypeError, ValueError) as error:
        raise CheckFailed(f"the certificate is refused: {printable(str(error))}") from error


def _certified(certificate: ResultCertificate, original: object, result: str) -> Certified:
    options = certificate.options
    request = request_of(
        Options(
            numerics=options["numerics"],
            precision=options["precision"],
            check=int(options["check"]),
            race=False,
            budget_s=60.0,
        ),
        searches=False,
    )
    if certificate.edit.bodies:
        raise StageError("bodies of operators have no certificate")
    made = applied(original, certificate.edit, request, Faults(is_strict=True))  # type: ignore[arg-type]
    if content_digest(made.model) != result:
        raise CheckFailed("the result is not the one that the certificate makes of the model")
    lowered = lower(made.base, exact=request.exact)
    terms = TermTable(lowered)
    ends = terms.add_graph(made.graph)
    places = list(range(len(lowered.terms)))
    for number, one in enumerate(certificate.terms):
        below = one["of"]
        if not all(isinstance(place, int) and 0 <= place < len(places) for place in below):
            raise StageError(f"term {number} has operands that do not come before it")
        given = Entry({key: value for key, value in one.items() if key != "of"}, "a term")
        op, attrs = operator_from_json(given, len(below), {})
        places.append(terms.apply(op, attrs, tuple(places[place] for place in below)))
    rules = {rule.name: rule for rule in directed(list(book().values()))}
    used: dict[str, int] = {}
    compared = 0
    for number, written in enumerate(certificate.steps):
        try:
            step = apply_step(written, rules, places)
            if isinstance(step, Compared):
                if not agree(terms, step.left, step.right):
                    raise StageError("two terms differ, or cannot be compared on numbers")
                compared += 1
                pairs = [(step.left, step.right)]
            else:
                used[step.rule] = used.get(step.rule, 0) + 1
                pairs = terms.sides(rules[step.rule], step)
        except EqsatError as error:
            raise CheckFailed(f"step {number} is refused: {printable(str(error))}") from error
        for left, right in pairs:
            terms.closure.unite(left, right, number)
    for own, (name, end) in zip(lowered.graph.outputs, ends.items(), strict=True):
        if not terms.closure.same(lowered.value[own], end):
            raise CheckFailed(f"the steps do not show that the output {name!r} is the same")
    return Certified(dict(sorted(used.items())), compared, len(lowered.terms))
