"""Files of models that a comparison found, with the way they were found and their costs."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from eqsat_opt.common.numerics import Numerics
from eqsat_opt.errors import OptionError, PlanError
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.exporter import export_model
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.files.save import save_model
from eqsat_opt.ir.onnx.files.stored_tensors import ModelLike, stored_tensors
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.sizes.sizes import size_sets
from eqsat_opt.lab.comparison import (
    CompareSettings,
    MethodResult,
    Original,
    Subject,
    planned,
    priced,
)
from eqsat_opt.lab.comparison.operators import fold_constants
from eqsat_opt.pipeline.options import Options
from eqsat_opt.racing.entrants import structure
from eqsat_opt.runtime.devices import HOST
from eqsat_opt.runtime.plan.files import write_plan

__all__ = ["RECORD", "Verification", "save_found", "save_plan", "verify_saved"]

RECORD = "eqsat_opt.compare"
"""Metadata key of a saved model, under which JSON describes how it was found."""


def save_found(
    found: MethodResult, original: Original, path: str, record: Mapping[str, Any]
) -> MethodResult:
    """Write the model of a result, and return the same result with the file.

    Args:
        found: the result, with its graph.
        original: the original model.
        path: file to write.
        record: the record of the comparison, for the metadata of the model.

    Raises:
        ModelError: the file cannot be written; nothing is left behind.
    """
    assert found.graph is not None
    graph = fold_constants(found.graph)
    model = export_model(graph)
    told = {
        **record,
        "method": found.method,
        "seed": found.seed,
        "original_cost": original.cost,
        "cost": found.cost,
        "uses": dict(found.rules),
        "written_out": _written_out(graph, import_model(model)),
    }
    model.metadata_props[RECORD] = json.dumps(told)
    save_model(model, path)
    digest = hashlib.sha256(structure(graph).encode()).hexdigest()
    return replace(found, model=path, structure=digest)


def _written_out(graph: Graph, read: Graph) -> list[str]:
    """Return the operators that the file expresses by others, since its operator set lacks them."""
    return sorted({node.op for node in graph.nodes} - {node.op for node in read.nodes})


def save_plan(
    found: MethodResult, model: ModelLike, subject: Subject, settings: CompareSettings
) -> tuple[MethodResult, tuple[str, ...]]:
    """Write the plan of a saved result beside its model, where there can be one.

    Returns:
        The same result, with the file; and a note that gives the reason if there is none.

    Raises:
        PlanError: the file cannot be written; nothing is left behind.
    """
    assert found.outcome is not None
    target = HOST if settings.profile is None else settings.profile.name
    try:
        plan = planned(found.outcome, stored_tensors(model), sizes=subject.sizes.all, target=target)
    except (OptionError, PlanError) as error:
        return found, (f"{found.method} has no plan: {error}",)
    path = f"{os.path.splitext(found.model)[0]}.plan.json"
    write_plan(path, plan)
    return replace(found, plan=path), ()


@dataclass(frozen=True)
class Verification:
    """The cost that a saved model records, and its cost priced anew.

    Attributes:
        record: the metadata: the model that it was found for, method, seed, settings and costs.
        said: the cost that was saved.
        found: the cost, priced anew from the file alone.
    """

    record: Mapping[str, Any]
    said: float
    found: float

    @property
    def agrees(self) -> bool:
        """Whether both costs are equal, up to the rounding of sums."""
        return math.isclose(self.said, self.found, rel_tol=1e-9, abs_tol=1e-3)


def verify_saved(path: str) -> Verification:
    """Price a saved model anew, by the settings that it was found with.

    Raises:
        ModelError: the file is no model.
        OptionError: it was not saved by a comparison, prices were measured, or the graph alone does
            not determine the cost of the method's kernels.
    """
    loaded = load_model(path)
    text = loaded.metadata_props.get(RECORD)
    if text is None:
        raise OptionError(f"{path} was not saved by compare --save, so it says nothing to verify")
    try:
        record = json.loads(text)
        settings = CompareSettings.from_json(record["settings"])
        said, numerics = float(record["cost"]), Numerics.parse(record["numerics"])
        threads = int(record.get("threads", 1))
        shapes = Options(shapes=record["shapes"]).shape_sets
    except (KeyError, TypeError, ValueError) as error:
        raise OptionError(f"{path} has metadata of compare that cannot be read: {error}") from error
    if settings.measure:
        raise OptionError(f"the prices of {path} were measured, so they cannot be told again")
    imported = import_model(loaded, exact=numerics is Numerics.BITEXACT)
    sizes = size_sets(imported, shapes)[0]
    subject = Subject(normalise(imported, numerics=numerics), (), sizes.given, threads=threads)
    verification = Verification(record, said, priced(subject, settings).cost)
    search = settings.searches.get(record.get("method"))
    if not verification.agrees and getattr(search, "places", False):
        raise OptionError(
            f"{record['method']} places the kernels itself, so {path} alone does not tell their "
            "cost; its plan does, where there is one beside it"
        )
    if not verification.agrees and (others := record.get("written_out")):
        raise OptionError(
            f"{path} says {', '.join(map(str, others))} by other operators, so it alone does not "
            "tell what they cost as one kernel each; its plan does, where there is one beside it"
        )
    return verification
