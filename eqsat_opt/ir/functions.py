"""Functions of a model: which are worth inlining, so that rules see the operators within."""

from __future__ import annotations

from collections.abc import Container, Iterator

import onnx_ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass

from eqsat_opt.ir.bodies import defined_names
from eqsat_opt.ir.onnx_mapping import READERS
from eqsat_opt.ir.onnx_types import inner_graphs

__all__ = ["with_functions_inlined"]

_NAMES_ONLY = frozenset({"Constant", "Identity"})
"""Operators for whose sake nothing is inlined."""

_CONTROL = frozenset({"If", "Loop", "Scan"})


def with_functions_inlined(model: onnx_ir.Model) -> onnx_ir.Model:
    """The model with functions inlined that hold known operators; the same one if there are none.

    Other functions stay what they are: a runtime may have a kernel for them. One that nothing calls
    any more is gone. The model that is given is not changed.
    """
    wanted = {key for key in model.functions if _is_worth_it(model, key, set())}
    called = {node.op_identifier() for node in model.graph.all_nodes()}
    if not wanted & called:
        return model
    copy = model.clone()
    _prepare(copy, wanted)
    try:
        InlinePass(lambda function: function.identifier() in wanted)(copy)
        RemoveUnusedFunctionsPass()(copy)  # type: ignore[no-untyped-call]
    except (ValueError, RuntimeError, onnx_ir.passes.PassError):
        return model  # recursive, or of parameters that are graphs
    return model if _hides_names(copy.graph, set()) else copy


def _is_worth_it(model: onnx_ir.Model, key: onnx_ir.OperatorIdentifier, above: set[object]) -> bool:
    """Whether a function, or one that it calls, holds an operator that rules know."""
    function = model.functions[key]
    imports = model.graph.opset_imports
    if key in above or any(
        imports.get(domain, version) != version
        for domain, version in function.opset_imports.items()
    ):
        return False
    for node in function.all_nodes():
        inner = node.op_identifier()
        if inner in model.functions:
            if _is_worth_it(model, inner, {*above, key}):
                return True
        elif node.domain == "" and node.op_type in READERS.keys() - _NAMES_ONLY | _CONTROL:
            return True
    return False


def _prepare(model: onnx_ir.Model, wanted: Container[object]) -> None:
    """Make a copy of a model such that inlining keeps its interface and the names in bodies.

    What a function returns takes the name of the call's result, so it must be computed there and be
    returned once, and the result must have a name. Names in a function must be none of the model's.
    """
    taken = set(defined_names(model))

    def fresh(base: str) -> str:
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name)
        return name

    calls = [node for node in model.graph.all_nodes() if node.op_identifier() in model.functions]
    for key, function in model.functions.items():
        calls += [node for node in function.all_nodes() if node.op_identifier() in model.functions]
        if key not in wanted:
            continue
        graphs = (function.graph, *function.subgraphs())
        for value in (value for graph in graphs for value in _computed(graph)):
            if value.name and value.const_value is None:
                value.name = fresh(value.name)
        returned = {id(value) for value in function.inputs}
        for index, value in enumerate(function.outputs):
            if id(value) in returned:
                node = onnx_ir.Node("", "Identity", [value], num_outputs=1)
                node.outputs[0].name = fresh(f"{value.name}_again")
                function.append(node)
                function.outputs[index] = node.outputs[0]
            returned.add(id(function.outputs[index]))
    for node in calls:
        for number, value in enumerate(node.outputs):
            if not value.name:
                value.name = fresh(f"{node.op_type}_{number}")


def _computed(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from graph.inputs
    for node in graph:
        yield from node.outputs


def _hides_names(graph: onnx_ir.Graph, outer: set[str | None]) -> bool:
    """Whether a value in a body has the name of one around it."""
    own = {value.name for value in (*_computed(graph), *graph.initializers.values()) if value.name}
    bodies = [inner for node in graph for inner in inner_graphs(node)]
    return bool(own & outer) or any(_hides_names(inner, outer | own) for inner in bodies)
