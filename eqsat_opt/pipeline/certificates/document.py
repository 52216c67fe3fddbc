"""A certificate as a file: the edit that makes a result, and the steps that show it equal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eqsat_opt.checking.bound import BoundProof
from eqsat_opt.common.codecs import (
    Document,
    Entry,
    compact_text,
    read_document,
    require_format,
    value_from_json,
    value_to_json,
    write_document,
)
from eqsat_opt.common.paths import shown
from eqsat_opt.egraph.terms import LEAF, OUT
from eqsat_opt.errors import StageError
from eqsat_opt.ir.graph.graph import OPAQUE
from eqsat_opt.ir.graph.values_json import operator_from_json, operator_to_json
from eqsat_opt.pipeline.certificates.term_table import AppliedRule, Compared, Step, TermTable
from eqsat_opt.pipeline.decisions.document import Edit
from eqsat_opt.rules.rule import Rule

__all__ = [
    "FORMAT",
    "PricedBound",
    "ResultCertificate",
    "place_of",
    "read_certificate",
    "read_step",
    "require_as_written",
    "steps_to_json",
]

FORMAT = "eqsat-opt certificate 2"


@dataclass(frozen=True)
class PricedBound:
    """A proof of how much cheaper any other choice from the e-graph could be.

    Attributes:
        goal: the objective in its grammar.
        cost: the objective of the result, as predicted.
        claimed: the lower bound that the solver gives.
        proof: the options with their costs, the cheapest choice that was found, and a lower bound.
    """

    goal: str
    cost: float
    claimed: float
    proof: BoundProof


@dataclass(frozen=True)
class ResultCertificate:
    """A certificate of one result.

    Attributes:
        model: digest of the original.
        options: name of an option to its text, for options that decide how the original is read.
        edit: how the result is made of the original.
        terms: terms that the steps are about and the original does not have, operands first.
        steps: rules applied to terms, and terms that are compared on numbers.
        bound: how far the result is from the cheapest choice; ``None`` where the objective is a
            product or a quotient.
    """

    model: str
    options: Mapping[str, str]
    edit: Edit
    terms: tuple[Document, ...]
    steps: tuple[Document, ...]
    bound: PricedBound | None

    def write(self, path: str) -> None:
        """Write the certificate whole or not at all.

        Raises:
            StageError: the file cannot be written; nothing is left behind.
        """
        write_document(path, {"format": FORMAT, **value_to_json(self)})


def read_certificate(path: str | os.PathLike[str]) -> ResultCertificate:
    """Read a certificate; its steps are checked where they are applied.

    Raises:
        StageError: the file cannot be read, or is of another kind or version.
    """
    document = read_document(path, "a certificate")
    try:
        require_format(document, FORMAT, "the file")
        del document["format"]
        return value_from_json(document, ResultCertificate, "the file")
    except StageError as error:
        name = shown(os.fspath(path))
        raise StageError(f"{name}: {error}; make it again with --certificate") from error


# Writing -----------------------------------------------------------------------------------------


def steps_to_json(
    terms: TermTable, steps: Sequence[Step], rules: Mapping[str, Rule]
) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """Return the terms that steps are about, but for those of the original, and the steps.

    Raises:
        StageError: a step is about a term that cannot be written.
    """
    own = len(terms.lowered.terms)
    made: list[Document] = []
    places: dict[int, int] = {}

    def place(term: int) -> int:
        if term < own:
            return term
        if term not in places:
            (op, attrs), operands, _ = terms.heads(term)
            if op in (LEAF, OUT, OPAQUE, terms.UNKNOWN):
                raise StageError(f"a step is about {op}, which cannot be written")
            below = [place(one) for one in operands]
            made.append({**operator_to_json(op, attrs), "of": below})
            places[term] = own + len(made) - 1
        return places[term]

    written = tuple(_step_to_json(step, rules, place) for step in steps)  # which adds terms
    return tuple(made), written


def _step_to_json(step: Step, rules: Mapping[str, Rule], place: Callable[[int], int]) -> Document:
    if isinstance(step, Compared):
        return {"compared": [place(step.left), place(step.right)]}
    kinds = dict(rules[step.rule].kinds)
    return {
        "rule": step.rule,
        "of": {name: place(value) for name, value in step.values.items()},
        "with": {
            name: operator_to_json(*value) if kinds[name] == "Func" else _plain(value)
            for name, value in step.attrs.items()
        },
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return value
    raise StageError(f"the attribute {value} cannot be written")


# Reading -----------------------------------------------------------------------------------------


def read_step(step: Document, rules: Mapping[str, Rule], places: Sequence[int]) -> Step:
    """Return a step about terms by their numbers in a table.

    Args:
        step: the step as it is written.
        rules: rules by name, in the direction in which they are read.
        places: number in the table of each term of the certificate.

    Raises:
        StageError: the step is malformed, or names a rule or a term that is not known.
    """
    try:
        if "compared" in step:
            left, right = step["compared"]
            own: Step = Compared(left, right)
        else:
            rule = rules.get(step["rule"])
            if rule is None:
                raise StageError(f"the book has no certified rule {step['rule']!r}")
            kinds = dict(rule.kinds)
            own = AppliedRule(
                rule.name,
                step["of"],
                {name: _attribute(value, kinds[name]) for name, value in step["with"].items()},
            )
            if sorted([*own.values, *own.attrs]) != sorted(kinds):
                raise StageError(f"{rule.name} has other variables")
        require_as_written(step, _step_to_json(own, rules, lambda place: place), "it")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StageError(f"it is malformed: {type(error).__name__} {error}") from error
    if isinstance(own, Compared):
        return Compared(place_of(own.left, places), place_of(own.right, places))
    return replace(own, values={name: place_of(one, places) for name, one in own.values.items()})


def require_as_written(given: Document, again: Document, what: str) -> None:
    """Refuse a part of a certificate that is not as it would be written.

    Raises:
        StageError: it has other keys, or values of other kinds.
    """
    if compact_text(given) != compact_text(again):
        raise StageError(f"{what} is not as it would be written")


def _attribute(value: Any, kind: str) -> Any:
    if kind == "Func":
        return operator_from_json(Entry(value, "a function"), 1, {})
    return _nested(value)


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def place_of(number: Any, places: Sequence[int]) -> int:
    """Return the number in the table of a term of a certificate.

    Raises:
        StageError: the certificate does not have that term before.
    """
    if type(number) is not int or not 0 <= number < len(places):
        raise StageError(f"there is no term {number!r}")
    return places[number]
