"""The check of a certificate on two models: without an e-graph, prices or a solver."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eqsat_opt.checking.bound import check_bound
from eqsat_opt.common.codecs import Document, Entry
from eqsat_opt.common.faults import Faults
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.egraph.loading.lowering import lower
from eqsat_opt.errors import CheckFailed, EqsatError, StageError, printable
from eqsat_opt.extract.extraction import relative_gap
from eqsat_opt.ir.graph.values_json import operator_from_json, operator_to_json
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.ops import IllTyped
from eqsat_opt.ir.values.types import FLOATS, ValueType
from eqsat_opt.pipeline.certificates.comparison import agree
from eqsat_opt.pipeline.certificates.document import (
    PricedBound,
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
from eqsat_opt.rules.rule import Rule, directed, opposite
from eqsat_opt.select.rebuilding.graph_edit import graph_edit

if TYPE_CHECKING:
    import onnx
    import onnx_ir

__all__ = ["Certified", "CertifiedBound", "certify"]

_ROUNDING = 1e-9
"""Relative error of sums of floats in another order."""


@dataclass(frozen=True)
class Certified:
    """The result of a check that did not fail.

    Attributes:
        numerics: class of the rules, each in the direction in which it leads to the result, and of
            the passes by which the original was brought into normal form.
        rules: number of applications of each rule.
        compared: number of pairs of terms that were compared on numbers only.
        terms: number of terms of the original.
        bound: how far the result is from the cheapest choice; ``None`` where that has no proof.
    """

    numerics: str
    rules: dict[str, int]
    compared: int
    terms: int
    bound: CertifiedBound | None


@dataclass(frozen=True)
class CertifiedBound:
    """A lower bound that was checked, beside what was claimed.

    Attributes:
        goal: the objective, in its grammar.
        cost: the objective of the result, as predicted.
        cheapest: the objective of the cheapest choice that was found.
        lower_bound: no choice makes less, as checked.
        gap: difference of cost and bound in relation to the cost.
        claimed_gap: the same with the bound that the solver claims.
        options, classes: how many there are to choose from.
    """

    goal: str
    cost: float
    cheapest: float
    lower_bound: float
    gap: float
    claimed_gap: float
    options: int
    classes: int


def certify(model: str | onnx.ModelProto, result: str | onnx.ModelProto, path: str) -> Certified:
    """Check that a result follows from a model by the steps of a certificate.

    The edit of the certificate is applied to the model, whose constants are folded again, and must
    give the result. Each step is applied to the terms of both, and they must be equal then.

    Args:
        model: the original, or its file.
        result: the result, or its file.
        path: file of the certificate.

    Raises:
        ModelError: a model cannot be read.
        StageError: the certificate cannot be read.
        CheckFailed: the certificate is about other models, or does not show them equal.
    """
    certificate = read_certificate(path)
    original, other = load_model(model), load_model(result)
    if content_digest(original) != certificate.model:
        raise CheckFailed("the certificate is about another model")
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
    applied_to: dict[int, tuple[str, ValueType]] = {}
    for number, written in enumerate(certificate.steps):
        try:
            step = read_step(written, rules, places)
            if written in certificate.steps[:number]:
                raise StageError("it is given before")
            pairs = _equations(step, rules, terms)
        except (EqsatError, IllTyped) as error:
            raise CheckFailed(f"step {number} is refused: {printable(str(error))}") from error
        used[step.rule if isinstance(step, AppliedRule) else ""] += 1
        if isinstance(step, AppliedRule):
            applied_to[number] = step.rule, terms.types[pairs[0][0]]
        for left, right in pairs:
            terms.closure.unite(left, right, number)
    lowered = terms.lowered
    classes = [request.numerics]
    for output, (name, end) in zip(lowered.graph.outputs, ends.items(), strict=True):
        start = lowered.value[output]
        if not terms.closure.same(start, end):
            raise CheckFailed(f"the steps do not show that the output {name!r} is the same")
        for number, forward in terms.closure.reasons(start, end):
            if number in applied_to:
                classes.append(_class_of(*applied_to[number], rules, forward=forward))
    compared = used.pop("", 0)
    numerics = max(classes)
    return Certified(
        numerics.name.lower(), dict(sorted(used.items())), compared, len(lowered.terms),
        bound=None if certificate.bound is None else _bound(certificate.bound),
    )  # fmt: skip


def _bound(written: PricedBound) -> CertifiedBound:
    """Return the bound of a certificate, as far as its proof shows it.

    Raises:
        ValueError: the proof is none, or the result is said to make less than any choice.
    """
    found = check_bound(written.proof)
    if not found.lower_bound <= written.cost * (1 + _ROUNDING) < math.inf:
        raise ValueError(f"the result makes {written.cost}, less than any choice")
    return CertifiedBound(
        goal=written.goal,
        cost=written.cost,
        cheapest=found.cost,
        lower_bound=found.lower_bound,
        gap=relative_gap(written.cost, found.lower_bound),
        claimed_gap=relative_gap(written.cost, written.claimed),
        options=found.options,
        classes=found.classes,
    )


def _class_of(name: str, type_: ValueType, rules: Mapping[str, Rule], *, forward: bool) -> Numerics:
    """Return the class of a rule on elements of a type, as it is read.

    Sides that are equal bit for bit at all floating-point numbers are so in both directions. For
    other rules that have one direction, nobody measured the other one.
    """
    rule = rules.get(name if forward else opposite(name))
    if rule is not None:
        return rule.numerics
    symmetric = rules[name].numerics == Numerics.BITEXACT and getattr(type_, "dtype", "") in FLOATS
    return Numerics.BITEXACT if symmetric else Numerics.RELAXED


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
