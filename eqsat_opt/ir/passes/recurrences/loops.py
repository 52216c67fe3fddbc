"""Loops and scans whose body is one step of a cell, as their parts are seen from outside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.graph.handles import uniform_value
from eqsat_opt.ir.onnx.equal_graphs import is_identity
from eqsat_opt.ir.onnx.importer import import_bodies
from eqsat_opt.ir.onnx.types import inner_graphs, opset_of
from eqsat_opt.ir.values.dims import Dim

__all__ = ["LoopState", "TensorLoop", "loops_in", "origin"]

_SHAPE = "Shape"

_SCAN_WITHOUT_BATCH = 9
"""First operator set in which a Scan has no batch axis."""


@dataclass(frozen=True)
class LoopState:
    """A value that a loop carries.

    Attributes:
        before: the body's input.
        after: the body's output.
        first: the value outside with which it begins.
        last: the value outside that it ends as; "" if nothing reads it.
    """

    before: str
    after: str
    first: str
    last: str


@dataclass(frozen=True)
class TensorLoop:
    """A Loop or Scan over the first axis of tensors, forwards and to the end.

    Attributes:
        node: the node.
        body: the body in normal form.
        states: the carried values, without the number of the iteration.
        results: values of the body, and the values outside that hold those of all iterations.
        elements: values of the body that are elements of a tensor outside, with the tensor.
        steps: number of iterations, which is the size of the first axis of these tensors.
    """

    node: Node
    body: Graph
    states: tuple[LoopState, ...]
    results: tuple[tuple[str, str], ...]
    elements: Mapping[str, str]
    steps: Dim


def loops_in(graph: Graph, normal_form: Callable[[Graph], Graph]) -> Iterator[TensorLoop]:
    """Yield the loops of a graph over the elements of tensors.

    Args:
        graph: the graph, as a model was imported and normalised.
        normal_form: returns the normal form of a body.
    """
    if graph.model is None:
        return
    for node in graph.nodes:
        if node.op != OPAQUE or not any(True for _ in inner_graphs(node.payload)):
            continue
        kind = node.payload.op_type
        if kind not in ("Loop", "Scan"):
            continue
        body = import_bodies(node, graph).get("body")
        if body is None:
            continue
        body = normal_form(body)
        found = _loop(node, graph, body) if kind == "Loop" else _scan(node, graph, body)
        if found is not None:
            yield found


def origin(name: str, graph: Graph) -> str:
    """Return the value that a value is a copy of."""
    while (node := graph.producers.get(name)) is not None and node.op == OPAQUE:
        if node.payload is None or not is_identity(node):
            break
        name = node.inputs[0]
    return name


def _loop(node: Node, graph: Graph, body: Graph) -> TensorLoop | None:
    count = len(node.inputs) - 2
    number = body.inputs[0]
    states = _states(node.inputs[2:], node, body, start=(2, 1))
    counters = (number, *_counters(states, graph, body))
    uses = graph.uses
    if any(state.last and uses[state.last] for state in states if state.before in counters):
        return None
    limit = _limit(node, graph, body, counters=counters)
    steps = None if limit is None else _size(limit, graph)
    if steps is None:
        return None
    elements = {}
    for inner in body.nodes:
        if inner.op == "Gather" and inner.attr("axis") == 0 and inner.inputs[1] in counters:
            source = inner.inputs[0]
            type_ = graph.tensor_type(source)
            if type_ is not None and type_.rank and type_.shape[0] == steps:
                elements[inner.output] = source
    outputs = zip(body.outputs[1 + count :], node.outputs[count:], strict=True)
    return TensorLoop(
        node,
        body,
        states=tuple(state for state in states if state.before not in counters),
        results=tuple((inner, outer) for inner, outer in outputs if outer and uses[outer]),
        elements=elements,
        steps=steps,
    )


def _scan(node: Node, graph: Graph, body: Graph) -> TensorLoop | None:
    if opset_of(graph) < _SCAN_WITHOUT_BATCH:
        return None
    attributes = node.payload.attributes
    count = attributes["num_scan_inputs"].as_int()
    for name in attributes:
        if name.startswith("scan_") and any(attributes[name].as_ints()):
            return None  # another axis, or backwards
    first = len(node.inputs) - count
    states = _states(node.inputs[:first], node, body, start=(0, 0))
    tensors = node.inputs[first:]
    types = [graph.tensor_type(name) for name in tensors]
    sizes = {None if type_ is None else type_.shape[0] for type_ in types}
    (steps,) = sizes if len(sizes) == 1 else (None,)
    if steps is None:
        return None
    outputs = zip(body.outputs[first:], node.outputs[first:], strict=True)
    return TensorLoop(
        node,
        body,
        states=states,
        results=tuple((inner, outer) for inner, outer in outputs if outer and graph.uses[outer]),
        elements=dict(zip(body.inputs[first : first + count], tensors, strict=True)),
        steps=steps,
    )


def _states(
    firsts: tuple[str, ...], node: Node, body: Graph, *, start: tuple[int, int]
) -> tuple[LoopState, ...]:
    own, results = start
    return tuple(
        LoopState(body.inputs[own + i], body.outputs[results + i], first, node.outputs[i])
        for i, first in enumerate(firsts)
    )


def _counters(states: tuple[LoopState, ...], graph: Graph, body: Graph) -> Iterator[str]:
    """Yield states that count iterations from 0."""
    for state in states:
        if _is_number(state.first, 0, graph) and _is_next(state.after, state.before, body):
            yield state.before


def _is_number(name: str, number: int, graph: Graph) -> bool:
    constant = graph.constants.get(origin(name, graph))
    return constant is not None and constant.type.size == 1 and uniform_value(constant) == number


def _is_next(name: str, number: str, body: Graph) -> bool:
    node = body.producers.get(origin(name, body))
    if node is None or node.op != "Add":
        return False
    first, second = node.inputs
    return (first == number and _is_number(second, 1, body)) or (
        second == number and _is_number(first, 1, body)
    )


def _limit(node: Node, graph: Graph, body: Graph, *, counters: Collection[str]) -> str | None:
    """Return the value outside that is the number of iterations, ``None`` if none is known."""
    going_on, again = body.inputs[1], body.outputs[0]
    most, first = node.inputs[:2]
    if origin(again, body) == going_on or _is_number(again, 1, body):
        return most if most and (not first or _is_number(first, 1, graph)) else None
    inner = body.producers.get(origin(again, body))
    outer = graph.producers.get(origin(first, graph))
    if most or inner is None or outer is None or not inner.op == outer.op == "Less":
        return None
    limit = _uncast(inner.inputs[1], body)
    next_number = _uncast(inner.inputs[0], body)
    is_counted = any(_is_next(next_number, number, body) for number in counters)
    starts = _is_number(_uncast(outer.inputs[0], graph), 0, graph)
    size = _size(limit, graph)
    if not is_counted or not starts or size is None:
        return None
    return limit if size == _size(outer.inputs[1], graph) else None


def _uncast(name: str, graph: Graph) -> str:
    """Return the integer that a value is, in whatever type; floats count exactly far enough."""
    name = origin(name, graph)
    while (node := graph.producers.get(name)) is not None and node.op == "Cast":
        name = origin(node.inputs[0], graph)
    return name


def _size(name: str, graph: Graph) -> Dim | None:
    """Return the size of an axis that a value of one element is; ``None`` for any other value."""
    places: list[int] = []
    while True:
        name = _uncast(name, graph)
        constant = graph.constants.get(name)
        if constant is not None:
            values = constant.load().reshape(-1)
            return int(values[sum(places)]) if values.size > sum(places) else None
        node = graph.producers.get(name)
        if node is None:
            return None
        if node.op == OPAQUE and node.payload is not None and node.payload.op_type == _SHAPE:
            type_ = graph.tensor_type(node.inputs[0])
            start = node.payload.attributes.get("start")
            place = sum(places) + (0 if start is None else start.as_int())
            return type_.shape[place] if type_ is not None and place < type_.rank else None
        if node.op == "Slice" and node.attr("axis") == 0 and isinstance(node.attr("lo"), int):
            places.append(node.attr("lo"))
        elif node.op == "Gather":
            index = graph.constants.get(node.inputs[1])
            if index is None or index.type.size != 1 or int(index.load().reshape(-1)[0]) < 0:
                return None
            places.append(int(index.load().reshape(-1)[0]))
        elif node.op != "Reshape":
            return None
        name = node.inputs[0]
