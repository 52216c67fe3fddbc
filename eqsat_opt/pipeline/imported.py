"""The graph of a model in normal form, in which no If has a constant condition."""

from __future__ import annotations

from functools import partial

import onnx_ir

from eqsat_opt.common.faults import Faults
from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.onnx.bodies.importer import folded_conditions
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.passes.fp16 import in_half
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.pipeline.request import Request

__all__ = [
    "import_graph",
    "normalised",
]


def normalised(imported: Graph, request: Request) -> Graph:
    """Return the graph in normal form, in float16 if the request has that precision."""
    clean = normalise(imported, numerics=request.numerics)
    return in_half(clean) if request.precision is Precision.FP16 else clean


def import_graph(model: onnx_ir.Model, request: Request, faults: Faults) -> tuple[Graph, Graph]:
    """Return the graph of a model and its normal form, in which no If has a constant condition.

    Each condition that normalisation folds is given to another import, which takes its branch.
    """
    conditions: dict[str, bool] = {}
    while True:
        imported = import_model(model, exact=request.exact, conditions=conditions)
        clean = faults.contain(
            "normalise", partial(normalised, imported, request), "the model is searched as it is"
        )
        if clean is None:
            return imported, imported
        folded = folded_conditions(clean)
        if folded.keys() <= conditions.keys():
            return imported, clean
        conditions.update(folded)
