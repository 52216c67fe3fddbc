"""Optimises a model at the edges in one class, and judges all that came out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx

from eqsat_opt.api import Result, run
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.cost.metrics import TIME
from eqsat_opt.extract import Objective, extract
from eqsat_opt.ir.onnx.exporter import RULES_KEY, export_model, model_proto
from eqsat_opt.ir.onnx.files.load import load_model
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.pipeline.options import Options
from eqsat_opt.select import raise_graph, selected
from eqsat_opt.select.rebuilding.constants import Constants, spoilt_constants
from tests.property.edges.allowed import differences
from tests.property.edges.models import EdgeModel

__all__ = ["wrong_in", "wrong_in_mappings"]

_SEARCH = Options(
    measure=False, race=False, check=0, alternatives=0, store="", threads=1, nodes=1_000
)


def wrong_in(edge: EdgeModel, numerics: str, seed: int) -> list[str]:
    """What is wrong with the best model, and with one that random prices choose."""
    result = run(edge.model, replace(_SEARCH, numerics=numerics))
    found = [f"best: {w}" for w in differences(edge.model, result.model, edge.feeds, numerics)]
    other = _another(result, seed)
    if other is not None:
        wrong = differences(edge.model, other, edge.feeds, numerics)
        found += [f"other: {w}" for w in wrong]
    nodes = [n for model in (result.model, other) if model is not None for n in model.graph.node]
    used = [p.value for n in nodes for p in n.metadata_props if p.key == RULES_KEY]
    return [f"{w} (by {', '.join(sorted(set(used)))})" for w in found]


def wrong_in_mappings(edge: EdgeModel, numerics: str) -> list[str]:
    """What is wrong with the model when it is only read, normalised and written."""
    graph = normalise(
        import_model(load_model(edge.model), exact=numerics == "bitexact"),
        numerics=Numerics.parse(numerics),
    )
    return differences(edge.model, model_proto(export_model(graph)), edge.feeds, numerics)


def _another(result: Result, seed: int) -> onnx.ModelProto | None:
    """A model of the e-graph that random prices make cheap, what rules made before all."""
    proposal = result.proposal
    assert proposal is not None
    choice, saturation = proposal.choice, proposal.saturation
    index = choice.problem.index
    rng = np.random.default_rng(seed)
    costs = choice.problem.problem.impl_cost.copy()
    costs[:, choice.problem.problem.metrics.index(TIME)] = rng.uniform(0, 1, len(index)) * np.where(
        choice.priced.is_original[list(index)], rng.choice((1.0, 100.0)), 1.0
    )
    problem = replace(choice.problem.problem, impl_cost=costs)
    found = extract(problem, Objective({TIME: 1.0}), method="greedy")
    selection = selected(choice.priced, choice.problem, found)
    if spoilt_constants(Constants(saturation.lowered, saturation.eclasses), selection):
        return None  # the search refuses it too
    other: onnx.ModelProto = model_proto(
        export_model(raise_graph(saturation.lowered, saturation.eclasses, selection))
    )
    return other
