"""Bodies as models that are optimised by themselves, and nodes that take the results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import onnx_ir

from eqsat_opt.ir.graph.graph import OPAQUE, Graph, Node
from eqsat_opt.ir.graph.handles import tensor_constant
from eqsat_opt.ir.onnx.export_context import copy_of, tensor_of
from eqsat_opt.ir.onnx.files.load import captured_values, inner_names
from eqsat_opt.ir.onnx.importer import import_bodies
from eqsat_opt.ir.onnx.types import inner_graphs
from eqsat_opt.ir.values.dims import plain_symbol
from eqsat_opt.ir.values.types import DTYPE_CODES, TensorType

__all__ = ["bodies_in", "with_new_bodies"]

Place = tuple[int, str]
"""The number of a node in a graph, and the attribute that holds the body."""


def bodies_in(graph: Graph, *, exact: bool = False) -> dict[Place, Graph]:
    """Return the bodies of nodes of a graph that can be models, without bodies inside of bodies."""
    found: dict[Place, Graph] = {}
    for number, node in enumerate(graph.nodes):
        if node.op != OPAQUE or not any(True for _ in inner_graphs(node.payload)):
            continue
        for key, body in import_bodies(node, graph, exact=exact).items():
            if all(map(_is_typed, body.model.graph.inputs)):
                _declare(body)
                found[number, key] = body
    return found


def _is_typed(value: onnx_ir.Value) -> bool:
    return isinstance(value.type, onnx_ir.TensorType)


def _declare(body: Graph) -> None:
    """Declare the interface of the model of a body, with types that hold in every iteration."""
    values = (*body.model.graph.inputs, *body.model.graph.outputs)
    for value in values:
        type_ = body.tensor_type(value.name or "")
        if type_ is not None:
            value.type = onnx_ir.TensorType(onnx_ir.DataType(DTYPE_CODES[type_.dtype]))
            value.shape = _shape(type_)


def _shape(type_: TensorType) -> onnx_ir.Shape:
    return onnx_ir.Shape(
        [d if isinstance(d, int) else plain_symbol(d) or str(d) for d in type_.shape]
    )


def with_new_bodies(graph: Graph, models: Mapping[Place, onnx_ir.Model]) -> Graph:
    """Return a graph whose nodes have other bodies, which compute the same.

    Args:
        graph: the graph; it is not changed.
        models: the new bodies by place, with the interfaces of those that :func:`bodies_in`
            returns.
    """
    nodes = list(graph.nodes)
    taken = {*graph.types, *(name for node in _opaque(graph) for name in inner_names(node))}
    if graph.model is not None:
        taken.update(value.name or "" for node in graph.model.graph for value in node.outputs)
    for number in dict.fromkeys(place[0] for place in models):
        new = {key: model for (index, key), model in models.items() if index == number}
        nodes[number] = _renewed(nodes[number], graph, new, taken)
    return graph.with_nodes(tuple(nodes))


def _opaque(graph: Graph) -> Iterator[onnx_ir.Node]:
    return (node.payload for node in graph.nodes if node.payload is not None)


def _renewed(
    node: Node, graph: Graph, models: Mapping[str, onnx_ir.Model], taken: set[str]
) -> Node:
    payload: onnx_ir.Node = node.payload
    outer: dict[str, onnx_ir.Value] = {}
    attributes = []
    for key, attribute in payload.attributes.items():
        if key in models:
            body = _body_of(models[key], attribute.as_graph(), graph, outer=outer, taken=taken)
            attribute = onnx_ir.AttrGraph(key, body, doc_string=attribute.doc_string)
        attributes.append(attribute)
    made = onnx_ir.Node(
        payload.domain,
        payload.op_type,
        [None if v is None else onnx_ir.Value(name=v.name) for v in payload.inputs],
        attributes,
        overload=payload.overload,
        outputs=[copy_of(value, value.name or "") for value in payload.outputs],
        version=payload.version,
        name=payload.name,
        doc_string=payload.doc_string,
        metadata_props=dict(payload.metadata_props),
    )
    made.meta.update(payload.meta)
    return replace(node, payload=made, captures=tuple(captured_values(made)))


def _body_of(
    model: onnx_ir.Model,
    old: onnx_ir.Graph,
    graph: Graph,
    outer: dict[str, onnx_ir.Value],
    taken: set[str],
) -> onnx_ir.Graph:
    """Convert the graph of a model to a body that replaces another one.

    Args:
        model: its inputs are those of the body, followed by the outer values that it reads.
        old: the body to be replaced.
        graph: the graph around the body.
        outer: values that represent those of the graph around, by name; new ones are added.
        taken: names that new values must not have; names of new values are added.
    """
    body = model.graph.clone()
    own = {value.name or "" for value in (*old.inputs, *old.initializers.values())}
    own.update(value.name or "" for node in old for value in node.outputs)

    def stand_in(name: str) -> onnx_ir.Value:
        return outer.setdefault(name, onnx_ir.Value(name=name))

    def fresh(name: str) -> str:
        new, number = name, 0
        while new in taken:
            number += 1
            new = f"{name}__{number}"
        taken.add(new)
        return new

    for value in body.inputs[len(old.inputs) :]:
        value.replace_all_uses_with(stand_in(value.name or ""), replace_graph_outputs=True)
    del body.inputs[len(old.inputs) :]
    for name, value in list(body.initializers.items()):
        constant = tensor_constant(value.const_value)
        around = graph.constants.get(name)
        if around is not None and constant is not None and around.digest == constant.digest:
            value.replace_all_uses_with(stand_in(name), replace_graph_outputs=True)
            del body.initializers[name]
        elif name not in own and name in taken and constant is not None:
            new = fresh(name)
            tensor = tensor_of(new, constant)
            other = onnx_ir.Value(name=new, type=value.type, shape=value.shape, const_value=tensor)
            value.replace_all_uses_with(other, replace_graph_outputs=True)
            del body.initializers[name]
            body.register_initializer(other)
    results = {id(value) for value in body.outputs}
    for one in (body, *body.subgraphs()):
        for node in one:
            for value in node.outputs:
                if value.name and value.name not in own and id(value) not in results:
                    value.const_value = None
                    value.name = fresh(value.name)
    for value, before in zip(body.outputs, old.outputs, strict=True):
        value.type = before.type
        value.shape = None if before.shape is None else before.shape.copy()
    body.name = old.name
    body.doc_string = old.doc_string
    return body
