"""The check of a certificate on two models: without an e-graph, prices or a solver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.common.faults import Faults
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.errors import CheckFailed, EqsatError, StageError, printable
from eqsat_opt.ir.graph.values_json import operator_from_json, operator_to_json
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.pipeline.certificates.comparison import agree
from eqsat_opt.pipeline.certificates.document import (
    ResultCertificate,
    place_of,
    read_certificate,
    read_step,
    require_as_written,
)
from eqsat_opt.pipeline.certificates.term_table import AppliedRule, Step, TermTable
from eqsat_opt.pipeline.decisions.making import applied
from eqsat_opt.pipeline.options import Options
from eqsat_opt.pipeline.request import Request, request_of
from eqsat_opt.proving.selection import standings
from eqsat_opt.rules.rule import Rule, directed
from eqsat_opt.select.rebuilding.graph_edit import graph_edit

if TYPE_CHECKING:
    import onnx_ir

__all__ = ["Certified", "certify"]


@dataclass(frozen=True)
class Certified:
    """The result of a check that did not fail.

    Attributes:
        numerics: class of the rules, each in the direction that its steps name, and of the passes
            by which the original was brought into normal form.
        rules: number of applications of each rule.
        compared: number of pairs of terms that were compared on numbers only.
        terms: number of terms of the original.
    """

    numerics: str
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
    except (EqsatError, IllTyped, LookupError, TypeError, ValueError) as error:
        raise CheckFailed(f"the certificate is refused: {printable(str(error))}") from error


def _certified(certificate: ResultCertificate, original: onnx_ir.Model, result: str) -> Certified:
    request = _request(certificate.options)
    if certificate.edit.bodies:
        raise StageError("bodies of operators have no certificate")
    made = applied(original, certificate.edit, request, Faults(is_strict=True))
    if content_digest(made.model) != result:
        raise CheckFailed("the result is not the one that the certificate makes of the model")
    own = graph_edit(made.graph, made.base)
    edit = {name: getattr(certificate.edit, name) for name in vars(own)}
    require_as_written(edit, vars(own), "the edit")
    terms = TermTable(lower(made.base, exact=request.exact))
    ends = terms.add_graph(made.graph)
    places = _places(certificate.terms, terms)
    known = (one.rule for one in standings().values() if not one.obstacle)
    rules = {rule.name: rule for rule in directed(list(known))}
    used: Counter[str] = Counter()
    for number, written in enumerate(certificate.steps):
        try:
            step = read_step(written, rules, places)
            if written in certificate.steps[:number]:
                raise StageError("it is given before")
            pairs = _equations(step, rules, terms)
        except (EqsatError, IllTyped) as error:
            raise CheckFailed(f"step {number} is refused: {printable(str(error))}") from error
        used[step.rule if isinstance(step, AppliedRule) else ""] += 1
        for left, right in pairs:
            terms.closure.unite(left, right, number)
    lowered = terms.lowered
    for output, (name, end) in zip(lowered.graph.outputs, ends.items(), strict=True):
        if not terms.closure.same(lowered.value[output], end):
            raise CheckFailed(f"the steps do not show that the output {name!r} is the same")
    compared = used.pop("", 0)
    numerics = max([request.numerics, *(rules[name].numerics for name in used)])
    return Certified(
        numerics.name.lower(), dict(sorted(used.items())), compared, len(lowered.terms)
    )


def _request(options: Mapping[str, str]) -> Request:
    """Return the request by which the original is read.

    Raises:
        StageError: an option is missing, unknown, or has a value that nobody writes.
    """
    if options.keys() != {"numerics", "precision", "check"} or options["check"] not in ("0", "1"):
        raise StageError("its options are not those of a certificate")
    given = Options(
        numerics=options["numerics"],
        precision=options["precision"],
        check=int(options["check"]),
        race=False,
        budget_s=60.0,
    )
    return request_of(given, searches=False)


def _places(written: Sequence[Document], terms: TermTable) -> list[int]:
    """Add the terms of a certificate; return the number in the table of each term that it names."""
    places = list(range(len(terms.lowered.terms)))
    for number, one in enumerate(written):
        where = f"term {number}"
        given = Entry({key: value for key, value in one.items() if key != "of"}, where)
        below = [place_of(operand, places) for operand in one["of"]]
        op, attrs = operator_from_json(given, len(below), {})
        require_as_written(one, {**operator_to_json(op, attrs), "of": one["of"]}, where)
        place = terms.apply(op, attrs, tuple(below))
        if place in places:
            raise StageError(f"{where} is given before")
        places.append(place)
    return places


def _equations(step: Step, rules: Mapping[str, Rule], terms: TermTable) -> list[tuple[int, int]]:
    """Return the pairs of terms that a step shows equal."""
    if isinstance(step, AppliedRule):
        return terms.sides(rules[step.rule], step)
    if not agree(terms, step.left, step.right):
        raise StageError("two terms differ, or cannot be compared on numbers")
    return [(step.left, step.right)]
