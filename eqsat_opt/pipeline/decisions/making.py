"""From a result to its decisions, and from an edit to the same result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir

from eqsat_opt.common.faults import Faults
from eqsat_opt.errors import InternalError, StageError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files.content import content_digest
from eqsat_opt.ir.passes.new_bodies import bodies_in, with_new_bodies
from eqsat_opt.ir.passes.storage_form import as_stored, unfolded
from eqsat_opt.pipeline.decisions.basis import basis_of
from eqsat_opt.pipeline.decisions.document import BodyEdit, Edit, RunDecisions
from eqsat_opt.pipeline.reading import import_graph
from eqsat_opt.pipeline.request import Request
from eqsat_opt.racing.earlier_result import RECORD
from eqsat_opt.racing.verdict import Verdict
from eqsat_opt.runtime.backends.ort.config import ORT_CONFIG, with_level
from eqsat_opt.select.rebuilding.graph_edit import edited_graph, graph_edit

__all__ = ["NO_DECISIONS", "Applied", "applied", "decisions_of", "edit_of", "with_advice"]

NO_DECISIONS = "no decisions are written"
"""The consequence of a fault, as the end of a sentence."""

Place = tuple[int, str]


def edit_of(
    base: Graph, bodies: Mapping[Place, Edit | None], graph: Graph, *, least_weights: bool
) -> Edit:
    """Return the edit that makes a result.

    Args:
        base: the graph that was searched, with new bodies.
        bodies: the edits of these, by the number of their node and the attribute.
        graph: the graph of the result.
        least_weights: whether constants are stored unfolded wherever this takes fewer bytes.

    Raises:
        InternalError: the graph is not an edit, or one of a body is missing.
    """
    changed = []
    for (number, key), edit in bodies.items():
        if edit is None:
            raise InternalError(f"how the body {key!r} is made is not known")
        changed.append(BodyEdit(next(filter(None, base.nodes[number].outputs)), key, edit))
    found = graph_edit(graph, base)
    return Edit(**vars(found), least_weights=least_weights, bodies=tuple(changed))


def decisions_of(
    result: onnx_ir.Model, verdict: Verdict, edit: Edit | None, request: Request, content: str
) -> RunDecisions:
    """Return the decisions of a run.

    Args:
        result: the model that is written.
        verdict: the verdict on it.
        edit: how it is made of the original; ``None`` if it is the original.
        request: the user's choices.
        content: digest of the original.
    """
    return RunDecisions(
        basis=basis_of(request),
        model=content,
        threads=request.threads,
        status=verdict.status,
        winner=verdict.winner,
        speedup=verdict.speedup,
        session_speedup=verdict.session_speedup,
        level=verdict.level,
        record=result.metadata_props.get(RECORD, "") if edit is not None else "",
        result="" if edit is None else content_digest(result, computed_only=True),
        edit=edit,
    )


@dataclass(frozen=True)
class Applied:
    """A result that was made by an edit.

    Attributes:
        imported: the graph of the original.
        base: the graph that the edit is about.
        graph: the graph of the result.
        model: the result.
    """

    imported: Graph
    base: Graph
    graph: Graph
    model: onnx_ir.Model


def applied(model: onnx_ir.Model, edit: Edit, request: Request, faults: Faults) -> Applied:
    """Make the result of a model by an edit.

    Raises:
        StageError: the edit is damaged, or about another model.
    """
    imported, base = import_graph(model, request, faults)
    if edit.bodies:
        base = with_new_bodies(base, _bodies(base, edit, request, faults))
    if edit.least_weights:
        base = unfolded(base, least=True)
    graph = edited_graph(edit, base)
    stored = as_stored(graph, exact=request.exact, least=edit.least_weights)
    return Applied(imported, base, graph, export_model(stored))


def _bodies(
    base: Graph, edit: Edit, request: Request, faults: Faults
) -> dict[Place, onnx_ir.Model]:
    """Return the new bodies by place, in the order of the edit."""
    found = bodies_in(base, exact=request.exact)
    places = {
        (next(filter(None, base.nodes[number].outputs)), key): (number, key)
        for number, key in found
    }
    made: dict[Place, onnx_ir.Model] = {}
    for one in edit.bodies:
        place = places.get((one.of, one.body))
        if place is None:
            raise StageError(f"{one.of!r} has no body {one.body!r} in the model")
        made[place] = applied(found[place].model, one.edit, request, faults).model
    return made


def with_advice(model: onnx_ir.Model, level: str) -> onnx_ir.Model:
    """Return a model with the advised level in its metadata, if there is one; it is changed."""
    if level:
        properties = model.metadata_props
        properties[ORT_CONFIG] = with_level(level, properties.get(ORT_CONFIG, ""))
    return model
