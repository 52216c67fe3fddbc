"""Decisions as a file: canonical JSON that versions of one model can be compared by, line by line.

A decision is an edit of the normal form of the model, in which weights are named and never
contained. So the file is small, and the result is made of the model at hand.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, fields
from typing import Any

from eqsat_opt.common.codecs import (
    Document,
    Entry,
    document_text,
    number_to_json,
    read_document,
    write_document,
)
from eqsat_opt.common.paths import shown
from eqsat_opt.errors import StageError
from eqsat_opt.pipeline.decisions.basis import Basis

__all__ = [
    "FORMAT",
    "BodyEdit",
    "Decisions",
    "Edit",
    "PlannedForm",
    "TunedForm",
    "read_decisions",
    "write_decisions",
]

FORMAT = "eqsat-opt decisions 1"


@dataclass(frozen=True)
class Edit:
    """The edit that makes the result of a model.

    Attributes:
        graph: the edit of the normal form, as `select.rebuilding.graph_edit` writes it.
        least_weights: whether constants are stored unfolded wherever this takes fewer bytes.
        bodies: edits of bodies of operators, which come first.
    """

    graph: Document
    least_weights: bool = False
    bodies: tuple[BodyEdit, ...] = ()

    def to_json(self) -> Document:
        """Return plain values."""
        value: Document = dict(self.graph)
        if self.least_weights:
            value["least_weights"] = True
        if self.bodies:
            value["bodies"] = [
                {"of": one.node, "body": one.key, "edit": one.edit.to_json()} for one in self.bodies
            ]
        return value

    @classmethod
    def from_json(cls, entry: Entry) -> Edit:
        """Read the result of `to_json`; the graph is checked when it is applied.

        Raises:
            StageError: a field is of another kind.
        """
        bodies = []
        for one in entry.entries("bodies", "body"):
            one.require_all("of", "body", "edit")
            inner = cls.from_json(Entry(one.get("edit"), one.place("edit")))
            bodies.append(BodyEdit(one.text("of"), one.text("body"), inner))
        graph = {k: v for k, v in entry.value.items() if k not in ("least_weights", "bodies")}
        least = "least_weights" in entry.value and entry.flag("least_weights")
        return cls(graph, least_weights=least, bodies=tuple(bodies))


@dataclass(frozen=True)
class BodyEdit:
    """The edit of one body.

    Attributes:
        node: first output of the operator that has the body.
        key: attribute that holds it.
        edit: the edit.
    """

    node: str
    key: str
    edit: Edit


@dataclass(frozen=True, kw_only=True)
class TunedForm:
    """How the tuned form of a result is made.

    Attributes:
        base: the graph that runs, before our kernels are in it: ``original``, ``portable``, or
            another one that suits the kernels better; empty where the portable result is the best
            form.
        edit: how such another graph is made of the model; ``None`` for the other two.
        ways: the way of each site of the graph, as `Tuning.ways` says.
        record: the record in the metadata of the file; empty where it has none.
        digest: SHA-256 of the file.
    """

    base: str
    edit: Edit | None
    ways: tuple[str, ...]
    record: str
    digest: str

    def to_json(self) -> Document:
        """Return plain values."""
        return {
            "base": self.base,
            "edit": None if self.edit is None else self.edit.to_json(),
            "ways": list(self.ways),
            "record": self.record,
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, entry: Entry) -> TunedForm:
        """Read the result of `to_json`.

        Raises:
            StageError: a field is missing, unknown or of another kind.
        """
        entry.require_all(*(one.name for one in fields(cls)))
        return cls(
            base=entry.text("base"),
            edit=_edit(entry),
            ways=entry.texts("ways"),
            record=entry.text("record"),
            digest=entry.text("digest"),
        )


@dataclass(frozen=True, kw_only=True)
class PlannedForm:
    """The plan of a result, which holds no weights.

    Attributes:
        graph, placement: names of the graph that it computes, and of its assignment to backends.
        predicted_us: its simulated time, µs.
        plan: the plan as `runtime.plan.files.plan_to_json` writes it.
    """

    graph: str
    placement: str
    predicted_us: float
    plan: Document

    def to_json(self) -> Document:
        """Return plain values."""
        about = {"graph": self.graph, "placement": self.placement}
        return {**about, "predicted_us": number_to_json(self.predicted_us), "plan": self.plan}

    @classmethod
    def from_json(cls, entry: Entry) -> PlannedForm:
        """Read the result of `to_json`; the plan is checked when it is used.

        Raises:
            StageError: a field is missing, unknown or of another kind.
        """
        entry.require_all(*(one.name for one in fields(cls)))
        return cls(
            graph=entry.text("graph"),
            placement=entry.text("placement"),
            predicted_us=entry.number("predicted_us"),
            plan=entry.mapping("plan").value,
        )


def _edit(entry: Entry) -> Edit | None:
    edit = _inner(entry, "edit")
    return None if edit is None else Edit.from_json(edit)


def _inner(entry: Entry, name: str) -> Entry | None:
    """Return an object in a document; ``None`` where it is null."""
    value = entry.get(name)
    return None if value is None else Entry(value, entry.place(name))


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """The decisions of one run.

    Attributes:
        basis: what they rest on.
        model: digest of the model.
        threads: number of threads per session for which prices were measured and races were run.
        status, winner, speedup, session_speedup: the outcome, as in the report of that run.
        level: level of onnxruntime's optimiser that the result advises; empty for none.
        record: the record in the metadata of the result; empty for none.
        result: digest of the result; empty where the original is the result.
        edit: how the result is made; ``None`` where the original is the result.
        tuned: how the tuned form is made; ``None`` where the run made none.
        planned: the plan; ``None`` where the run made none.
    """

    basis: Basis
    model: str
    threads: int
    status: str
    winner: str
    speedup: float
    session_speedup: float
    level: str
    record: str
    result: str
    edit: Edit | None
    tuned: TunedForm | None = None
    planned: PlannedForm | None = None

    def to_json(self) -> Document:
        """Return plain values, with a checksum of all others."""
        value: Document = {
            "format": FORMAT,
            **{one.name: getattr(self, one.name) for one in fields(self)},
            "basis": self.basis.to_json(),
            "speedup": number_to_json(self.speedup),
            "session_speedup": number_to_json(self.session_speedup),
            "edit": None if self.edit is None else self.edit.to_json(),
            "tuned": None if self.tuned is None else self.tuned.to_json(),
            "planned": None if self.planned is None else self.planned.to_json(),
        }
        return {**value, "checksum": _checksum(value)}

    @classmethod
    def from_json(cls, document: Any) -> Decisions:
        """Read the result of `to_json`.

        Raises:
            StageError: the document is of another kind or version, or was changed.
        """
        entry = Entry(document, "the file")
        entry.require_format(FORMAT)
        entry.require_all("format", *(one.name for one in fields(cls)), "checksum")
        rest = {name: value for name, value in document.items() if name != "checksum"}
        if _checksum(rest) != entry.get("checksum"):
            raise StageError("its checksum is that of other contents, so it is damaged or edited")
        tuned, planned = (_inner(entry, name) for name in ("tuned", "planned"))
        return cls(
            basis=Basis.from_json(Entry(entry.get("basis"), entry.place("basis"))),
            model=entry.text("model"),
            threads=entry.whole("threads", 1 << 30),
            status=entry.text("status"),
            winner=entry.text("winner"),
            speedup=_gain(entry, "speedup"),
            session_speedup=_gain(entry, "session_speedup"),
            level=entry.text("level"),
            record=entry.text("record"),
            result=entry.text("result"),
            edit=_edit(entry),
            tuned=None if tuned is None else TunedForm.from_json(tuned),
            planned=None if planned is None else PlannedForm.from_json(planned),
        )


def _gain(entry: Entry, name: str) -> float:
    value = entry.number(name)
    if not 0 < value < math.inf:
        raise StageError(f"{entry.place(name)} is {value:g}, which is no gain")
    return value


def _checksum(value: Document) -> str:
    return hashlib.sha256(document_text(value).encode()).hexdigest()[:32]


def write_decisions(decisions: Decisions, path: str) -> None:
    """Write decisions whole or not at all.

    Raises:
        StageError: the file cannot be written; nothing is left behind.
    """
    write_document(path, decisions.to_json())


def read_decisions(path: str | os.PathLike[str]) -> Decisions:
    """Read decisions.

    Raises:
        StageError: the file cannot be read, is of another kind or version, or is damaged.
    """
    document = read_document(path, "a file of decisions")
    try:
        return Decisions.from_json(document)
    except StageError as error:
        name = shown(os.fspath(path))
        raise StageError(f"{name}: {error}; decide again with --save-decisions") from error
