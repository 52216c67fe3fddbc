"""Ifs whose conditions are known: constant in normal form, or without an alternative.

Where the branches of an If have results of different rank, all that reads them has no type. Often
only one of the branches lets the model run: a squeezed state enters an LSTM, another one could not.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir

from eqsat_opt.errors import ModelError
from eqsat_opt.ir.graph.graph import OPAQUE, Graph
from eqsat_opt.ir.onnx.bodies.importer import BRANCHES, is_if
from eqsat_opt.ir.onnx.contradictions import NeverRuns
from eqsat_opt.ir.onnx.files.load import node_reads
from eqsat_opt.ir.onnx.import_context import is_small_integer
from eqsat_opt.ir.onnx.importer import import_model
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.values.types import OtherType

__all__ = ["folded_conditions", "folded_sizes", "import_decided"]

Array = npt.NDArray[Any]

_MOST_OF_SIZES = 6
"""Imports of a model after which folded sizes lead to no other."""

_MOST_TRIALS = 4
"""Ifs of which both branches are tried in turn; the model is imported once for each."""


def import_decided(
    model: onnx_ir.Model, normal_form: Callable[[Graph], Graph | None], *, exact: bool
) -> tuple[Graph, Graph | None]:
    """Import a model such that no If of its normal form has a condition that is known.

    A branch is entered by the importer, which applies all that it knows of shapes to the nodes of
    the branch. So each condition that the normal form folds is given to another import, and so are
    sizes that it folds, where an operator could not be read without them.

    Args:
        model: the model.
        normal_form: returns the normal form of an imported graph, ``None`` if it cannot.
        exact: whether every bit counts.

    Returns:
        the imported graph and its normal form.
    """
    conditions: dict[str, bool] = {}
    sizes: dict[str, Array] = {}
    for count in itertools.count(1):
        imported = import_model(model, exact=exact, conditions=conditions, folded=sizes)
        clean = normal_form(imported)
        folded = {} if clean is None else folded_conditions(clean)
        measured = {} if clean is None or count >= _MOST_OF_SIZES else folded_sizes(clean)
        if folded.keys() <= conditions.keys() and measured.keys() <= sizes.keys():
            folded = _without_alternative(model, imported, conditions, exact=exact)
            if not folded:
                return imported, clean
        conditions.update(folded)
        sizes.update(measured)
    raise AssertionError("unreachable")


def _without_alternative(
    model: onnx_ir.Model, imported: Graph, conditions: Mapping[str, bool], *, exact: bool
) -> dict[str, bool]:
    """Return the first condition that must have one value, or the model could not run."""
    needed = _needed(model.graph)
    names = (name for name in _conditions_of_unknown_ranks(imported) if name not in conditions)
    for _, name in zip(range(_MOST_TRIALS), names, strict=False):
        refuted = [
            value
            for value in (True, False)
            if _never_runs(model, {**conditions, name: value}, needed, exact=exact)
        ]
        if len(refuted) == 1:
            return {name: not refuted[0]}
    return {}


def _conditions_of_unknown_ranks(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if node.op == OPAQUE and is_if(node.payload):
            name = node.payload.inputs[0].name
            if name and any(isinstance(graph.types[one], OtherType) for one in node.outputs if one):
                yield name


def _never_runs(
    model: onnx_ir.Model, conditions: Mapping[str, bool], needed: set[str], *, exact: bool
) -> bool:
    """Return whether a node that every run needs cannot run under some conditions."""
    try:
        import_model(model, exact=exact, conditions=conditions)
    except NeverRuns as error:
        return not needed.isdisjoint(error.results)
    except ModelError:
        pass  # the branch has another fault, of which nothing is concluded
    return False


def _needed(graph: onnx_ir.Graph) -> set[str]:
    """Return the values on which the outputs of a graph depend, in its branches too.

    The importer examines nodes of a branch only once it is known that the branch is taken. Nodes
    out of order may be missed, which leaves an If as it is.
    """
    needed = {value.name for value in graph.outputs if value.name}
    for node in reversed(graph):
        if not needed.isdisjoint(value.name or "" for value in node.outputs):
            needed.update(node_reads(node))
            if is_if(node):
                for name in BRANCHES:
                    needed |= _needed(node.attributes[name].as_graph())
    return needed


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


def folded_sizes(graph: Graph) -> dict[str, Array]:
    """Return short integers that folding has made constant, and that unread operators take.

    Sizes are computed in floats too (a factor of the smaller side, rounded down), where no size is
    followed, but folded.
    """
    found: dict[str, Array] = {}
    for node in graph.nodes:
        payload = node.payload if node.op == OPAQUE else None
        if payload is None or payload.domain != "" or payload.op_type not in READERS:
            continue
        for own, value in zip(node.inputs, payload.inputs, strict=True):
            name = "" if value is None else value.name or ""
            constant = graph.constants.get(own)
            if constant is None or (own == name and value.is_initializer()):
                continue
            if name and is_small_integer(constant.type):
                found[name] = np.asarray(constant.load())
    return found
