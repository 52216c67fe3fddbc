"""Ifs whose conditions are constant once the graph around them is in normal form."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.bodies.importer import is_if
from eqsat_opt.ir.onnx.importer import import_model

__all__ = ["folded_conditions", "import_decided"]


def import_decided(
    model: onnx_ir.Model, normal_form: Callable[[Graph], Graph | None], *, exact: bool
) -> tuple[Graph, Graph | None]:
    """Import a model such that no If of its normal form has a constant condition.

    A branch is entered by the importer, which applies all that it knows of shapes to the nodes of
    the branch. So each condition that the normal form folds is given to another import.

    Args:
        model: the model.
        normal_form: returns the normal form of an imported graph, ``None`` if it cannot.
        exact: whether every bit counts.

    Returns:
        the imported graph and its normal form.
    """
    conditions: dict[str, bool] = {}
    while True:
        imported = import_model(model, exact=exact, conditions=conditions)
        clean = normal_form(imported)
        folded = {} if clean is None else folded_conditions(clean)
        if folded.keys() <= conditions.keys():
            return imported, clean
        conditions.update(folded)


def folded_conditions(graph: Graph) -> dict[str, bool]:
    """Return the conditions of Ifs that folding has made constant, by their names in the model."""
    found = {}
    for node in graph.nodes:
        if node.op != OPAQUE or not is_if(node.payload):
            continue
        constant = graph.constants.get(node.inputs[0])
        name = node.payload.inputs[0].name
        if constant is not None and constant.type.dtype == "bool" and name:
            value = np.asarray(constant.load()).reshape(-1)
            if value.size == 1:
                found[name] = bool(value[0])
    return found
