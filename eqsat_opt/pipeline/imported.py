"""The graph of a model in normal form, in which no If has a constant condition."""

from __future__ import annotations

from functools import partial

import onnx_ir

from eqsat_opt.common.faults import Faults
from eqsat_opt.common.numerics import Numerics
from eqsat_opt.common.precision import Precision
from eqsat_opt.ir.graph.graph import Graph
from eqsat_opt.ir.passes.conditions import import_decided
from eqsat_opt.ir.passes.fp16 import in_half
from eqsat_opt.ir.passes.normalise import normalise
from eqsat_opt.ir.passes.recurrences.layers import with_layers
from eqsat_opt.ir.passes.recurrences.loop_layers import with_loop_layers
from eqsat_opt.ir.passes.recurrences.products import with_joint_products
from eqsat_opt.pipeline.request import Request

__all__ = [
    "import_graph",
    "normalised",
]


def normalised(imported: Graph, request: Request) -> Graph:
    """Return the graph in normal form, in float16 if the request has that precision."""
    clean = normalise(imported, numerics=request.numerics)
    if request.numerics >= Numerics.REASSOCIATE:
        normal_form = partial(normalise, numerics=request.numerics)
        better = clean
        if request.runs_models:
            better = with_layers(with_loop_layers(better, normal_form))
        better = with_joint_products(better)
        clean = clean if better is clean else normal_form(better)
    return in_half(clean) if request.precision is Precision.FP16 else clean


def import_graph(model: onnx_ir.Model, request: Request, faults: Faults) -> tuple[Graph, Graph]:
    """Return the graph of a model and its normal form, in which no If has a constant condition."""

    def contained(imported: Graph) -> Graph | None:
        work = partial(normalised, imported, request)
        return faults.contain("normalise", work, "the model is searched as it is")

    imported, clean = import_decided(model, contained, exact=request.exact)
    return imported, imported if clean is None else clean
