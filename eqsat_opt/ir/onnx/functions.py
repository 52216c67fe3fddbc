"""Inlining of those functions of a model that contain operators known to rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter

import onnx_ir
from onnx_ir.passes.common import InlinePass, RemoveUnusedFunctionsPass

from eqsat_opt.ir.onnx.bodies.models import defined_names
from eqsat_opt.ir.onnx.mapping import READERS
from eqsat_opt.ir.onnx.types import inner_graphs

__all__ = ["with_functions_inlined"]

_RUNTIMES = ("com.microsoft", "com.ms.internal")
"""Domains of functions for which a runtime has kernels of its own."""

_MOST_NODES = 50_000
"""Limit of nodes after inlining; a runtime that inlines more will not load the model in time."""

_NAMES_ONLY = frozenset({"Constant", "Identity"})
"""Operators that are no reason to inline a function."""

_CONTROL = frozenset({"If", "Loop", "Scan"})


def with_functions_inlined(model: onnx_ir.Model) -> onnx_ir.Model:
    """Inline the functions that contain known operators; return the same model if there are none.

    Other functions remain: a runtime may have a kernel for them. A function that is no longer
    called is removed. The given model is not changed.
    """
    if not model.functions:
        return model
    wanted = _wanted(model)
    called = Counter(node.op_identifier() for node in model.graph.all_nodes())
    size = sum(wanted.get(key, 1) * count for key, count in called.items())
    if not wanted.keys() & called.keys() or size > _MOST_NODES:
        return model
    copy = model.clone()
    _prepare(copy, wanted)
    try:
        InlinePass(lambda function: function.identifier() in wanted)(copy)
        RemoveUnusedFunctionsPass()(copy)  # type: ignore[no-untyped-call]
    except (ValueError, RuntimeError, onnx_ir.passes.PassError):
        return model  # recursive functions, or parameters that are graphs
    return model if _hides_names(copy.graph, set()) else copy


def _wanted(model: onnx_ir.Model) -> dict[onnx_ir.OperatorIdentifier, int]:
    """Return the functions that contain a known operator, or call such a function; nodes of each.

    Nodes are counted as if all calls were inlined. A function that calls another one twice, which
    does the same, and so on, has very many nodes.
    """
    calls = {
        key: Counter(node.op_identifier() for node in function.all_nodes())
        for key, function in model.functions.items()
    }
    inner = {key: made.keys() & calls.keys() for key, made in calls.items()}
    try:
        order = [*TopologicalSorter(inner).static_order()]  # called functions come first
    except CycleError:
        return {}
    imports = model.graph.opset_imports
    sizes: dict[onnx_ir.OperatorIdentifier, int] = {}
    for key in order:
        function, made = model.functions[key], calls[key]
        is_foreign = key[0].startswith(_RUNTIMES) or any(
            imports.get(domain, version) != version
            for domain, version in function.opset_imports.items()
        )
        is_known = any(_is_known(one) for one in made.keys() - calls.keys())
        if not is_foreign and (is_known or made.keys() & sizes.keys()):
            sizes[key] = sum(sizes.get(one, 1) * count for one, count in made.items())
    return sizes


def _is_known(key: onnx_ir.OperatorIdentifier) -> bool:
    domain, name, _ = key
    return domain == "" and name in READERS.keys() - _NAMES_ONLY | _CONTROL


def _prepare(model: onnx_ir.Model, wanted: Container[object]) -> None:
    """Make a copy of a model such that inlining keeps its interface and the names in bodies.

    A value that a function returns takes the name of the call's result, so it must be computed in
    the function and be returned once, and the result must have a name. Names in a function must
    differ from all names of the model.
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
    """Return whether a value in a body has the name of a value around it."""
    own = {value.name for value in (*_computed(graph), *graph.initializers.values()) if value.name}
    bodies = [inner for node in graph for inner in inner_graphs(node)]
    return bool(own & outer) or any(_hides_names(inner, outer | own) for inner in bodies)
