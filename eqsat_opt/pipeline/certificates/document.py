"""A certificate as a file: the edit that makes a result, and the steps that show it equal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat_opt.common.codecs import (
    Document,
    Entry,
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

__all__ = ["FORMAT", "ResultCertificate", "apply_step", "read_certificate", "steps_to_json"]

FORMAT = "eqsat-opt certificate 1"


@dataclass(frozen=True)
class ResultCertificate:
    """A certificate of one result.

    Attributes:
        model: digest of the original.
        options: name of an option to its text, for options that decide how the original is read.
        edit: how the result is made of the original.
        terms: terms that the steps are about and the original does not have, operands first.
        steps: rules applied to terms, and terms that are compared on numbers.
    """

    model: str
    options: Mapping[str, str]
    edit: Edit
    terms: tuple[Document, ...]
    steps: tuple[Document, ...]

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

    written: list[Document] = []
    for step in steps:
        if isinstance(step, Compared):
            written.append({"compared": [place(step.left), place(step.right)]})
            continue
        kinds = dict(rules[step.rule].kinds)
        written.append(
            {
                "rule": step.rule,
                "of": {name: place(value) for name, value in step.values.items()},
                "with": {
                    name: operator_to_json(*value) if kinds[name] == "Func" else _plain(value)
                    for name, value in step.attrs.items()
                },
            }
        )
    return tuple(made), tuple(written)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, (int, float, str)):
        return value
    raise StageError(f"the attribute {value} cannot be written")


# Reading -----------------------------------------------------------------------------------------


def apply_step(step: Document, rules: Mapping[str, Rule], places: Sequence[int]) -> Step:
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
            return Compared(_term(left, places), _term(right, places))
        rule = rules.get(str(step["rule"]))
        if rule is None:
            raise StageError(f"the book has no rule {step['rule']!r}")
        kinds = dict(rule.kinds)
        attrs = {
            name: operator_from_json(Entry(value, "a function"), 1, {})
            if kinds[name] == "Func"
            else tuple(value)
            if isinstance(value, list)
            else value
            for name, value in step["with"].items()
        }
        values = {name: _term(one, places) for name, one in step["of"].items()}
        return AppliedRule(rule.name, values, attrs)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise StageError(f"it is malformed: {type(error).__name__} {error}") from error


def _term(number: Any, places: Sequence[int]) -> int:
    if not isinstance(number, int) or not 0 <= number < len(places):
        raise StageError(f"there is no term {number!r}")
    return places[number]
