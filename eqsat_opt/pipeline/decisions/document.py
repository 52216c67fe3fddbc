"""Decisions as a file: canonical JSON that versions of one model can be compared by, line by line.

A decision is an edit of the normal form of the model, in which weights are named and never
contained. So the file is small, and the result is made of the model at hand.
"""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import dataclass, field

from eqsat_opt.common.codecs import (
    OMITTED,
    Document,
    document_text,
    read_document,
    require_format,
    value_from_json,
    value_to_json,
    write_document,
)
from eqsat_opt.common.paths import shown
from eqsat_opt.errors import StageError
from eqsat_opt.pipeline.decisions.basis import Basis
from eqsat_opt.select.rebuilding.graph_edit import GraphEdit

__all__ = [
    "FORMAT",
    "BodyEdit",
    "Edit",
    "PlannedForm",
    "RunDecisions",
    "TunedForm",
    "read_decisions",
    "write_decisions",
]

FORMAT = "eqsat-opt decisions 1"


@dataclass(frozen=True)
class Edit(GraphEdit):
    """The edit that makes the result of a model.

    Attributes:
        least_weights: whether constants are stored unfolded wherever this takes fewer bytes.
        bodies: edits of bodies of operators, which come first.
    """

    least_weights: bool = field(default=False, metadata=OMITTED)
    bodies: tuple[BodyEdit, ...] = field(default=(), metadata=OMITTED)


@dataclass(frozen=True)
class BodyEdit:
    """The edit of one body.

    Attributes:
        of: first output of the operator that has the body.
        body: attribute that holds it.
        edit: the edit.
    """

    of: str
    body: str
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


@dataclass(frozen=True, kw_only=True)
class RunDecisions:
    """The decisions of one run.

    Attributes:
        basis: the facts that they rest on.
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

    def __post_init__(self) -> None:
        for name in ("speedup", "session_speedup"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} is {getattr(self, name):g}, which is no gain")


def _checksum(value: Document) -> str:
    return hashlib.sha256(document_text(value).encode()).hexdigest()[:32]


def write_decisions(decisions: RunDecisions, path: str) -> None:
    """Write decisions whole or not at all, with a checksum of all values.

    Raises:
        StageError: the file cannot be written; nothing is left behind.
    """
    value = {"format": FORMAT, **value_to_json(decisions)}
    write_document(path, {**value, "checksum": _checksum(value)})


def read_decisions(path: str | os.PathLike[str]) -> RunDecisions:
    """Read decisions.

    Raises:
        StageError: the file cannot be read, is of another kind or version, or was changed.
    """
    document = read_document(path, "a file of decisions")
    try:
        require_format(document, FORMAT, "the file")
        checksum = document.pop("checksum", "")
        is_whole = checksum == _checksum(document)
        del document["format"]
        decisions = value_from_json(document, RunDecisions, "the file")
        if not is_whole:
            raise StageError("its checksum is that of other contents, so it is damaged or edited")
    except StageError as error:
        name = shown(os.fspath(path))
        raise StageError(f"{name}: {error}; decide again with --save-decisions") from error
    return decisions
