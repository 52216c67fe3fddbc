"""The result of an earlier run in the same file: whether it may race again, and had won before.

A result records its origin: a digest of the model that was given, of the rules and of the numerics
class. Where these are the same, it is as good a candidate as those of this run, once it has passed
the same check. The record is no signature: anybody who edits a file can copy it, which is why the
check never trusts it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx_ir

from eqsat_opt.common.codecs import record_in
from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.racing.examination import RaceTerms, compared, observe
from eqsat_opt.racing.finding import Findings
from eqsat_opt.racing.verdict import PREVIOUS, Status, Verdict
from eqsat_opt.runtime.backends.ort.config import ORT_CONFIG, level_of
from eqsat_opt.runtime.backends.tuned_file import is_tuned_by
from eqsat_opt.runtime.source import ModelSource

if TYPE_CHECKING:
    from eqsat_opt.rules import Rule

__all__ = [
    "RECORD",
    "Joined",
    "Previous",
    "find_previous",
    "join_previous",
    "origin_of",
    "record_of",
    "rule_lines",
]

RECORD = "eqsat_opt"
"""Metadata key of a result: JSON with ``origin`` and ``status``."""

_WON: tuple[Status, ...] = ("improved", "improved_with_option", "kept")


_READINGS = 3
"""Passes over the weights before an earlier result races: to load, identify and compare it."""


def _no_time(name: str) -> str:
    return f"{name} was there before; there was no time to race it again"


@dataclass(frozen=True)
class Previous:
    """A result of an earlier run for the same model, by the same rules.

    Attributes:
        path: path of its file.
        model: the model in the file.
        graph: the model as imported.
        has_won: whether it had won a race when it was written.
    """

    path: str
    model: onnx_ir.Model
    graph: Graph
    has_won: bool

    def name_among(self, candidates: Mapping[str, onnx_ir.Model]) -> str:
        """Return the name under which it races: that of an equal candidate, or its own."""
        same = (name for name, model in candidates.items() if _is_same(self.model, model))
        return next(same, PREVIOUS)


@dataclass(frozen=True)
class Joined:
    """The candidates of a search, with the earlier result among them.

    Attributes:
        found: the candidates; the earlier result comes last.
        previous: the earlier result; ``None`` if it does not take part.
        name: name under which it races.
        note: why it does not take part, as a sentence; empty if there is nothing to say.
    """

    found: Findings
    previous: Previous | None = None
    name: str = ""
    note: str = ""

    @property
    def incumbent(self) -> str:
        """The name of an earlier result that had won; empty if there is none."""
        return self.name if self.previous is not None and self.previous.has_won else ""

    def is_written(self, verdict: Verdict) -> bool:
        """Return whether the file of the earlier result is the one that the verdict demands."""
        if self.previous is None or not self.incumbent:
            return False
        level = level_of(self.previous.model.metadata_props.get(ORT_CONFIG, ""))
        return verdict.winner == self.incumbent and verdict.level in ("", level)


def join_previous(
    found: Findings,
    path: str | os.PathLike[str],
    given: onnx_ir.Model,
    origin: Callable[[], str],
    original: ModelSource,
    terms: RaceTerms,
) -> Joined:
    """Let the result of an earlier run race again, if it computes what the original computes.

    Args:
        found: the candidates of this run.
        path: path of a file that the result of this run will replace.
        given: the model as given.
        origin: returns the origin of this run's results; called if there is a record to compare.
        original: the model as the runtime loads it.
        terms: terms of the check. The earlier result is checked even where the user trusts the
            rules, as the file may have been changed.
    """
    if terms.deadline.left_s < _READINGS * terms.bulk_s:
        return Joined(found, note=_no_time(os.fspath(path)))
    previous, note = find_previous(path, given, origin)
    if previous is None:
        return Joined(found, note=note)
    name = previous.name_among(found.exported)
    if name != PREVIOUS:
        return Joined(found, previous, name)
    checked = replace(terms, seeds=terms.seeds or (terms.seed,))
    before = found.examined if terms.seeds and found.examined else observe(original, checked)
    own = compared(before, {name: previous.path}, checked)
    if own.obstacle:
        return Joined(found)
    if name in own.skipped:
        return Joined(found, note=_no_time(previous.path))
    if not own.is_sound(name):
        why = own.refused.get(name) or f"output {own.wrong[name].name!r}: {own.wrong[name].why}"
        return Joined(found, note=f"the earlier result in {previous.path} is dropped: {why}")
    examined = found.examined or own
    found = replace(
        found,
        entrants={**found.entrants, name: previous.graph},
        exported={**found.exported, name: previous.model},
        models={**found.models, name: previous.path},
        examined=replace(
            examined, differences={**examined.differences, name: own.differences[name]}
        ),
    )
    return Joined(found, previous, name)


def rule_lines(rules: Iterable[Rule]) -> list[str]:
    """Return a line for each rule with all that it says, in the order of their names."""
    return sorted(f"{rule.name} {rule.numerics.name} {rule}" for rule in rules)


def origin_of(content: str, rules: Iterable[Rule], numerics: str) -> str:
    """Return a digest of all that decides on possible results.

    Args:
        content: digest of the model.
        rules: rules that may be applied.
        numerics: class of differences that are allowed.
    """
    parts = [content, numerics, *rule_lines(rules)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def record_of(origin: str, status: Status) -> str:
    """Return the record that a result holds under :data:`RECORD`."""
    return json.dumps({"origin": origin, "status": status})


def find_previous(
    path: str | os.PathLike[str], given: onnx_ir.Model, origin: Callable[[], str]
) -> tuple[Previous | None, str]:
    """Return the result of an earlier run at ``path``, or a sentence on why there is none.

    Args:
        path: path of a file that the result of this run will replace.
        given: the model as given; where the file holds just that, the sentence is empty.
        origin: returns the origin of this run's results. It reads all weights, so it is called only
            if there is a record to compare.
    """
    name = os.fspath(path)
    try:
        model = load_model(path)
        if is_tuned_by(model.metadata_props):  # it carries the record of the portable result
            return None, f"{name} was there before; it is a tuned form, which is not raced again"
        record = record_in(model.metadata_props.get(RECORD, ""))
        if "origin" not in record:
            if _is_same(model, given):
                return None, ""
            return None, f"{name} was there before; it carries no record of an earlier run"
        if record["origin"] != origin():
            why = "another model, other rules or another numerics class"
            return None, f"{name} was there before; it is a result for {why}"
        has_won = record.get("status") in _WON
        return Previous(name, model, import_model(model), has_won), ""
    except ModelError as error:
        return None, f"{name} was there before; it cannot be read as a model: {error}"


def _is_same(one: onnx_ir.Model, other: onnx_ir.Model) -> bool:
    """Return whether two models have the same content.

    Operators are compared first: most models differ in these, and no weights have to be read.
    """
    if [node.op_type for node in one.graph] != [node.op_type for node in other.graph]:
        return False
    return content_digest(one) == content_digest(other)
